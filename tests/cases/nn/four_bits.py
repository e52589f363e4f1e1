"""Cases of eagerflow/ops/nn/four_bits.py."""

import numpy as np

from eagerflow.errors import DTypeError
from tests.cases.samples import Cases, ErrorSample, Sample


def _pairs(step):
    """Samples of tensors with an axis of ``step`` times some size."""

    def samples(rng, dtype):
        limits = np.iinfo(dtype)
        found = []
        for shape, axis in ((4,), 0), ((2, 3), 0), ((3, 2, 5), -2), ((0, 2), 0), ((2, 0), 1):
            sizes = list(shape)
            sizes[axis] *= step
            low, high = (-8, 7) if step == 2 else (limits.min, limits.max)
            x = rng.integers(low, high, sizes, endpoint=True).astype(dtype)
            found.append(Sample((x,), {"axis": axis}))
        x = rng.integers(-8, 7, (4, 6), endpoint=True).astype(np.int8).view(dtype)
        return [*found, Sample((x.T[:, ::-1],), {"axis": 0})]

    return samples


def _packed_reference(x, axis):
    """Pair by pair, in Python's integers."""
    x = np.moveaxis(x, axis, 0)
    out = np.zeros((len(x) // 2, *x.shape[1:]), np.uint8)
    for at in np.ndindex(*out.shape):
        low, high = (int(x[(2 * at[0] + i, *at[1:])]) % 16 for i in (0, 1))
        out[at] = low + 16 * high
    return np.moveaxis(out, 0, axis)


def _unpacked_reference(x, axis):
    x = np.moveaxis(x, axis, 0)
    out = np.zeros((2 * len(x), *x.shape[1:]), np.int8)
    for at in np.ndindex(*x.shape):
        for i, four in enumerate((int(x[at]) % 16, int(x[at]) // 16)):
            out[(2 * at[0] + i, *at[1:])] = four - 16 * (four > 7)
    return np.moveaxis(out, 0, axis)


def _axis_errors(rng):
    x = rng.integers(0, 7, (2, 4))
    return [ErrorSample((x * 0.5,), {"axis": 0}, DTypeError, "float")]


CASES = {
    "pack_int4": Cases(_pairs(2), _axis_errors, _packed_reference),
    "unpack_int4": Cases(_pairs(1), _axis_errors, _unpacked_reference),
}
