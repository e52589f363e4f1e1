"""The logarithm of the gamma function."""

from __future__ import annotations

from typing import Any

from eagerflow.codegen.functions.parts import horner, quick_two_sum, two_product, two_sum
from eagerflow.codegen.functions.power import log2_pair

__all__ = ["BOUNDS", "lgamma"]

BOUNDS: dict[str, tuple[float, float]] = {"lgamma": (2.0, 2.0)}
"""The largest errors, in float32 and in float64, in units in the last place of the result; for
negative arguments, where the function has zeros, in those of 1 if the result is smaller."""

# The tables for float32 are also for float64 arithmetic, with fewer terms.
# log gamma(2 + u) / u for -1 <= u <= 3/8, in powers of u + BASE_SHIFT
_BASE_SHIFT = 0.296875
_FIRST = 1.375
_BASE = {
    "float32": (
        0.3205123878760992,
        0.36880372270651846,
        -0.09051273158639904,
        0.032697399848464134,
        -0.01387833175778669,
        0.006415606943698057,
        -0.003122193378949373,
        0.0015859014171130132,
        -0.0008234701306355087,
        0.0003797282983186629,
        -0.00018843917575995527,
        0.00019351005883293745,
        -0.00011525736247574427,
    ),
    "float64": (
        0.32051238790714465,
        0.36880372404598455,
        -0.09051273692972112,
        0.032697309916917355,
        -0.013878164150309003,
        0.006417278179129109,
        -0.0031243095894163586,
        0.0015731461365819065,
        -0.0008108002296347234,
        0.0004250351019170311,
        -0.00022568744046390287,
        0.000121045768242927,
        -6.544875258071335e-05,
        3.5616462596826736e-05,
        -1.9485600430972544e-05,
        1.0748281176796859e-05,
        -5.966261564465619e-06,
        3.195353018475318e-06,
        -1.7005312489768555e-06,
        1.199173341987089e-06,
        -7.877196102324985e-07,
        8.249802357636177e-08,
        5.713638627638049e-08,
        2.624826355243883e-07,
        -1.8758489086849474e-07,
    ),
}
# x (log gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2) in powers of 1 / x², from STIRLING on
_STIRLING = _FIRST + 2.0
_BINET = {
    "float32": (
        0.08333333299731642,
        -0.0027776568440032214,
        0.0007869461830318554,
        -0.00047150765860118945,
    ),
    "float64": (
        0.08333333333333333,
        -0.0027777777777625804,
        0.0007936507867174942,
        -0.0005952368767625329,
        0.0008416401913908418,
        -0.001911551241001025,
        0.006202042213268815,
        -0.024600189565375716,
        0.0950328492804721,
        -0.273034672038943,
        0.3967334925101676,
    ),
}
# (sin(pi r) / (pi r) - 1) / r² in powers of r², up to 1/2
_SINE = {
    "float32": (
        -1.6449340632933427,
        0.8117422259974478,
        -0.19074817344987566,
        0.026118546370033052,
        -0.0022387850352044085,
    ),
    "float64": (
        -1.6449340668482264,
        0.8117424252833467,
        -0.19075182412170458,
        0.026147847808521613,
        -0.0023460809189379795,
        0.00014842794569937972,
        -6.972343498085919e-06,
        2.452629569725451e-07,
    ),
}
_LN2 = (0.6931471805599453, 2.3190468138462996e-17)
_HALF_LOG_TWO_PI = (0.9189385332046728, -3.8782941580672414e-17)

_Pair = tuple[Any, Any]


def lgamma(s: Any, x: Any) -> Any:
    """The logarithm of |gamma(x)|; infinity at 0, at negative integers and at both infinities.

    The error is at most 2 units in the last place, or twice the spacing of numbers next to 1 if a
    negative argument has a smaller result. float32 is computed in float64.

    From 27/8 on it is Stirling's formula, below that a polynomial for log gamma(z) / (z - 2)
    between 1 and 19/8, with z = x - 1, x, or x + 1 and the logarithm of x or x - 1. Negative
    arguments are reflected: gamma(-y) gamma(1 + y) = -pi / sin(pi y). Logarithms and the sums
    that can cancel are sums of two numbers.
    """
    if x.dtype == "float32":
        return s.convert(_of_double(s, s.convert(x, "float64"), "float32"), "float32")
    return _of_double(s, x, "float64")


def _of_double(s: Any, x: Any, accuracy: str) -> Any:
    """The function of a float64, with the given accuracy."""
    size = s.abs(x)
    reflected = s.less(x, 0.0)
    high, low = _of_positive(s, size, reflected, accuracy)
    from_integer = s.subtract(size, s.round(size))
    square = s.multiply(from_integer, from_integer)
    sine = s.fma(s.multiply(from_integer, square), horner(s, square, _SINE[accuracy]), from_integer)
    log_high, log_low = _log(s, s.abs(sine), accuracy)
    total, error = two_sum(s, log_high, high)
    mirrored = s.negative(s.add(total, s.add(error, s.add(log_low, low))))
    value = s.select(reflected, mirrored, s.add(high, low))
    # Poles, and infinities.
    pole = s.equal(s.select(reflected, from_integer, size), 0.0)
    endless = s.equal(size, float("inf"))
    return s.select(s.logical_or(pole, endless), float("inf"), value)


def _log(s: Any, x: Any, accuracy: str) -> _Pair:
    """The natural logarithm of a positive number, as a sum of two numbers."""
    if accuracy == "float32":
        return s.log(x), s.constant(-0.0, "float64")
    log_high, log_low = log2_pair(s, x)
    high, low = two_product(s, log_high, s.constant(_LN2[0], "float64"))
    return high, s.fma(log_low, _LN2[0], s.fma(log_high, _LN2[1], low))


def _of_positive(s: Any, y: Any, plus_one: Any, accuracy: str) -> _Pair:
    """For y >= 0, log gamma(y), or log gamma(1 + y) if ``plus_one``, as a sum of two numbers."""
    one = s.constant(1.0, "float64")
    far = s.greater_equal(y, _STIRLING)
    first, second = s.less(y, _FIRST), s.less(y, _FIRST + 1.0)
    # gamma(1 + y) = y gamma(y): for the smallest y the polynomial computes the left side.
    times_y = s.logical_or(far, s.logical_xor(first, plus_one))
    rest = s.select(s.logical_or(far, second), one, s.subtract(y, 1.0))
    argument = s.multiply(rest, s.select(times_y, y, one))
    logarithm = _log(s, argument, accuracy)
    near_high, near_low = _near(s, y, first, second, logarithm, accuracy)
    far_high, far_low = _far(s, y, plus_one, logarithm, accuracy)
    return s.select(far, far_high, near_high), s.select(far, far_low, near_low)


def _near(s: Any, y: Any, first: Any, second: Any, logarithm: _Pair, accuracy: str) -> _Pair:
    """The function below STIRLING, given the logarithm that it needs."""
    one = s.constant(1.0, "float64")
    two = s.constant(2.0, "float64")
    below_two = s.subtract(y, s.select(first, one, s.select(second, two, 3.0)))
    shifted = s.add(below_two, _BASE_SHIFT)
    constant, *others = _BASE[accuracy]
    rising = s.multiply(shifted, horner(s, shifted, others))
    ratio, lost = quick_two_sum(s, s.constant(constant, "float64"), rising)
    high, low = two_product(s, below_two, ratio)
    low = s.fma(below_two, lost, low)
    sign = s.select(first, s.negative(one), one)
    high, error = two_sum(s, high, s.multiply(sign, logarithm[0]))
    return high, s.add(error, s.fma(sign, logarithm[1], low))


def _far(s: Any, y: Any, plus_one: Any, logarithm: _Pair, accuracy: str) -> _Pair:
    """Stirling's formula for y, or 1 + y: y (log y - 1) -+ log(y) / 2 + log(2 pi) / 2 + ..."""
    half = s.select(plus_one, s.constant(0.5, "float64"), -0.5)
    inverse = s.divide(s.constant(1.0, "float64"), y)
    binet = s.multiply(inverse, horner(s, s.multiply(inverse, inverse), _BINET[accuracy]))
    factor, lost = quick_two_sum(s, logarithm[0], s.constant(-1.0, "float64"))
    high, low = two_product(s, y, factor)
    low = s.fma(y, s.add(logarithm[1], lost), low)
    tail = s.fma(half, logarithm[1], s.add(binet, _HALF_LOG_TWO_PI[1]))
    tail = s.add(tail, low)
    part, error = two_sum(
        s, s.multiply(half, logarithm[0]), s.constant(_HALF_LOG_TWO_PI[0], y.dtype)
    )
    total, lost = two_sum(s, high, part)
    # Beyond the largest number there is no correction.
    low = s.select(s.equal(high, float("inf")), 0.0, s.add(s.add(error, lost), tail))
    return total, low
