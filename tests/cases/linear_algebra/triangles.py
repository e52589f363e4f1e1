"""Cases of eagerflow/ops/linear_algebra/triangles.py."""

import numpy as np

from eagerflow.errors import ArgumentError, EagerflowError, ShapeError
from tests.cases.linear_algebra.systems import (
    SYSTEMS,
    regular,
    solve_reference,
    square_errors,
    square_samples,
)
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _triangular_samples(rng, dtype):
    found = []
    for i, (a, b) in enumerate(SYSTEMS):
        more = {"lower": bool(i % 2), "trans": i % 3, "unit_diagonal": i % 4 == 3}
        found.append(Sample((regular(rng, dtype, a), make(rng, dtype, b)), more))
    x = regular(rng, dtype, (3, 3))
    for trans in (0, 1, 2):
        found.append(Sample((x.T, x[::2].T), {"lower": True, "trans": trans}))
    return [*found, Sample((x, np.broadcast_to(x[0, 0], (3, 2))), {"unit_diagonal": True})]


def _triangular_reference(x1, x2, lower, trans, unit_diagonal):
    a = np.array(x1)
    for at in np.ndindex(a.shape):
        i, j = at[-2:]
        if (i < j) if lower else (i > j):
            a[at] = 0
        if i == j and unit_diagonal:
            a[at] = 1
    whole = (a, a.swapaxes(-1, -2), np.conj(a.swapaxes(-1, -2)))[trans]
    return solve_reference(whole, x2)


def _full(x, upper):
    """The matrix that has the triangle as its Cholesky factor."""
    low = np.conj(np.triu(x).mT) if upper else np.tril(x)
    return low @ np.conj(low.mT)


CASES = {
    "solve_triangular": Cases(
        samples=_triangular_samples,
        errors=lambda rng: [
            *square_errors(rng, np.ones(3)),
            ErrorSample((np.eye(3), np.ones(2)), {}, ShapeError, "3 rows, the right side has 2"),
            ErrorSample((np.eye(3), 1.0), {}, ShapeError, "has no axes"),
            ErrorSample((np.eye(3), np.ones(3)), {"trans": 3}, ArgumentError, "not a form"),
            ErrorSample((np.zeros((2, 2)), np.ones(2)), {}, EagerflowError, "singular"),
        ],
        reference=_triangular_reference,
    ),
    "cholesky_solve": Cases(
        samples=lambda rng, dtype: [
            Sample((regular(rng, dtype, a), make(rng, dtype, b)), {"upper": upper})
            for a, b in (((2, 2), (2,)), ((3, 3), (3, 2)), ((2, 3, 3), (3, 1)), ((0, 0), (0, 2)))
            for upper in (False, True)
        ],
        errors=lambda rng: square_errors(rng, np.ones(3)),
        reference=lambda x, b, upper: np.linalg.solve(_full(x, upper), b),
    ),
    "cholesky_inverse": Cases(
        samples=lambda rng, dtype: [
            sample._replace(attributes={"upper": upper})
            for upper in (False, True)
            for sample in square_samples(rng, dtype)[:6]
        ],
        errors=square_errors,
        reference=lambda x, upper: np.linalg.inv(_full(x, upper)),
    ),
}
