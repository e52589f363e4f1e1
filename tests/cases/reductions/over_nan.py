"""Cases of eagerflow/ops/reductions/over_nan.py."""

import itertools
import math
import operator
import statistics

import numpy as np

from eagerflow.errors import AxisError, DTypeError
from tests.cases.reductions.sums import along
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make


def _with_nan(rng, dtype, shape):
    x = distinct(rng, dtype, shape) if dtype.kind != "c" else make(rng, dtype, shape)
    if dtype.kind not in "bui" and x.size > 2:
        x = x.copy()
        x.ravel()[1 :: max(x.size // 2, 2)] = np.nan
    return x


def _samples(rng, dtype):
    found = [
        Sample((_with_nan(rng, dtype, shape),), {"axis": axis, "keepdims": keepdims})
        for shape, axis in (((5,), None), ((3, 4), 0), ((2, 5), -1), ((2, 3, 4), (0, 2)))
        for keepdims in (False, True)
    ]
    return [
        *found,
        Sample((make(rng, dtype, ()),)),
        Sample((make(rng, dtype, (2, 3)),), {"axis": 1}),
    ]


def _of_one_axis(rng, dtype):
    return [s for s in _samples(rng, dtype) if s.attributes.get("axis") != (0, 2)]


def _errors(rng):
    return [
        ErrorSample((np.ones((2, 3)),), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample(("text",), {}, DTypeError, "str"),
    ]


def _numbers(row):
    return [value for value in row if value == value]


def _over_numbers(function, dtype=None):
    """The cases of a function of the elements of each row that are not NaN."""
    reduce = along(lambda row: function(_numbers(row)), dtype)
    return Cases(
        _samples, _errors, lambda x, axis=None, keepdims=False, **more: reduce(x, axis, keepdims)
    )


def _place_of(function):
    """The cases of the index of an extreme element."""
    search = along(lambda row: row.index(function(_numbers(row))), "int64")
    return Cases(
        _of_one_axis, _errors, lambda x, axis=None, keepdims=False: search(x, axis, keepdims)
    )


def _mean_of(row):
    return sum(row) / len(row) if row else math.nan


def _variance_of(row):
    if not any(isinstance(value, complex) for value in row):
        return statistics.pvariance(row) if row else math.nan
    center = sum(row) / len(row)
    return math.fsum(abs(value - center) ** 2 for value in row) / len(row)


def _running_samples(rng, dtype):
    cases = (((5,), None), ((3, 4), 0), ((2, 5), -1), ((2, 3), None))
    cases += (((2, 3, 2), 1), ((0, 3), 0), ((1,), 0))
    return [Sample((_with_nan(rng, dtype, shape),), {"axis": axis}) for shape, axis in cases]


def _running(function, neutral):
    """The cases of running totals by a function of two numbers."""

    def reference(x, axis, dtype):
        cleared = np.where(np.isnan(x), x.dtype.type(neutral), x)
        rows = cleared.ravel() if axis is None else np.moveaxis(cleared, axis, -1)
        out = np.empty(rows.shape, np.int64 if x.dtype.kind in "bi" else x.dtype)
        for at in np.ndindex(rows.shape[:-1]):
            out[at] = list(itertools.accumulate(rows[at].tolist(), function))
        return out if axis is None else np.moveaxis(out, -1, axis)

    return Cases(_running_samples, reference=reference)


CASES = {
    "nansum": _over_numbers(sum),
    "nanprod": _over_numbers(math.prod),
    "nanmean": _over_numbers(_mean_of),
    "nanvar": _over_numbers(_variance_of, np.float64),
    "nanstd": _over_numbers(lambda row: math.sqrt(_variance_of(row)), np.float64),
    "nanmax": _over_numbers(max),
    "nanmin": _over_numbers(min),
    "nanargmax": _place_of(max),
    "nanargmin": _place_of(min),
    "nancumsum": _running(operator.add, 0),
    "nancumprod": _running(operator.mul, 1),
}
