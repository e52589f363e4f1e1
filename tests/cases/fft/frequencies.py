"""Cases of eagerflow/ops/fft/frequencies.py."""

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from eagerflow.spec import normalize_axes
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _samples(rng, dtype):
    return [
        Sample((make(rng, dtype, shape),), {"axes": axes})
        for shape, axes in (
            ((4,), None),
            ((5,), None),
            ((3, 4), None),
            ((3, 5), 1),
            ((3, 4, 2), (0, -1)),
            ((1, 3), (1,)),
            ((0, 3), None),
            ((), None),
        )
    ]


def _errors(rng):
    return [
        ErrorSample((np.ones((2, 3)),), {"axes": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((np.ones((2, 3)),), {"axes": (1, 1)}, ShapeError, "repeat"),
    ]


def _rows(sign):
    def reference(x, axes):
        for at in normalize_axes(axes, x.ndim):
            size = x.shape[at]
            half = size // 2 if sign < 0 else (size + 1) // 2
            x = np.take(x, [*range(half, size), *range(half)], axis=at)
        return x

    return reference


CASES = {
    "fftshift": Cases(_samples, _errors, _rows(1)),
    "ifftshift": Cases(_samples, _errors, _rows(-1)),
}
