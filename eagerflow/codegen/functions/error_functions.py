"""The error function and its complement."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.functions.exponential import EXP
from eagerflow.codegen.functions.parts import (
    FORMATS,
    LN2,
    at_most,
    horner,
    nearest,
    quick_two_sum,
    scaled,
    two_product,
)

__all__ = ["BOUNDS", "erf", "erfc"]

BOUNDS: dict[str, tuple[float, float]] = {"erf": (2.0, 2.0), "erfc": (2.0, 2.0)}
"""The largest errors in units in the last place, in float32 and in float64."""

# Up to ERF_BORDER, erf(x) = x + x P(x²); from there to ERF_END, erf(x) = 1 - Q(x) to the power
# 2^ERF_SQUARINGS; beyond, the nearest number is 1.
_ERF_BORDER = {"float32": 1.2, "float64": 1.5}
_ERF_END = {"float32": 3.93, "float64": 5.93}
_ERF_SQUARINGS = {"float32": 2, "float64": 3}
_ERF_NEAR = {
    "float32": (
        0.12837917,
        -0.37612632,
        0.11283706,
        -0.02686192,
        0.0052128965,
        -0.00083833816,
        0.000106316336,
        -8.070104e-06,
    ),
    "float64": (
        0.1283791670955126,
        -0.3761263890318399,
        0.112837916709628,
        -0.02686617064610296,
        0.005223977631904159,
        -0.0008548327282829917,
        0.00012055339787465915,
        -1.4925772892036601e-05,
        1.6463672916180252e-06,
        -1.638005856333467e-07,
        1.4900350885763277e-08,
        -1.2724309906308123e-09,
        1.0813791224744071e-10,
        -9.584054516708905e-12,
        7.695498580408242e-13,
        -3.592350221013688e-14,
    ),
}
_ERF_FAR = {
    "float32": (
        1.0063958,
        -0.3122647,
        -0.05774583,
        -0.055538658,
        0.06877531,
        -0.023032418,
        0.003371892,
        -0.00018921995,
    ),
    "float64": (
        0.9999978620130165,
        -0.1410318173966203,
        -0.06968356178895499,
        -0.001976404988431403,
        0.006424749440863412,
        0.00036103577219807025,
        -0.0006505970283625789,
        0.00016971343731244336,
        -3.91859719998085e-05,
        1.0113612085180973e-05,
        -1.9192958110041426e-06,
        2.087478532057937e-07,
        -8.734385113724575e-09,
        -5.521943697414153e-10,
        7.931859256050634e-11,
        -2.710847733835938e-12,
    ),
}


def erf(s: Any, x: Any) -> Any:
    """The error function, within 2 units in the last place.

    Near 0 it is x + x P(x²). Farther out it is 1 - Q(|x|)^4 (in float64 ^8): that root of erfc is
    so smooth that a polynomial of the same degree as P fits it, and both share instructions. The
    form 1 - Q^16 is in Abramowitz and Stegun, 7.1.28, for 1 / Q; the coefficients are our own
    minimax fits.
    """
    kind = x.dtype
    size = s.abs(x)
    far = s.greater(size, _ERF_BORDER[kind])
    end = _ERF_END[kind]
    variable = s.select(far, s.select(s.greater(size, end), end, size), s.multiply(x, x))
    value: Any = None
    for near_term, far_term in zip(
        reversed(_ERF_NEAR[kind]), reversed(_ERF_FAR[kind]), strict=True
    ):
        term = s.select(far, s.constant(far_term, kind), s.constant(near_term, kind))
        value = term if value is None else s.fma(value, variable, term)
    root = value
    for _ in range(_ERF_SQUARINGS[kind] - 1):
        root = s.multiply(root, root)
    outside = s.copysign(s.fma(s.negative(root), root, 1.0), x)
    return s.select(far, outside, s.fma(x, value, x))


# From ERFC_BORDER on, erfc(x) = exp(-x²) w S(w - ERFC_CENTRE) with w = 1 / (1 + x); at ERFC_END
# it is zero.
_ERFC_BORDER = 0.8
_ERFC_END = {"float32": 10.2, "float64": 27.5}
_ERFC_CENTRE = {"float32": 0.30078125, "float64": 0.35546875}
_ERFC_FAR = {
    "float32": (
        0.7468997,
        0.5995647,
        -0.20083216,
        -0.50746167,
        0.46988875,
        0.4196579,
        -1.2066579,
        0.49104375,
        1.8805791,
        -2.674465,
    ),
    "float64": (
        0.7790091605264845,
        0.5733684270289283,
        -0.2751233874607509,
        -0.3958879686893568,
        0.534099079508637,
        0.07013365368212111,
        -0.8847015400631548,
        0.9871871541453142,
        0.23005426446793967,
        -2.2932157974978127,
        3.3527927536725612,
        -0.9558798678167266,
        -5.8641349617304055,
        13.83318421919911,
        -14.049163447267881,
        -5.069027540127696,
        49.13432226168591,
        -98.18922281803232,
        64.48369378504239,
        88.1184566911973,
        13.190074275877333,
        672.3405993014724,
        -4716.188814604171,
        -1589.513211595032,
        22299.742125621688,
        5554.744826367314,
        -25361.724380190328,
    ),
}


def erfc(s: Any, x: Any) -> Any:
    """1 - erf(x), within 2 units in the last place, unless it is zero.

    Near 0 it is (1 - x) - x P(x²) with the P of ``erf``. Farther out (1 + x) exp(x²) erfc(x) is a
    smooth function of 1 / (1 + x), as Shepherd and Laframboise (1981) observed, and one polynomial
    covers the range. The rounding errors of x², of the division, of the logarithm of 2, of S and of
    the product are compensated in the last addition.
    """
    kind = x.dtype
    size = s.abs(x)
    near = s.fma(s.negative(x), horner(s, s.multiply(x, x), _ERF_NEAR[kind]), s.subtract(1.0, x))
    tail = _erfc_far(s, at_most(s, size, _ERFC_END[kind]))
    far = s.select(s.less(x, 0.0), s.subtract(2.0, tail), tail)
    return s.select(s.less(size, _ERFC_BORDER), near, far)


def _erfc_far(s: Any, x: Any) -> Any:
    """1 - erf(x) from ERFC_BORDER to ERFC_END."""
    kind = x.dtype
    below = s.add(x, 1.0)
    lost = s.subtract(x, s.subtract(below, 1.0))
    inverse = s.divide(s.constant(1, kind), below)
    slip = s.fma(s.negative(inverse), lost, s.fma(s.negative(inverse), below, 1.0))
    variable = s.subtract(s.fma(inverse, slip, inverse), _ERFC_CENTRE[kind])
    constant, *others = _ERFC_FAR[kind]
    rising = s.multiply(variable, horner(s, variable, others))
    ratio, ratio_error = quick_two_sum(s, s.constant(constant, kind), rising)
    factor, factor_error = two_product(s, inverse, ratio)
    factor_error = s.fma(inverse, ratio_error, factor_error)
    square, square_error = two_product(s, x, x)
    high, low = LN2[kind]
    exponent = s.negative(square)
    n, bits = nearest(s, exponent, math.log2(math.e), 2 * FORMATS[kind].bias)
    # A constant times n is subtracted exactly, as in exp; the small parts follow.
    r = s.fma(n, -high, exponent)
    r, r_error = quick_two_sum(s, r, s.fma(n, -low, s.negative(square_error)))
    # e^r = 1 + r + r² (...): the first coefficient of EXP is 1, and needs no rounding.
    curved = s.fma(s.multiply(r, r), horner(s, r, EXP[kind][1:]), s.add(slip, r_error))
    value = s.add(factor, s.fma(factor, r, s.fma(factor, curved, factor_error)))
    return scaled(s, value, n, bits)
