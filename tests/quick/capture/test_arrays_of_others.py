"""Arrays of other libraries as arguments of captured functions: as eager ops take them."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, DTypeError

X = np.arange(6, dtype="float32").reshape(2, 3)


class Exporting:
    """An array that is handed out by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Interface:
    """An array that is described by an attribute of each object, as NumPy's own helpers do."""

    def __init__(self, array):
        self.held, self.__array_interface__ = array, array.__array_interface__


class Property:
    def __init__(self, array):
        self.held = array

    @property
    def __array_interface__(self):
        return self.held.__array_interface__


def torch_tensor(array):
    return pytest.importorskip("torch", reason="PyTorch is not installed").from_dlpack(array)


def jax_array(array):
    return pytest.importorskip("jax.numpy", reason="JAX is not installed").asarray(array)


@pytest.mark.parametrize("make", [Exporting, torch_tensor, jax_array])
def test_dlpack_objects_are_accepted_as_inputs(make):
    first, second = make(X.copy()), make(X + 1)
    f = ef.function(lambda x, k=None: ef.multiply(x, 2) + ef.sum(x))
    for given, array in ((first, X), (second, X + 1), (first, X)):
        np.testing.assert_array_equal(f(given).numpy(), array * 2 + array.sum())
    assert len(f.graphs) == 1
    g = ef.function(lambda nest: ef.tanh(nest["a"][0]), input_signature=None)
    np.testing.assert_array_equal(g({"a": [first]}).numpy(), ef.tanh(X).numpy())
    spec = ef.TensorSpec((2, 3), "float32")
    signed = ef.function(lambda x: ef.multiply(x, 2), input_signature=[spec])
    np.testing.assert_array_equal(signed(first).numpy(), X * 2)
    v = ef.Variable(np.zeros_like(X))
    ef.function(v.assign)(first)
    np.testing.assert_array_equal(v.numpy(), X)


def test_results_share_no_memory_with_arrays_of_others():
    array = X.copy()
    found = ef.function(lambda x: (x, ef.reshape(x, (-1,))))(Exporting(array))
    array[:] = 7
    for y in found:
        np.testing.assert_array_equal(y.numpy().reshape(X.shape), X)


def test_errors_are_those_of_eager_ops():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given = torch.ones(3, requires_grad=True)
    for f in (lambda x: ef.multiply(x, 2), ef.function(lambda x: ef.multiply(x, 2))):
        with pytest.raises(DTypeError, match="requires grad"):
            f(given)


@pytest.mark.parametrize("make", [Interface, Property])
def test_arrays_that_change_without_a_sign_are_refused(make):
    """Their values would be constants of the graph, whatever the arrays hold later."""
    with pytest.raises(CaptureError, match=r"without notice[^$]*ef.tensor"):
        ef.function(lambda x: ef.multiply(x, 2))(make(X.copy()))
    assert ef.function(lambda x: ef.multiply(x, 2))(ef.asarray(make(X.copy()))).shape == X.shape
