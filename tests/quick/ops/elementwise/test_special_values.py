"""Infinities, zeros with signs and NaN: what the Array API standard says of them.

Of complex functions Python's cmath has C99's values, which are the standard's but where it says so
here; each case counts for the conjugate too.
"""

import cmath
import math
from itertools import product

import numpy as np
import pytest

import eagerflow as ef

INF, NAN = math.inf, math.nan
SPECIAL = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN)
NUMBERS = (0.0, -0.0, 1.0, -2.0, 0.5, 7.0, -7.5, INF, -INF, NAN)
COMPLEX = "acos acosh asin asinh atan atanh cos cosh exp sin sinh sqrt tan tanh".split()


def same(found, wanted):
    """Equal with the sign of zeros, NaN equal to NaN."""
    if math.isnan(wanted):
        return math.isnan(found)
    return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)


def divided(a, b):
    """The quotient of two floats, as IEEE 754 has it."""
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floor_divide(dtype):
    pairs = list(product(NUMBERS, NUMBERS))
    a, b = (ef.tensor(list(x), dtype) for x in zip(*pairs, strict=True))
    wide = ef.concat([a] * 800), ef.concat([b] * 800)
    quick = ef.function(lambda a, b: (a // b) * 1.0)
    results = [ef.floor_divide(a, b), (a // b), ef.floor_divide(*wide)[: len(pairs)]]
    results += [quick(*wide)[: len(pairs)], ef.stack([x // y for x, y in zip(a, b, strict=True)])]
    results.append(ef.stack([x // y for x, (_, y) in zip(a, pairs, strict=True)]))
    results.append(ef.stack([x // y for (x, _), y in zip(pairs, b, strict=True)]))
    for found in results:
        for (x, y), value in zip(pairs, found.tolist(), strict=True):
            ratio = divided(x, y)
            wanted = math.floor(ratio) if math.isfinite(ratio) and ratio else ratio
            assert same(value, float(wanted)), f"{x} // {y} is {value}, not {wanted}"


def test_floor_divide_of_integers_and_finite_numbers_is_numpys():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-50, 50, (2, 500))
    np.testing.assert_array_equal(ef.floor_divide(a, b), a // b)
    np.testing.assert_array_equal(ef.floor_divide(1.0, ef.tensor(0.1, "float64")), 9.0)
    m, n = rng.integers(-9, 9, (2, 500))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ef.floor_divide(m, n), m // n)
    assert ef.floor_divide(ef.tensor([7, -7]), 2).dtype == ef.int64


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_functions(name, dtype):
    checked = 0
    for a, b in product(SPECIAL, SPECIAL):
        try:
            wanted = getattr(cmath, name)(complex(a, b))
        except (OverflowError, ValueError):  # where C99 raises a flag
            continue
        if name == "acosh" and a == 0 and math.isnan(b):
            continue  # NumPy 2.0 and cmath have older values
        finite = math.isfinite(a) and math.isfinite(b)
        found = getattr(ef, name)(ef.tensor([complex(a, b)], dtype=dtype))[0].item()
        if finite:
            assert found == pytest.approx(wanted, rel=1e-6, abs=1e-7)
            continue
        if name in ("tanh", "tan") and 0.0 in (found.real, found.imag):
            continue  # the sign of that zero is the subject of the tests below
        for x, y in ((found.real, wanted.real), (found.imag, wanted.imag)):
            loose = math.isfinite(y) and y
            assert x == pytest.approx(y, rel=1e-6) if loose else same(abs(x), abs(y))
        checked += 1
    assert checked > 6


EXPM1 = [  # real and imaginary parts of an argument, and of the result
    ((0.0, INF), (NAN, NAN)), ((1.0, NAN), (NAN, NAN)), ((INF, 0.0), (INF, 0.0)),
    ((INF, 2.0), (-INF, INF)), ((-INF, 2.0), (-1.0, 0.0)), ((-INF, 4.0), (-1.0, -0.0)),
    ((-INF, INF), (-1.0, 0.0)), ((-INF, NAN), (-1.0, 0.0)), ((INF, INF), (INF, NAN)),
    ((INF, NAN), (INF, NAN)), ((NAN, 0.0), (NAN, 0.0)), ((NAN, 1.0), (NAN, NAN)),
    ((NAN, NAN), (NAN, NAN)), ((0.0, 0.0), (0.0, 0.0)), ((-0.0, 0.0), (0.0, 0.0)),
]  # fmt: skip
TANH = [
    ((0.0, 0.0), (0.0, 0.0)), ((1.0, INF), (NAN, NAN)), ((1.0, NAN), (NAN, NAN)),
    ((INF, 1.0), (1.0, 0.0)), ((INF, 2.0), (1.0, 0.0)), ((-INF, 2.0), (-1.0, 0.0)),
    ((INF, INF), (1.0, 0.0)), ((INF, NAN), (1.0, 0.0)), ((NAN, 0.0), (NAN, 0.0)),
    ((NAN, 1.0), (NAN, NAN)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(("name", "cases"), [("expm1", EXPM1), ("tanh", TANH)])
def test_complex_limits(name, cases, dtype):
    """With the signs that the standard leaves open where the other part is not a finite number."""
    numbers = [(complex(*given), complex(*wanted)) for given, wanted in cases]
    for given, wanted in numbers + [(x.conjugate(), y.conjugate()) for x, y in numbers]:
        for found in (
            getattr(ef, name)(ef.tensor(given, dtype=dtype)).item(),
            getattr(ef, name)(ef.tensor([given, 0.5], dtype=dtype))[0].item(),
        ):
            signed = math.isfinite(given.imag)
            for x, y in ((found.real, wanted.real), (found.imag, wanted.imag)):
                close = same(x, y) if signed else same(abs(x), abs(y))
                assert close, f"{name}({given}) is {found}, not {wanted}"


def test_finite_complex_values_stay():
    x = np.array([0.5 + 1j, -2 - 0.25j, 1e-9 + 1e-9j])
    np.testing.assert_allclose(ef.expm1(x), np.expm1(x), rtol=1e-15)
    mixed = np.array([*x, complex(INF, 1)])
    np.testing.assert_allclose(ef.expm1(mixed)[:3], np.expm1(x), rtol=1e-15)
    np.testing.assert_allclose(ef.tanh(mixed)[:3], np.tanh(x), rtol=1e-15)
