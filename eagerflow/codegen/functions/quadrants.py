"""Angles as multiples of a right angle plus a remainder, for every finite number.

Angles of moderate size lose multiples of pi / 2 in three steps (Cody and Waite 1980); the fused
multiply-add makes each step exact but for the last. Larger ones are multiplied only by the
bits of 1 / (2 pi) that determine the fraction of a turn (Payne and Hanek 1983).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from eagerflow.codegen.functions.parts import FORMATS, quick_two_sum, two_product, two_sum

__all__ = ["Reduced", "reduced"]


class Reduced(NamedTuple):
    """An angle q * pi / 2 + high + low, where |high| barely exceeds pi / 4.

    ``quadrant`` is an integer, of the size of the numbers, whose lowest two bits are those of q;
    ``low`` is below half a unit in the last place of ``high``.
    """

    quadrant: Any
    high: Any
    low: Any


# pi / 2 as the sum of three numbers of the type.
_HALF_PI = {
    "float32": (1.57079625, 7.54978942e-08, 5.39030253e-15),
    "float64": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
_TWO_OVER_PI = 0.6366197723675814
_TURN = (6.283185307179586, 2.4492935982947064e-16)
_MODERATE = {"float32": 2.0**17, "float64": 2.0**30}

# The first 1312 binary digits of 1 / (2 pi).
_INVERSE_TURN = int(
    "28be60db9391054a7f09d5f47d4d377036d8a5664f10e4107f9458eaf7aef158"
    "6dc91b8e909374b801924bba827464873f877ac72c4a69cfba208d7d4baed121"
    "3a671c09ad17df904e64758e60d4ce7d272117e2ef7e4a0ec7fe25fff7816603"
    "fbcbc462d6829b47db4d9fb3c9f2c26dd3d18fd9a797fa8b5d49eeb1faf97c5e"
    "cf41ce7de294a4ba9afed7ec47e357421580cc11bf1edaeafc33ef0826bd0d87"
    "6a78e458",
    16,
)


def _digits(first: int, last: int, exponent: int = 0) -> float:
    """The part of 2^exponent / (2 pi) from its digits ``first`` to ``last``, truncated to 53."""
    within = (_INVERSE_TURN >> (1312 - last)) & ((1 << (last - first + 1)) - 1)
    surplus = max(0, within.bit_length() - 53)
    return math.ldexp(float(within >> surplus), surplus - last + exponent)


def reduced(s: Any, x: Any, *, precise: bool) -> Reduced:
    """A positive angle as right angles and a remainder; NaN for infinity and NaN.

    Unless ``precise``, ``high`` is the nearest number or its neighbor, and ``low`` must not be
    used.
    """
    usual = _of_moderate(s, x, precise)
    far = s.greater_equal(x, _MODERATE[x.dtype])
    unusual = _of_large_single(s, x) if x.dtype == "float32" else _of_large_double(s, x)
    return Reduced(*(s.select(far, a, b) for a, b in zip(unusual, usual, strict=True)))


def _of_moderate(s: Any, x: Any, precise: bool) -> Reduced:
    """The reduction of numbers below ``_MODERATE``."""
    first, second, third = _HALF_PI[x.dtype]
    form = FORMATS[x.dtype]
    shifted = s.fma(x, _TWO_OVER_PI, form.shifter)
    count = s.subtract(shifted, form.shifter)
    quadrant = s.bitcast(shifted, form.integer)
    near = s.fma(count, -first, x)
    if not precise:
        high = s.fma(count, -third, s.fma(count, -second, near))
        return Reduced(quadrant, high, high)
    # ``near`` is exact. Next to multiples of pi / 2 the second part cancels it so far that the
    # third one counts, and only a sum with its error is right everywhere.
    part, part_error = two_product(s, count, s.constant(-second, x.dtype))
    high, error = two_sum(s, near, part)
    low = s.fma(count, -third, s.add(error, part_error))
    return Reduced(quadrant, *quick_two_sum(s, high, low))


def _without_integer(s: Any, x: Any) -> Any:
    """The difference between a number and the nearest integer."""
    return s.subtract(x, s.round(x))


def _of_large_single(s: Any, x: Any) -> Reduced:
    """The reduction of any float32, in float64.

    Digits of 1 / (2 pi) count if their product with the lowest bit of x is below 1. Products of
    x and 29 digits are exact. Numbers come in three classes, each with its digits.
    """
    double = s.convert(x, "float64")
    pieces = []
    for start, width in ((0, 29), (29, 29), (58, 60)):
        piece: Any = s.constant(_digits(1 + start, start + width), "float64")
        for exponent in (48, 75, 102):
            begin = exponent - 23 + 1 + start
            digits = s.constant(_digits(begin, begin + width - 1), "float64")
            piece = s.select(s.greater_equal(double, 2.0**exponent), digits, piece)
        pieces.append(piece)
    first = _without_integer(s, s.multiply(double, pieces[0]))
    second = _without_integer(s, s.multiply(double, pieces[1]))
    shifter = FORMATS["float64"].shifter
    shifted = s.fma(s.add(first, second), 4.0, shifter)
    count = s.subtract(shifted, shifter)
    turns = s.fma(double, pieces[2], s.add(s.fma(count, -0.25, first), second))
    angle = s.multiply(turns, _TURN[0])
    high = s.convert(angle, "float32")
    low = s.convert(s.subtract(angle, s.convert(high, "float64")), "float32")
    quadrant = s.convert(s.bitcast(shifted, "int64"), "int32")
    return Reduced(quadrant, high, low)


_WIDTH = 48
_LAST_CLASS = 20


@cache
def _pieces() -> tuple[float, ...]:
    """1 / (2 pi) * 2^600 in pieces of 48 digits, the first of which ends at 2^-26 * 2^600."""
    ends = [26 + _WIDTH * k for k in range(_LAST_CLASS + 5)]
    return tuple(_digits(max(1, end - _WIDTH + 1), end, 600) for end in ends)


def _digits_for(s: Any, x: Any) -> list[Any]:
    """Five pieces of 1 / (2 pi) * 2^600; the product of x and the first is below 2^100.

    The class of x, k for 2^(30 + 48 k) <= x < 2^(78 + 48 k), is determined bit by bit, and each bit
    shifts all pieces by as many positions.
    """
    size = x
    window: list[Any] = [s.constant(piece, "float64") for piece in _pieces()]
    for step in (16, 8, 4, 2, 1):
        beyond = s.greater_equal(size, 2.0 ** (30 + _WIDTH * step))
        size = s.select(beyond, s.multiply(size, 2.0 ** (-_WIDTH * step)), size)
        kept = min(len(window), 4 + step)
        moved = [
            s.select(beyond, window[i + step], window[i]) if i + step < len(window) else window[i]
            for i in range(kept)
        ]
        window = moved
    return window


def _on_grid(s: Any, x: Any) -> tuple[Any, Any]:
    """A number below 2^3 rounded to a multiple of 2^-48, and the remainder."""
    shifter = 1.5 * 2.0**4
    coarse = s.subtract(s.add(x, shifter), shifter)
    return coarse, s.subtract(x, coarse)


def _of_large_double(s: Any, x: Any) -> Reduced:
    """The reduction of float64 numbers from 2^30 on.

    Each product with a piece of 1 / (2 pi) is two numbers. Their parts that are multiples of
    2^-48 add up exactly; the rest is added up with its rounding errors.
    """
    scaled = s.multiply(x, 2.0**-600)
    pieces = _digits_for(s, x)
    high = [s.multiply(scaled, piece) for piece in pieces]
    low = [s.fma(scaled, pieces[i], s.negative(high[i])) for i in range(4)]
    coarse = s.add(_without_integer(s, high[0]), _without_integer(s, low[0]))
    fine: Any = None
    for term in (_without_integer(s, high[1]), low[1], _without_integer(s, high[2])):
        above, below = _on_grid(s, term)
        coarse = s.add(coarse, above)
        if fine is None:
            fine, errors = below, s.add(s.add(low[2], high[4]), low[3])
        else:
            fine, error = two_sum(s, fine, below)
            errors = s.add(errors, error)
    fine, error = two_sum(s, fine, high[3])
    errors = s.add(errors, error)
    shifter = FORMATS["float64"].shifter
    shifted = s.fma(coarse, 4.0, shifter)
    coarse = s.fma(s.subtract(shifted, shifter), -0.25, coarse)
    turns, error = two_sum(s, coarse, fine)
    rest = s.add(error, errors)
    angle = s.multiply(turns, _TURN[0])
    error = s.fma(turns, _TURN[0], s.negative(angle))
    error = s.add(error, s.fma(rest, _TURN[0], s.multiply(turns, _TURN[1])))
    result = s.add(angle, error)
    remainder = s.add(s.subtract(angle, result), error)
    return Reduced(s.bitcast(shifted, "int64"), result, remainder)
