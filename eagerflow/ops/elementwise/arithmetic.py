"""Arithmetic: sums, products, quotients, remainders, signs."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.generated import MIN_COMPILED_ELEMENTS
from eagerflow.codegen.instructions import is_float
from eagerflow.dtypes import REAL, as_dtype, is_complex
from eagerflow.ops.elementwise.complexes import conj, real
from eagerflow.ops.family import (
    FLOATS,
    INEXACT,
    NUMERIC,
    STANDARD,
    Missing,
    Onnx,
    Operand,
    elementwise,
    ufunc,
)
from eagerflow.spec import Array, Namespace
from eagerflow.tensor import Tensor

__all__ = [
    "abs",
    "add",
    "copysign",
    "divide",
    "floor_divide",
    "multiply",
    "multiply_no_nan",
    "negative",
    "nextafter",
    "positive",
    "reciprocal",
    "remainder",
    "sign",
    "signbit",
    "subtract",
]


@ufunc(
    partials=(1, 1),
    dtypes=STANDARD,
    operator="add",
    onnx=Onnx("Add"),
)
def add(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Sum of two tensors, element by element.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast; the result has their
    broadcast shape and their promoted dtype. Two bools give their logical or. Raises ShapeError
    where the shapes do not broadcast.

    >>> ef.add(ef.tensor([1.0, 2.0]), 10)
    Tensor([11., 12.], float32, cpu:0)
    """
    return xp.add(x1, x2)


@ufunc(partials=(1, -1), operator="sub", onnx=Onnx("Sub"))
def subtract(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Difference of two tensors, element by element.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers of shapes that broadcast.
    Raises ShapeError where the shapes do not broadcast, DTypeError for bools.

    >>> ef.subtract(ef.tensor([1.0, 2.0]), ef.tensor(0.5))
    Tensor([0.5, 1.5], float32, cpu:0)
    """
    return xp.subtract(x1, x2)


@ufunc(
    partials=(Operand(2), Operand(1)),
    saves="x1 x2",
    dtypes=STANDARD,
    operator="mul",
    onnx=Onnx("Mul"),
)
def multiply(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Product of two tensors, element by element.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. Two bools
    give their logical and. Raises ShapeError where the shapes do not broadcast.

    >>> ef.multiply(ef.tensor([1.0, 2.0]), [3, 4])
    Tensor([3., 8.], float32, cpu:0)
    """
    return xp.multiply(x1, x2)


def _multiply_no_nan_numpy(xp: Namespace, x1: Any, x2: Any) -> Any:
    many = x1.__class__ is x2.__class__ is np.ndarray and x1.size >= MIN_COMPILED_ELEMENTS
    if many and x1.dtype == x2.dtype and generated.takes(x1):
        return generated.elementwise(_zero_wins, x1, x2)
    # NaN is the exception, and this runs in the gradient of any division or root: the product of a
    # vector with itself finds NaN in one pass that allocates nothing.
    product = np.multiply(x1, x2)
    if product.dtype.kind in "iu":
        return product
    flat = product.ravel("K")
    square = np.vdot(flat, flat).real if flat.dtype.kind == "c" else flat.dot(flat)
    if square == square:
        return product
    return np.where((x1 == 0) | (x2 == 0), product.dtype.type(0), product)


def _zero_wins(s: Any, a: Any, b: Any) -> Any:
    return s.select(s.logical_or(s.equal(a, 0), s.equal(b, 0)), 0, s.multiply(a, b))


@elementwise(
    overrides={"numpy": _multiply_no_nan_numpy},
    partials=(Operand(2), Operand(1)),
    saves="x1 x2",
    singular=True,
    scalar=_zero_wins,
)
def multiply_no_nan(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Product of two tensors in which 0 takes precedence over infinity and NaN.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers of shapes that broadcast. Gradients use
    it after ops with possibly infinite derivatives, so that an unused branch does not turn a
    gradient into NaN (compare ``tf.math.multiply_no_nan``). Raises ShapeError where the shapes do
    not broadcast, DTypeError for bools.

    >>> ef.multiply_no_nan(ef.tensor([0.0, 2.0]), ef.tensor([ef.inf, 3.0]))
    Tensor([0., 6.], float32, cpu:0)
    """
    product = xp.multiply(x1, x2)
    return xp.where((x1 == 0) | (x2 == 0), xp.zeros_like(product), product)


@ufunc(partials=(-1,), operator="neg", onnx=Onnx("Neg"))
def negative(xp: Namespace, x: Array, /) -> Array:
    """The numbers with the opposite sign.

    ``x`` is a numeric tensor of any shape; unsigned integers wrap around. Raises DTypeError
    for bools.

    >>> ef.negative(ef.tensor([1.0, -2.0]))
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return xp.negative(x)


@ufunc(views="some", partials=(1,), operator="pos", scalar=lambda s, x: x, onnx=Onnx("Identity"))
def positive(xp: Namespace, x: Array, /) -> Array:
    """The numbers themselves, as in ``+x``.

    ``x`` is a numeric tensor of any shape. Raises DTypeError for bools.

    >>> +ef.tensor([1.0, -2.0])
    Tensor([ 1., -2.], float32, cpu:0)
    """
    return xp.positive(x)


def over(x: Any) -> Any:
    """1 / x for a gradient rule, where ``x`` is a tensor or a Python number."""
    if isinstance(x, Tensor):
        return reciprocal(x)
    return 1 / x if x else math.inf


@ufunc(
    partials=(lambda y, a, b: over(b), lambda y, a, b: negative(y) / b),
    saves="x2 y",
    singular=True,
    dtypes=INEXACT,
    operator="truediv",
    onnx=Onnx("Div"),
)
def divide(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Quotient of two tensors, element by element.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. Integers and
    bools are divided as float32. Dividing by 0 gives infinity or NaN, as IEEE 754 says.
    Raises ShapeError where the shapes do not broadcast.

    >>> ef.tensor([1, 2]) / 4
    Tensor([0.25, 0.5 ], float32, cpu:0)
    """
    return xp.divide(x1, x2)


def _is_negative(w: Any, x: Any) -> Any:
    """Whether numbers are negative, -0 among them; the sign of a NaN is not seen."""
    zero = w.constant(0, x.dtype)
    below = w.Less(x, zero, dtype=bool)
    if x.dtype.kind != "f":
        return below
    return w.Or(below, w.Less(w.Reciprocal(x), zero, dtype=bool))


def _divided(w: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient and remainder by ONNX's operators; integer division by 0 gives 0 and 0."""
    if a.dtype.kind == "f":
        down = w.Floor(w.Div(a, b))
        return down, w.Sub(a, w.Mul(down, b))
    zero = w.constant(0, a.dtype)
    by_zero = w.Equal(b, zero, dtype=bool)
    divisor = w.either(by_zero, w.constant(1, a.dtype), b)
    rest = w.Mod(a, divisor)  # of the divisor's sign
    found = w.Div(w.Sub(a, rest), divisor)
    return tuple(w.either(by_zero, zero, x) for x in (found, rest))


def _is_infinite_number(x: Any, dtype: str) -> bool:
    """Whether this is a Python number that is infinite in the dtype of the result."""
    if not isinstance(x, int | float):
        return False
    with np.errstate(over="ignore"):
        return math.isinf(np.asarray(x, np.float64).astype(as_dtype(dtype)))


def _of_infinities(s: Any, x1: Any, x2: Any) -> Any:
    """The quotient rounded down, with the standard's values if one of two floats is infinite."""
    down = s.floor_divide(x1, x2)
    if not is_float(str(down.dtype)):
        return down
    if any(_is_infinite_number(x, str(down.dtype)) for x in (x1, x2)):
        return s.floor(s.divide(x1, x2))
    infinite = [s.isinf(x) for x in (x1, x2) if not isinstance(x, int | float)]
    return s.select(reduce(s.logical_or, infinite), s.floor(s.divide(x1, x2)), down)


@elementwise(
    partials=(0, 0),
    dtypes=REAL,
    operator="floordiv",
    scalar=_of_infinities,
    aliases=False,
    onnx=Onnx("Div", rule=lambda w, a, b: _divided(w, a, b)[0]),
)
def floor_divide(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Quotient of two tensors, rounded down.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. Integers
    divided by 0 give 0; floats give infinity or NaN. With infinities it is ``floor(x1 / x2)``, as
    the Array API standard has it, not NumPy's NaN and -1. The gradient is 0. Raises ShapeError
    where the shapes do not broadcast, DTypeError for bools and complex.

    >>> ef.tensor([7, -7]) // 2
    Tensor([ 3, -4], int64, cpu:0)
    """
    down = xp.floor_divide(x1, x2)
    if down.dtype.kind in "iu":
        return down
    x1, x2 = (xp.asarray(x, down.dtype) if isinstance(x, int | float) else x for x in (x1, x2))
    if xp is np and math.isfinite(np.add.reduce(down, None) + np.add.reduce(x2, None)):
        return down  # no infinity or NaN
    infinite = xp.logical_or(xp.isinf(x1), xp.isinf(x2))
    return xp.where(infinite, xp.floor(x1 / x2), down) if xp.any(infinite) else down


@ufunc(
    partials=(1, lambda y, a, b: negative(floor_divide(a, b))),
    saves="x1 x2",
    singular=True,
    dtypes=REAL,
    operator="mod",
    onnx=Onnx("Mod", rule=lambda w, a, b: _divided(w, a, b)[1]),
)
def remainder(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The remainder of a division rounded down; it has the sign of the divisor.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast. The
    remainder by 0 is 0 for integers and NaN for floats.
    Raises ShapeError where the shapes do not broadcast, DTypeError for bools and complex.

    >>> ef.tensor([7, -7]) % 3
    Tensor([1, 2], int64, cpu:0)
    """
    return xp.remainder(x1, x2)


@ufunc(
    partials=(lambda y, x: negative(y * y),),
    saves="y",
    singular=True,
    compiled=True,
    dtypes=INEXACT,
    onnx=Onnx("Reciprocal"),
)
def reciprocal(xp: Namespace, x: Array, /) -> Array:
    """One divided by each element.

    ``x`` is a tensor of any shape; integers are taken as float32. The reciprocal of 0 is
    infinite. Raises DTypeError for non-numeric dtypes.

    >>> ef.reciprocal(ef.tensor([2.0, 4.0]))
    Tensor([0.5 , 0.25], float32, cpu:0)
    """
    return xp.reciprocal(x)


@ufunc(
    partials=Missing("the modulus is not complex-differentiable: see vjp"),
    vjp=(lambda g, y, x: g * sign(x),),
    jvp=lambda tangents, y, x: _along(tangents[0], sign(x)),
    saves="x",
    dtypes=NUMERIC,
    result="real",
    operator="abs",
    onnx=Onnx("Abs"),
)
def abs(xp: Namespace, x: Array, /) -> Array:
    """Absolute value of each element; the modulus of complex numbers.

    ``x`` is a numeric tensor of any shape; the result is real. The gradient is the sign of
    ``x``, so 0 at 0. Raises DTypeError for bools.

    >>> abs(ef.tensor([-1.5, 2.0]))
    Tensor([1.5, 2. ], float32, cpu:0)
    """
    return xp.abs(x)


def _along(tangent: Any, direction: Any) -> Any:
    """The component of a tangent along a direction."""
    if not is_complex(tangent.dtype):
        return tangent * direction
    return real(tangent * conj(direction))


def _turned(g: Any, y: Any, x: Any) -> Any:
    # The modulus of a sign stays 1, so only the orthogonal component passes.
    return (g - y * _along(g, y)) / abs(x)


@ufunc(
    partials=Missing("the sign of complex numbers is not complex-differentiable: see vjp"),
    vjp=(lambda g, y, x: _turned(g, y, x) if is_complex(g.dtype) else g * 0,),
    jvp=lambda tangents, y, x: (
        _turned(tangents[0], y, x) if is_complex(y.dtype) else tangents[0] * 0
    ),
    saves="x y",
    singular=True,
    dtypes=NUMERIC,
    onnx=Onnx("Sign"),
)
def sign(xp: Namespace, x: Array, /) -> Array:
    """-1, 0 or 1 for each element; ``x / abs(x)`` for complex numbers.

    ``x`` is a numeric tensor of any shape. The gradient with respect to real numbers is 0.
    Raises DTypeError for bools.

    >>> ef.sign(ef.tensor([-3.0, 0.0, 2.0]))
    Tensor([-1.,  0.,  1.], float32, cpu:0)
    """
    return xp.sign(x)


@ufunc(
    partials=(lambda y, a, b: sign(a) * sign(y), 0),
    saves="x1 y",
    dtypes=FLOATS,
    onnx=lambda w, a, b: w.Where(_is_negative(w, b), w.Neg(w.Abs(a)), w.Abs(a), dtype=a.dtype),
)
def copysign(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The size of each element of one tensor with the sign of another.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers
    are taken as float32. The sign of -0 counts.
    Raises ShapeError where the shapes do not broadcast, DTypeError for complex.

    >>> ef.copysign(ef.tensor([1.0, 2.0]), ef.tensor([-3.0, 0.0]))
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return xp.copysign(x1, x2)


@ufunc(
    partials=Missing("neighbouring numbers are about the format, not about mathematics"),
    # Not bfloat16: a neighbor in float32 would round back to the original.
    dtypes=frozenset(t for t in FLOATS if t.isbuiltin == 1),
    onnx=Missing("it has no operators for the bits of numbers"),
)
def nextafter(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """The next representable number after each element of one tensor, towards another.

    ``x1`` and ``x2`` are tensors of float16, float32 or float64 of shapes that broadcast;
    integers are taken as float32.
    Raises ShapeError where the shapes do not broadcast, DTypeError for bfloat16 and complex.

    >>> ef.nextafter(ef.tensor(1.0), 2.0) - 1.0
    Tensor(1.1921e-07, float32, cpu:0)
    """
    return xp.nextafter(x1, x2)


@ufunc(
    partials=Missing("the result is a truth value"),
    dtypes=FLOATS,
    result="bool",
    onnx=lambda w, x: _is_negative(w, x),
)
def signbit(xp: Namespace, x: Array, /) -> Array:
    """Whether the sign bit of each element is set, which distinguishes -0 from 0.

    ``x`` is a real tensor of any shape; integers are taken as float32. Raises DTypeError for
    complex.

    >>> ef.signbit(ef.tensor([-1.0, -0.0, 0.0]))
    Tensor([ True,  True, False], bool, cpu:0)
    """
    return xp.signbit(x)
