"""Powers and roots."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from eagerflow.dtypes import is_complex
from eagerflow.errors import DTypeError
from eagerflow.handlers import raised_here
from eagerflow.ops.elementwise.comparison import (
    equal,
    greater_equal,
    isfinite,
    logical_and,
    logical_not,
)
from eagerflow.ops.elementwise.exponential import analytic, log
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import FLOATS, INEXACT, Onnx, elementwise, ufunc
from eagerflow.spec import Array, Namespace

__all__ = ["hypot", "pow", "power", "rsqrt", "sqrt", "square"]


@ufunc(
    partials=(lambda y, x: x * 2,),
    saves="x",
    onnx=lambda w, x: w.Mul(x, x),
)
def square(xp: Namespace, x: Array, /) -> Array:
    """Each element times itself.

    ``x`` is a numeric tensor of any shape. Raises DTypeError for bools.

    >>> ef.square(ef.tensor([1.0, -3.0]))
    Tensor([1., 9.], float32, cpu:0)
    """
    return xp.square(x)


@analytic(
    lambda y, x: 0.5 / y,
    saves="y",
    singular=True,
    compiled=True,
    onnx=Onnx("Sqrt"),
)
def sqrt(xp: Namespace, x: Array, /) -> Array:
    """Square root of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. Negative real numbers give
    NaN. The derivative at 0 is infinite. Raises DTypeError for non-numeric dtypes.

    >>> ef.sqrt(ef.tensor([4.0, 9.0]))
    Tensor([2., 3.], float32, cpu:0)
    """
    return xp.sqrt(x)


@elementwise(
    partials=(in_float32(lambda y, x: y * y * y * -0.5),),
    saves="y",
    singular=True,
    dtypes=INEXACT,
    onnx=lambda w, x: w.Reciprocal(w.Sqrt(x)),
)
def rsqrt(xp: Namespace, x: Array, /) -> Array:
    """One divided by the square root of each element.

    ``x`` is a tensor of any shape; integers are taken as float32. 0 gives infinity, negative
    real numbers NaN. Raises DTypeError for non-numeric dtypes.

    >>> ef.rsqrt(ef.tensor([4.0, 0.25]))
    Tensor([0.5, 2. ], float32, cpu:0)
    """
    return xp.reciprocal(xp.sqrt(x))


# power -------------------------------------------------------------------------------------------


def _by_base(y: Any, a: Any, b: Any) -> Any:
    """b·a^(b-1), and 0 where b is 0, for any a."""
    if isinstance(b, int | float | complex):
        if b in (2, 3):
            return a * 2 if b == 2 else square(a) * 3
        return 0 if b == 0 else 1 if b == 1 else power(a, b - 1) * b
    slope = power(a, b - 1)
    return where(logical_and(equal(b, 0), logical_not(isfinite(slope))), 0, slope) * b


def _by_exponent(y: Any, a: Any, b: Any) -> Any:
    """a^b·log a; 0 where a is 0 and b is not negative, as 0^b is 0 for all b around."""
    if isinstance(a, int | float | complex):
        return y * _log_of_number(a)
    at_zero = equal(a, 0)
    if not is_complex(a.dtype):
        at_zero = logical_and(at_zero, greater_equal(b, 0))
    return y * log(where(at_zero, 1, a))


def _log_of_number(a: Any) -> Any:
    if isinstance(a, complex):
        return cmath.log(a) if a else 0
    return math.log(a) if a > 0 else 0 if a == 0 else math.nan


def _refuse_negative(exponent: Any) -> None:
    raise DTypeError(
        "an integer to a negative power is not an integer",
        argument="x2",
        received=f"exponent {exponent}" if isinstance(exponent, int) else None,
        expected="exponents of at least 0 for integers",
        hint="x1.astype('float32'), or a float exponent such as -1.0",
    )


def _has_singular_slope(x1: Any, x2: Any) -> bool:
    """False for a finite number of at least 1: the slope is finite wherever the power is."""
    return not (isinstance(x2, int | float) and 1 <= x2 < math.inf)


def _power_numpy(xp: Namespace, x1: Any, x2: Any) -> Any:
    if x2.__class__ in (int, float) and x2 == 2:
        return np.square(x1)
    try:
        return np.power(x1, x2)
    except raised_here(ValueError) as error:
        if "negative integer powers" in str(error):
            _refuse_negative(x2)
        raise


@elementwise(
    overrides={"numpy": _power_numpy},
    partials=(in_float32(_by_base), in_float32(_by_exponent)),
    saves="x1 x2 y",
    singular=_has_singular_slope,
    operator="pow",
    onnx=Onnx("Pow"),
)
def power(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Each element of one tensor to the power of that of another.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers of shapes that broadcast. Any number to
    the power of 0 is 1; a negative real base with a fraction as exponent gives NaN. Raises
    ShapeError where the shapes do not broadcast, DTypeError for bools, and for integers with a
    negative exponent.

    >>> ef.tensor([1.0, 2.0, 3.0]) ** 2
    Tensor([1., 4., 9.], float32, cpu:0)
    """
    dtype = x1.dtype if hasattr(x1, "dtype") else x2.dtype
    if dtype.kind == "i" and (x2 < 0 if isinstance(x2, int) else xp.any(x2 < 0)):
        _refuse_negative(x2)
    return xp.pow(x1, x2) if hasattr(xp, "pow") else xp.power(x1, x2)


pow = power  # the name in the Array API standard


# hypot -------------------------------------------------------------------------------------------


def divide_no_nan(x: Any, y: Any) -> Any:
    """X / y for a gradient rule, and 0 where both are 0."""
    return x / where(equal(y, 0), 1, y)


@ufunc(
    partials=(lambda y, a, b: divide_no_nan(a, y), lambda y, a, b: divide_no_nan(b, y)),
    saves="x1 x2 y",
    singular=True,
    dtypes=FLOATS,
    onnx=lambda w, a, b: w.Sqrt(w.Add(w.Mul(a, a), w.Mul(b, b))),
)
def hypot(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Square root of the sum of two squares, without intermediate overflow.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers
    are taken as float32. The gradient at (0, 0) is 0. Raises ShapeError where the shapes do
    not broadcast, DTypeError for complex.

    >>> ef.hypot(ef.tensor([3.0, 6.0]), ef.tensor([4.0, 8.0]))
    Tensor([ 5., 10.], float32, cpu:0)
    """
    return xp.hypot(x1, x2)
