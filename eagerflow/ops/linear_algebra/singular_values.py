"""The singular value decomposition of stacks of matrices, and its values alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dtypes import is_complex, real_dtype
from eagerflow.errors import GradientError, ShapeError
from eagerflow.op import ErrorSample, Missing, Sample
from eagerflow.ops.creation.filled import eye
from eagerflow.ops.elementwise.arithmetic import add, multiply, subtract
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import refused_objects
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul, vecdot
from eagerflow.ops.linear_algebra.decompositions import (
    as_row,
    full_rank,
    not_converged,
    phase_rule,
    rotated,
    safe_reciprocal,
    with_positive_tops,
)
from eagerflow.ops.linear_algebra.systems import as_column, cubic, factorization, matrices, on_each
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.spec import TensorSpec

__all__ = ["svd", "svdvals"]


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: Any
    S: Any
    Vh: Any


def _svd_spec(x: TensorSpec, full_matrices: bool = True) -> tuple[TensorSpec, ...]:
    *stack, m, n = matrices(x).shape
    k = m if m == n else min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    return (
        x.like((*stack, m, left)),
        x.like((*stack, k), real_dtype(x.dtype)),
        x.like((*stack, right, n)),
    )


def _svd_vjp(g: Any, y: Any, x: Any, full_matrices: bool) -> tuple[Any]:
    """Z. Wan and S. Zhang, Automatic differentiation for complex valued SVD, arXiv:1909.02659.

    As with ``eigh``, nothing is moved between equal singular values, nor divided by zero.
    """
    (g_u, g_s, g_vh), (u, s, vh) = g, y
    m, n = x.shape[-2:]
    if full_matrices and m != n:
        raise GradientError(
            "the vectors that complete the bases are not determined, so they have no gradient",
            op="svd",
            argument="full_matrices",
            hint="full_matrices=False, or svdvals",
        )
    v, g_v = adjoint(vh), adjoint(g_vh)
    over = safe_reciprocal(s)
    if is_complex(x.dtype):
        turning = add(vecdot(g_u, u, axis=-2), vecdot(g_v, v, axis=-2))
        g_u = phase_rule(g_u, u, turning)
    row, column = as_row(s), as_column(s)
    gap = safe_reciprocal(multiply(subtract(row, column), add(row, column)))
    from_u, from_v = matmul(adjoint(u), g_u), matmul(vh, g_v)
    inner = add(
        multiply(multiply(subtract(from_u, adjoint(from_u)), gap), row),
        multiply(multiply(subtract(from_v, adjoint(from_v)), gap), column),
    )
    diagonal = g_s
    if is_complex(x.dtype):
        own = vecdot(u, g_u, axis=-2)
        diagonal = add(diagonal, multiply(subtract(own, conjugate(own)), multiply(over, 0.5)))
    unit = eye(s.shape[-1], dtype=s.dtype, device=str(x.device))
    total = matmul(matmul(u, add(inner, multiply(unit, as_row(diagonal)))), vh)
    if m != n and m > n:
        rest = subtract(g_u, matmul(u, from_u))
        total = add(total, matmul(multiply(rest, as_row(over)), vh))
    elif m != n:
        rest = subtract(g_vh, matmul(adjoint(from_v), vh))
        total = add(total, matmul(multiply(u, as_row(over)), rest))
    return (total,)


def _spread(rng: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Random matrices of full rank whose singular values are about one apart."""
    slope = np.eye(shape[-2], shape[-1]) * (np.arange(shape[-1]) + 1)
    return (full_rank(rng, dtype, shape) * 0.3 + slope).astype(dtype)


def _svd_samples(rng: Any, dtype: Any) -> list[Sample]:
    shapes: Any = (
        (1, 1),
        (2, 2),
        (3, 3),
        (2, 3, 3),
        (3, 2),
        (2, 3),
        (2, 4, 2),
        (2, 1, 2, 2),
        (0, 2, 2),
        (1, 3),
        (3, 0),
    )
    found = [Sample((_spread(rng, dtype, shape),), {"full_matrices": False}) for shape in shapes]
    wide = np.zeros((6, 4), dtype)
    wide[::2, ::2] = _spread(rng, dtype, (3, 2))
    found.append(Sample((wide[::2, ::2],), {"full_matrices": False}))
    found.append(Sample((_spread(rng, dtype, (3, 2)).T,), {"full_matrices": False}))
    return [*found, Sample((_spread(rng, dtype, (3, 3)),), {"full_matrices": True})]


def _values(rows: list[list[Any]]) -> list[float]:
    """Square roots of the eigenvalues of the smaller product of the matrix with itself."""
    a = np.array(rows)
    gram = a @ np.conj(a.T) if a.shape[0] < a.shape[1] else np.conj(a.T) @ a
    return [math.sqrt(max(value, 0)) for value in reversed(rotated(gram.tolist()))]


def _svd_errors(rng: Any) -> list[ErrorSample]:
    return [
        *refused_objects(rng),
        ErrorSample((rng.random(3),), {}, ShapeError, "not enough for a matrix"),
        ErrorSample((2.0,), {}, ShapeError, "not enough for a matrix"),
    ]


@factorization(
    infer=_svd_spec,
    vjp=in_float32(_svd_vjp),
    saves="x y",
    outputs=3,
    cost=lambda x, **more: cubic(x, flops=20),
    samples=_svd_samples,
    errors=_svd_errors,
    reference=Missing("the vectors are checked by their product and orthonormality"),
    ulp=512,
    split=Missing("the whole input is needed"),
)
def _svd(xp: Any, x: Any, /, *, full_matrices: bool = True) -> Any:
    """Singular vectors and values of matrices."""
    try:
        u, s, vh = xp.linalg.svd(matrices(x), full_matrices=full_matrices)
    except np.linalg.LinAlgError as error:
        raise not_converged() from error
    if u.size == 0 or vh.size == 0:
        return u, s, vh
    turned, factor = with_positive_tops(xp, u)
    k = s.shape[-1]
    back = xp.conj(factor).mT if factor.dtype.kind == "c" else factor.mT
    if vh.shape[-2] == k:
        return turned, s, vh * back[..., :k, :]
    first = vh[..., :k, :] * back[..., :k, :]
    return turned, s, xp.concat((first, vh[..., k:, :]), axis=-2)


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular vectors and values of matrices: ``U @ diag(S) @ Vh`` is the matrix.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n). With k = min(m, n) the
    named tuple ``(U, S, Vh)`` has shapes (..., m, m), (..., k) and (..., n, n), or with
    ``full_matrices=False`` (..., m, k), (..., k) and (..., k, n); ``S`` is real and descends,
    the largest element of each column of ``U`` is real and positive. Gradients need
    ``full_matrices=False`` or m = n; those of the vectors grow as singular values come close,
    and count as 0 between equal ones. Raises ShapeError for tensors with less than two axes,
    EagerflowError for values that are not finite.

    >>> ef.linalg.svd(ef.tensor([[0.0, 2.0], [1.0, 0.0]])).S
    Tensor([2., 1.], float32, cpu:0)
    """
    return SVDResult(*_svd(x, full_matrices=full_matrices))


svd.op = _svd.op  # type: ignore[attr-defined]


def _svdvals_vjp(g: Any, y: Any, x: Any) -> Any:
    u, _, vh = svd(x, full_matrices=False)
    return matmul(multiply(u, as_row(g)), vh)


@factorization(
    infer=lambda x: _svd_spec(x)[1],
    vjp=(in_float32(_svdvals_vjp),),
    saves="x",
    cost=lambda x: cubic(x, flops=4),
    samples=lambda rng, dtype: [Sample(sample.args) for sample in _svd_samples(rng, dtype)],
    errors=_svd_errors,
    reference=lambda x: (
        on_each(_values)(x) if x.size else np.zeros((*x.shape[:-2], min(x.shape[-2:])))
    ),
    ulp=512,
)
def svdvals(xp: Any, x: Any, /) -> Any:
    """Singular values of matrices, in descending order.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n); the result is real, of
    shape (..., min(m, n)). Raises ShapeError for tensors with less than two axes,
    EagerflowError for values that are not finite.

    >>> ef.linalg.svdvals(ef.tensor([[0.0, 2.0], [1.0, 0.0]]))
    Tensor([2., 1.], float32, cpu:0)
    """
    try:
        if hasattr(xp.linalg, "svdvals") and xp is not np:
            return xp.linalg.svdvals(x)
        return xp.linalg.svd(matrices(x) if xp is np else x, compute_uv=False)
    except np.linalg.LinAlgError as error:
        raise not_converged() from error
