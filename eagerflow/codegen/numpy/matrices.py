"""Functions of stacks of matrices that NumPy lacks, made of products and small linear systems.

These functions are copied into exported NumPy programs, so they have no type annotations.
"""

import math

import numpy as np


def solve_unit_lower(low, right):
    """The solution of unit lower triangular systems.

    Reversing rows and columns makes it upper triangular, so that elimination swaps no rows.
    """
    unit = np.tril(low, -1) + np.eye(low.shape[-1], dtype=low.dtype)
    return np.linalg.solve(unit[..., ::-1, ::-1], right[..., ::-1, :])[..., ::-1, :]


def lu_packed(x, block=32):
    """LU factorization with partial pivoting: both triangles in one matrix, and the row swaps.

    Columns are eliminated in blocks, each followed by one product that updates the rest.
    """
    *stack, rows, columns = x.shape
    a = np.array(x).reshape(math.prod(stack), rows, columns)
    each, size = np.arange(len(a)), min(rows, columns)
    pivots = np.zeros((len(a), size), np.int64)
    for start in range(0, size if len(a) else 0, block):
        end = min(start + block, size)
        for j in range(start, end):
            pivots[:, j] = at = np.argmax(np.abs(a[:, j:, j]), axis=1) + j
            kept = a[each, at]
            a[each, at] = a[:, j]
            a[:, j] = kept
            top, below = a[:, j, j], a[:, j + 1 :]
            below[:, :, j] /= np.where(top == 0, 1, top)[:, None]
            below[:, :, j + 1 : end] -= below[:, :, j, None] * a[:, j, None, j + 1 : end]
        if end < columns:
            right = solve_unit_lower(a[:, start:end, start:end], a[:, start:end, end:])
            a[:, start:end, end:] = right
            a[:, end:, end:] -= a[:, end:, start:end] @ right
    return a.reshape(x.shape), pivots.reshape((*stack, size))


def swapped_rows(pivots, rows):
    """For each row of the triangles, its index before the swaps."""
    *stack, size = pivots.shape
    swaps = pivots.reshape(math.prod(stack), size)
    order = np.tile(np.arange(rows), (len(swaps), 1))
    each = np.arange(len(swaps))
    for j in range(size):
        kept = order[each, swaps[:, j]]
        order[each, swaps[:, j]] = order[:, j]
        order[:, j] = kept
    return order.reshape((*stack, rows))


def one_norm(x):
    """The largest sum of magnitudes in a column."""
    return np.abs(x).sum(-2).max(-1)


def exponential(x):
    """The exponential of square matrices.

    Al-Mohy and Higham, "A new scaling and squaring algorithm for the matrix exponential" (2009):
    halvings determined by the norms of powers, Padé's approximant of degree 13, squarings.
    """
    n = x.shape[-1]
    if not x.size:
        return np.array(x)
    a = np.array(x).reshape(-1, n, n)
    eye = np.eye(n, dtype=a.dtype)
    wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    norm = one_norm(wide)
    finite = np.isfinite(norm)
    norm = np.where(finite & (norm > 0), norm, 1)
    unit = np.where(finite[:, None, None], wide, 0) / norm[:, None, None]
    two = unit @ unit
    four = two @ two
    six = four @ two
    roots = [
        one_norm(power) ** (1 / k) for power, k in ((six, 6), (four @ four, 8), (four @ six, 10))
    ]
    size = norm * np.minimum(np.maximum(roots[0], roots[1]), np.maximum(roots[1], roots[2]))
    halvings = np.ceil(np.log2(np.maximum(size / 4.25, 1)))
    # The error of the approximant, from the norm of the 27th power of the magnitudes.
    sums = np.ones((len(a), 1, n))
    for _ in range(27):
        sums = sums @ np.abs(unit)
    rounding = math.log2(math.comb(26, 13) * math.factorial(27)) + math.log2(
        np.finfo(a.dtype).eps / 2
    )
    bits = 26 * (np.log2(norm) - halvings) + np.log2(np.maximum(sums.max((1, 2)), 1e-300))
    halvings = halvings + np.maximum(np.ceil((bits - rounding) / 26), 0)
    halvings = np.where(finite, np.minimum(halvings, 2000), 0).astype(np.int64)
    found = approximant(np.ldexp(1.0, -halvings)[:, None, None] * wide, eye)
    for step in range(int(halvings.max())):
        left = halvings > step
        found[left] = found[left] @ found[left]
    found[~finite] = np.nan
    return found.astype(a.dtype).reshape(x.shape)


def approximant(a, eye):
    """Padé's approximant of the exponential, of degree 13 in both parts."""
    b = [1.0]
    for k in range(13):
        b.append(b[-1] * (13 - k) / ((26 - k) * (k + 1)))
    two = a @ a
    four = two @ two
    six = four @ two
    odd = six @ (b[13] * six + b[11] * four + b[9] * two)
    odd = a @ (odd + b[7] * six + b[5] * four + b[3] * two + b[1] * eye)
    even = six @ (b[12] * six + b[10] * four + b[8] * two)
    even = even + b[6] * six + b[4] * four + b[2] * two + b[0] * eye
    return np.linalg.solve(even - odd, even + odd)
