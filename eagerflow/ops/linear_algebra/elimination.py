"""Elimination with partial pivoting: triangles, and systems that are solved by them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.numpy import matrices as on_numpy
from eagerflow.dtypes import INTEGERS
from eagerflow.errors import ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.draws import host
from eagerflow.ops.creation.filled import eye
from eagerflow.ops.elementwise.arithmetic import add, subtract
from eagerflow.ops.family import INEXACT, Batch, define
from eagerflow.ops.indexing.scattering import one_hot
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul
from eagerflow.ops.linear_algebra.systems import factorization, gives, matrices
from eagerflow.ops.linear_algebra.triangles import solve_triangular
from eagerflow.ops.shapes.diagonals import tril, triu
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import matrix_transpose
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["lu", "lu_factor", "lu_solve"]


class LUFactors(NamedTuple):
    """Both triangles in one matrix, without the ones of the lower; and the swaps of rows."""

    LU: Tensor
    pivots: Tensor


class LUResult(NamedTuple):
    """A permutation, a lower triangle with ones on the diagonal, and an upper one."""

    P: Tensor
    L: Tensor
    U: Tensor


def _factor_spec(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    *stack, m, n = matrices(x).shape
    return x.like(), x.like((*stack, m if m == n else min(m, n)), "int64")


def _permuted_back(x: Any, pivots: Any) -> Any:
    """Rows in their order before the swaps."""
    order = lu_permutation(pivots, rows=x.shape[-2])
    # The order is a permutation; its inverse sorts it.
    return matmul(matrix_transpose(astype(one_hot(order, x.shape[-2]), x.dtype)), x)


def _factor_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    """The differential of the triangles, transposed; square part first, then the remainder."""
    packed, pivots = y
    g = g[0]
    m, n = x.shape[-2:]
    k = min(m, n)
    top, g_top = packed[..., :k, :k], g[..., :k, :k]
    low_g, up_g = tril(g_top, -1), triu(g_top)
    beside = None
    if n > k:
        beside = solve_triangular(top, g[..., :, k:], lower=True, trans=2, unit_diagonal=True)
        low_g = subtract(low_g, matmul(beside, adjoint(packed[..., :, k:])))
    elif m > k:
        beside = adjoint(solve_triangular(top, adjoint(g[..., k:, :])))
        up_g = subtract(up_g, matmul(adjoint(packed[..., k:, :]), beside))
    low = add(tril(top, -1), eye(k, dtype=x.dtype, device=str(x.device)))
    inner = add(tril(matmul(adjoint(low), low_g), -1), triu(matmul(up_g, adjoint(triu(top)))))
    found = adjoint(solve_triangular(top, adjoint(inner)))
    found = solve_triangular(top, found, lower=True, trans=2, unit_diagonal=True)
    if beside is not None:
        found = concat((found, beside), axis=-1 if n > k else -2)
    return (_permuted_back(found, pivots),)


@gives(LUFactors)
@factorization(
    infer=_factor_spec,
    vjp=_factor_vjp,
    saves="x y",
    outputs=2,
    onnx=Missing("elimination moves rows by their values, and is not written as a loop"),
    fails=False,
)
def lu_factor(xp: Namespace, x: Array, /) -> Any:
    """Triangles whose product is a matrix with its rows in another order, packed in one.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n). The named tuple ``(LU,
    pivots)`` has both triangles, without the ones on the lower one's diagonal, and an int64 tensor
    of shape (..., min(m, n)): row i was swapped with row pivots[i], for i from 0 on. The gradient
    needs an upper triangle without zeros on its diagonal. Raises ShapeError for tensors with less
    than two axes.

    >>> ef.linalg.lu_factor(ef.tensor([[2.0, 1.0], [4.0, 4.0]]))
    LUFactors(LU=Tensor([[ 4. ,  4. ],
            [ 0.5, -1. ]], shape=(2, 2), float32, cpu:0), pivots=Tensor([1, 1], int64, cpu:0))
    """
    found = on_numpy.lu_packed(host(matrices(x)))
    return found if xp is np else tuple(map(xp.asarray, found))


def _permutation_spec(x: TensorSpec, rows: int) -> TensorSpec:
    if not x.ndim:
        raise ShapeError("pivots have an axis", argument="x", expected="shape (..., k)")
    size = x.shape[-1]
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise ShapeError(
            f"{rows!r} is not a number of rows", argument="rows", expected="an integer"
        )
    if isinstance(size, int) and size > rows:
        raise ShapeError(
            f"{size} swaps are too many for {rows} rows",
            argument="rows",
            expected=f"at least {size}",
        )
    return x.like((*x.shape[:-1], rows), "int64")


@define(
    "indexing",
    dtypes=INTEGERS,
    infer=_permutation_spec,
    vjp=Missing("rows are counted"),
    batch=Batch(lambda call, args, batched, size, rows: call(*args, rows=rows)),
    onnx=Missing("swaps follow each other, and are not written as a loop"),
    fails=True,
    aliases=False,
)
def lu_permutation(xp: Namespace, x: Array, /, *, rows: int) -> Array:
    """Where each row of the triangles was, from the swaps of ``lu_factor``.

    ``x`` is a tensor of integers, shape (..., k), the result one of shape (..., rows). Raises
    ShapeError for swaps with a row out of range.

    >>> lu_permutation(np.array([1, 1]), rows=2)
    Tensor([1, 0], int64, cpu:0)
    """
    pivots = host(x)
    if pivots.size and not 0 <= int(pivots.min()) <= int(pivots.max()) < rows:
        raise ShapeError("there is no row to swap", argument="x", expected=f"from 0 to {rows - 1}")
    found = on_numpy.swapped_rows(pivots, rows)
    return found if xp is np else xp.asarray(found)


@composed(dtypes=INEXACT)
def lu(x: Any, /) -> LUResult:
    """A permutation and two triangles whose product ``P @ L @ U`` is a matrix.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n); with k = min(m, n) the named
    tuple has tensors of shapes (..., m, m), (..., m, k) and (..., k, n). Gradients pass as through
    ``lu_factor``. Raises ShapeError for tensors with less than two axes.

    >>> p, l, u = ef.linalg.lu(ef.tensor([[2.0, 1.0], [4.0, 4.0]]))
    >>> p @ l @ u
    Tensor([[2., 1.],
            [4., 4.]], shape=(2, 2), float32, cpu:0)
    """
    packed, pivots = lu_factor(x)
    m, n = packed.shape[-2:]
    k = min(m, n)
    low = add(tril(packed[..., :k], -1), eye(m, k, dtype=packed.dtype, device=str(packed.device)))
    order = lu_permutation(pivots, rows=m)
    turned = matrix_transpose(astype(one_hot(order, m), packed.dtype))
    return LUResult(turned, low, triu(packed[..., :k, :]))


def lu_solve(factors: Any, b: Any, /, *, trans: int = 0) -> Tensor:
    """The solution of a system by the triangles of its matrix.

    ``factors`` is the result of ``lu_factor`` for square matrices, shape (..., n, n); ``b`` has
    shape (n,) or (..., n, k). ``trans=1`` solves with the transpose of the matrix, 2 with its
    adjoint. Raises the errors of ``solve_triangular``.

    >>> factors = ef.linalg.lu_factor(ef.tensor([[2.0, 1.0], [4.0, 4.0]]))
    >>> ef.linalg.lu_solve(factors, ef.tensor([4.0, 12.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    packed, pivots = factors
    order = lu_permutation(pivots, rows=packed.shape[-2])
    turn = astype(one_hot(order, packed.shape[-2]), packed.dtype)
    if trans:
        middle = solve_triangular(packed, b, trans=trans)
        found = solve_triangular(packed, middle, lower=True, trans=trans, unit_diagonal=True)
        return matmul(matrix_transpose(turn), found)
    middle = solve_triangular(packed, matmul(turn, b), lower=True, unit_diagonal=True)
    return solve_triangular(packed, middle)
