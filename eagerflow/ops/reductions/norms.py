"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.dtypes import is_complex
from eagerflow.errors import DTypeError, EagerflowError, ShapeError, short_repr
from eagerflow.ops.attributes import Axes, NumberLike
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import divide, multiply, sign
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.powers import power
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import INEXACT, expand_reduced, reduction
from eagerflow.ops.linear_algebra.decompositions import safe_reciprocal, svdvals
from eagerflow.ops.linear_algebra.systems import matrices
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import min as smallest
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.reshaping import permute_dims, reshape
from eagerflow.spec import Array, Namespace, reduced_axes
from eagerflow.tensor import Tensor

__all__ = ["matrix_norm", "norm", "vector_norm"]


def _order(ord: Any) -> float:
    if isinstance(ord, bool | str) or not isinstance(ord, int | float):
        raise DTypeError(
            f"{short_repr(ord)} is not an order of a vector norm",
            argument="ord",
            expected="a number: 2, 1, 0, inf, -inf or any other",
        )
    return float(ord)


def _direction(x: Any) -> Any:
    """X / |x|, and 0 at 0: the direction in which the magnitude grows."""
    return multiply(x, safe_reciprocal(magnitude(x))) if is_complex(x.dtype) else sign(x)


def _vector_norm_vjp(g: Any, y: Any, x: Any, axis: Any, keepdims: bool, ord: Any) -> Any:
    g, y = expand_reduced(g, x, axis, keepdims), expand_reduced(y, x, axis, keepdims)
    if ord == 2:
        return multiply(x, multiply(g, safe_reciprocal(y)))
    part = multiply(_direction(x), g)
    if ord == 1:
        return part
    if ord == 0:
        return multiply(part, 0)
    if math.isinf(ord):
        top = astype(equal(magnitude(x), y), y.dtype)
        axes = reduced_axes(axis, x.ndim)
        return multiply(part, divide(top, total(top, axis=axes, keepdims=True)))
    ratio = multiply(magnitude(x), safe_reciprocal(y))
    zero = equal(ratio, 0)
    return multiply(part, where(zero, 0, power(where(zero, 1, ratio), ord - 1)))


@reduction(
    dtypes=INEXACT,
    result="real",
    method=False,
    vjp=(in_float32(_vector_norm_vjp),),
    saves="x y",
    ulp=16,
    threaded=True,
)
def vector_norm(
    xp: Namespace, x: Array, /, *, axis: Axes = None, keepdims: bool = False, ord: NumberLike = 2
) -> Array:
    """Norm of the vectors along axes.

    ``x`` is a tensor of floats or complex numbers, ``axis`` an integer, a tuple of integers or None
    for all axes; ``keepdims`` keeps reduced axes with size 1. ``ord`` is 2 for the Euclidean
    length, 1 for the sum of magnitudes, inf and -inf for the largest and smallest magnitude, 0 for
    the number of nonzero elements, otherwise p of ``sum(|x| ** p) ** (1 / p)``. The gradient at a
    vector of zeros is 0. Raises ShapeError for an axis that does not exist, DTypeError for another
    ``ord``.

    >>> ef.linalg.vector_norm(ef.tensor([[3.0, 4.0], [0.0, 2.0]]), axis=-1)
    Tensor([5., 2.], float32, cpu:0)
    """
    p = _order(ord)
    if p == 2 and x.dtype.kind != "c":
        return xp.sqrt(xp.sum(x * x, axis=axis, keepdims=keepdims))
    size = xp.abs(x)
    if math.isinf(p):
        if x.size == 0:
            empty = xp.sum(size, axis=axis, keepdims=keepdims)
            return empty if p > 0 else empty + p * -1
        return (xp.max if p > 0 else xp.min)(size, axis=axis, keepdims=keepdims)
    if p == 0:
        size = xp.astype(size != 0, size.dtype)
    elif p != 1:
        size = size * size if p == 2 else size**p
    out = xp.sum(size, axis=axis, keepdims=keepdims)
    return out if p in (0, 1) else xp.sqrt(out) if p == 2 else out ** (1 / p)


@composed(dtypes=INEXACT)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norm of each matrix of a stack.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n); ``keepdims`` keeps the
    two axes with size 1. ``ord`` is ``"fro"`` for the root of the sum of squares, ``"nuc"``
    for the sum of singular values, 2 and -2 for the largest and smallest of them, 1 and -1
    for the largest and smallest sum of magnitudes of a column, inf and -inf of a row. That of
    an empty matrix is 0. Raises ShapeError for tensors with less than two axes and where there
    is no smallest, EagerflowError for another ``ord``.

    >>> float(ef.linalg.matrix_norm(ef.tensor([[3.0, 0.0], [0.0, 4.0]])))
    5.0
    """
    matrices(x)
    if not isinstance(ord, str | int | float):
        raise _no_order(ord)
    if ord == "fro":
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    choose = _smallest if isinstance(ord, int | float) and ord < 0 else _largest
    if ord == "nuc":
        found = total(svdvals(x), axis=-1)
    elif ord in (2, -2):
        found = choose(svdvals(x))
    elif ord in (1, -1):
        found = choose(total(magnitude(x), axis=-2))
    elif ord in (math.inf, -math.inf):
        found = choose(total(magnitude(x), axis=-1))
    else:
        raise _no_order(ord)
    return reshape(found, (*found.shape, 1, 1)) if keepdims else found


def _no_order(ord: Any) -> EagerflowError:
    return EagerflowError(
        f"{short_repr(ord)} is not an order of a matrix norm",
        argument="ord",
        expected="'fro', 'nuc', 1, -1, 2, -2, inf or -inf",
    )


def _largest(x: Any) -> Any:
    """The maximum of nonnegative numbers; 0 if there are none."""
    return total(x, axis=-1) if x.shape[-1] == 0 else largest(x, axis=-1)


def _smallest(x: Any) -> Any:
    if x.shape[-1] == 0:
        raise ShapeError(
            "an empty matrix has no smallest sum or singular value",
            argument="x",
            expected="at least one row and one column",
            hint="another ord",
        )
    return smallest(x, axis=-1)


@composed(dtypes=INEXACT)
def norm(x: Any, /, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Norm of vectors or matrices, as ``numpy.linalg.norm`` chooses.

    ``x`` is a tensor of floats or complex numbers. An integer ``axis`` is that of vectors, a pair
    of axes that of matrices; without ``axis``, all elements are one vector if there is no ``ord``
    either, otherwise ``x`` has one or two axes. ``ord`` is as for ``vector_norm`` and
    ``matrix_norm``; None is 2 for vectors and ``"fro"`` for matrices. ``keepdims`` keeps reduced
    axes with size 1. Raises ShapeError for axes that do not exist or are too many.

    >>> ef.linalg.norm(ef.tensor([[3.0, 4.0], [0.0, 2.0]]), axis=1)
    Tensor([5., 2.], float32, cpu:0)
    """
    if axis is None and ord is None:
        return vector_norm(x, keepdims=keepdims)
    axes = reduced_axes(axis, x.ndim)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ShapeError(
            f"{len(axes)} axes hold neither vectors nor matrices",
            argument="axis",
            expected="an integer or a pair of integers",
            hint="ef.linalg.vector_norm",
        )
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    moved = permute_dims(x, (*rest, *axes))
    found = matrix_norm(moved, ord="fro" if ord is None else ord)
    if not keepdims:
        return found
    return reshape(found, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
