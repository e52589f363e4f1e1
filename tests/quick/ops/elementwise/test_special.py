"""Special functions at poles, at infinities and next to 0, against what mathematics has there."""

import math

import numpy as np
import pytest
import scipy.special

import eagerflow as ef

TINY = [5e-324, -5e-324, 1e-310, -1e-310, 1e-160, -1e-160, 1e-17, -1e-17, 1e-16, -1e-16, -1e-8]
NUMBERS = [0.0, -0.0, *TINY, 0.5, -0.5, -1.0, -2.0, -2.5, 3.0, 11.0, -170.5, 1e10, np.inf, np.nan]


def check(call, reference, numbers, rtol=1e-13):
    x = np.array(numbers)
    with np.errstate(all="ignore"):
        expected = np.array([reference(v) for v in numbers])
    np.testing.assert_allclose(call(ef.tensor(x)), expected, rtol=rtol, atol=0)


def lgamma(x):
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # SciPy has infinity also close to the poles
        return np.inf


def test_lgamma():
    check(ef.lgamma, lgamma, [*NUMBERS, -np.inf, 1e300, -1e300, 1.7e308])


def test_digamma():
    check(ef.digamma, scipy.special.psi, NUMBERS)


@pytest.mark.parametrize("n", range(5))
def test_polygamma_near_0_and_at_its_poles(n):
    sides = np.array([0.0, -0.0])
    expected = [-np.inf, np.inf] if n % 2 == 0 else [np.inf, np.inf]
    np.testing.assert_array_equal(ef.polygamma(ef.tensor(sides), n), expected)
    poles = ef.polygamma(ef.tensor([-1.0, -2.0], dtype="float64"), n).numpy()
    assert np.all(np.isposinf(poles) if n % 2 else np.isnan(poles))
    x = np.array(TINY)
    with np.errstate(over="ignore"):  # n! / x^(n + 1), with the sign of (-1)^(n + 1)
        near = scipy.special.factorial(n) * (-1.0) ** (n + 1) * x**-1.0
        for _ in range(n):
            near = near / x
    np.testing.assert_allclose(ef.polygamma(ef.tensor(x), n), near, rtol=1e-6)
    if n:
        assert float(ef.polygamma(ef.tensor(np.inf), n)) == 0


@pytest.mark.parametrize("name", ["erf", "erfc", "erfinv"])
def test_error_functions(name):
    ends = [1.0, -1.0, 1 - 1e-16, 1e-16 - 1, 1.5, -np.inf]
    check(getattr(ef, name), getattr(scipy.special, name), [*NUMBERS, *ends])
