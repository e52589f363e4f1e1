"""Cases of eagerflow/ops/reductions/neighbours.py."""

import numpy as np

from eagerflow.errors import ArgumentError, AxisError, ShapeError
from eagerflow.ops.reductions.neighbours import MODES
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _curves(rng, dtype):
    y, x = make(rng, dtype, (3, 5)), make(rng, dtype, (5,))
    return [
        Sample((y,)),
        Sample((y,), {"dx": 0.5, "axis": 0}),
        Sample((y, x)),
        Sample((y.T, x), {"axis": 0}),
        Sample((y, make(rng, dtype, (3, 5))), {"axis": 1}),
        Sample((y[:, :1],)),
        Sample((y[0], x[::-1])),
    ]


def _points(rng, dtype):
    xp = np.array([-1.5, -0.4, 0.3, 1.7]).astype(dtype)
    fp, x = make(rng, dtype, (4,)), make(rng, dtype, (2, 3))
    return [
        Sample((x, xp, fp)),
        Sample((x, xp, fp), {"left": -9.0, "right": 9.0}),
        Sample((x[0, 0], xp[1:], fp[1:])),
        Sample((x, xp, fp), {"period": 4.0}),
        Sample((x, xp[:1], fp[:1])),
        Sample((x[:0], xp, fp)),
    ]


def _vectors(rng, dtype):
    return [
        Sample((make(rng, dtype, (n,)), make(rng, dtype, (m,))), {"mode": mode})
        for mode in MODES
        for n, m in ((5, 3), (2, 4), (4, 2), (1, 1))
    ]


def _convolution_errors(rng):
    return [
        ErrorSample((np.ones(0), np.ones(2)), {}, ShapeError, "is empty"),
        ErrorSample((np.ones((2, 2)), np.ones(2)), {}, ShapeError, "2 axes"),
        ErrorSample((np.ones(2), np.ones(2)), {"mode": "half"}, ArgumentError, "half"),
    ]


CASES = {
    "trapezoid": Cases(
        samples=_curves,
        errors=lambda rng: [
            ErrorSample((np.ones(3), np.ones(4)), {}, ShapeError, "broadcast"),
            ErrorSample((np.ones(3),), {"axis": 1}, AxisError, "axis 1 does not exist"),
        ],
        reference=lambda y, x=None, dx=1.0, axis=-1: np.asarray(np.trapezoid(y, x, dx, axis)),
    ),
    "interp": Cases(
        samples=_points,
        errors=lambda rng: [
            ErrorSample((np.ones(2), np.ones(3), np.ones(2)), {}, ShapeError, "xp and fp"),
            ErrorSample((np.ones(2), np.ones((2, 2)), np.ones(4)), {}, ShapeError, "2 axes"),
            ErrorSample((np.ones(2), np.ones(0), np.ones(0)), {}, ShapeError, "no points"),
        ],
        reference=lambda x, xp, fp, left=None, right=None, period=None: np.asarray(
            np.interp(x, xp, fp, left, right, period)
        ),
    ),
    "convolve": Cases(_vectors, _convolution_errors, lambda a, v, mode: np.convolve(a, v, mode)),
    "correlate": Cases(_vectors, _convolution_errors, lambda a, v, mode: np.correlate(a, v, mode)),
}
