"""Special functions of real numbers, for any array namespace, accurate in float64.

Smaller floats are computed in float64 and rounded. Both sides of every case distinction are
computed and one is selected, so arguments are first clamped to the domain of each side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from eagerflow.errors import EagerflowError
from eagerflow.handlers import raised_here

Function = Callable[..., Any]


def _some(xp: Any, mask: Any) -> bool:
    """Whether anything is true; assumed if values are unknown, as in a trace."""
    try:
        return bool(xp.any(mask))
    except raised_here(EagerflowError):
        return True


def in_double(function: Function) -> Function:
    """Make ``function`` of float64 arrays one of any floats."""

    @wraps(function)
    def kernel(xp: Any, x: Any, **attributes: Any) -> Any:
        if x.dtype == xp.float64:
            return function(xp, x, **attributes)
        y = function(xp, xp.asarray(x, dtype=xp.float64), **attributes)
        return xp.asarray(y, dtype=x.dtype)

    return kernel


def polynomial(coefficients: Sequence[float], z: Any) -> Any:
    """c0 + c1·z + c2·z² + … by Horner's rule."""
    value = z * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        value = value * z + c
    return value


# Error functions: W. J. Cody, "Rational Chebyshev approximations for the error function",
# Math. Comp. 23 (1969). Three intervals: to 0.46875, to 4, and beyond.

_CENTRE = (
    3.20937758913846947e3,
    3.77485237685302021e2,
    1.13864154151050156e2,
    3.16112374387056560e0,
    1.85777706184603153e-1,
)
_CENTRE_BELOW = (
    2.84423683343917062e3,
    1.28261652607737228e3,
    2.44024637934444173e2,
    2.36012909523441209e1,
    1.0,
)
_FLANK = (
    1.23033935479799725e3,
    2.05107837782607147e3,
    1.71204761263407058e3,
    8.81952221241769090e2,
    2.98635138197400131e2,
    6.61191906371416295e1,
    8.88314979438837594e0,
    5.64188496988670089e-1,
    2.15311535474403846e-8,
)
_FLANK_BELOW = (
    1.23033935480374942e3,
    3.43936767414372164e3,
    4.36261909014324716e3,
    3.29079923573345963e3,
    1.62138957456669019e3,
    5.37181101862009858e2,
    1.17693950891312499e2,
    1.57449261107098347e1,
    1.0,
)
_TAIL = (
    6.58749161529837803e-4,
    1.60837851487422766e-2,
    1.25781726111229246e-1,
    3.60344899949804439e-1,
    3.05326634961232344e-1,
    1.63153871373020978e-2,
)
_TAIL_BELOW = (
    2.33520497626869185e-3,
    6.05183413124413191e-2,
    5.27905102951428412e-1,
    1.87295284992346725e0,
    2.56852019228982242e0,
    1.0,
)
CENTRE_ENDS = 0.46875


def _erf_centre(xp: Any, x: Any) -> Any:
    x = xp.where(xp.abs(x) <= CENTRE_ENDS, x, xp.zeros_like(x))
    square = x * x
    return x * polynomial(_CENTRE, square) / polynomial(_CENTRE_BELOW, square)


def erfcx_outside(xp: Any, size: Any) -> Any:
    """exp(x²) erfc(x) for x >= 0.46875; smaller numbers are clamped."""
    size = xp.where(size > CENTRE_ENDS, size, xp.full_like(size, CENTRE_ENDS))
    near = xp.where(size < 4, size, xp.full_like(size, 4.0))
    flank = polynomial(_FLANK, near) / polynomial(_FLANK_BELOW, near)
    far = xp.where(size > 4, size, xp.full_like(size, 4.0))
    z = (1 / far) * (1 / far)
    tail = (1 / math.sqrt(math.pi) - z * polynomial(_TAIL, z) / polynomial(_TAIL_BELOW, z)) / far
    return xp.where(size <= 4, flank, tail)


def exp_of_square(xp: Any, x: Any, factor: float) -> Any:
    """exp(factor · x²), accurate also for large squares."""
    # The square of a number with few digits is exact, and so is the difference of squares.
    short = xp.trunc(x * 16) / 16
    return xp.exp(factor * short * short) * xp.exp(factor * (x - short) * (x + short))


def _erfc_outside(xp: Any, size: Any) -> Any:
    """Erfc for x >= 0.46875; smaller numbers are clamped."""
    # Beyond 27 the result is 0 in float64; the bound avoids infinities in the products.
    bounded = xp.where(size < 30, size, xp.full_like(size, 30.0))
    bounded = xp.where(bounded > CENTRE_ENDS, bounded, xp.full_like(size, CENTRE_ENDS))
    return exp_of_square(xp, bounded, -1.0) * erfcx_outside(xp, bounded)


@in_double
def erf(xp: Any, x: Any) -> Any:
    """Error function."""
    size = xp.abs(x)
    outside = 1 - _erfc_outside(xp, size)
    y = xp.where(size <= CENTRE_ENDS, _erf_centre(xp, x), xp.where(x < 0, -outside, outside))
    return xp.where(xp.isnan(x), x, y)


@in_double
def erfc(xp: Any, x: Any) -> Any:
    """Complementary error function, 1 - erf(x), accurate also if that is tiny."""
    size = xp.abs(x)
    outside = _erfc_outside(xp, size)
    y = xp.where(size <= CENTRE_ENDS, 1 - _erf_centre(xp, x), xp.where(x < 0, 2 - outside, outside))
    return xp.where(xp.isnan(x), x, y)


# The starting value of erfinv: M. Giles, "Approximating the erfinv function", GPU Computing Gems
# (Jade Edition, 2012), the single-precision polynomials, lowest coefficient first.

_GILES_CENTRE = (
    1.50140941,
    0.246640727,
    -0.00417768164,
    -0.00125372503,
    0.00021858087,
    -4.39150654e-06,
    -3.5233877e-06,
    3.43273939e-07,
    2.81022636e-08,
)
_GILES_TAIL = (
    2.83297682,
    1.00167406,
    0.00943887047,
    -0.0076224613,
    0.00573950773,
    -0.00367342844,
    0.00134934322,
    0.000100950558,
    -0.000200214257,
)


@in_double
def erfinv(xp: Any, x: Any) -> Any:
    """Inverse of the error function; infinite at -1 and 1, NaN beyond."""
    size = xp.abs(x)
    inside = size < 1
    p = xp.where(inside, size, xp.zeros_like(x))
    w = -xp.log((1 - p) * (1 + p))
    root = xp.sqrt(xp.where(w < 5, xp.full_like(w, 5.0), w)) - 3
    # Beyond w = 16 the polynomial is out of range; the asymptote is the starting value.
    tail = xp.where(
        root < 1, polynomial(_GILES_TAIL, xp.where(root < 1, root, 0 * root)), root + 2.9
    )
    y = p * xp.where(w < 5, polynomial(_GILES_CENTRE, xp.where(w < 5, w, 5 + 0 * w) - 2.5), tail)
    for _ in range(3):
        # Halley's step: f''/f' is -2y. Above 1/2, 1 - p is exact and erfc is accurate.
        error = xp.where(p < 0.5, erf(xp, y) - p, (1 - p) - erfc(xp, y))
        step = error * xp.exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / (1 + y * step)
    y = xp.where(x < 0, -y, y)
    ends = xp.where(size == 1, x * math.inf, xp.full_like(x, math.nan))
    return xp.where(inside, y, ends)


# Gamma function and its logarithmic derivatives. The polynomials interpolate at Chebyshev
# points; relative errors are below 2e-17. Between them and the asymptotic series (Abramowitz
# and Stegun 6.1.41, 6.3.18) the recurrence steps down: its terms then have one sign.

LGAMMA_AT_2 = (
    0.42278433509846713,
    0.3224670334241132,
    -0.06735230105319814,
    0.02058080842778457,
    -0.0073855510286681535,
    0.002890510330738737,
    -0.0011927539120010226,
    0.0005096695248853096,
    -0.00022315475074520367,
    9.945750909889392e-05,
    -4.4926351103833334e-05,
    2.050726741605779e-05,
    -9.438458716242811e-06,
    4.374374916915131e-06,
    -2.0449201467015115e-06,
    9.578663334114758e-07,
    -4.303558760359961e-07,
    2.0304806751615227e-07,
    -1.3412819758517287e-07,
    6.379047507619774e-08,
)
STIRLING = (
    0.08333333333333333,
    -0.002777777777777778,
    0.0007936507936507937,
    -0.0005952380952380953,
    0.0008417508417508417,
    -0.0019175269175269176,
    0.00641025641025641,
    -0.029550653594771242,
)
_FAR = 10.5
_NEAR_0 = 1e-17  # where gamma(x) is 1/x to the last digit


def _lgamma_stirling(xp: Any, x: Any) -> Any:
    z = 1 / (x * x)
    start = (x - 0.5) * (xp.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5)
    return xp.where(xp.isinf(x), x, start + polynomial(STIRLING, z) / x)


def _lgamma_near(xp: Any, x: Any) -> Any:
    """Lgamma of numbers from 0 to 10.5, from a polynomial around 2."""
    low = xp.where(x < 0.5, x + 1, x)
    below_two = xp.where(low < 1.5, low - 1, xp.zeros_like(x))  # from -0.5 to 0.5
    product = xp.ones_like(x)
    rest = xp.where(low < 1.5, low + 1, low)
    for _ in range(8):
        step = rest >= 2.5
        rest = xp.where(step, rest - 1, rest)
        product = product * xp.where(step, rest, xp.ones_like(x))
    z = xp.where(low < 1.5, below_two, rest - 2)
    around = z * polynomial(LGAMMA_AT_2, z)
    shift = xp.where(low < 1.5, -xp.log1p(below_two), xp.log(product))
    return around + shift - xp.log(xp.where(x < 0.5, x, xp.ones_like(x)))


def _lgamma_positive(xp: Any, x: Any) -> Any:
    near = xp.where(x < _FAR, x, xp.full_like(x, 2.0))
    far = xp.where(x < _FAR, xp.full_like(x, _FAR), x)
    return xp.where(x < _FAR, _lgamma_near(xp, near), _lgamma_stirling(xp, far))


def _fraction(xp: Any, x: Any) -> Any:
    """Signed distance to the nearest integer, exact, from -0.5 to 0.5."""
    finite = xp.where(xp.isfinite(x), x, xp.zeros_like(x))
    return finite - xp.round(finite)


@in_double
def lgamma(xp: Any, x: Any) -> Any:
    """Logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 and so on."""
    size = xp.abs(x)
    y = _lgamma_positive(xp, size)
    if not _some(xp, x <= 0):
        return y
    # gamma(x) · gamma(-x) = -π / (x · sin πx)
    wave = size * xp.abs(xp.sin(math.pi * _fraction(xp, size)))
    reflected = xp.log(math.pi / wave) - y
    reflected = xp.where(xp.isinf(x) | (wave == 0), xp.full_like(x, math.inf), reflected)
    return xp.where((x <= 0) & (size > _NEAR_0), reflected, y)


_DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)
_DIGAMMA_AROUND = (
    0.951055876031833,
    -0.4236274212814605,
    0.2405424842407742,
    -0.14840492305390884,
    0.09498872445494122,
    -0.061922133273064534,
    0.04076083381242074,
    -0.02697579675613825,
    0.0179072524394512,
    -0.011908218001568644,
    0.007926944646403797,
    -0.005279964873257405,
    0.003519006401502276,
    -0.002345267632540769,
    0.0015566317474486838,
    -0.0010376374098418604,
    0.0007233266279287554,
    -0.0004821990530566789,
    0.0002272331660987376,
    -0.00015148586836773365,
    0.00025968482126430747,
    -0.00017312261802727394,
)
"""digamma(x) divided by the distance to its root, in powers of x - 1.5."""
_BERNOULLI_OVER_2K = (
    0.08333333333333333,
    -0.008333333333333333,
    0.003968253968253968,
    -0.004166666666666667,
    0.007575757575757576,
    -0.021092796092796094,
    0.08333333333333333,
    -0.4432598039215686,
)


def _digamma_near(xp: Any, x: Any) -> Any:
    """Digamma of numbers from 0 to 10.5, from a polynomial between 1 and 2."""
    shift = xp.zeros_like(x)
    rest = xp.where(x < 1, x + 1, x)
    for _ in range(9):
        step = rest >= 2
        rest = xp.where(step, rest - 1, rest)
        shift = shift + xp.where(step, 1 / rest, xp.zeros_like(x))
    root, more = _DIGAMMA_ROOT
    around = ((rest - root) - more) * polynomial(_DIGAMMA_AROUND, rest - 1.5)
    return around + shift - xp.where(x < 1, 1 / xp.where(x < 1, x, xp.ones_like(x)), 0 * x)


def _digamma_positive(xp: Any, x: Any) -> Any:
    near = xp.where(x < _FAR, x, xp.full_like(x, 1.5))
    far = xp.where(x < _FAR, xp.full_like(x, _FAR), x)
    z = 1 / (far * far)
    series = xp.log(far) - 0.5 / far - z * polynomial(_BERNOULLI_OVER_2K, z)
    return xp.where(x < _FAR, _digamma_near(xp, near), series)


@in_double
def digamma(xp: Any, x: Any) -> Any:
    """Derivative of lgamma; -infinity at 0, infinity at -0, NaN at -1, -2 and so on."""
    # digamma(1 - x) = digamma(x) + π / tan πx, and digamma(1 + x) = digamma(x) + 1/x
    negative = x <= 0
    size = xp.where(negative, -x, x)
    safe = xp.where(size == 0, xp.ones_like(x), size)
    y = _digamma_positive(xp, safe)
    if not _some(xp, negative):
        return y
    fraction = _fraction(xp, x)
    angle = math.pi * xp.where(fraction == 0, 0.25 + 0 * x, fraction)
    reflected = y + 1 / safe - math.pi * xp.cos(angle) / xp.sin(angle)
    poles = xp.full_like(x, math.nan)
    reflected = xp.where(size > _NEAR_0, xp.where(fraction == 0, poles, reflected), -1 / x)
    return xp.where(negative, reflected, y)


BERNOULLI_OVER_FACTORIAL = (
    0.08333333333333333,
    -0.001388888888888889,
    3.306878306878307e-05,
    -8.267195767195768e-07,
    2.08767569878681e-08,
    -5.284190138687493e-10,
    1.3382536530684679e-11,
    -3.3896802963225827e-13,
    8.586062056277845e-15,
    -2.174868698558062e-16,
    5.5090028283602295e-18,
    -1.3954464685812522e-19,
)


def _polygamma_positive(xp: Any, x: Any, n: int) -> Any:
    """N! · zeta(n + 1, x) by Euler-Maclaurin summation (DLMF 25.11.5), without its sign."""
    s = n + 1
    steps = 10 + n
    total = xp.zeros_like(x)
    for k in reversed(range(steps)):
        total = total + (x + k) ** -float(s)
    end = x + float(steps)
    power = end ** -float(s)
    total = total + end ** -float(n) / n + power * 0.5
    rising = power * s / end
    for k, weight in enumerate(BERNOULLI_OVER_FACTORIAL, start=1):
        total = total + weight * rising
        rising = rising * ((s + 2 * k - 1) * (s + 2 * k)) / (end * end)
    return total * math.factorial(n)


def _cotangent_derivative(n: int) -> list[int]:
    """Coefficients, in powers of c = cot t, of the n-th derivative of cot t by t."""
    powers = [0, 1]
    for _ in range(n):
        slope = [k * p for k, p in enumerate(powers)][1:]
        powers = [0] * (len(slope) + 2)
        for k, p in enumerate(slope):  # the derivative of c is -(1 + c²)
            powers[k] -= p
            powers[k + 2] -= p
    return powers


@in_double
def polygamma(xp: Any, x: Any, n: int) -> Any:
    """n-th derivative of digamma; infinite at 0, infinite or NaN at -1, -2 and so on."""
    if n == 0:
        return digamma(xp, x)
    negative = x <= 0
    fraction = _fraction(xp, x)
    pole = negative & (fraction == 0)
    mirrored = xp.where(negative, 1 - x, x)
    y = _polygamma_positive(xp, mirrored, n) * (-1) ** (n + 1)
    if not _some(xp, negative):
        return y
    angle = math.pi * xp.where(pole, 0.25 + 0 * x, fraction)
    cotangent = xp.cos(angle) / xp.sin(angle)
    wave = polynomial([float(c) for c in _cotangent_derivative(n)], cotangent) * math.pi ** (n + 1)
    reflected = y * (-1) ** n - wave
    if n % 2:
        at_pole = xp.full_like(x, math.inf)
    else:  # the sign of 0 determines the side from which it is approached
        at_pole = xp.where(x == 0, -1 / x, xp.full_like(x, math.nan))
    return xp.where(negative, xp.where(pole, at_pole, reflected), y)
