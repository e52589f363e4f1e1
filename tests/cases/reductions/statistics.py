"""Cases of eagerflow/ops/reductions/statistics.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.reductions.sums import along
from tests.cases.samples import Cases, ErrorSample, Sample, make, reduced


def _mean_of(row):
    if not row:
        return math.nan
    if isinstance(row[0], complex):
        return complex(_mean_of([z.real for z in row]), _mean_of([z.imag for z in row]))
    return math.fsum(row) / len(row)


def _spread_samples(rng, dtype):
    found = [
        s
        for s in reduced(empty=False)(rng, dtype)
        if s.args[0].ndim and s.attributes.get("axis") != ()  # no kink at a spread of 0
    ]
    x = make(rng, dtype, (3, 4))
    found.append(Sample((x,), {"axis": 1, "correction": 1}))
    found.append(Sample((x,), {"axis": 0, "correction": 0.5, "keepdims": True}))
    return found


def _spread_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": (1, -1)}, ShapeError, "repeat"),
        ErrorSample((x,), {"correction": "one"}, DTypeError, "is not a number"),
    ]


def _variance_of(row, correction):
    center = _mean_of(row) if row else 0.0
    squares = math.fsum(abs(value - center) ** 2 for value in row)
    free = len(row) - correction
    return squares / free if free > 0 else math.nan


def _var_reference(x, axis, keepdims, correction):
    return along(lambda row: _variance_of(row, correction), np.float64)(x, axis, keepdims)


def _std_reference(x, axis, keepdims, correction):
    of_row = along(lambda row: math.sqrt(_variance_of(row, correction)), np.float64)
    return of_row(x, axis, keepdims)


CASES = {
    "mean": Cases(samples=reduced(), reference=along(_mean_of)),
    "var": Cases(_spread_samples, _spread_errors, _var_reference),
    "std": Cases(_spread_samples, _spread_errors, _std_reference),
}
