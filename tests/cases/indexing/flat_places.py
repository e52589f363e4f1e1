"""Cases of eagerflow/ops/indexing/flat_places.py."""

import numpy as np

from eagerflow.errors import DTypeError, IndexRangeError
from tests.cases.samples import Cases, ErrorSample, Sample


def _divided(index, shape):
    found = []
    for size in reversed(shape):
        index, place = divmod(index, size)
        found.append(place)
    return found[::-1]


CASES = {
    "unravel_index": Cases(
        samples=lambda rng, dtype: [
            Sample((rng.integers(0, 24, shape).astype(dtype),), {"shape": sizes})
            for shape, sizes in (((5,), (2, 3, 4)), ((), (24,)), ((2, 3), (4, 6)), ((0,), (3, 9)))
        ],
        errors=lambda rng: [
            ErrorSample((np.array([6]),), {"shape": (2, 3)}, IndexRangeError, "out of range"),
            ErrorSample((np.array([0.5]),), {"shape": (2, 3)}, DTypeError, "float64"),
        ],
        reference=lambda x, shape: (
            tuple(
                np.array(part).reshape(x.shape)
                for part in zip(*(_divided(int(i), shape) for i in x.ravel()), strict=True)
            )
            or tuple(np.zeros(x.shape, np.int64) for _ in shape)
        ),
    ),
}
