"""Functions of matrices and vectors composed of other ops."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from eagerflow.dtypes import INEXACT, real_dtype
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.elementwise.arithmetic import multiply, subtract
from eagerflow.ops.elementwise.comparison import greater
from eagerflow.ops.family import as_operand
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.linear_algebra.decompositions import svdvals
from eagerflow.ops.linear_algebra.einstein import einsum
from eagerflow.ops.linear_algebra.systems import identity_like, inv, matrices, square
from eagerflow.ops.reductions.accumulation import part_of
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape
from eagerflow.tensor import Tensor

__all__ = ["cross", "matrix_power", "matrix_rank", "trace"]


@composed(tensors=1)
def matrix_power(x: Any, n: int, /) -> Tensor:
    """Product of a square matrix with itself, ``n`` times.

    ``x`` is a tensor of shape (..., m, m), of floats or complex numbers if ``n`` is negative: then
    the inverse is used. Raises ShapeError for matrices that are not square, EagerflowError for a
    negative power of a singular one.

    >>> ef.linalg.matrix_power(ef.tensor([[1, 1], [0, 1]]), 5)
    Tensor([[1, 5],
            [0, 1]], shape=(2, 2), int64, cpu:0)
    """
    base = square(x)
    rest = index(n)
    if rest < 0:
        base, rest = inv(base), -rest
    if rest == 0:
        return broadcast_to(identity_like(base), base.shape)
    result: Any = None
    while rest:
        if rest % 2:
            result = base if result is None else matmul(result, base)
        rest //= 2
        base = matmul(base, base) if rest else base
    return result


def _for_each(limit: Any, values: Any) -> Any:
    """A limit that meets the values of each matrix."""
    given = as_operand(limit, values)
    return reshape(given, (*given.shape, 1)) if given.ndim else given


@composed(dtypes=INEXACT, gradient=Missing("a number of values"))
def matrix_rank(x: Any, /, *, rtol: Any = None, tol: Any = None) -> Tensor:
    """Number of singular values that are not negligible.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n); the result is int64, of
    shape (...). Values up to ``rtol`` times the largest one are negligible, or up to ``tol``: a
    number, or a tensor with one for each matrix; by default ``rtol`` is ``max(m, n)`` times the
    precision of the dtype. Raises ShapeError for tensors with less than two axes, ArgumentError
    for both limits at once.

    >>> ef.linalg.matrix_rank(ef.tensor([[1.0, 2.0], [2.0, 4.0]]))
    Tensor(1, int64, cpu:0)
    """
    if rtol is not None and tol is not None:
        raise ArgumentError(
            "two limits are given",
            argument="tol",
            received=f"rtol={rtol!r} and tol={tol!r}",
            expected="one of rtol and tol",
        )
    values = svdvals(matrices(x))
    if values.shape[-1] == 0:
        return astype(total(values, axis=-1), "int64")
    if tol is not None:
        return total(astype(greater(values, _for_each(tol, values)), "int64"), axis=-1)
    if rtol is None:
        dtype = real_dtype(values.dtype)
        small = dtype if dtype.kind == "f" and dtype.itemsize > 2 else np.dtype("float32")
        rtol = max(x.shape[-2:]) * float(np.finfo(small).eps)
    limit = multiply(largest(values, axis=-1, keepdims=True), _for_each(rtol, values))
    return total(astype(greater(values, limit), "int64"), axis=-1)


@composed()
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sum of the elements on a diagonal of each matrix.

    ``x`` is a numeric tensor of shape (..., m, n), ``offset`` counts diagonals to the right
    (negative: to the left). Integers are summed in 64 bits; ``dtype`` is that of the sum.
    Raises ShapeError for tensors with less than two axes.

    >>> ef.linalg.trace(ef.tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor(5., float32, cpu:0)
    """
    tensor = matrices(x) if dtype is None else astype(matrices(x), dtype)
    rows, columns = tensor.shape[-2:]
    if offset or rows != columns:
        down, right = max(-offset, 0), max(offset, 0)
        size = max(min(rows - down, columns - right), 0)
        tensor = tensor[..., down : down + size, right : right + size]
    found = total(einsum("...ii->...i", tensor), axis=-1)
    return found if dtype is None else astype(found, dtype)


@composed(sizes=Missing("vectors have three elements"))
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Vector product of the vectors of three elements along an axis.

    ``x1`` and ``x2`` are numeric tensors of shapes that broadcast and of size 3 along
    ``axis``, which is counted from the last axis where the ranks differ. Raises ShapeError
    for another size or an axis that does not exist.

    >>> ef.linalg.cross(ef.tensor([1.0, 0.0, 0.0]), ef.tensor([0.0, 1.0, 0.0]))
    Tensor([0., 0., 1.], float32, cpu:0)
    """
    at = axis if axis < 0 else axis - x1.ndim
    for name, x in (("x1", x1), ("x2", x2)):
        if not -x.ndim <= at < 0 or x.shape[at] != 3 or (axis >= 0 and axis != at + x.ndim):
            raise ShapeError(
                f"axis {axis} of {name} does not hold vectors of three elements",
                argument="axis",
                expected="an axis of size 3, counted from the last one if the ranks differ",
            )
    a, b = ([part_of(x, at + x.ndim, i, i + 1) for i in range(3)] for x in (x1, x2))
    parts = [
        subtract(multiply(a[i], b[j]), multiply(a[j], b[i])) for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return concat(parts, axis=at)
