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


@pytest.mark.parametrize("give", [np.asarray, ef.asarray, memoryview])
def test_values_are_copied(give):
    array = np.arange(3.0)
    v = ef.Variable(give(array))
    array[0] = 9.0
    np.testing.assert_array_equal(v.numpy(), [0.0, 1.0, 2.0])
    v.assign(give(array))
    array[1] = 9.0
    np.testing.assert_array_equal(v.numpy(), [9.0, 1.0, 2.0])


def test_a_tensor_and_the_variable_made_of_it_have_gradients_of_their_own():
    x = ef.tensor([1.0, 2.0])
    with ef.GradientTape() as tape:
        tape.watch(x)
        v = ef.Variable(x)
        y = (x * x + v * 3.0).sum()
    assert [g.tolist() for g in tape.gradient(y, [x, v])] == [[2.0, 4.0], [3.0, 3.0]]


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
