"""Cases of eagerflow/ops/elementwise/closeness.py."""

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make, pairs


def _close_pairs(rng, dtype):
    found = pairs()(rng, dtype)
    x = make(rng, dtype, (2, 3))
    found += [Sample((x, x)), Sample((x, x + dtype.type(1)), {"rtol": 0.5, "atol": 0.25})]
    if dtype.kind in "fc":
        y = x.copy()
        y[0] = np.nan, np.inf, -np.inf
        z = x * dtype.type(1 + 3e-6)
        found += [Sample((y, y)), Sample((y, y), {"equal_nan": True}), Sample((x, z))]
        found += [Sample((y, x)), Sample((x, y))]
    return found


def _no_fit(rng):
    return [ErrorSample((np.ones(2), np.ones(3)), {}, ShapeError, "broadcast")]


def _equal_pairs(rng, dtype):
    x = make(rng, dtype, (2, 3))
    found = [
        Sample((x, x)),
        Sample((x, x[0])),
        Sample((x, x + dtype.type(1))),
        Sample((x[:0], x[:0])),
    ]
    if dtype.kind in "fc":
        y = x.copy()
        y[0, 0] = np.nan
        found += [Sample((y, y)), Sample((y, y), {"equal_nan": True})]
    return found


CASES = {
    "isclose": Cases(
        samples=_close_pairs,
        errors=_no_fit,
        reference=lambda a, b, **more: np.isclose(a, b, **more),
    ),
    "allclose": Cases(
        samples=_close_pairs,
        errors=_no_fit,
        reference=lambda a, b, **more: np.array(np.allclose(a, b, **more)),
    ),
    "array_equal": Cases(
        samples=_equal_pairs, reference=lambda a, b, **more: np.array(np.array_equal(a, b, **more))
    ),
}
