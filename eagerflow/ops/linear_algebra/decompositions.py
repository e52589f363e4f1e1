"""Factorisations of stacks of matrices: Cholesky, QR, eigenvalues and singular values.

Vectors that are determined up to a factor get one: the element of the largest magnitude is
real and positive. So results are the same on all devices, and derivatives are unique.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from eagerflow.dtypes import is_complex, real_dtype
from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import eye
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import equal
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.linear_algebra.contraction import adjoint, matmul, vecdot
from eagerflow.ops.linear_algebra.systems import (
    as_column,
    cubic,
    factorization,
    finite,
    gives,
    identity_like,
    matrices,
    not_converged,
    solve,
    square,
)
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.ops.reductions.cumulative import cumulative_sum
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["cholesky", "eigh", "eigvalsh", "qr", "svd", "svdvals"]

# Pieces of the gradient rules --------------------------------------------------------------------


def _lower(x: Any) -> Any:
    """Ones on and below the diagonal, for square matrices like ``x``."""
    return cumulative_sum(identity_like(x, real_dtype(x.dtype)), axis=0)


def as_row(x: Any) -> Any:
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def symmetric(x: Any) -> Any:
    return multiply(add(x, adjoint(x)), 0.5)


def hermitian(xp: Namespace, x: Any) -> Any:
    """The part of ``x`` that equals its own adjoint, so that both triangles count."""
    star = xp.conj(x).mT if x.dtype.kind == "c" else x.mT
    return (x + star) / 2


def safe_reciprocal(x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    zero = equal(x, 0)
    return where(zero, 0, divide(1, where(zero, 1, x)))


def with_positive_tops(xp: Namespace, x: Any) -> tuple[Any, Any]:
    """``x`` with the largest element of each column real and positive, and the factors."""
    if x.size == 0:
        return x, xp.ones((*x.shape[:-2], 1, x.shape[-1]), dtype=x.dtype)
    size = xp.abs(x)
    at = xp.argmax(size, axis=-2, keepdims=True)
    top = xp.take_along_axis(x, at, axis=-2)
    factor = (xp.conj(top) if x.dtype.kind == "c" else top) / xp.abs(top)
    return x * factor, factor


def phase_rule(g: Any, v: Any, turning: Any) -> Any:
    """``g`` projected to be invariant under the choice of the columns' phases.

    If columns turn by small angles t, the target moves by -Im(turning) t; the angles keep the
    largest element of each column of ``v`` real.
    """
    if v.shape[-1] == 0:
        return g
    size = magnitude(v)
    top = astype(equal(size, largest(size, axis=-2, keepdims=True)), v.dtype)
    lengths = total(multiply(top, v), axis=-2)
    turn = divide(subtract(turning, conjugate(turning)), multiply(lengths, 2))
    return add(g, multiply(top, as_row(turn)))


def without_complement(g: Any, basis: Any, k: int) -> tuple[Any, Any]:
    """The gradient of the first k columns of a basis, including that of the complement.

    The complement's basis is arbitrary and treated as fixed. That is correct for targets that do
    not depend on the choice, the only ones that have a gradient.
    """
    first, others = basis[..., :k], basis[..., k:]
    moved = matmul(others, matmul(adjoint(g[..., k:]), first))
    return subtract(g[..., :k], moved), first


# Cholesky ----------------------------------------------------------------------------------------


def _cholesky_vjp(g: Any, y: Any, x: Any, upper: bool) -> Any:
    """I. Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527."""
    low, g = (adjoint(y), adjoint(g)) if upper else (y, g)
    weights = subtract(_lower(low), multiply(identity_like(low, real_dtype(x.dtype)), 0.5))
    half = multiply(matmul(adjoint(low), g), weights)
    star = adjoint(low)
    return multiply(adjoint(solve(star, adjoint(solve(star, add(half, adjoint(half)))))), 0.5)


@factorization(
    infer=lambda x, upper=False: square(x).like(),
    vjp=(_cholesky_vjp,),
    saves="y",
    onnx="body",
)
def cholesky(xp: Namespace, x: Array, /, *, upper: bool = False) -> Array:
    """The triangular ``l`` with ``l @ l^H`` equal to a positive definite matrix.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n), of which the Hermitian
    part ``(x + x^H) / 2`` is taken; ``upper=True`` gives ``l^H``. Raises ShapeError for
    matrices that are not square, EagerflowError for one that is not positive definite.

    >>> ef.linalg.cholesky(ef.tensor([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], shape=(2, 2), float32, cpu:0)
    """
    try:
        return xp.linalg.cholesky(hermitian(xp, square(x)), upper=upper)
    except np.linalg.LinAlgError as error:
        raise EagerflowError(
            "a matrix is not positive definite",
            argument="x",
            hint="add a small multiple of ef.eye(n)",
        ) from error


# QR ----------------------------------------------------------------------------------------------


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle whose product is the matrix."""

    Q: Tensor
    R: Tensor


def qr_spec(x: TensorSpec, mode: str = "reduced") -> tuple[TensorSpec, TensorSpec]:
    *stack, m, n = matrices(x).shape
    if mode not in ("reduced", "complete"):
        raise ShapeError(
            f"{mode!r} is not a mode", argument="mode", expected="'reduced' or 'complete'"
        )
    k = m if mode == "complete" or m == n else min(m, n)
    return x.like((*stack, m, k)), x.like((*stack, k, n))


def _qr_vjp(g: Any, y: Any, x: Any, mode: str) -> tuple[Any]:
    """S. F. Walter and L. Lehmann, arXiv:1009.6112; for wide matrices H. Liao et al., PRX 2019."""
    (g_q, g_r), (q, r) = g, y
    m, n = x.shape[-2:]
    if m != n and m > n and mode == "complete":
        g_q, q = without_complement(g_q, q, n)
        g_r, r = g_r[..., :n, :], r[..., :n, :]
    if m == n or m > n:
        return (_qr_tall(g_q, g_r, q, r),)
    rest, g_rest = x[..., m:], g_r[..., m:]
    moved = add(g_q, matmul(rest, adjoint(g_rest)))
    g_left = _qr_tall(moved, g_r[..., :m], q, r[..., :m])
    return (concat((g_left, matmul(q, g_rest)), axis=-1),)


def _qr_tall(g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    inner = subtract(matmul(r, adjoint(g_r)), matmul(adjoint(g_q), q))
    weights = subtract(_lower(r), multiply(identity_like(r, real_dtype(r.dtype)), 0.5))
    half = multiply(inner, weights)
    moved = add(g_q, matmul(q, add(half, adjoint(half))))
    return adjoint(solve(r, adjoint(moved)))


@gives(QRResult)
@factorization(
    infer=qr_spec,
    vjp=_qr_vjp,
    saves="x y",
    onnx="body",
    outputs=2,
    cost=lambda x, **more: cubic(x, flops=4),
    fails=False,
)
def qr(xp: Namespace, x: Array, /, *, mode: Literal["reduced", "complete"] = "reduced") -> Array:
    """Orthonormal columns ``Q`` and an upper triangle ``R`` whose product is the matrix.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n). With k = min(m, n) the named
    tuple ``(Q, R)`` has shapes (..., m, k) and (..., k, n); ``mode="complete"`` gives (..., m, m)
    and (..., m, n). The gradient needs a matrix whose first k columns are independent; for columns
    that complete the basis it assumes targets that do not depend on their choice. Raises ShapeError
    for tensors with less than two axes or another mode.

    >>> q, r = ef.linalg.qr(ef.tensor([[0.0, 2.0], [1.0, 1.0]]))
    >>> bool(ef.max(ef.abs(q @ r - ef.tensor([[0.0, 2.0], [1.0, 1.0]]))) < 1e-6)
    True
    """
    return tuple(xp.linalg.qr(x, mode=mode))


# Eigenvalues -------------------------------------------------------------------------------------


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _eigh_vjp(g: Any, y: Any, x: Any) -> tuple[Any]:
    """The first-order perturbation of eigenvectors, transposed; see Giles.

    Equal eigenvalues have no mutual term: correct for targets that do not depend on the choice of a
    basis in their common space, the only ones that have a gradient.
    """
    (g_values, g_vectors), (values, vectors) = g, y
    if is_complex(x.dtype):
        g_vectors = phase_rule(g_vectors, vectors, vecdot(g_vectors, vectors, axis=-2))
    gap = safe_reciprocal(subtract(as_row(values), as_column(values)))
    inner = multiply(matmul(adjoint(vectors), g_vectors), gap)
    diagonal = multiply(identity_like(x, values.dtype), as_row(g_values))
    return (symmetric(matmul(matmul(vectors, add(inner, diagonal)), adjoint(vectors))),)


@gives(EighResult)
@factorization(
    infer=lambda x: (square(x).like(x.shape[:-1], real_dtype(x.dtype)), x.like()),
    vjp=_eigh_vjp,
    saves="y",
    outputs=2,
    cost=lambda x: cubic(x, flops=9),
    ulp=512,
)
def eigh(xp: Namespace, x: Array, /) -> Any:
    """Eigenvalues and eigenvectors of Hermitian (real: symmetric) matrices.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n), of which the Hermitian
    part ``(x + x^H) / 2`` is taken. The named tuple ``(eigenvalues, eigenvectors)`` has real
    values of shape (..., n) in ascending order, and unit vectors as columns, the largest
    element of each real and positive. The gradient of the vectors grows as eigenvalues come
    close; between equal ones it counts as 0. Raises ShapeError for matrices that are not
    square, EagerflowError for values that are not finite.

    >>> ef.linalg.eigh(ef.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Tensor([1., 2.], float32, cpu:0)
    """
    values, vectors = _finite(xp, xp.linalg.eigh, x)
    return values, with_positive_tops(xp, vectors)[0]


def _finite(xp: Namespace, solve: Any, x: Any) -> Any:
    """The result of a function on Hermitian matrices: eigenvalues, optionally with vectors."""
    try:
        found = solve(finite(xp, hermitian(xp, square(x))))
    except np.linalg.LinAlgError as error:
        raise not_converged() from error
    if x.size and not xp.all(xp.isfinite(found[0] if isinstance(found, tuple) else found)):
        raise not_converged()
    return found


def _eigvalsh_vjp(g: Any, y: Any, x: Any) -> Any:
    _, vectors = eigh(x)
    return matmul(multiply(vectors, as_row(g)), adjoint(vectors))


@factorization(
    infer=lambda x: square(x).like(x.shape[:-1], real_dtype(x.dtype)),
    vjp=(_eigvalsh_vjp,),
    saves="x",
    cost=lambda x: cubic(x, flops=4),
    ulp=512,
)
def eigvalsh(xp: Namespace, x: Array, /) -> Array:
    """Eigenvalues of Hermitian (real: symmetric) matrices, in ascending order.

    ``x`` is a tensor of floats or complex numbers, shape (..., n, n), of which the Hermitian
    part is taken; the result is real, of shape (..., n). Raises ShapeError for matrices that
    are not square, EagerflowError for values that are not finite.

    >>> ef.linalg.eigvalsh(ef.tensor([[2.0, 0.0], [0.0, 1.0]]))
    Tensor([1., 2.], float32, cpu:0)
    """
    return _finite(xp, xp.linalg.eigvalsh, x)


# Singular values ----------------------------------------------------------------------------------


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


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

    As for ``eigh``, equal singular values have no mutual term, and there is no division by 0.
    """
    (g_u, g_s, g_vh), (u, s, vh) = g, y
    m, n = x.shape[-2:]
    v, g_v = adjoint(vh), adjoint(g_vh)
    if full_matrices and m != n:
        if m > n:
            g_u, u = without_complement(g_u, u, n)
        else:
            g_v, v = without_complement(g_v, v, m)
            g_vh, vh = adjoint(g_v), adjoint(v)
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


@gives(SVDResult)
@factorization(
    infer=_svd_spec,
    vjp=_svd_vjp,
    saves="x y",
    outputs=3,
    cost=lambda x, **more: cubic(x, flops=20),
    ulp=512,
)
def svd(xp: Namespace, x: Array, /, *, full_matrices: bool = True) -> Any:
    """Singular vectors and values of matrices: ``U @ diag(S) @ Vh`` is the matrix.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n). With k = min(m, n) the
    named tuple ``(U, S, Vh)`` has shapes (..., m, m), (..., k) and (..., n, n), or with
    ``full_matrices=False`` (..., m, k), (..., k) and (..., k, n); ``S`` is real and descends,
    the largest element of each column of ``U`` is real and positive. Gradients of the vectors
    grow as singular values come close, and count as 0 between equal ones; of vectors that complete
    a basis they are those of targets which do not depend on their choice. Raises ShapeError for
    tensors with less than two axes, EagerflowError for values that are not finite.

    >>> ef.linalg.svd(ef.tensor([[0.0, 2.0], [1.0, 0.0]])).S
    Tensor([2., 1.], float32, cpu:0)
    """
    try:
        u, s, vh = xp.linalg.svd(finite(xp, matrices(x)), full_matrices=full_matrices)
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


def _svdvals_vjp(g: Any, y: Any, x: Any) -> Any:
    u, _, vh = svd(x, full_matrices=False)
    return matmul(multiply(u, as_row(g)), vh)


@factorization(
    infer=lambda x: _svd_spec(x)[1],
    vjp=(_svdvals_vjp,),
    saves="x",
    cost=lambda x: cubic(x, flops=4),
    ulp=512,
)
def svdvals(xp: Namespace, x: Array, /) -> Array:
    """Singular values of matrices, in descending order.

    ``x`` is a tensor of floats or complex numbers, shape (..., m, n); the result is real, of
    shape (..., min(m, n)). Raises ShapeError for tensors with less than two axes,
    EagerflowError for values that are not finite.

    >>> ef.linalg.svdvals(ef.tensor([[0.0, 2.0], [1.0, 0.0]]))
    Tensor([2., 1.], float32, cpu:0)
    """
    try:
        if hasattr(xp.linalg, "svdvals") and xp is not np:
            return xp.linalg.svdvals(finite(xp, matrices(x)))
        return xp.linalg.svd(finite(xp, matrices(x)), compute_uv=False)
    except np.linalg.LinAlgError as error:
        raise not_converged() from error
