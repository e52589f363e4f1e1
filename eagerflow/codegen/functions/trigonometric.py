"""Sine, cosine and tangent."""

from __future__ import annotations

from typing import Any

from eagerflow.codegen.functions.parts import FORMATS, horner
from eagerflow.codegen.functions.quadrants import reduced

__all__ = ["BOUNDS", "cos", "sin", "tan"]

BOUNDS: dict[str, tuple[float, float]] = {"cos": (2.0, 2.0), "sin": (2.0, 2.0), "tan": (2.0, 2.0)}
"""The largest errors in units in the last place, in float32 and in float64."""

# sin(x) = x + x z S(z) and cos(x) = 1 + z C(z) with z = x², up to pi / 4.
_SINE = {
    "float32": (-0.16666667, 0.008333379, -0.00019853064, 2.8325098e-06),
    "float64": (
        -0.16666666666666666,
        0.008333333333333042,
        -0.00019841269840962467,
        2.7557319073979072e-06,
        -2.5052070921219392e-08,
        1.6054311288334887e-10,
        -7.389446950241588e-13,
    ),
}
_COSINE = {
    "float32": (-0.5, 0.041666646, -0.001388731, 2.4432327e-05),
    "float64": (
        -0.5,
        0.041666666666666595,
        -0.00138888888888733,
        2.480158728895775e-05,
        -2.7557314200092283e-07,
        2.087570263807067e-09,
        -1.135858675820754e-11,
    ),
}


def sin(s: Any, x: Any) -> Any:
    """The sine of an angle, within 2 units in the last place, for every finite number.

    The angle is reduced to [-pi / 4, pi / 4] (``quadrants.py``). There the polynomials of sine
    and cosine, minimax fits of our own, have the same degree and so share their instructions.
    """
    return _with_sign_of(s, x, _of_quadrant(s, s.abs(x), 0))


def cos(s: Any, x: Any) -> Any:
    """The cosine of an angle, within 2 units in the last place, like ``sin``."""
    return _of_quadrant(s, s.abs(x), 1)


def _with_sign_of(s: Any, x: Any, value: Any) -> Any:
    """A value, negated if x is negative."""
    integer = FORMATS[x.dtype].integer
    lowest = -(1 << (63 if x.dtype == "float64" else 31))
    sign = s.bitwise_and(s.bitcast(x, integer), lowest)
    return s.bitcast(s.bitwise_xor(s.bitcast(value, integer), sign), x.dtype)


def _of_quadrant(s: Any, x: Any, ahead: int) -> Any:
    """The sine of a positive angle plus a number of right angles."""
    kind = x.dtype
    form = FORMATS[kind]
    quadrant, high, _ = reduced(s, x, precise=False)
    quadrant = s.add(quadrant, ahead) if ahead else quadrant
    odd = s.not_equal(s.bitwise_and(quadrant, 1), 0)
    square = s.multiply(high, high)
    value: Any = None
    for sine, cosine in zip(reversed(_SINE[kind]), reversed(_COSINE[kind]), strict=True):
        term = s.select(odd, s.constant(cosine, kind), s.constant(sine, kind))
        value = term if value is None else s.fma(value, square, term)
    base = s.select(odd, 1.0, high)
    value = s.fma(base, s.multiply(value, square), base)
    sign = s.bitwise_left_shift(s.bitwise_and(quadrant, 2), form.bits + form.bias.bit_length())
    return s.bitcast(s.bitwise_xor(s.bitcast(value, form.integer), sign), kind)


def tan(s: Any, x: Any) -> Any:
    """The tangent of an angle, within 2 units in the last place, for every finite number.

    It is the quotient of sine and cosine, or the negative of that of cosine and sine, each as a sum
    of two numbers; a Newton step on the quotient accounts for the smaller ones.
    """
    kind = x.dtype
    quadrant, high, low = reduced(s, s.abs(x), precise=True)
    odd = s.not_equal(s.bitwise_and(quadrant, 1), 0)
    square = s.multiply(high, high)
    sine_rest = s.fma(s.multiply(horner(s, square, _SINE[kind]), square), high, low)
    sine = s.add(high, sine_rest)
    sine_rest = s.add(s.subtract(high, sine), sine_rest)
    cosine_rest = s.fma(s.negative(high), low, s.multiply(horner(s, square, _COSINE[kind]), square))
    cosine = s.add(cosine_rest, 1.0)
    cosine_rest = s.add(s.subtract(1.0, cosine), cosine_rest)
    top = s.select(odd, s.negative(cosine), sine)
    top_rest = s.select(odd, s.negative(cosine_rest), sine_rest)
    below = s.select(odd, sine, cosine)
    below_rest = s.select(odd, sine_rest, cosine_rest)
    inverse = s.divide(s.constant(1, kind), below)
    quotient = s.multiply(top, inverse)
    left = s.fma(s.negative(quotient), below, top)
    left = s.add(left, s.fma(s.negative(quotient), below_rest, top_rest))
    return _with_sign_of(s, x, s.fma(left, inverse, quotient))
