"""Triangular systems, and systems of a positive definite matrix by its triangle."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dtypes import DType
from eagerflow.errors import ArgumentError, EagerflowError, ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.elementwise.arithmetic import negative
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import INEXACT, define
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul
from eagerflow.ops.linear_algebra.systems import (
    SYSTEMS,
    as_column,
    cubic,
    identity_like,
    lined_up,
    regular,
    solve_reference,
    solve_shape,
    solve_split,
    square,
    square_errors,
    square_samples,
)
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.ops.samples import make
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


def _triangular_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for i, (a, b) in enumerate(SYSTEMS):
        more = {"lower": bool(i % 2), "trans": i % 3, "unit_diagonal": i % 4 == 3}
        found.append(Sample((regular(rng, dtype, a), make(rng, dtype, b)), more))
    x = regular(rng, dtype, (3, 3))
    for trans in (0, 1, 2):
        found.append(Sample((x.T, x[::2].T), {"lower": True, "trans": trans}))
    return [*found, Sample((x, np.broadcast_to(x[0, 0], (3, 2))), {"unit_diagonal": True})]


def _triangular_reference(x1: Any, x2: Any, lower: bool, trans: int, unit_diagonal: bool) -> Any:
    a = np.array(x1)
    for at in np.ndindex(a.shape):
        i, j = at[-2:]
        if (i < j) if lower else (i > j):
            a[at] = 0
        if i == j and unit_diagonal:
            a[at] = 1
    whole = (a, a.swapaxes(-1, -2), np.conj(a.swapaxes(-1, -2)))[trans]
    return solve_reference(whole, x2)


@define(
    "contraction",
    dtypes=INEXACT,
    infer=_triangular_spec,
    vjp=in_float32(_triangular_vjp),
    saves="x1 y",
    batch=_triangular_batch,
    split=lambda x1, x2, **_: solve_split(x1, x2),
    cost=lambda x1, x2, **_: cubic(x1),
    samples=_triangular_samples,
    errors=lambda rng: [
        *square_errors(rng, np.ones(3)),
        ErrorSample((np.eye(3), np.ones(2)), {}, ShapeError, "3 rows, the right side has 2"),
        ErrorSample((np.eye(3), 1.0), {}, ShapeError, "has no axes"),
        ErrorSample((np.eye(3), np.ones(3)), {"trans": 3}, ArgumentError, "not a form"),
        ErrorSample((np.zeros((2, 2)), np.ones(2)), {}, EagerflowError, "singular"),
    ],
    reference=_triangular_reference,
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


def _full(x: Any, upper: bool) -> Any:
    """The matrix that has the triangle as its Cholesky factor."""
    low = np.conj(np.triu(x).mT) if upper else np.tril(x)
    return low @ np.conj(low.mT)


@composed(
    dtypes=INEXACT,
    samples=lambda rng, dtype: [
        Sample((regular(rng, dtype, a), make(rng, dtype, b)), {"upper": upper})
        for a, b in (((2, 2), (2,)), ((3, 3), (3, 2)), ((2, 3, 3), (3, 1)), ((0, 0), (0, 2)))
        for upper in (False, True)
    ],
    reference=lambda x, b, upper: np.linalg.solve(_full(x, upper), b),
    errors=lambda rng: square_errors(rng, np.ones(3)),
)
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


@composed(
    dtypes=INEXACT,
    samples=lambda rng, dtype: [
        sample._replace(attributes={"upper": upper})
        for upper in (False, True)
        for sample in square_samples(rng, dtype)[:6]
    ],
    reference=lambda x, upper: np.linalg.inv(_full(x, upper)),
    errors=square_errors,
)
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
