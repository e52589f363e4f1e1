"""Cases of eagerflow/ops/shapes/turning.py."""

import numpy as np

from eagerflow.errors import ArgumentError, AxisError, ShapeError
from tests.cases.samples import Cases, ErrorSample, shaped

_flipped = shaped("", ((2, 3),), ((4, 2, 2),), ((1, 1),), ((0, 3),), turned={}, repeated={})


CASES = {
    "fliplr": Cases(
        samples=_flipped,
        errors=lambda rng: [ErrorSample((np.ones(3),), {}, AxisError, "axis 1 does not exist")],
        reference=lambda x: x[:, ::-1],
    ),
    "flipud": Cases(
        samples=_flipped,
        errors=lambda rng: [ErrorSample((np.float64(3),), {}, AxisError, "axis 0 does not exist")],
        reference=lambda x: x[::-1],
    ),
    "rot90": Cases(
        samples=shaped(
            "k axes",
            *(((2, 3), k, (0, 1)) for k in (0, 1, 2, 3, -1, 5)),
            ((2, 3, 4), 1, (1, 2)),
            ((2, 3, 4), 3, (2, 0)),
            ((2, 3, 4), 1, (-1, 0)),
            turned={"k": 1},
            repeated={"k": 3},
        ),
        errors=lambda rng: [
            ErrorSample((np.ones((2, 2)),), {"axes": (0, -2)}, ShapeError, "two different axes"),
            ErrorSample((np.ones((2, 2)),), {"axes": (0, 2)}, AxisError, "axis 2 does not exist"),
            ErrorSample((np.ones((2, 2)),), {"k": 0.5}, ArgumentError, "is not taken"),
        ],
        reference=lambda x, k=1, axes=(0, 1): np.rot90(x, k, axes),
    ),
}
