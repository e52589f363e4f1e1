"""Cases of eagerflow/ops/nn/ctc.py."""

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.nn.ctc import MOVES
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _band_reference(weights, b, reverse):
    y = np.array(b, "float64")
    times = range(y.shape[-2])
    for t in reversed(times) if reverse else times:
        for s in range(y.shape[-1]):
            for k in range(MOVES):
                if reverse and t + 1 < y.shape[-2] and s + k < y.shape[-1]:
                    y[..., t, s] += weights[..., t + 1, s + k, k] * y[..., t + 1, s + k]
                if not reverse and t and s >= k:
                    y[..., t, s] += weights[..., t, s, k] * y[..., t - 1, s - k]
    return y


_SHAPES = ((4, 5), (1, 3), (3, 1), (2, 3, 2), (2, 1, 3, 4), (0, 3, 2))


def _band_samples(rng, dtype):
    return [
        Sample((make(rng, dtype, (*s, MOVES), -1, 1), make(rng, dtype, s)), {"reverse": reverse})
        for s in _SHAPES
        for reverse in (False, True)
    ]


def _paths_reference(scores, skips):
    y = np.array(scores, "float64")
    for t in range(1, y.shape[-2]):
        for s in range(y.shape[-1]):
            moves = [
                y[..., t - 1, s - k] + (k == 2) * skips[..., 0, s] for k in range(min(s, 2) + 1)
            ]
            y[..., t, s] += np.log(np.exp(moves).sum(0))
    return y


def _paths_samples(rng, dtype):
    found = []
    for shape in _SHAPES:
        scores, skips = (make(rng, dtype, s) for s in (shape, (*shape[:-2], 1, shape[-1])))
        found += [Sample((scores, skips)), Sample((scores[..., ::-1, ::-1], skips[..., ::-1]))]
    return found


CASES = {
    "band_recurrence": Cases(
        samples=_band_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3, 2)), np.ones((2, 3))), {}, ShapeError, "three weights"),
            ErrorSample((np.ones((3, 3)), np.ones(3)), {}, ShapeError, "three weights"),
        ],
        reference=_band_reference,
    ),
    "log_paths": Cases(
        samples=_paths_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones(2)), {}, ShapeError, "each state"),
            ErrorSample((np.ones(3), np.ones(3)), {}, ShapeError, "each state"),
        ],
        reference=_paths_reference,
    ),
}
