"""Arcsine, arccosine and arctangent."""

from __future__ import annotations

from typing import Any

from eagerflow.codegen.functions.parts import horner, quick_two_sum

__all__ = ["BOUNDS", "acos", "asin", "atan", "atan2"]

BOUNDS: dict[str, tuple[float, float]] = {
    "acos": (2.0, 2.0),
    "asin": (2.0, 2.0),
    "atan": (2.0, 2.0),
    "atan2": (2.0, 2.0),
}
"""The largest errors in units in the last place, in float32 and in float64."""

# asin(x) = x + x z A(z) for |x| <= 1/2 and atan(x) = x + x z T(z) for |x| <= 1, with z = x².
_ARCSINE = {
    "float32": (0.16666752, 0.074953094, 0.04546915, 0.02418478, 0.042158294),
    "float64": (
        0.1666666666666676,
        0.07499999999970865,
        0.04464285717456222,
        0.030381942709816506,
        0.022372214936948246,
        0.017351612839156236,
        0.013980811428046852,
        0.011398981801310442,
        0.010779885899813673,
        0.0037077219044666767,
        0.0217044012055378,
        -0.02099493209676125,
        0.03262613759136966,
    ),
}
_ARCTANGENT = {
    "float32": (
        -0.333333,
        0.1999853,
        -0.14264014,
        0.109508604,
        -0.08399203,
        0.057878725,
        -0.031093333,
        0.0108661335,
        -0.0017821069,
    ),
    "float64": (
        -0.3333333333333307,
        0.19999999999951754,
        -0.1428571428258387,
        0.11111111007081349,
        -0.0909090700103169,
        0.07692279787925196,
        -0.06666403439797787,
        0.05880523111768511,
        -0.05253493536105995,
        0.04722224693395152,
        -0.04218892875820121,
        0.03663550300033245,
        -0.029892830012982832,
        0.021970283466292716,
        -0.01388591118629293,
        0.007185495954313473,
        -0.0028789338875022923,
        0.0008290984957563086,
        -0.00015165596576136787,
        1.3172218798484807e-05,
    ),
}
# pi / 2 as the sum of two numbers of the type.
_HALF_PI = {
    "float32": (1.57079637, -4.37113883e-08),
    "float64": (1.5707963267948966, 6.123233995736766e-17),
}


def _folded(s: Any, x: Any) -> tuple[Any, Any, Any]:
    """Whether |x| > 1/2, the reduced argument of the arcsine, and its z A(z).

    It is |x| itself, or sqrt((1 - |x|) / 2): the sine of half the complementary angle.
    """
    size = s.abs(x)
    far = s.greater(size, 0.5)
    square = s.select(far, s.fma(size, -0.5, 0.5), s.multiply(x, x))
    root = s.select(far, s.sqrt(square), size)
    return far, root, s.multiply(horner(s, square, _ARCSINE[str(x.dtype)]), square)


def asin(s: Any, x: Any) -> Any:
    """The arcsine, within 2 units in the last place; NaN beyond [-1, 1].

    For |x| > 1/2 it is pi / 2 - 2 asin(sqrt((1 - |x|) / 2)) (Cody and Waite 1980); the
    polynomials are our own minimax fits.
    """
    high, low = _HALF_PI[str(x.dtype)]
    far, root, curved = _folded(s, x)
    twice = s.multiply(root, -2.0)
    # The first sum can exceed 1 while the result is below, where units are half as large.
    first, lost = quick_two_sum(s, s.constant(high, str(x.dtype)), twice)
    outer = s.add(first, s.fma(twice, curved, s.add(lost, low)))
    return s.copysign(s.select(far, outer, s.fma(root, curved, root)), x)


def acos(s: Any, x: Any) -> Any:
    """The arccosine, within 2 units in the last place; NaN beyond [-1, 1].

    It is pi / 2 - asin(x), or 2 asin(sqrt((1 - x) / 2)) for x > 1/2, or pi minus that of -x for
    x < -1/2.
    """
    kind = str(x.dtype)
    far, root, curved = _folded(s, x)
    value = s.select(far, s.copysign(s.add(root, root), s.negative(x)), x)
    ends = []
    for part in _HALF_PI[kind]:
        end = s.select(s.less(x, 0.0), s.constant(2 * part, kind), s.constant(0, kind))
        ends.append(s.select(far, end, part))
    high, low = ends
    return s.subtract(high, s.add(value, s.fma(value, curved, s.negative(low))))


def _arctangent(s: Any, t: Any, high: Any, low: Any) -> Any:
    """The arctangent of a number in [-1, 1] plus the sum of two numbers."""
    square = s.multiply(t, t)
    curved = s.multiply(horner(s, square, _ARCTANGENT[str(t.dtype)]), square)
    return s.add(high, s.add(t, s.fma(t, curved, low)))


def atan(s: Any, x: Any) -> Any:
    """The arctangent, within 2 units in the last place: for |x| > 1 from that of 1 / x.

    The polynomial is our own minimax fit.
    """
    kind = str(x.dtype)
    size = s.abs(x)
    steep = s.greater(size, 1.0)
    t = s.divide(s.select(steep, s.constant(-1, kind), size), s.select(steep, size, 1.0))
    high, low = (
        s.select(steep, s.constant(part, kind), s.constant(0, kind)) for part in _HALF_PI[kind]
    )
    return s.copysign(_arctangent(s, t, high, low), x)


def atan2(s: Any, y: Any, x: Any) -> Any:
    """The angle of the point (x, y), within 2 units in the last place.

    If both are zero or infinite, the angles are those of C99, by the signs of x and y.
    """
    kind = str(x.dtype)
    above = s.abs(y)
    steep = s.greater(above, s.abs(x))
    top = s.select(steep, s.negative(x), above)
    below = s.select(steep, above, x)
    size = s.abs(below)
    # The quotient is 1 for two infinities, 0 for two zeros.
    alike = s.copysign(s.select(s.greater(size, 0.0), s.constant(1, kind), 0.0), below)
    t = s.select(s.equal(top, size), alike, s.divide(top, below))
    left = s.signbit(x)
    ends = []
    for part in _HALF_PI[kind]:
        end = s.select(left, s.constant(2 * part, kind), s.constant(0, kind))
        ends.append(s.select(steep, part, end))
    return s.copysign(_arctangent(s, t, *ends), y)
