"""Cases of eagerflow/ops/linear_algebra/elimination.py."""

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.op import Missing
from tests.cases.linear_algebra.decompositions import full_rank
from tests.cases.linear_algebra.systems import square_samples
from tests.cases.samples import Cases, ErrorSample, Sample


def _factor_samples(rng, dtype):
    found = square_samples(rng, dtype, _swapped)
    for shape in ((4, 2), (2, 3), (2, 3, 2), (2, 2, 4), (0, 3), (3, 0), (1, 4)):
        found.append(Sample((full_rank(rng, dtype, shape),)))
    return found


def _factor_errors(rng):
    return [
        ErrorSample((x,), {}, ShapeError, "not enough for a matrix") for x in (rng.random(3), 1.0)
    ]


def _swapped(rng, dtype, shape):
    """Random matrices of full rank that need their rows in another order."""
    return full_rank(rng, dtype, shape)[..., ::-1, :]


def _eliminated(x):
    """Row by row, as textbooks do it."""
    a, size = np.array(x, "complex128" if x.dtype.kind == "c" else "float64"), min(x.shape[-2:])
    pivots = np.zeros((*x.shape[:-2], size), np.int64)
    for at in np.ndindex(*x.shape[:-2]):
        own = a[at]
        for j in range(size):
            best = max(range(j, own.shape[0]), key=lambda r: abs(own[r, j]))
            pivots[(*at, j)] = best
            own[[j, best]] = own[[best, j]]
            for i in range(j + 1, own.shape[0]):
                own[i, j] = own[i, j] / own[j, j]
                for c in range(j + 1, own.shape[1]):
                    own[i, c] -= own[i, j] * own[j, c]
    return a, pivots


def _three(x):
    """Both triangles and the rows that elimination swapped, one after the other."""
    packed, pivots = _eliminated(x)
    m, k = x.shape[-2], pivots.shape[-1]
    turned = np.broadcast_to(np.eye(m), (*x.shape[:-2], m, m)).copy()
    for at in np.ndindex(*pivots.shape):
        *stack, row = at
        turned[(*stack, [row, pivots[at]])] = turned[(*stack, [pivots[at], row])]
    return turned.mT, np.tril(packed[..., :k], -1) + np.eye(m, k), np.triu(packed[..., :k, :])


CASES = {
    "lu_factor": Cases(samples=_factor_samples, errors=_factor_errors, reference=_eliminated),
    "lu_permutation": Cases(
        samples=lambda rng, dtype: [
            Sample((np.array(pivots, np.int64).astype(dtype),), {"rows": rows})
            for pivots, rows in (
                ([1, 1], 2),
                ([2, 1, 2], 4),
                ([], 2),
                ([[2, 1, 2], [0, 1, 2]], 3),
                (np.zeros((0, 2)), 3),
            )
        ],
        errors=lambda rng: [
            ErrorSample((np.array(1),), {"rows": 2}, ShapeError, "have an axis"),
            ErrorSample((np.array([0, 1]),), {"rows": 1}, ShapeError, "too many"),
            ErrorSample((np.array([0, 7]),), {"rows": 3}, ShapeError, "no row"),
        ],
        reference=Missing("it is compared with SciPy in the tests"),
    ),
    "lu": Cases(samples=_factor_samples, errors=_factor_errors, reference=_three),
}
