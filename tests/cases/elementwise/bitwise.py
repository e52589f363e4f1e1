"""Cases of eagerflow/ops/elementwise/bitwise.py."""

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, pairs, reals


def _errors(rng):
    whole = rng.integers(0, 9, (2, 3))
    return [
        ErrorSample((rng.random(3), whole), {}, DTypeError, "float64 is not taken"),
        ErrorSample((whole, 1.5), {}, DTypeError, "float32 is not taken"),
        ErrorSample((rng.integers(0, 9, 4), whole), {}, ShapeError, "broadcast"),
    ]


def _flipped(x):
    largest = True if x.dtype.kind == "b" else np.iinfo(x.dtype).max
    return np.array([largest - v for v in x.ravel().tolist()], x.dtype).reshape(x.shape)


_PAIRS = Cases(pairs(0, 100), _errors)
CASES = {
    "bitwise_and": _PAIRS,
    "bitwise_or": _PAIRS,
    "bitwise_xor": _PAIRS,
    "bitwise_invert": Cases(
        samples=reals(0, 100),
        errors=lambda rng: [ErrorSample((rng.random(3),), {}, DTypeError, "float64 is not taken")],
        reference=lambda x: x.dtype.type(-1) ^ x if x.dtype.kind == "i" else _flipped(x),
    ),
    "bitwise_left_shift": Cases(pairs(0, 9, 0, 3), _errors),
    "bitwise_right_shift": Cases(pairs(0, 99, 0, 3), _errors),
}
