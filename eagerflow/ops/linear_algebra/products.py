"""Products of tensors as NumPy has them, distances of points, and polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dtypes import INEXACT, NUMERIC, STANDARD, is_complex
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import ones_like, zeros_like
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.elementwise.complexes import conj
from eagerflow.ops.linear_algebra.contraction import matmul, tensordot
from eagerflow.ops.operands import as_wide_integers, floating, vector, whole_number
from eagerflow.ops.reductions.cumulative import cumulative_prod
from eagerflow.ops.reductions.norms import vector_norm
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.padding import flip
from eagerflow.ops.shapes.reshaping import broadcast_to, expand_dims, reshape
from eagerflow.tensor import Tensor

__all__ = ["cdist", "dot", "inner", "kron", "polyval", "vander", "vdot"]


@composed(dtypes=NUMERIC)
def dot(x1: Any, x2: Any, /) -> Tensor:
    """Sums of products over the last axis of one tensor and the last but one (or only) of another.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers; those without axes are multiplied.
    Raises ShapeError where the sizes of the two axes differ.

    >>> ef.dot(ef.tensor([[1.0, 2.0], [3.0, 4.0]]), ef.tensor([1.0, 1.0]))
    Tensor([3., 7.], float32, cpu:0)
    """
    if x1.ndim == 0 or x2.ndim == 0:
        return multiply(x1, x2)
    if x2.ndim <= 2:
        return matmul(x1, x2)
    return tensordot(x1, x2, axes=((x1.ndim - 1,), (x2.ndim - 2,)))


@composed(dtypes=NUMERIC)
def inner(x1: Any, x2: Any, /) -> Tensor:
    """Sums of products over the last axes of two tensors.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers; those without axes are multiplied.
    Raises ShapeError where the sizes of the last axes differ.

    >>> ef.inner(ef.tensor([1.0, 2.0]), ef.tensor([3.0, 4.0]))
    Tensor(11., float32, cpu:0)
    """
    if x1.ndim == 0 or x2.ndim == 0:
        return multiply(x1, x2)
    return tensordot(x1, x2, axes=((x1.ndim - 1,), (x2.ndim - 1,)))


@composed(dtypes=NUMERIC)
def vdot(x1: Any, x2: Any, /) -> Tensor:
    """Sum of the products of all elements of two tensors, those of the first conjugated.

    ``x1`` and ``x2`` are numeric tensors, arrays or numbers of one size; their shapes do not count.
    Raises ShapeError where the sizes differ.

    >>> ef.vdot(ef.tensor([1j, 2.0]), ef.tensor([1j, 1.0]))
    Tensor(3.+0.j, complex64, cpu:0)
    """
    first = reshape(x1, (-1,))
    return matmul(conj(first) if is_complex(first.dtype) else first, reshape(x2, (-1,)))


@composed(dtypes=STANDARD)
def kron(x1: Any, x2: Any, /) -> Tensor:
    """Kronecker product: each element of one tensor times all of another, as blocks.

    ``x1`` and ``x2`` are tensors, arrays or numbers; if one has fewer axes, axes of size 1 are
    prepended. Sizes multiply.

    >>> ef.kron(ef.tensor([1, 10]), ef.tensor([1, 2]))
    Tensor([ 1,  2, 10, 20], int64, cpu:0)
    """
    rank = max(x1.ndim, x2.ndim)
    a, b = ((*(1,) * (rank - x.ndim), *x.shape) for x in (x1, x2))
    first = reshape(x1, tuple(n for size in a for n in (size, 1)))
    second = reshape(x2, tuple(n for size in b for n in (1, size)))
    return reshape(multiply(first, second), tuple(m * n for m, n in zip(a, b, strict=True)))


# Distances ----------------------------------------------------------------------------------------


@composed(dtypes=INEXACT - {np.dtype("complex64"), np.dtype("complex128")}, singular=True)
def cdist(x1: Any, x2: Any, /, p: float = 2.0) -> Tensor:
    """Distances of all points of one set from all points of another.

    ``x1`` has shape (..., m, coordinates) and ``x2`` (..., n, coordinates); the result has shape
    (..., m, n). ``p`` is the order of the norm: 1, 2, infinity or any other above 0, or 0 for the
    number of coordinates that differ. The gradient of a distance of 0 is 0. Raises ShapeError
    where the numbers of coordinates differ.

    >>> ef.cdist(ef.tensor([[0.0, 0.0]]), ef.tensor([[3.0, 4.0], [0.0, 1.0]]))
    Tensor([[5., 1.]], shape=(1, 2), float32, cpu:0)
    """
    if x1.ndim < 2 or x2.ndim < 2:
        raise ShapeError("a set of points has two axes", argument="x1" if x1.ndim < 2 else "x2")
    if type(x1.shape[-1]) is type(x2.shape[-1]) is int and x1.shape[-1] != x2.shape[-1]:
        raise ShapeError("the numbers of coordinates differ", argument="x2")
    if isinstance(p, bool) or not isinstance(p, int | float) or not p >= 0:
        raise ArgumentError(f"{p!r} is not an order of a norm", argument="p", expected="from 0 on")
    a, b = floating(x1, "x1"), floating(x2, "x2")
    first = reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    second = reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return vector_norm(subtract(first, second), axis=-1, ord=p)


# Polynomials --------------------------------------------------------------------------------------


@composed(dtypes=NUMERIC)
def vander(x: Any, /, N: int | None = None, increasing: bool = False) -> Tensor:
    """Vandermonde's matrix: the powers of each element of a vector, as rows.

    ``x`` is a numeric vector, or a stack of them, shape (..., rows); ``N`` is the number of
    columns, by default that of rows; powers fall to 0 from left to right, or rise from it with
    ``increasing``. Integers give int64. Raises ShapeError for a tensor without axes.

    >>> ef.vander(ef.tensor([1.0, 2.0, 3.0]), increasing=True)
    Tensor([[1., 1., 1.],
            [1., 2., 4.],
            [1., 3., 9.]], shape=(3, 3), float32, cpu:0)
    """
    if x.ndim == 0:
        raise ShapeError("there is no axis with elements", argument="x")
    count = x.shape[-1] if N is None else whole_number(N, "N", 0)
    x = as_wide_integers(x)
    column = expand_dims(x, -1)
    first = ones_like(column)
    if type(count) is int and count < 2:
        return first[..., :count]
    factors = broadcast_to(column, (*x.shape, count - 1))
    powers = concat([first, cumulative_prod(factors, axis=-1, dtype=x.dtype)], axis=-1)
    return powers if increasing else flip(powers, axis=-1)


@composed(dtypes=NUMERIC)
def polyval(p: Any, x: Any, /) -> Tensor:
    """Values of a polynomial by Horner's rule.

    ``p`` is a vector of coefficients, the highest power first; ``x`` is a numeric tensor of any
    shape. Raises ShapeError for coefficients that are not a vector.

    >>> ef.polyval(ef.tensor([1.0, 0.0, -2.0]), ef.tensor([2.0, 3.0]))
    Tensor([2., 7.], float32, cpu:0)
    """
    value = zeros_like(x)
    for i in range(int(vector(p, "p").shape[0])):
        value = add(multiply(value, x), p[i])
    return value
