"""Cases of eagerflow/ops/linear_algebra/decompositions.py."""

import math

import numpy as np

from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.linear_algebra.decompositions import qr_spec
from eagerflow.spec import TensorSpec
from tests.cases.linear_algebra.systems import on_each, square_errors, square_samples
from tests.cases.samples import Cases, ErrorSample, Sample, make


def positive_definite(rng, dtype, shape):
    """Random Hermitian matrices with positive eigenvalues."""
    a = make(rng, "complex128" if np.dtype(dtype).kind == "c" else "float64", shape, -1, 1)
    return (a @ np.conj(a.swapaxes(-1, -2)) + np.eye(shape[-1])).astype(dtype)


def _cholesky_samples(rng, dtype):
    found = square_samples(rng, dtype, positive_definite)
    found += square_samples(rng, dtype, positive_definite, upper=True)[1:5]
    return found


def _rooted(rows, upper):
    """The factor row by row, after Banachiewicz."""
    n = len(rows)
    low = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            value = (rows[i][j] + rows[j][i].conjugate()) / 2
            for k in range(j):
                value -= low[i][k] * low[j][k].conjugate()
            low[i][j] = math.sqrt(value.real) if i == j else value / low[j][j]
    found = np.reshape(low, (n, n))
    return np.conj(found.T) if upper else found


def _qr_samples(rng, dtype):
    found = square_samples(rng, dtype)
    for shape in ((4, 2), (2, 3), (2, 3, 2), (2, 2, 4), (0, 3), (3, 0), (1, 4)):
        found.append(Sample((full_rank(rng, dtype, shape),)))
    found.append(Sample((full_rank(rng, dtype, (2, 3)),), {"mode": "complete"}))
    return found


def full_rank(rng, dtype, shape):
    return (make(rng, dtype, shape, -1, 1) + 2 * np.eye(shape[-2], shape[-1])).astype(dtype)


def _reflected(rows, mode):
    """Householder's reflections, with the signs that LAPACK takes."""
    r = np.array(rows)
    m, n = r.shape
    q = np.eye(m, dtype=r.dtype)
    for i in range(min(m - (r.dtype.kind != "c"), n)):
        a, tail = r[i, i], math.sqrt(math.fsum(abs(z) ** 2 for z in r[i + 1 :, i]))
        if not tail and not a.imag:
            continue
        beta = -math.copysign(math.hypot(abs(a), tail), a.real)
        v = np.zeros(m, r.dtype)
        v[i], v[i + 1 :] = 1, r[i + 1 :, i] / (a - beta)
        tau = (beta - a) / beta
        r = r - np.conj(tau) * np.multiply.outer(v, np.conj(v) @ r)
        q = q - tau * np.multiply.outer(q @ v, np.conj(v))
    k = m if mode == "complete" else min(m, n)
    return q[:, :k], np.triu(r[:k])


def _qr_reference(x, mode):
    if x.size:
        return on_each(_reflected)(x, mode=mode)
    q, r = qr_spec(TensorSpec(x.shape, x.dtype), mode)
    return np.broadcast_to(np.eye(*q.shape[-2:]), q.shape), np.zeros(r.shape)


def separated(rng, dtype, shape):
    """Random Hermitian matrices with eigenvalues about one apart."""
    kind = "complex128" if np.dtype(dtype).kind == "c" else "float64"
    a = make(rng, kind, shape, -0.3, 0.3)
    return (a + np.conj(a.swapaxes(-1, -2)) + np.diag(np.arange(shape[-1]) + 0.5)).astype(dtype)


def _eigenvalue_samples(rng, dtype):
    return square_samples(rng, dtype, separated)


def _eigenvalue_errors(rng):
    unknown = ErrorSample((np.full((2, 2), np.nan),), {}, EagerflowError, "did not converge")
    return [*square_errors(rng), unknown]


def rotated(rows):
    """Eigenvalues by Jacobi rotations, each of which eliminates one pair of elements."""
    a = np.array(rows).reshape(len(rows), len(rows))
    a = (a + np.conj(a.T)) / 2
    for _ in range(30):
        for p in range(len(a)):
            for q in range(p + 1, len(a)):
                size = abs(a[p, q])
                if size < 1e-300:
                    continue
                angle = math.atan2(2 * size, (a[q, q] - a[p, p]).real) / 2
                turn = np.eye(len(a), dtype=a.dtype)
                turn[p, p] = turn[q, q] = math.cos(angle)
                turn[p, q] = math.sin(angle) * a[p, q] / size
                turn[q, p] = -np.conj(turn[p, q])
                a = np.conj(turn.T) @ a @ turn
    return sorted(np.diag(a).real.tolist())


def _eigh_reference(x):
    """Eigenvalues by rotations; each vector as a column of the product of the other shifts."""
    values = on_each(rotated)(x)
    vectors = np.zeros(x.shape, x.dtype)
    n = x.shape[-1]
    for at in np.ndindex(*x.shape[:-2]):
        a = (x[at] + np.conj(x[at].T)) / 2
        for k in range(n):
            # By Cayley-Hamilton, this product maps everything to the k-th eigenspace.
            chosen = np.eye(n)
            for j in range(n):
                chosen = chosen if j == k else chosen @ (a - values[at][j] * np.eye(n))
            column = chosen[:, np.argmax(np.abs(chosen).sum(0))]
            top = column[np.argmax(np.abs(column))]
            vectors[(*at, slice(None), k)] = (
                column
                * (np.conj(top) / abs(top))
                / (math.sqrt(math.fsum((np.abs(column) ** 2).tolist())))
            )
    return values, vectors


def _spread(rng, dtype, shape):
    """Random matrices of full rank with singular values about one apart."""
    slope = np.eye(shape[-2], shape[-1]) * (np.arange(shape[-1]) + 1)
    return (full_rank(rng, dtype, shape) * 0.3 + slope).astype(dtype)


def _svd_samples(rng, dtype):
    shapes = (
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


def _values(rows):
    """Square roots of the eigenvalues of the smaller product of the matrix with itself."""
    a = np.array(rows)
    gram = a @ np.conj(a.T) if a.shape[0] < a.shape[1] else np.conj(a.T) @ a
    return [math.sqrt(max(value, 0)) for value in reversed(rotated(gram.tolist()))]


def _svd_errors(rng):
    endless = np.array([[np.inf, 1, 2], [1, 2, 3], [2, 3, 9]])  # LAPACK's iteration does not end
    return [
        ErrorSample((endless,), {}, EagerflowError, "did not converge"),
        ErrorSample((rng.random(3),), {}, ShapeError, "not enough for a matrix"),
        ErrorSample((2.0,), {}, ShapeError, "not enough for a matrix"),
    ]


CASES = {
    "cholesky": Cases(
        samples=_cholesky_samples,
        errors=lambda rng: [
            *square_errors(rng),
            ErrorSample((-np.eye(2),), {}, EagerflowError, "not positive definite"),
        ],
        reference=on_each(_rooted),
    ),
    "qr": Cases(
        samples=_qr_samples,
        errors=lambda rng: [
            ErrorSample((rng.random(3),), {}, ShapeError, "not enough for a matrix"),
            ErrorSample((rng.random((3, 3)),), {"mode": "full"}, ShapeError, "is not a mode"),
        ],
        reference=lambda x, mode: _qr_reference(x, mode),
    ),
    "eigh": Cases(
        samples=_eigenvalue_samples,
        errors=_eigenvalue_errors,
        reference=lambda x: _eigh_reference(x),
    ),
    "eigvalsh": Cases(
        samples=_eigenvalue_samples, errors=_eigenvalue_errors, reference=on_each(rotated)
    ),
    "svd": Cases(
        samples=_svd_samples,
        errors=_svd_errors,
        reference=Missing("the vectors are checked by their product and orthonormality"),
    ),
    "svdvals": Cases(
        samples=lambda rng, dtype: [Sample(sample.args) for sample in _svd_samples(rng, dtype)],
        errors=_svd_errors,
        reference=lambda x: (
            on_each(_values)(x) if x.size else np.zeros((*x.shape[:-2], min(x.shape[-2:])))
        ),
    ),
}
