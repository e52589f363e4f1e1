"""Cases of eagerflow/ops/linear_algebra/systems.py."""

import itertools
import math

import numpy as np

from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.ops.linear_algebra.contraction import met
from tests.cases.samples import Cases, ErrorSample, Sample, make


def on_each(function):
    """A reference that applies ``function`` of nested lists to each matrix of a stack."""

    def reference(x, **attributes):
        stack = x.shape[:-2]
        found = [function(x[at].tolist(), **attributes) for at in np.ndindex(*stack)]
        if not found:
            found = [function(np.eye(*x.shape[-2:]).tolist(), **attributes)]
            several = isinstance(found[0], tuple)
            shapes = [np.shape(part) for part in (found[0] if several else found)]
            empty = tuple(np.zeros(stack + shape) for shape in shapes)
            return empty if several else empty[0]
        if isinstance(found[0], tuple):
            parts = zip(*found, strict=True)
            return tuple(np.reshape(p, stack + np.shape(p[0])) for p in map(list, parts))
        return np.reshape(found, stack + np.shape(found[0]))

    return reference


def regular(rng, dtype, shape):
    """Random square matrices that are far from singular."""
    return (make(rng, dtype, shape, -1, 1) + 2 * np.eye(shape[-1])).astype(dtype)


STACKS = (
    (1, 1),
    (2, 2),
    (3, 3),
    (4, 4),
    (2, 3, 3),
    (2, 1, 2, 2),
    (0, 2, 2),
    (0, 0),
    (1, 3, 3),
)


def square_samples(rng, dtype, draw=regular, **attributes):
    """Square matrices alone and in stacks, also transposed, strided and repeated ones."""
    found = [Sample((draw(rng, dtype, shape),), dict(attributes)) for shape in STACKS]
    wide = np.zeros((6, 6), dtype)
    wide[::2, ::2] = draw(rng, dtype, (3, 3))
    found.append(Sample((wide[::2, ::2],), dict(attributes)))
    found.append(Sample((draw(rng, dtype, (2, 3, 3)).mT,), dict(attributes)))
    found.append(Sample((np.broadcast_to(draw(rng, dtype, (2, 2)), (3, 2, 2)),), dict(attributes)))
    return found


def square_errors(rng, *rest):
    """The error samples of an op on square matrices, besides further arguments."""
    return [
        ErrorSample((rng.random((2, 3)), *rest), {}, ShapeError, "2 rows and 3 columns"),
        ErrorSample((rng.random(3), *rest), {}, ShapeError, "not enough for a matrix"),
        ErrorSample((1.0, *rest), {}, ShapeError, "not enough for a matrix"),
    ]


SYSTEMS = (
    ((2, 2), (2,)),
    ((3, 3), (3, 2)),
    ((1, 1), (1,)),
    ((2, 3, 3), (3,)),
    ((2, 3, 3), (3, 2)),
    ((3, 3), (2, 3, 2)),
    ((2, 1, 2, 2), (3, 2, 1)),
    ((0, 2, 2), (2, 1)),
    ((0, 0), (0, 2)),
    ((2, 2), (2, 0)),
    ((2, 2, 2), (2, 2, 3)),
)
"""Shapes of matrices and right sides that samples have."""


def _solve_samples(rng, dtype):
    found = [Sample((regular(rng, dtype, a), make(rng, dtype, b))) for a, b in SYSTEMS]
    x = regular(rng, dtype, (3, 3))
    return [*found, Sample((x.T, x[::2].T)), Sample((x, np.broadcast_to(x[0, 0], (3, 2))))]


def eliminated(rows, right):
    """The solution of a system by Gaussian elimination with pivots, in Python numbers."""
    n = len(rows)
    work = [[*row, *more] for row, more in zip(rows, right, strict=True)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(work[r][i]))
        work[i], work[pivot] = work[pivot], work[i]
        work[i] = [value / work[i][i] for value in work[i]]
        for r in range(n):
            if r != i:
                factor = work[r][i]
                work[r] = [u - factor * v for u, v in zip(work[r], work[i], strict=True)]
    return [row[n:] for row in work]


def solve_reference(x1, x2):
    """The solution of systems, each by elimination in Python."""
    a, b, batch = met(x1, x2[:, None] if x2.ndim == 1 else x2)
    out = np.zeros(b.shape, np.result_type(x1, x2))
    for at in np.ndindex(*batch):
        out[at] = np.reshape(eliminated(a[at].tolist(), b[at].tolist()), b.shape[-2:])
    return out[..., 0] if x2.ndim == 1 else out


def _pinv_samples(rng, dtype):
    found = square_samples(rng, dtype)
    for shape in ((3, 2), (2, 3), (2, 4, 2), (1, 3)):
        found.append(Sample((make(rng, dtype, shape, -1, 1) + np.eye(*shape[-2:], dtype=dtype),)))
    found.append(Sample((regular(rng, dtype, (2, 2)),), {"rtol": 1e-3}))
    found.append(Sample((regular(rng, dtype, (2, 3, 3)),), {"rtol": (1e-3, 1e-4)}))
    return found


def _normal_equations(rows, rtol):
    """The pseudo-inverse of a matrix of full rank."""
    a = np.array(rows).reshape(len(rows), len(rows[0]) if rows else 0)
    star = a.conj().T
    if not a.size:
        return star
    if len(a) < len(star):
        return np.conj(_normal_equations(star.tolist(), rtol)).T
    return eliminated((star @ a).tolist(), star.tolist())


def _expanded(rows):
    """The determinant as Leibniz wrote it: a sum over permutations."""
    n = len(rows)
    total = 0.0
    for order in itertools.permutations(range(n)):
        swaps = sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
        total += (-1) ** swaps * math.prod(rows[i][j] for i, j in enumerate(order))
    return total


def _slogdet_reference(rows):
    value = _expanded(rows)
    return value / abs(value), math.log(abs(value))


CASES = {
    "solve": Cases(
        samples=_solve_samples,
        errors=lambda rng: [
            *square_errors(rng, np.ones(3)),
            ErrorSample((np.eye(3), np.ones(2)), {}, ShapeError, "3 rows, the right side has 2"),
            ErrorSample((np.eye(3), np.ones((2, 2))), {}, ShapeError, "the right side has 2"),
            ErrorSample((np.eye(3), 1.0), {}, ShapeError, "has no axes"),
            ErrorSample((np.ones((2, 2)), np.ones(2)), {}, EagerflowError, "singular"),
        ],
        reference=solve_reference,
    ),
    "inv": Cases(
        samples=square_samples,
        errors=lambda rng: [
            *square_errors(rng),
            ErrorSample((np.zeros((2, 2)),), {}, EagerflowError, "singular"),
        ],
        reference=on_each(
            lambda rows: np.reshape(
                eliminated(rows, np.eye(len(rows)).tolist()), (len(rows), len(rows))
            )
        ),
    ),
    "pinv": Cases(
        samples=_pinv_samples,
        errors=lambda rng: [
            ErrorSample((rng.random(3),), {}, ShapeError, "not enough for a matrix")
        ],
        reference=on_each(_normal_equations),
    ),
    "det": Cases(square_samples, square_errors, on_each(_expanded)),
    "slogdet": Cases(square_samples, square_errors, on_each(_slogdet_reference)),
}
