"""Cases of eagerflow/ops/linear_algebra/matrices.py."""

import numpy as np

from eagerflow.dtypes import INEXACT
from eagerflow.errors import ArgumentError, ShapeError
from tests.cases.linear_algebra.systems import square_errors, square_samples
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _product_of(x, n):
    base = np.linalg.inv(x) if n < 0 else x
    result = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for _ in range(abs(n)):
        result = result @ base
    return result


def _low_rank(rng, dtype):
    shapes = ((3, 3), (2, 4), (2, 3, 3), (0, 2, 2), (0, 3), (4, 2))
    found = [Sample((make(rng, dtype, shape),)) for shape in shapes]
    found += [Sample((x @ x.mT,)) for x in (make(rng, dtype, (3, 1)), make(rng, dtype, (2, 4, 2)))]
    steps = np.diag([1, 1e-3, 0]).astype(dtype)
    limits = np.array([0.1, 1e-4]), np.array([2.0, 1e-3])
    both = np.stack([steps, steps * 5])
    found += [Sample((both,), {"rtol": limits[0]}), Sample((both,), {"tol": limits[1]})]
    return [*found, Sample((steps,), {"rtol": 0.1}), Sample((steps * 5,), {"tol": 2.0})]


def _vectors(rng, dtype):
    shapes = (((3,), (3,)), ((2, 3), (3,)), ((1, 3), (4, 3)), ((0, 3), (3,)), ((2, 1, 3), (3, 3)))
    found = [Sample((make(rng, dtype, a), make(rng, dtype, b))) for a, b in shapes]
    args = make(rng, dtype, (3, 4)), make(rng, dtype, (3, 4))
    return [*found, Sample(args, {"axis": 0}), Sample(args, {"axis": -2})]


CASES = {
    "matrix_power": Cases(
        samples=lambda rng, dtype: [
            sample._replace(attributes={"n": n})
            for n in (0, 1, 3, 4, *((-1, -2) if dtype in INEXACT else ()))
            for sample in square_samples(rng, dtype)[: 7 if n == 3 else 3]
        ],
        errors=lambda rng: [e._replace(attributes={"n": 2}) for e in square_errors(rng)],
        reference=_product_of,
    ),
    "matrix_rank": Cases(
        samples=_low_rank,
        errors=lambda rng: [
            ErrorSample((1.0,), {}, ShapeError, "not enough for a matrix"),
            ErrorSample((np.eye(2),), {"rtol": 0.1, "tol": 0.1}, ArgumentError, "two limits"),
        ],
        reference=lambda x, rtol, tol: (
            np.linalg.matrix_rank(x, tol, rtol=rtol) if x.size else np.zeros(x.shape[:-2], int)
        ),
    ),
    "trace": Cases(
        samples=lambda rng, dtype: [
            Sample((make(rng, dtype, shape),), {"offset": offset})
            for shape in ((3, 3), (2, 4), (2, 3, 2), (0, 2), (0, 3, 3))
            for offset in (0, 1, -1, 5)
        ],
        errors=lambda rng: [ErrorSample((1.0,), {}, ShapeError, "not enough for a matrix")],
        reference=lambda x, offset, dtype: np.trace(x, offset, -2, -1),
    ),
    "cross": Cases(
        samples=_vectors,
        errors=lambda rng: [
            ErrorSample(
                (rng.random(3), rng.random(2)), {}, ShapeError, "vectors of three elements"
            ),
            ErrorSample((rng.random(3), rng.random(3)), {"axis": 1}, ShapeError, "axis 1 of x1"),
        ],
        reference=lambda x1, x2, axis: np.cross(x1, x2, axis=axis),
    ),
}
