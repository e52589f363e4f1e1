"""Arithmetic on large arrays, which threads share: the bits of NumPy, NaN and zeros among them."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.backends.base import LARGE
from eagerflow.devices import current_device

SHAPE = (260, 520)
assert SHAPE[0] * SHAPE[1] >= LARGE
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "copysign", "less")
UNARY = ("negative", "sqrt", "square", "sign", "reciprocal", "floor", "isnan")
SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 1e-45, 3.4e38)


def anything(dtype, seed):
    """All kinds of bits; the first rows hold what is special."""
    rng = np.random.default_rng(seed)
    found = rng.bytes(SHAPE[0] * SHAPE[1] * np.dtype(dtype).itemsize)
    made = np.frombuffer(found, dtype).reshape(SHAPE).copy()
    made[:100] = rng.choice(np.array(SPECIAL, dtype), (100, SHAPE[1]))
    return made


def recorded(function, *arrays):
    """What a function gives under a tape that watches its arguments."""
    tensors = [ef.tensor(a) for a in arrays]
    with ef.GradientTape() as tape:
        tape.watch(tensors)
        return function(*tensors).numpy()


def same_bits(found, wanted):
    """Of two NaN, that of either operand may be the result's; NumPy's own versions differ."""
    one, other = (np.where(np.isnan(x), np.nan, x) for x in (found, wanted))
    return found.dtype == wanted.dtype and one.tobytes() == other.tobytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_two_arrays(name, dtype):
    a, b = anything(dtype, 1), anything(dtype, 2)
    ours, theirs = getattr(ef, name), getattr(np, name)
    with np.errstate(all="ignore"):
        for x, y in ((a, b), (a, b[0]), (a, b[:, :1]), (a.T, b.T), (a, b[::-1])):
            wanted = theirs(x, y)
            assert same_bits(recorded(ours, x, y), wanted)
            assert same_bits(ours(ef.tensor(x), ef.tensor(y)).numpy(), wanted)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "less"])
def test_each_kind_has_kernels_of_its_own(name):
    """A call on integers leaves what floats are computed with as it is."""
    op = getattr(ef, name)
    for dtype in ("float32", "int32"):
        op(ef.ones(2, dtype), ef.ones(2, dtype))
    kinds = [current_device().kind(np.dtype(name)) for name in ("float32", "int32")]
    floats, integers = map(op.op.many.get, kinds)
    assert integers is getattr(np, name) and floats is not integers


@pytest.mark.parametrize("name", UNARY)
def test_one_array(name):
    a = anything("float32", 3)
    with np.errstate(all="ignore"):
        assert same_bits(getattr(ef, name)(ef.tensor(a)).numpy(), getattr(np, name)(a))


def test_numbers():
    a = anything("float32", 4)
    with np.errstate(all="ignore"):
        for number in (2, 0.5, -0.0, float("inf")):
            assert same_bits(recorded(lambda x, n=number: x * n, a), a * np.float32(number))
            assert same_bits(recorded(lambda x, n=number: n - x, a), np.float32(number) - a)


def test_choices():
    a, b = anything("float32", 5), anything("float32", 6)
    condition = a > b
    found = ef.where(ef.tensor(condition), ef.tensor(a), ef.tensor(b)).numpy()
    assert same_bits(found, np.where(condition, a, b))
    for low, high in ((-1.0, 2.0), (None, 0.5), (0.25, None), (2, -2), (0.0, 1), (-0.0, None)):
        wanted = a if low is None else np.maximum(a, np.float32(low))
        wanted = wanted if high is None else np.minimum(wanted, np.float32(high))
        assert same_bits(ef.clip(ef.tensor(a), low, high).numpy(), wanted)
        assert same_bits(recorded(lambda x, lo=low, hi=high: ef.clip(x, lo, hi), a), wanted)


def test_gradient_of_a_product():
    """Also where what comes from above is one number repeated, and under an outer tape."""
    a, b = (np.random.default_rng(s).standard_normal(SHAPE, np.float32) for s in (7, 8))
    x, w = ef.tensor(a), ef.tensor(b)
    with ef.GradientTape() as outer:
        outer.watch(w)
        with ef.GradientTape() as tape:
            tape.watch(x)
            y = (x * w).sum()
        g = tape.gradient(y, x)
        assert same_bits(g.numpy(), b)
        z = (g * g).sum()
    assert same_bits(outer.gradient(z, w).numpy(), b + b)
