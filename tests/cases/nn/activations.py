"""Cases of eagerflow/ops/nn/activations.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from tests.cases.samples import (
    Cases,
    ErrorSample,
    Sample,
    clear_of,
    distinct,
    each,
    make,
    moved_from,
    pairs,
)


def _off_zero(rng, dtype):
    return [s._replace(args=(moved_from(0, s.args[0]), s.args[1])) for s in pairs()(rng, dtype)]


def _rows(rng, dtype, values=make):
    shapes = (((4,), -1), ((2, 6), 1), ((2, 6), 0), ((2, 4, 3), 1), ((4, 3), 0), ((0, 2), -1))
    base = values(rng, dtype, (4, 6))
    found = [Sample((values(rng, dtype, shape),), {"axis": axis}) for shape, axis in shapes]
    return [*found, Sample((base[::2, ::-1],), {}), Sample((base.T,), {"axis": 0})]


def _gated(x, axis):
    values, gates = np.split(x, 2, axis)
    return values / (1 + np.exp(-gates.astype(float)))


def _softmin_of(x, axis):
    powers = np.exp(-x.astype(float))
    return powers / powers.sum(axis, keepdims=True)


def _nearest_distribution(x, axis):
    """By bisection of the threshold that is subtracted from every element."""
    rows = np.moveaxis(x.astype(float), axis, -1)
    out = np.empty(rows.shape)
    for at in np.ndindex(rows.shape[:-1]):
        row = rows[at].tolist()
        low, high = max(row) - 1, max(row)
        for _ in range(60):
            middle = (low + high) / 2
            enough = math.fsum(max(v - middle, 0) for v in row) >= 1
            low, high = (middle, high) if enough else (low, middle)
        out[at] = [max(v - low, 0) for v in row]
    return np.moveaxis(out, -1, axis)


CASES = {
    "threshold": Cases(
        samples=clear_of((0.3,), -2, 2, threshold=0.3, value=-1.5),
        reference=each(lambda x, threshold, value: x if x > threshold else value),
    ),
    "hard_tanh": Cases(
        samples=clear_of((-1.0, 1.0), -2, 2),
        reference=each(lambda x, min, max: min if x < min else max if x > max else x),
    ),
    "hard_shrink": Cases(
        samples=clear_of((-0.5, 0.5), -2, 2),
        reference=each(lambda x, threshold: 0 if -threshold <= x <= threshold else x),
    ),
    "soft_shrink": Cases(
        samples=clear_of((-0.5, 0.5), -2, 2),
        reference=each(lambda x, threshold: math.copysign(max(math.fabs(x) - threshold, 0), x)),
    ),
    "sparse_sigmoid": Cases(
        samples=clear_of((-1.0, 1.0), -2, 2), reference=each(lambda x: min(max((x + 1) / 2, 0), 1))
    ),
    "prelu": Cases(samples=_off_zero, reference=each(lambda x, slope: x if x > 0 else slope * x)),
    "celu": Cases(
        samples=clear_of((0.0,), -2, 2, alpha=0.5),
        reference=each(lambda x, alpha: x if x > 0 else alpha * math.expm1(x / alpha)),
    ),
    "squareplus": Cases(
        samples=clear_of((), -2, 2), reference=each(lambda x, b: (x + math.sqrt(x * x + b)) / 2)
    ),
    "sparse_plus": Cases(
        samples=clear_of((-1.0, 1.0), -2, 2),
        reference=each(lambda x: x if x >= 1 else (x + 1) ** 2 / 4 if x > -1 else 0),
    ),
    "tanh_shrink": Cases(samples=clear_of((), -2, 2), reference=each(lambda x: x - math.tanh(x))),
    "glu": Cases(
        samples=_rows,
        errors=lambda rng: [
            ErrorSample((np.ones(3),), {}, ShapeError, "3 elements have no two halves"),
            ErrorSample((np.ones(2), 1), {}, AxisError, "axis 1 does not exist"),
        ],
        reference=_gated,
    ),
    "softmin": Cases(samples=_rows, reference=_softmin_of),
    "sparsemax": Cases(
        samples=lambda rng, dtype: _rows(rng, dtype, distinct), reference=_nearest_distribution
    ),
}
