"""Square roots and logarithms of stacks of matrices, by NumPy's decompositions and solvers.

These functions are copied into exported NumPy programs, so they have no type annotations. Sources:
N. J. Higham, "Functions of Matrices", 2008, chapters 6 and 11; Cheng, Higham, Kenney and Laub,
"Approximating the logarithm of a matrix to specified accuracy", 2001.
"""

import numpy as np

from eagerflow.codegen.numpy.matrices import one_norm


def sqrtm(x):
    """The principal square root of square matrices; NaN if there is none in the dtype."""
    if not x.size:
        return np.array(x)
    a, scale = scaled_matrices(x)
    values, vectors, share = eigenvectors_of(a)
    independent = share > 1e-3
    if x.dtype.kind != "c":  # rounding may turn 0 into small negative numbers
        least = x.shape[-1] * np.finfo(x.dtype).eps * np.abs(values).max(-1, keepdims=True)
        values = np.where((values.imag == 0) & (np.abs(values) <= least), np.abs(values), values)
    found = from_basis(a, np.sqrt(values), vectors, independent)
    found[~independent] = off_the_cut(iterated_root, a[~independent], values[~independent], root_of)
    singular = ~np.isfinite(found).all((-2, -1)) & (share > 1e-13)
    found[singular] = from_basis(a, np.sqrt(values), vectors, singular)[singular]
    if x.dtype.kind != "c":
        found[((values.imag == 0) & (values.real < 0)).any(-1)] = np.nan
    return (found * np.sqrt(scale)).astype(x.dtype).reshape(x.shape)


def logm(x):
    """The principal logarithm of square matrices; NaN if there is none in the dtype."""
    if not x.size:
        return np.array(x)
    a, scale = scaled_matrices(x)
    eye = np.eye(a.shape[-1])
    values, vectors, share = eigenvectors_of(a)
    singular = (values == 0).any(-1)
    near = one_norm(a - eye) <= 0.5
    independent = (share > 1e-3) & ~near
    logarithms = np.log(np.where(values == 0, 1, values))
    found = from_basis(a, logarithms, vectors, independent)
    others = ~independent & ~near
    found[others] = off_the_cut(iterated_logarithm, a[others], values[others], turned_back)
    found[near] = logarithm_near_one(a[near])
    if x.dtype.kind != "c":
        singular |= ((values.imag == 0) & (values.real < 0)).any(-1)
    found[singular] = np.nan
    return (found + np.log(scale) * eye).astype(x.dtype).reshape(x.shape)


def scaled_matrices(x):
    """Matrices in double precision divided by a power of two near their norms, and the powers.

    For non-finite values the matrix is the identity, and the power is NaN.
    """
    n = x.shape[-1]
    a = np.array(x).reshape(-1, n, n)
    a = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    norm = one_norm(a)
    finite = np.isfinite(norm)[:, None, None]
    power = np.rint(np.log2(np.where(np.isfinite(norm) & (norm > 0), norm, 1)))
    scale = np.exp2(np.minimum(power, 1023))[:, None, None]
    return np.where(finite, a, np.eye(n)) / scale, np.where(finite, scale, np.nan)


def eigenvectors_of(a):
    """Eigenvalues, eigenvectors, and the share of digits that their basis preserves."""
    values, vectors = np.linalg.eig(a)
    values, vectors = values.astype(np.complex128) + 0, vectors.astype(np.complex128)
    own = (a == np.conj(a.mT)).all((-2, -1))
    values[own], vectors[own] = np.linalg.eigh(a[own])
    sizes = np.linalg.svd(vectors, compute_uv=False)
    return values, vectors, sizes[:, -1] / sizes[:, 0]


def from_basis(a, values, vectors, wanted):
    """The selected ones of matrices with these eigenvalues; others are 0."""
    found = np.zeros_like(a)
    basis = vectors[wanted]
    product = np.linalg.solve(basis.mT, (basis * values[wanted][:, None]).mT).mT
    found[wanted] = product if a.dtype.kind == "c" else product.real
    return found


def off_the_cut(function, a, values, back):
    """``function`` of complex matrices, rotated so that their eigenvalues are centered at 1.

    Then none is on the negative axis; ``back`` computes the function of the original matrices from
    that of the rotated ones and the angles.
    """
    if a.dtype.kind != "c":
        return function(a)
    angles = np.angle(values)
    middle = ((angles.max(-1) + angles.min(-1)) / 2)[:, None, None]
    return back(function(a * np.exp(-1j * middle)), middle)


def root_of(found, angle):
    """A square root rotated back."""
    return found * np.exp(0.5j * angle)


def turned_back(found, angle):
    """A logarithm rotated back."""
    return found + 1j * angle * np.eye(found.shape[-1])


def iterated_root(a):
    """The product form of Denman and Beavers' iteration, with scaling by determinants.

    No eigenvalue may be negative or 0; without convergence the result is NaN.
    """
    n = a.shape[-1]
    eye, found = np.eye(n), np.full_like(a, np.nan)
    root = moving = a
    at, last = np.arange(len(a)), np.full(len(a), np.inf)
    for _ in range(60):
        sign, size = np.linalg.slogdet(moving)
        regular = (sign != 0) & np.isfinite(size)
        root, moving, at, last, size = (z[regular] for z in (root, moving, at, last, size))
        if not at.size:
            break
        inverse = np.linalg.inv(moving)
        scale = np.where(last > 1e-2, np.exp(-size / (2 * n)), 1)[:, None, None]
        root = root @ (scale * eye + inverse / scale) / 2
        moving = (eye + (scale * scale * moving + inverse / (scale * scale)) / 2) / 2
        off = one_norm(moving - eye)
        done = (off < 1e-15 * n) | (off < 1e-6) & (off >= last / 2)
        found[at[done]] = root[done]
        root, moving, at, last = (z[~done] for z in (root, moving, at, off))
    return found


def iterated_logarithm(a):
    """Square roots until the matrix is close to 1; its logarithm is doubled as often."""
    root, doublings = np.array(a), np.zeros((len(a), 1, 1))
    eye = np.eye(a.shape[-1])
    for _ in range(100):
        far = one_norm(root - eye) > 0.5
        if not far.any():
            break
        root[far] = iterated_root(root[far])
        doublings[far] += 1
    lost = ~np.isfinite(root).all((-2, -1))
    root[lost] = eye
    found = logarithm_near_one(root) * np.exp2(doublings)
    found[lost] = np.nan
    return found


def logarithm_near_one(a):
    """Padé's approximant of degree 12 in both parts, by Gauss-Legendre quadrature."""
    eye = np.eye(a.shape[-1])
    off = a - eye
    nodes, weights = np.polynomial.legendre.leggauss(12)
    found = np.zeros_like(off)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        found += weight / 2 * np.linalg.solve(eye + (node + 1) / 2 * off, off)
    return found
