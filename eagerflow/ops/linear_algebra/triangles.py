"""Triangular systems, and systems of a positive definite matrix by its triangle."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.arithmetic import negative
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import INEXACT, define
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul
from eagerflow.ops.linear_algebra.systems import (
    as_column,
    cubic,
    identity_like,
    lined_up,
    solve_shape,
    solve_split,
    square,
)
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.ops.shapes.diagonals import tril, triu
from eagerflow.ops.shapes.reshaping import broadcast_to, matrix_transpose, reshape, unbroadcast
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["cholesky_inverse", "cholesky_solve", "solve_triangular"]

_BLOCK = 64  # rows that one call of the library's solver takes


def _checked(x1: Any, x2: Any, trans: Any) -> tuple[Any, ...]:
    if type(trans) is not int or trans not in (0, 1, 2):
        raise ArgumentError(
            f"{trans!r} is not a form of the system",
            argument="trans",
            expected="0 for a @ x = b, 1 for the transpose of a, 2 for its adjoint",
        )
    return solve_shape(x1, x2)


def _triangular_spec(
    x1: TensorSpec,
    x2: TensorSpec,
    lower: bool = False,
    trans: int = 0,
    unit_diagonal: bool = False,
) -> TensorSpec:
    return x1.like(_checked(x1, x2, trans))


def _triangular_vjp(
    g: Any, y: Any, a: Any, b: Any, lower: bool, trans: int, unit_diagonal: bool
) -> tuple[Any, Any]:
    shape = b if isinstance(b, tuple) else b.shape
    vector = len(shape) == 1
    if vector:
        g, y = as_column(g), as_column(y)
    form = {"lower": lower, "unit_diagonal": unit_diagonal}
    if trans == 1:
        right = solve_triangular(conjugate(a), g, trans=0, **form)
    else:
        right = solve_triangular(a, g, trans=2 - trans, **form)
    left = matmul(right, adjoint(y))  # of the matrix of the system, which is a, a^T or a^H
    left = (lambda x: x, matrix_transpose, adjoint)[trans](left)
    part = tril(left, -1 if unit_diagonal else 0) if lower else triu(left, int(unit_diagonal))
    if vector:
        right = reshape(right, right.shape[:-1])
    return unbroadcast(negative(part), a.shape), unbroadcast(right, shape)


def _triangular_batch(args: Any, batched: Any, size: Any, **attributes: Any) -> Any:
    a, b, vector = lined_up(args, batched)
    out = solve_triangular(a, b, **attributes)
    return reshape(out, out.shape[:-1]) if vector else out


@define(
    "contraction",
    dtypes=INEXACT,
    infer=_triangular_spec,
    vjp=in_float32(_triangular_vjp),
    saves="x1 y",
    batch=_triangular_batch,
    split=lambda x1, x2, **_: solve_split(x1, x2),
    cost=lambda x1, x2, **_: cubic(x1),
    ulp=256,
    fails=True,
)
def solve_triangular(
    xp: Namespace,
    x1: Array,
    x2: Array,
    /,
    *,
    lower: bool = False,
    trans: int = 0,
    unit_diagonal: bool = False,
) -> Array:
    """The solution ``x`` of ``x1 @ x == x2``, where ``x1`` is triangular.

    ``x1`` is a tensor of square matrices, shape (..., n, n), of which the upper triangle is used
    (``lower=True``: the lower one), with ones on its diagonal if ``unit_diagonal``; ``x2`` is one
    of shape (n,) or (..., n, k), both of floats or complex numbers. ``trans=1`` takes the transpose
    of the triangle, 2 its adjoint. Leading axes broadcast. Raises ShapeError where the shapes do
    not fit, ArgumentError for another ``trans``, EagerflowError for a zero on a diagonal.

    >>> ef.linalg.solve_triangular(ef.tensor([[2.0, 1.0], [0.0, 4.0]]), ef.tensor([4.0, 8.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    _checked(x1, x2, trans)
    vector = x2.ndim == 1
    a, b = xp.tril(x1) if lower else xp.triu(x1), x2[:, None] if vector else x2
    if trans:
        a = a.mT if trans == 1 or a.dtype.kind != "c" else xp.conj(a).mT
    if unit_diagonal:
        strict = a - xp.tril(xp.triu(a))
        a = strict + xp.eye(a.shape[-1], dtype=a.dtype)
    try:
        if lower is bool(trans):
            found = _upper(xp, a, b)
        else:  # in reverse order the last unknown comes first
            found = _upper(xp, a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
    except np.linalg.LinAlgError as error:
        raise EagerflowError(
            "a matrix is singular: there is a zero on its diagonal",
            argument="x1",
            expected="no zero on a diagonal",
        ) from error
    return found[..., 0] if vector else found


def _upper(xp: Namespace, a: Any, b: Any) -> Any:
    """The solution of an upper triangle: elimination swaps nothing, halves are products."""
    n = a.shape[-1]
    if n <= _BLOCK:
        return xp.linalg.solve(a, b)
    half = n // 2
    low = _upper(xp, a[..., half:, half:], b[..., half:, :])
    top = _upper(xp, a[..., :half, :half], b[..., :half, :] - a[..., :half, half:] @ low)
    batch = np.broadcast_shapes(low.shape[:-2], top.shape[:-2])
    parts = [xp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (top, low)]
    return xp.concat(parts, axis=-2)


@composed(dtypes=INEXACT)
def cholesky_solve(x: Any, b: Any, /, *, upper: bool = False) -> Tensor:
    """The solution of a system with a positive definite matrix, by its Cholesky factor.

    ``x`` is the factor, shape (..., n, n), from ``cholesky`` with the same ``upper``; ``b`` has
    shape (n,) or (..., n, k). Raises the errors of ``solve_triangular``.

    >>> l = ef.linalg.cholesky(ef.tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> ef.linalg.cholesky_solve(l, ef.tensor([8.0, 12.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    lower = not upper
    middle = solve_triangular(x, b, lower=lower, trans=2 if upper else 0)
    return solve_triangular(x, middle, lower=lower, trans=0 if upper else 2)


@composed(dtypes=INEXACT)
def cholesky_inverse(x: Any, /, *, upper: bool = False) -> Tensor:
    """The inverse of a positive definite matrix, by its Cholesky factor.

    ``x`` is the factor, shape (..., n, n), from ``cholesky`` with the same ``upper``. Raises the
    errors of ``solve_triangular``.

    >>> l = ef.linalg.cholesky(ef.tensor([[4.0, 0.0], [0.0, 1.0]]))
    >>> ef.linalg.cholesky_inverse(l)
    Tensor([[0.25, 0.  ],
            [0.  , 1.  ]], shape=(2, 2), float32, cpu:0)
    """
    unit = broadcast_to(identity_like(square(x)), x.shape)
    return cholesky_solve(x, unit, upper=upper)
