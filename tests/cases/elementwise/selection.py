"""Cases of eagerflow/ops/elementwise/selection.py."""

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, each, make, pairs, values


def _choices(rng, dtype):
    found = []
    for sample in pairs()(rng, dtype):
        a, b = sample.args
        mask = rng.random(np.broadcast_shapes(a.shape, b.shape)) < 0.5
        found.append(Sample((mask, a, b)))
    x = make(rng, dtype, (2, 3))
    return [
        *found,
        Sample((np.array(True), x, x * 0)),
        Sample((np.array([[True], [False]]), make(rng, dtype, ()), x)),
        Sample((np.array([True, False, True])[::-1], x, make(rng, dtype, (1,)))),
    ]


def _bounds(rng, dtype):
    # Bounds and values are from different grids, so that none is at a kink.
    low, high = (np.array(v).astype(dtype) for v in (0.95, 1.85))
    found = [Sample((x, low, high)) for x in values(rng, dtype, 0, 3)]
    x = make(rng, dtype, (2, 3), 0, 3)
    return [
        *found,
        Sample((x, low, None)),
        Sample((x, None, high)),
        Sample((x, None, None)),
        Sample((x, np.stack([low, low, high]), high + high)),
        Sample((x[0], np.stack([[low], [high]]), None)),
        Sample((x,), {"min": 1, "max": 2}),
    ]


def _clipped(x, min=None, max=None):
    low = -np.inf if min is None else min
    high = np.inf if max is None else max
    x, low, high = np.broadcast_arrays(x, low, high)
    return np.where(x > high, high, np.where(x < low, low, x))


CASES = {
    "where": Cases(
        samples=_choices,
        errors=lambda rng: [
            ErrorSample((rng.random(3), 1.0, 2.0), {}, DTypeError, "condition: dtype float64"),
            ErrorSample((np.ones(3, bool), "a", 2.0), {}, DTypeError, "str"),
            ErrorSample((np.ones(3, bool), rng.random(2), 0.0), {}, ShapeError, "broadcast"),
            ErrorSample((np.ones(3, bool), np.ones(2), np.ones(4)), {}, ShapeError, "broadcast"),
        ],
        reference=each(lambda condition, x1, x2: x1 if condition else x2),
    ),
    "maximum": Cases(reference=each(lambda a, b: a if a > b else b)),
    "minimum": Cases(reference=each(lambda a, b: a if a < b else b)),
    "clip": Cases(
        samples=_bounds,
        errors=lambda rng: [
            ErrorSample(("a string", 0, 1), {}, DTypeError, "str"),
            ErrorSample((rng.random(3), "low"), {}, DTypeError, "str"),
            ErrorSample((rng.random(3) * 1j, 0.0), {}, DTypeError, "complex128 is not taken"),
            ErrorSample((rng.random(3), rng.random(2)), {}, ShapeError, "broadcast"),
        ],
        reference=_clipped,
    ),
}
