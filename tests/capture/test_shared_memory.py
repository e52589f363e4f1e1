"""Captured code that holds tensors whose memory is somebody else's array reads it anew."""

import gc

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends import numpy as backend

SHARED = {
    "asarray": ef.asarray,
    "from_dlpack": ef.from_dlpack,
    "a view of an array": lambda a: ef.asarray(a[1:]),
    "a view of the tensor": lambda a: ef.asarray(a)[:-1],
    "a tensor of another view": lambda a: ef.asarray(a.reshape(3, 2)).reshape((-1,)),
}
CODE = {
    "folding": lambda x, t: ef.exp(t * 0.1).sum() * x,
    "algebra": lambda x, t: (x * t + t) / t,
    "equal constants": lambda x, t: x * ef.tensor(np.ones(t.size, np.float32)) + ef.exp(t * 0.1),
    "views": lambda x, t: x + t.reshape((1, -1)).sum(1),
    "shape alone": lambda x, t: x * ef.zeros_like(t).sum() + t[0],
    "a loop": lambda x, t: ef.fori_loop(0, 3, lambda i, s: s * t[0] + ef.exp(t * 0.1).sum(), x),
}


@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("share", SHARED)
def test_changes_of_the_owner_are_seen(share, code, numerics):
    array = np.ones(6, np.float32)
    tensor = SHARED[share](array)
    captured = ef.function(lambda x: CODE[code](x, tensor), numerics=numerics)
    graph = ef.capture.trace(lambda x: CODE[code](x, tensor), ef.TensorSpec((), "float32"))
    x = ef.tensor(2.0)
    for value in (1, 3, 5):
        array[:] = value
        wanted = CODE[code](x, tensor).numpy()
        np.testing.assert_allclose(captured(x).numpy(), wanted, rtol=1e-5)
        np.testing.assert_allclose(graph(x).numpy(), wanted, rtol=1e-5)
    assert len(captured.graphs) == 1


def test_memory_of_our_own_is_still_folded():
    array = np.ones(6, np.float32)
    made = [ef.tensor(array), ef.asarray(array, copy=True), ef.asarray(array, "float64")]
    made += [ef.asarray(np.ones(6, np.float32)), ef.asarray(np.ones((2, 3), np.float32).reshape(6))]
    for tensor in made:
        graph = ef.capture.trace(lambda x, t=tensor: x * ef.exp(t), ef.TensorSpec((6,), "float32"))
        names = [node.op.name for node in ef.capture.passes.constants(graph).nodes]
        assert "exp" not in names


def test_what_is_shared_is_forgotten_with_its_owner():
    gc.collect()
    before = len(backend.lent)
    arrays = [np.ones(3) for _ in range(10)]
    tensors = [ef.asarray(a) for a in arrays]
    assert len(backend.lent) == before + 10
    del arrays, tensors
    gc.collect()
    assert len(backend.lent) == before
