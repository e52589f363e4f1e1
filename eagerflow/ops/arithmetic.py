"""Arithmetic: add, multiply and their relatives."""

from __future__ import annotations

from typing import Any

from eagerflow.ops.family import STANDARD, Missing, Onnx, elementwise
from eagerflow.ops.samples import each, pairs, reals

__all__ = ["add", "multiply", "multiply_no_nan", "negative", "subtract"]


@elementwise(
    ufunc="add",
    partials=(1, 1),
    dtypes=STANDARD,
    operator="add",
    onnx=Onnx("Add"),
    samples=pairs(),
    reference=each(lambda a, b: a + b),
)
def add(xp: Any, x1: Any, x2: Any, /) -> Any:
    """Sum of two tensors, element by element.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast; the result
    has the shape in which they meet and the dtype to which they promote. Two bools give
    their logical or. Raises ShapeError where the shapes do not broadcast.

    >>> ef.add(ef.tensor([1.0, 2.0]), 10)
    Tensor([11., 12.], float32, cpu:0)
    """
    return xp.add(x1, x2)


@elementwise(
    ufunc="subtract",
    partials=(1, -1),
    operator="sub",
    onnx=Onnx("Sub"),
    samples=pairs(),
    reference=each(lambda a, b: a - b),
)
def subtract(xp: Any, x1: Any, x2: Any, /) -> Any:
    """Difference of two tensors, element by element.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers of shapes that broadcast.
    Raises ShapeError where the shapes do not broadcast, DTypeError for bools.

    >>> ef.subtract(ef.tensor([1.0, 2.0]), ef.tensor(0.5))
    Tensor([0.5, 1.5], float32, cpu:0)
    """
    return xp.subtract(x1, x2)


@elementwise(
    ufunc="multiply",
    partials=(lambda y, a, b: b, lambda y, a, b: a),
    saves="x1 x2",
    dtypes=STANDARD,
    operator="mul",
    onnx=Onnx("Mul"),
    samples=pairs(),
    reference=each(lambda a, b: a * b),
)
def multiply(xp: Any, x1: Any, x2: Any, /) -> Any:
    """Product of two tensors, element by element.

    ``x1`` and ``x2`` are tensors, arrays or numbers of shapes that broadcast. Two bools
    give their logical and. Raises ShapeError where the shapes do not broadcast.

    >>> ef.multiply(ef.tensor([1.0, 2.0]), [3, 4])
    Tensor([3., 8.], float32, cpu:0)
    """
    return xp.multiply(x1, x2)




@elementwise(
    partials=(lambda y, a, b: b, lambda y, a, b: a),
    saves="x1 x2",
    singular=True,
    scalar=lambda s, a, b: s.select(
        s.logical_or(s.equal(a, 0), s.equal(b, 0)), s.multiply(0, 0), s.multiply(a, b)
    ),
    onnx=Missing("exported as Where(a == 0 or b == 0, 0, a * b)"),
    samples=pairs(),
    reference=each(lambda a, b: 0 if a == 0 or b == 0 else a * b),
)
def multiply_no_nan(xp: Any, x1: Any, x2: Any, /) -> Any:
    """Product of two tensors in which 0 wins over infinity and NaN.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers of shapes that broadcast.
    Gradients use it behind ops whose derivative can be infinite, so that a branch that was
    not taken does not make NaN of a gradient (compare ``tf.math.multiply_no_nan``).

    >>> ef.multiply_no_nan(ef.tensor([0.0, 2.0]), ef.tensor([ef.inf, 3.0]))
    Tensor([0., 6.], float32, cpu:0)
    """
    product = xp.multiply(x1, x2)
    if not xp.any(xp.isnan(product)):
        return product
    return xp.where((x1 == 0) | (x2 == 0), xp.zeros_like(product), product)


@elementwise(
    ufunc="negative",
    partials=(-1,),
    operator="neg",
    onnx=Onnx("Neg"),
    samples=reals(),
    reference=each(lambda x: -x),
)
def negative(xp: Any, x: Any, /) -> Any:
    """The numbers with the opposite sign.

    ``x`` is a numeric tensor of any shape; unsigned integers wrap around. Raises DTypeError
    for bools.

    >>> ef.negative(ef.tensor([1.0, -2.0]))
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return xp.negative(x)
