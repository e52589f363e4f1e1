"""Cases of eagerflow/ops/reductions/norms.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, DTypeError, EagerflowError, ShapeError
from tests.cases.reductions.sums import along
from tests.cases.samples import Cases, ErrorSample, Sample, make, reduced


def _vector_norm_samples(rng, dtype):
    found = reduced()(rng, dtype)
    x = make(rng, dtype, (3, 4), 0.5, 2)
    orders = (1, 0, 3, 2.5, 0.5, -1, math.inf, -math.inf)
    return [*found, *(Sample((x,), {"axis": -1, "ord": ord}) for ord in orders)]


def _norm_of(row, ord):
    sizes = [abs(value) for value in row]
    if math.isinf(ord):
        return max(sizes, default=0.0) if ord > 0 else min(sizes, default=math.inf)
    if ord == 0:
        return float(sum(size != 0 for size in sizes))
    return math.fsum(size**ord for size in sizes) ** (1 / ord) if sizes else 0.0


def _matrices(rng, dtype):
    found = [Sample((make(rng, dtype, shape),)) for shape in ((3, 2), (2, 3, 3), (0, 2, 2))]
    x = make(rng, dtype, (2, 3, 2), 0.5, 2)
    orders = ("nuc", 2, -2, 1, -1, math.inf, -math.inf)
    return [*found, *(Sample((x,), {"ord": ord, "keepdims": ord == 2}) for ord in orders)]


def _vectors_and_matrices(rng, dtype):
    x, several = make(rng, dtype, (3, 2)), make(rng, dtype, (2, 3, 4), 0.5, 2)
    chosen = [
        (x, {}),
        (x[0], {"ord": 1}),
        (x, {"ord": "fro", "keepdims": True}),
        (several, {"axis": 1}),
        (several, {"axis": (0, -1), "ord": 1}),
        (several, {"axis": (2, 0), "keepdims": True}),
    ]
    return [Sample((x,), attributes) for x, attributes in chosen]


CASES = {
    "vector_norm": Cases(
        samples=_vector_norm_samples,
        errors=lambda rng: [
            ErrorSample((rng.random((2, 3)),), {"axis": (0, -2)}, ShapeError, "repeat"),
            ErrorSample((rng.random(3),), {"ord": "fro"}, DTypeError, "not an order"),
        ],
        reference=lambda x, axis, keepdims, ord: along(lambda row: _norm_of(row, ord))(
            x, axis=axis, keepdims=keepdims
        ),
    ),
    "matrix_norm": Cases(
        samples=_matrices,
        errors=lambda rng: [
            ErrorSample((rng.random(3),), {}, ShapeError, "not enough for a matrix"),
            ErrorSample((np.ones((2, 0)),), {"ord": -1}, ShapeError, "no smallest"),
            ErrorSample((np.ones((2, 2)),), {"ord": 5}, EagerflowError, "not an order"),
        ],
        reference=lambda x, keepdims, ord: np.linalg.matrix_norm(x, keepdims=keepdims, ord=ord),
    ),
    "norm": Cases(
        samples=_vectors_and_matrices,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 2, 2)),), {"ord": 2}, ShapeError, "3 axes hold neither"),
            ErrorSample((np.ones(2),), {"axis": 1}, AxisError, "axis 1 does not exist"),
        ],
        reference=np.linalg.norm,
    ),
}
