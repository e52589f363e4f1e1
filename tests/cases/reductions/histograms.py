"""Cases of eagerflow/ops/reductions/histograms.py."""

import bisect

import numpy as np

from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _counted(rng, dtype):
    x = np.array([3, 1, 1, 5, 0])
    weights = make(rng, dtype, (5,))
    return [
        Sample((x, weights), {"length": 4}),
        Sample((x, weights[::-1]), {"length": 7}),
        Sample((x[::2], weights[::2]), {"length": 6, "minlength": 9}),
        Sample((x[:0], weights[:0]), {"length": 2}),
        Sample((x[1:2].astype("uint8"), weights[::-5]), {"length": 2}),
        Sample((x,), {"length": 8}),
    ]


def _counted_reference(x, weights, minlength, length):
    size = max([int(v) + 1 for v in x] + [minlength]) if length is None else length
    out = [0] * size
    for i, value in enumerate(x.tolist()):
        if value < size:
            out[value] += 1 if weights is None else weights[i]
    return np.array(out)


def _digits(rng, dtype):
    x, bins = make(rng, dtype, (2, 3)), np.array([-1, 0, 1]).astype(dtype)
    found = [Sample((x, bins), {"right": right}) for right in (False, True)]
    return [*found, Sample((x, bins[::-1])), Sample((bins, bins), {"right": True})]


def _digits_reference(x, bins, right):
    find = bisect.bisect_left if right else bisect.bisect_right
    edges = bins.tolist()
    falls = edges[0] > edges[-1]
    found = [find(sorted(edges), value) for value in x.ravel().tolist()]
    found = [len(edges) - place for place in found] if falls else found
    return np.array(found).reshape(x.shape)


def _histogram_samples(rng, dtype):
    x, edges = make(rng, dtype, (4, 5)), np.array([-1, 0, 0.5, 2]).astype(dtype)
    weights = make(rng, dtype, (4, 5), 0.2, 2)
    return [
        Sample((x,)),
        Sample((x,), {"bins": 4, "range": (-1.0, 1.5)}),
        Sample((x,), {"bins": edges}),
        Sample((x, weights), {"bins": edges}),
        Sample((x, weights), {"bins": 3, "density": True, "range": (-2.5, 2.5)}),
        Sample((x[0] * 0,), {"bins": 2}),
        Sample((x[:0],), {"bins": 2}),
    ]


def _histogram_reference(x, weights, bins, range, density):
    return np.histogram(x, bins, range, weights=weights, density=density)


CASES = {
    "bincount": Cases(
        samples=_counted,
        errors=lambda rng: [
            ErrorSample((np.array([1, -1]),), {}, ArgumentError, "negative"),
            ErrorSample((np.array([[1, 1]]),), {}, ShapeError, "2 axes"),
            ErrorSample((np.array([0.5]),), {}, DTypeError, "float64 is not taken"),
            ErrorSample((np.array([1, 2]), np.ones(3)), {}, ShapeError, "weights"),
        ],
        reference=_counted_reference,
    ),
    "digitize": Cases(
        samples=_digits,
        errors=lambda rng: [ErrorSample((np.ones(2), np.ones((2, 2))), {}, ShapeError, "2 axes")],
        reference=_digits_reference,
    ),
    "histogram": Cases(
        samples=_histogram_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(3),), {"bins": 0}, ArgumentError, "bins"),
            ErrorSample((np.ones(3),), {"bins": "auto"}, ArgumentError, "not a number of bins"),
            ErrorSample((np.ones(3),), {"range": (2, 1)}, ArgumentError, "is not a range"),
            ErrorSample((np.ones(3), np.ones(2)), {}, ShapeError, "weights"),
        ],
        reference=_histogram_reference,
    ),
    "histogram_bin_edges": Cases(
        samples=lambda rng, dtype: [s for s in _histogram_samples(rng, dtype) if len(s.args) == 1],
        reference=lambda x, bins, range: np.histogram_bin_edges(x, bins, range),
    ),
}
