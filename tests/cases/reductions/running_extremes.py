"""Cases of eagerflow/ops/reductions/running_extremes.py."""

import cmath
import itertools
import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make


def _samples(rng, dtype):
    x = distinct(rng, dtype, (2, 3, 4))
    found = [
        Sample((x,), {"axis": axis, "reverse": reverse})
        for axis in (0, 1, -1)
        for reverse in (False, True)
    ]
    found += [Sample((x[0, 0],), {}), Sample((x[0, 0],), {"reverse": True})]
    found.append(Sample((x[:, ::-2].T,), {"axis": 1}))
    found.append(Sample((distinct(rng, dtype, (7,)),), {"axis": 0}))
    found.append(Sample((make(rng, dtype, (0, 3)),), {"axis": 0}))
    found.append(Sample((make(rng, dtype, (2, 0)),), {"axis": 0, "reverse": True}))
    return found


def _errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {}, ShapeError, "axis is needed"),
        ErrorSample((x[0, 0],), {}, ShapeError, "axis is needed"),
        ErrorSample((x,), {"axis": (0, 1)}, ShapeError, "is not an axis"),
        ErrorSample((x * 1j,), {"axis": 0}, DTypeError, "complex128 is not taken"),
    ]


def _reference(function):
    def reference(x, axis, reverse):
        rows, out = np.moveaxis(x, axis or 0, -1), np.empty(x.shape, x.dtype)
        filled, step = np.moveaxis(out, axis or 0, -1), -1 if reverse else 1
        for at in np.ndindex(rows.shape[:-1]):
            filled[at] = list(itertools.accumulate(rows[at].tolist()[::step], function))[::step]
        return out

    return reference


def _added(a, b):
    if isinstance(a, complex):
        return cmath.log(cmath.exp(a) + cmath.exp(b))
    high, low = max(a, b), min(a, b)
    return high if high == -math.inf else high + math.log1p(math.exp(low - high))


CASES = {
    "cummax": Cases(_samples, _errors, _reference(max)),
    "cummin": Cases(_samples, _errors, _reference(min)),
    "logcumsumexp": Cases(_samples, lambda rng: _errors(rng)[:-1], _reference(_added)),
}
