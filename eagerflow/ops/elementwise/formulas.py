"""Functions of one or two numbers by short formulas."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.dtypes import BOOL, FLOATS, INEXACT, INTEGERS, NUMERIC, REAL
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import (
    abs,
    add,
    divide,
    multiply,
    multiply_no_nan,
    negative,
    subtract,
)
from eagerflow.ops.elementwise.bitwise import bitwise_and, bitwise_right_shift
from eagerflow.ops.elementwise.comparison import equal, greater, isinf, isnan, less, logical_and
from eagerflow.ops.elementwise.complexes import imag, real
from eagerflow.ops.elementwise.exponential import log, log1p, logaddexp
from eagerflow.ops.elementwise.powers import square
from eagerflow.ops.elementwise.rounding import trunc
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.elementwise.trigonometric import sin
from eagerflow.ops.inspection import finfo
from eagerflow.ops.operands import floating, real_numbers, wide
from eagerflow.tensor import Tensor

__all__ = [
    "bitwise_count",
    "deg2rad",
    "heaviside",
    "logaddexp2",
    "logit",
    "modf",
    "nan_to_num",
    "rad2deg",
    "sinc",
    "xlog1py",
    "xlogy",
]


# Angles ------------------------------------------------------------------------------------------


@composed(dtypes=REAL)
def deg2rad(x: Any, /) -> Tensor:
    """Angles in degrees as radians.

    ``x`` is a real tensor; integers are taken as float32. Raises DTypeError for complex.

    >>> ef.deg2rad(ef.tensor([180.0, 90.0]))
    Tensor([3.1416, 1.5708], float32, cpu:0)
    """
    return multiply(floating(x), math.pi / 180)


@composed(dtypes=REAL)
def rad2deg(x: Any, /) -> Tensor:
    """Angles in radians as degrees.

    ``x`` is a real tensor; integers are taken as float32. Raises DTypeError for complex.

    >>> ef.rad2deg(ef.tensor([ef.pi, ef.pi / 2]))
    Tensor([180.,  90.], float32, cpu:0)
    """
    return multiply(floating(x), 180 / math.pi)


# Sine and logarithms ------------------------------------------------------------------------------


def _sinc(x: Any) -> Any:
    y = multiply(x, math.pi)
    small = less(abs(y), 0.1)
    # There the first terms of the series have all digits, and so have those of its derivatives.
    t = square(where(small, y, 0))
    series: Any = 1
    for n in (8, 6, 4, 2):
        series = subtract(1, multiply(divide(t, n * (n + 1)), series))
    far = where(small, 1, y)
    return where(small, series, divide(sin(far), far))


@composed()
def sinc(x: Any, /) -> Tensor:
    """Sine of π times each element, divided by that; 1 at 0.

    ``x`` is a numeric tensor; integers are taken as float32. Raises DTypeError for bools.

    >>> ef.sinc(ef.tensor([0.0, 0.5, 1.5]))
    Tensor([ 1.    ,  0.6366, -0.2122], float32, cpu:0)
    """
    return wide(_sinc, floating(real_numbers(x, "x", NUMERIC), "x", INEXACT))


@composed(
    dtypes=FLOATS,
    singular=True,
)
def xlogy(x1: Any, x2: Any, /) -> Tensor:
    """``x1`` times the logarithm of ``x2``, and 0 where ``x1`` is 0.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast; integers are taken as
    float32. Raises ShapeError where the shapes do not broadcast.

    >>> ef.xlogy(ef.tensor([0.0, 2.0]), ef.tensor([0.0, 1.0]))
    Tensor([0., 0.], float32, cpu:0)
    """
    x1, x2 = floating(x1, "x1", INEXACT), floating(x2, "x2", INEXACT)
    return where(isnan(x2), add(x1, x2), multiply_no_nan(x1, log(x2)))


@composed(
    dtypes=FLOATS,
    singular=True,
)
def xlog1py(x1: Any, x2: Any, /) -> Tensor:
    """``x1`` times the logarithm of ``1 + x2``, and 0 where ``x1`` is 0.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast; integers are taken as
    float32. Raises ShapeError where the shapes do not broadcast.

    >>> ef.xlog1py(ef.tensor([0.0, 2.0]), ef.tensor([-1.0, 1e-10]))
    Tensor([0.e+00, 2.e-10], float32, cpu:0)
    """
    x1, x2 = floating(x1, "x1", INEXACT), floating(x2, "x2", INEXACT)
    return where(isnan(x2), add(x1, x2), multiply_no_nan(x1, log1p(x2)))


def _logit(x: Any) -> Any:
    return subtract(log(x), log1p(negative(x)))


@composed(
    dtypes=FLOATS,
)
def logit(x: Any, /) -> Tensor:
    """Logarithm of the odds x / (1 - x): the inverse of ``ef.sigmoid``.

    ``x`` holds probabilities from 0, which gives -infinity, to 1, which gives infinity; elsewhere
    it is NaN. Raises DTypeError for complex.

    >>> ef.logit(ef.tensor([0.5, 0.75]))
    Tensor([0.    , 1.0986], float32, cpu:0)
    """
    return wide(_logit, floating(x))


def _logaddexp2(x1: Any, x2: Any) -> Any:
    natural = logaddexp(multiply(x1, math.log(2)), multiply(x2, math.log(2)))
    return divide(natural, math.log(2))


@composed(
    dtypes=REAL,
)
def logaddexp2(x1: Any, x2: Any, /) -> Tensor:
    """Logarithm to base 2 of the sum of two powers of 2, without intermediate overflow.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. Raises ShapeError where the shapes do not broadcast, DTypeError for complex.

    >>> ef.logaddexp2(ef.tensor([0.0, 3.0]), ef.tensor([0.0, 3.0]))
    Tensor([1., 4.], float32, cpu:0)
    """
    return wide(_logaddexp2, floating(x1, "x1"), floating(x2, "x2"))


# Steps and parts ----------------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
)
def heaviside(x1: Any, x2: Any, /) -> Tensor:
    """0 where ``x1`` is negative, 1 where it is positive, and ``x2`` where it is 0.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. Raises ShapeError where the shapes do not broadcast, DTypeError for complex.

    >>> ef.heaviside(ef.tensor([-1.0, 0.0, 2.0]), 0.5)
    Tensor([0. , 0.5, 1. ], float32, cpu:0)
    """
    x1, x2 = floating(x1, "x1"), floating(x2, "x2")
    step = where(isnan(x1), x1, astype(greater(x1, 0), x1.dtype))
    return where(equal(x1, 0), x2, step)


@composed(
    dtypes=FLOATS,
)
def modf(x: Any, /) -> tuple[Tensor, Tensor]:
    """The fraction of each element, and its integral part, rounded towards 0.

    ``x`` is a real tensor; integers are taken as float32. The results are ``(fractions,
    integers)``, both of the dtype of ``x``. Raises DTypeError for complex.

    >>> ef.modf(ef.tensor([1.5, -2.25]))
    (Tensor([ 0.5 , -0.25], float32, cpu:0), Tensor([ 1., -2.], float32, cpu:0))
    """
    whole = trunc(floating(x))
    return where(isinf(x), 0, subtract(floating(x), whole)), whole


def _replaced(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    most = float(finfo(x.dtype).max)
    high, low = (most if posinf is None else posinf), (-most if neginf is None else neginf)
    infinite = isinf(x)
    x = where(logical_and(infinite, greater(x, 0)), high, x)
    x = where(logical_and(infinite, less(x, 0)), low, x)
    return where(isnan(x), nan, x)


@composed()
def nan_to_num(
    x: Any, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """The elements, with numbers in place of NaN and of infinities.

    ``x`` is a tensor of any dtype; of complex numbers both parts are replaced. ``posinf`` and
    ``neginf`` default to the largest and smallest finite numbers of the dtype. The gradient of
    replaced elements is 0. Raises DTypeError for non-numeric dtypes.

    >>> ef.nan_to_num(ef.tensor([1.0, ef.nan, ef.inf]), posinf=9.0)
    Tensor([1., 0., 9.], float32, cpu:0)
    """
    if x.dtype in BOOL | INTEGERS:
        return x
    if x.dtype in FLOATS:
        return _replaced(x, nan, posinf, neginf)
    parts = [_replaced(part, nan, posinf, neginf) for part in (real(x), imag(x))]
    return add(astype(parts[0], x.dtype), multiply(astype(parts[1], x.dtype), 1j))


@composed(
    dtypes=INTEGERS,
    gradient=Missing("the result is a count, which does not change smoothly"),
)
def bitwise_count(x: Any, /) -> Tensor:
    """The number of set bits of the magnitude of each integer, as uint8.

    ``x`` is a tensor of integers. Raises DTypeError for other dtypes.

    >>> ef.bitwise_count(ef.tensor([0, 7, -8]))
    Tensor([0, 3, 1], uint8, cpu:0)
    """
    x = real_numbers(x, "x", INTEGERS)
    # No small dtype has the size of its least number; that of int64 is right as uint64.
    bits = astype(x if x.dtype.kind == "u" else abs(astype(x, "int64")), "uint64")
    # Pairs of bits, then groups of four, then of eight, are summed in place.
    bits = subtract(bits, bitwise_and(bitwise_right_shift(bits, 1), 0x5555555555555555))
    fours = 0x3333333333333333
    bits = add(bitwise_and(bits, fours), bitwise_and(bitwise_right_shift(bits, 2), fours))
    bits = bitwise_and(add(bits, bitwise_right_shift(bits, 4)), 0x0F0F0F0F0F0F0F0F)
    return astype(bitwise_right_shift(multiply(bits, 0x0101010101010101), 56), "uint8")
