"""Cases of eagerflow/ops/shapes/stacking.py."""

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _joined(rng, dtype):
    shapes = (((3,), (2,), None), ((2, 3), (2,), None), ((), (), None))
    shapes += (((2, 3), (1, 3), 0), ((2, 3), (2, 2), -1), ((0,), (2,), 0))
    return [
        Sample((make(rng, dtype, a), make(rng, dtype, b)), {"axis": axis}) for a, b, axis in shapes
    ]


CASES = {
    "append": Cases(
        samples=_joined,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.ones(3)), {"axis": 0}, ShapeError, ""),
            ErrorSample((np.ones(2), np.ones(3)), {"axis": 1}, AxisError, "axis 1 does not exist"),
        ],
        reference=lambda x, values, axis: np.append(x, values, axis),
    ),
}
