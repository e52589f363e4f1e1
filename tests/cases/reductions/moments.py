"""Cases of eagerflow/ops/reductions/moments.py."""

import numpy as np

from eagerflow.errors import ArgumentError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make


def _weighted(rng, dtype):
    x = make(rng, dtype, (3, 4))

    def weights(*shape):
        return make(rng, dtype, shape, 1, 3)

    return [
        Sample((x,)),
        Sample((x,), {"axis": 0, "keepdims": True}),
        Sample((x, weights(3, 4)), {"axis": 1}),
        Sample((x, weights(3, 4)), {"axis": None}),
        Sample((x, weights(4)), {"axis": 1, "keepdims": True}),
        Sample((x, weights(3)), {"axis": -2}),
        Sample((x, weights(3, 4)), {"axis": (0, 1)}),
    ]


def _mean_of(x, weights, axis, returned, keepdims):
    of_numpy = np.average
    return np.asarray(of_numpy(x, axis, weights, keepdims=keepdims))


def _variables(rng, dtype):
    x, y = make(rng, dtype, (3, 5)), make(rng, dtype, (2, 5))
    return [
        Sample((x,)),
        Sample((x, y)),
        Sample((x.T,), {"rowvar": False}),
        Sample((x.T, y.T), {"rowvar": False}),
        Sample((x[0],)),
        Sample((x[0], y[1])),
    ]


CASES = {
    "ptp": Cases(
        samples=lambda rng, dtype: [
            Sample((distinct(rng, dtype, shape),), {"axis": axis, "keepdims": keepdims})
            for shape, axis, keepdims in (
                ((4,), None, False),
                ((2, 3), 0, False),
                ((2, 3), -1, True),
                ((2, 3, 2), (0, 2), False),
                ((), None, False),
                ((3, 4), None, True),
            )
        ],
        errors=lambda rng: [ErrorSample((np.ones((0, 2)),), {"axis": 0}, ShapeError, "nothing")],
        reference=lambda x, axis, keepdims: np.asarray(np.ptp(x, axis, keepdims=keepdims)),
    ),
    "average": Cases(
        samples=_weighted,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones(3)), {}, ShapeError, "weights"),
            ErrorSample((np.ones((2, 3)), np.ones((2, 1))), {}, ShapeError, "weights"),
            ErrorSample((np.ones((2, 3)), np.ones(3)), {"axis": 0}, ShapeError, "weights"),
        ],
        reference=_mean_of,
    ),
    "cov": Cases(
        samples=lambda rng, dtype: [
            *_variables(rng, dtype),
            Sample((make(rng, dtype, (2, 4)),), {"bias": True}),
            Sample((make(rng, dtype, (2, 4)),), {"fweights": np.array([1, 2, 1, 3])}),
            Sample((make(rng, dtype, (2, 4)),), {"aweights": np.array([0.5, 2, 1, 3]), "ddof": 2}),
        ],
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3, 2)),), {}, ShapeError, "too many"),
            ErrorSample((np.ones((2, 3)),), {"ddof": 0.5}, ArgumentError, "is not taken"),
        ],
        reference=lambda x, y=None, **more: np.asarray(np.cov(x, y, **more)),
    ),
    "corrcoef": Cases(
        samples=_variables,
        errors=lambda rng: [ErrorSample((np.ones((2, 3, 2)),), {}, ShapeError, "too many")],
        reference=lambda x, y=None, **more: np.asarray(np.corrcoef(x, y, **more)),
    ),
}
