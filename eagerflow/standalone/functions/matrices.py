"""Matrix decompositions, with vectors of a fixed sign."""

import numpy as np

from eagerflow.codegen.numpy.matrices import exponential, lu_packed, swapped_rows


def with_positive_tops(x):
    """Columns whose largest element is real and positive, and the factors that make them so."""
    if x.size == 0:
        return x, np.ones((*x.shape[:-2], 1, x.shape[-1]), x.dtype)
    top = np.take_along_axis(x, np.argmax(np.abs(x), -2, keepdims=True), -2)
    factor = np.conj(top) / np.abs(top)
    return x * factor, factor


def hermitian(x):
    """The mean of a matrix and its adjoint."""
    return (x + np.conj(x.mT)) / 2


def eigh(x):
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    values, vectors = np.linalg.eigh(hermitian(x))
    return values, with_positive_tops(vectors)[0]


def eigvalsh(x):
    """Eigenvalues of Hermitian matrices."""
    return np.linalg.eigvalsh(hermitian(x))


def qr(x, mode="reduced"):
    """An orthogonal and a triangular matrix whose product is ``x``."""
    return tuple(np.linalg.qr(x, mode))


def slogdet(x):
    """Signs of determinants, and logarithms of their absolute values."""
    return tuple(np.linalg.slogdet(x))


def svd(x, full_matrices=True):
    """Singular vectors and values: ``u @ diag(s) @ vh`` is ``x``."""
    u, s, vh = np.linalg.svd(x, full_matrices)
    if u.size == 0 or vh.size == 0:
        return u, s, vh
    u, factor = with_positive_tops(u)
    back = np.conj(factor).mT[..., : s.shape[-1], :]
    first, rest = np.split(vh, [s.shape[-1]], axis=-2)
    return u, s, np.concatenate([first * back, rest], axis=-2)


def eig(x, dtype):
    """Eigenvalues and eigenvectors of square matrices, as complex numbers."""
    values, vectors = np.linalg.eig(x)
    return values.astype(dtype), with_positive_tops(vectors.astype(dtype))[0]


def eigvals(x, dtype):
    """Eigenvalues of square matrices, as complex numbers."""
    return np.linalg.eigvals(x).astype(dtype)


def lu_factor(x):
    """Both triangles of an LU factorization in one matrix, and the row swaps."""
    return lu_packed(x)


def lu_permutation(x, rows):
    """For each row of the triangles, its index before the swaps."""
    return swapped_rows(x, rows)


def expm(x):
    """The exponential of square matrices."""
    return exponential(x)
