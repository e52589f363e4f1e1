"""Cases of eagerflow/ops/shapes/repeating.py."""

import numpy as np

from eagerflow.errors import AxisError, DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, shaped

_tile_samples = shaped(
    "repetitions",
    ((), 3),
    ((), ()),
    ((3,), 2),
    ((3,), (2, 2)),
    ((2, 3), 2),
    ((2, 3), (2, 1)),
    ((2, 3), (1, 1, 2)),
    ((2, 3), (0, 2)),
    ((0, 2), 2),
    ((2, 1, 2), (3, 2)),
    turned={"repetitions": (2, 1)},
    repeated={"repetitions": 2},
)


def _repeat_reference(x, repeats, axis):
    size = x.size if axis is None else x.shape[axis]
    counts = np.broadcast_to(repeats, size).tolist()
    rows = [np.take(x, [i], axis) for i, count in enumerate(counts) for _ in range(count)]
    return np.concatenate([np.take(x, np.arange(0), axis), *rows], 0 if axis is None else axis)


_repeat_samples = shaped(
    "repeats axis",
    ((), 2, None),
    ((3,), 2, None),
    ((3,), (1, 0, 2), 0),
    ((2, 3), 2, None),
    ((2, 3), 2, 0),
    ((2, 3), 3, -1),
    ((2, 3), (2, 0, 1), 1),
    ((2, 3), 0, 1),
    ((0, 2), 2, 1),
    ((2, 1, 3), (2,), 1),
    ((2, 3), (1, 2, 0, 1, 1, 3), None),
    turned={"repeats": 2, "axis": 1},
    repeated={"repeats": (3, 1), "axis": 0},
)


CASES = {
    "tile": Cases(
        samples=_tile_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(3), -1), {}, ShapeError, "negative"),
            ErrorSample((np.ones(3), 1.5), {}, ShapeError, "is not a shape"),
            ErrorSample((np.ones(3), (2**40, 2**40)), {}, ShapeError, "too large"),
        ],
        reference=lambda x, repetitions: np.tile(x, repetitions),
    ),
    "repeat": Cases(
        samples=_repeat_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(3), -1), {}, ShapeError, "negative"),
            ErrorSample((np.ones(3), (1, 2)), {}, ShapeError, "2 numbers of repetitions for 3"),
            ErrorSample((np.ones(3), 2**62), {}, ShapeError, "too large"),
            ErrorSample((np.ones(3), 2, 1), {}, AxisError, "axis 1 does not exist"),
            ErrorSample((np.ones(3), np.ones(3)), {}, DTypeError, "not numbers of repetitions"),
        ],
        reference=_repeat_reference,
    ),
}
