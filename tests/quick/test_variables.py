"""Variables: what they take from their value, and assignments inside transforms."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dtypes import bfloat16

DTYPES = ["bool", "int8", "uint64", "float16", "float32", "complex64", bfloat16]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_trainable_are_those_with_gradients(dtype, asked):
    v = ef.Variable(np.ones(2), trainable=asked, dtype=dtype)
    assert v.trainable is (asked and np.dtype(dtype).kind not in "biu")


def alone(v, w):
    v.assign(5.0)
    w.assign_add(2.0)


def together(v, w):
    layer = ef.nn.Layer()
    layer.v, layer.w = v, w
    layer.set_weights([5.0, w + 2.0])


X = np.array([1.0, 2.0], "f4")
WRAPS = {
    "nothing": lambda f: f(ef.tensor(X)),
    "function": lambda f: ef.function(f)(X),
    "checkpoint": lambda f: ef.checkpoint(f)(ef.tensor(X)),
    "vmap": lambda f: ef.vmap(f)(X),
    "vmap of vmap": lambda f: ef.vmap(ef.vmap(f))(X[None])[0],
    "jvp": lambda f: ef.jvp(f, (X,), (X,))[0],
    "vjp": lambda f: ef.vjp(f, X)[0],
    "vmap in function": lambda f: ef.function(ef.vmap(f))(X),
    "checkpoint in vmap": lambda f: ef.vmap(ef.checkpoint(f))(X),
    "function in vmap": lambda f: ef.vmap(ef.function(f))(X),
}


@pytest.mark.parametrize("assign", [alone, together])
@pytest.mark.parametrize("wrap", WRAPS)
def test_assignments_inside_transforms_happen_once(wrap, assign):
    v, w = ef.Variable(2.0), ef.Variable(10.0)

    def f(x):
        before = x * v + w
        assign(v, w)
        return before * 100.0 + x * v + w

    found = WRAPS[wrap](f)
    np.testing.assert_allclose(found.numpy(), (X * 2 + 10) * 100 + X * 5 + 12)
    assert (float(v), float(w)) == (5.0, 12.0)
