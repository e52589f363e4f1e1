"""Squared, absolute and Huber's differences beside formulas of float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.ops.nn.differences import absolute_difference, huber_difference, squared_difference

OPS = {
    "squared": (squared_difference, lambda d: d * d, lambda d: 2 * d),
    "absolute": (absolute_difference, np.abs, np.sign),
    "huber": (lambda a, b: huber_difference(a, b, delta=0.7),
              lambda d: np.where(np.abs(d) < 0.7, d * d / 2, 0.7 * (np.abs(d) - 0.35)),
              lambda d: np.clip(d, -0.7, 0.7)),
}  # fmt: skip
SHAPES = [((3, 4), (3, 4)), ((), (5,)), ((2, 1), (3,)), ((0, 3), (3,)), ((50, 60), (60,))]


def reduced(array, shape):
    """An array summed to a shape that broadcasts to its own."""
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    ones = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1)
    return array.sum(axis=ones, keepdims=True)


def check(name, a, b):
    f, value, slope = OPS[name]
    x, y = ef.tensor(a), ef.tensor(b)
    with ef.GradientTape() as tape:
        tape.watch([x, y])
        z = f(x, y)
    of_x, of_y = tape.gradient(z, [x, y])
    d = a.astype(np.float64) - b
    np.testing.assert_allclose(z.numpy(), value(d), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_x.numpy(), reduced(slope(d), a.shape), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(of_y.numpy(), -reduced(slope(d), b.shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OPS)
@given(
    st.sampled_from(SHAPES),
    st.integers(0, 99),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
)
def test_values_and_gradients(name, shapes, seed, dtype, turned):
    rng = np.random.default_rng(seed)
    a, b = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    check(name, *((a.T, b.T) if turned and a.shape == b.shape else (a, b)))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("size", [3, 3000])
def test_where_both_are_equal_or_not_finite(name, size):
    a = np.resize(np.array([1.0, np.inf, np.nan], np.float32), size)
    f, _, _ = OPS[name]
    x = ef.tensor(a)
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = f(x, ef.tensor(np.ones(size, np.float32)))
    found, value = tape.gradient(y, x).numpy()[:3], y.numpy()[:3]
    assert value[0] == found[0] == 0.0
    assert value[1] == np.inf and found[1] > 0
    assert np.isnan(value[2]) and np.isnan(found[2])


@pytest.mark.parametrize("name", OPS)
def test_the_same_operand_twice_has_no_slope(name):
    x = ef.tensor([1.0, -2.0])
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = OPS[name][0](x, x)
    assert y.tolist() == tape.gradient(y, x).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", OPS)
def test_other_dtypes(name):
    f, value, _ = OPS[name]
    a, b = np.array([1, 5, -2]), np.array([2, 2, 2])
    for dtype in ("int32", "float16", "bfloat16"):
        y = f(ef.tensor(a, dtype), ef.tensor(b, dtype))
        assert y.dtype.name == ("float32" if dtype == "int32" else dtype)
        np.testing.assert_allclose(y.numpy().astype(float), value(1.0 * (a - b)), rtol=1e-2)
    with pytest.raises(ef.errors.DTypeError):
        f(ef.tensor([1j]), ef.tensor([2j]))


def test_a_planted_slope_is_found(monkeypatch):
    monkeypatch.setitem(OPS, "squared", (*OPS["squared"][:2], lambda d: d))
    with pytest.raises(AssertionError):
        check("squared", np.ones(3, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize("name", ["squared", "absolute"])
def test_second_derivatives(name):
    x = ef.tensor([1.0, 4.0])
    with ef.GradientTape() as outer:
        outer.watch(x)
        with ef.GradientTape() as inner:
            inner.watch(x)
            y = OPS[name][0](x * x, 2.0)
        first = inner.gradient(y, x)
    found = outer.gradient(first, x).tolist()
    wanted = {"squared": [12 - 8.0, 12 * 16 - 8.0], "absolute": [-2.0, 2.0]}
    assert found == wanted[name]
