"""Exponentials: e^x, 2^x, e^x - 1, and the logistic sigmoid.

x = n ln 2 + r with an integer n and |r| <= ln 2 / 2; a minimax polynomial gives e^r, and 2^n is
assembled from bits (Cody & Waite, Software Manual for the Elementary Functions, 1980). The
coefficients were found with Remez's algorithm, each rounded before the next ones were fitted.
"""

from __future__ import annotations

import math
from typing import Any

from eagerflow.codegen.functions.parts import (
    FORMATS,
    LN2,
    at_least,
    at_most,
    horner,
    nearest,
    power_of_two,
    scaled,
)

__all__ = ["BOUNDS", "exp", "exp2", "expm1", "sigmoid"]

BOUNDS = {"exp": (1.0, 1.0), "exp2": (1.0, 1.0), "expm1": (2.0, 2.0), "sigmoid": (2.0, 2.0)}

# (e^r - 1) / r
EXP = {
    "float32": (1.0, 0.49999994, 0.16666521, 0.041668393, 0.008368743, 0.0013814439),
    "float64": (
        1.0,
        0.5000000000000011,
        0.1666666666666667,
        0.041666666666534985,
        0.008333333333377206,
        0.0013888888941536153,
        0.00019841269696356973,
        2.480149559077387e-05,
        2.75574550603932e-06,
        2.7629322223385943e-07,
        2.5033060071610997e-08,
    ),
}
# (2^r - 1) / r
EXP2 = {
    "float32": (0.6931472, 0.24022654, 0.055503707, 0.009618069, 0.0013386223, 0.00015403768),
    "float64": (
        0.6931471805599453,
        0.24022650695910108,
        0.05550410866482173,
        0.009618129107601599,
        0.0013333558146545463,
        0.00015403530449046375,
        1.525273363473369e-05,
        1.3215438830641202e-06,
        1.0178159747458578e-07,
        7.073233926621187e-09,
        4.43890574827838e-10,
    ),
}
# (e^r - 1 - r) / r^2
_EXPM1 = {
    "float32": (0.49999997, 0.16666543, 0.0416672, 0.008366545, 0.0013882433),
    "float64": (
        0.5,
        0.16666666666666677,
        0.0416666666666667,
        0.008333333333321797,
        0.001388888888887554,
        0.00019841269884545955,
        2.4801587300445725e-05,
        2.7557246750185805e-06,
        2.755733612277334e-07,
        2.5107908256378264e-08,
        2.0883363653083366e-09,
    ),
}
# Below the first, e^x rounds to 0, above the second to infinity; n stays in the range of
# two_powers.
_RANGE = {"float32": (-104.0, 89.0), "float64": (-746.0, 710.0)}
_RANGE2 = {"float32": (-151.0, 128.0), "float64": (-1076.0, 1024.0)}


def reduced_exp(s: Any, x: Any, offset: int) -> tuple[Any, Any, Any]:
    """e^r for the reduced argument, n, and low bits that hold n + offset; x is in a safe range."""
    high, low = LN2[x.dtype]
    n, bits = nearest(s, x, math.log2(math.e), offset)
    r = s.fma(n, -low, s.fma(n, -high, x))
    return s.fma(r, horner(s, r, EXP[x.dtype]), 1), n, bits


def scaled_expm1(s: Any, x: Any, shift: int) -> Any:
    """(e^x - 1) / 2^shift, for x in a range where no 2^(n - shift) overflows or is denormal.

    Subtracting n times the nearest number to ln 2 from x is exact, since the last bits of both are
    worth at least that of the difference. The error of that number, times n, is added where its
    rounding matters little: to the polynomial's part.
    """
    high, low = LN2[x.dtype]
    n, bits = nearest(s, x, math.log2(math.e), FORMATS[x.dtype].bias - shift)
    first = s.fma(n, -high, x)
    rest = s.multiply(n, -low)
    r = s.add(first, rest)
    curved = s.fma(s.multiply(r, r), horner(s, r, _EXPM1[x.dtype]), rest)
    power = power_of_two(s, bits, x.dtype)
    straight = s.fma(power, first, s.subtract(power, 2.0**-shift))
    return s.fma(power, curved, straight)


def exp(s: Any, x: Any) -> Any:
    """e^x, within 1 unit in the last place.

    The scale 2^n is split into two factors, so that denormal results are rounded once.
    """
    low, high = _RANGE[x.dtype]
    x = at_most(s, at_least(s, x, low), high)
    return scaled(s, *reduced_exp(s, x, 2 * FORMATS[x.dtype].bias))


def exp2(s: Any, x: Any) -> Any:
    """2^x, within 1 unit in the last place: the fraction is exact."""
    low, high = _RANGE2[x.dtype]
    x = at_most(s, at_least(s, x, low), high)
    n, bits = nearest(s, x, 1, 2 * FORMATS[x.dtype].bias)
    r = s.subtract(x, n)
    p = s.fma(r, horner(s, r, EXP2[x.dtype]), 1)
    return scaled(s, p, n, bits)


def expm1(s: Any, x: Any) -> Any:
    """e^x - 1, within 2 units in the last place."""
    low, high = {"float32": (-18.0, 89.0), "float64": (-38.0, 710.0)}[x.dtype]
    inside = at_most(s, at_least(s, x, low), high)
    # Half of it: e^x only overflows if doubling does.
    half = scaled_expm1(s, inside, 1)
    tiny = s.less(s.abs(x), 2.0**-60)
    return s.select(tiny, x, s.add(half, half))


def sigmoid(s: Any, x: Any) -> Any:
    """1 / (1 + e^-x), within 2 units in the last place.

    With e = e^-|x| and q = e / (1 + e) it is 1 - q or e - e q: there the rounding errors of q,
    which are the larger ones, are multiplied by at most 1/2.
    """
    away = at_least(s, s.negative(s.abs(x)), _RANGE[x.dtype][0])
    small = scaled(s, *reduced_exp(s, away, 2 * FORMATS[x.dtype].bias))
    quotient = s.divide(small, s.add(small, 1))
    upper = s.select(s.less(x, 0), small, 1)
    return s.fma(s.negative(upper), quotient, upper)
