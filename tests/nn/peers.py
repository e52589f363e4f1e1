"""PyTorch and Keras as oracles: a test that asks for one is skipped, and says so, without it."""

import numpy as np
import pytest

import eagerflow as ef


class _Peer:
    def __getattr__(self, name):
        if name.startswith(("_", "pytest")):  # names that pytest looks up in all modules
            raise AttributeError(name)
        return getattr(pytest.importorskip("torch"), name)


torch = _Peer()


def keras_on_torch():
    """Keras, which computes on PyTorch (tests/conftest.py)."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    # The gradient of a strided convolution of Keras's order of axes by oneDNN differs from run to
    # run, and may end the process (PyTorch 2.13).
    torch.backends.mkldnn.enabled = False
    return pytest.importorskip("keras", reason="Keras is not installed")


def numbers(x):
    """The array of a tensor of any library."""
    return x.detach().numpy() if hasattr(x, "detach") else np.asarray(x)


def keras_gradients(function, arrays, variables=()):
    """The gradients of Keras's ``function(*arrays)`` by the arrays and by Variables."""
    given = [torch.tensor(a, requires_grad=True) for a in arrays]
    sources = [*given, *(v.value for v in variables)]
    value = function(*given)
    if not value.requires_grad:
        return [np.zeros(x.shape) for x in sources]
    found = torch.autograd.grad(value, sources, allow_unused=True, materialize_grads=True)
    return [g.numpy() for g in found]


def leaves(nest):
    """The arrays of a nest of tensors of any library."""
    return [numbers(x) for x in ef.tree.flatten(nest)[0]]
