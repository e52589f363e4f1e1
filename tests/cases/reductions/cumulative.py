"""Cases of eagerflow/ops/reductions/cumulative.py."""

import itertools
import operator

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from eagerflow.ops.reductions.accumulation import wide_dtype
from tests.cases.samples import Cases, ErrorSample, Sample, make, rows


def _scan_samples(rng, dtype):
    x = make(rng, dtype, (2, 3, 4))
    wide = {"f": "float64", "c": "complex128", "V": "float32"}.get(dtype.kind, "int32")
    found = [
        Sample((x,), {"axis": axis, "include_initial": initial, "reverse": reverse})
        for axis in (0, 1, -1)
        for initial in (False, True)
        for reverse in (False, True)
    ]
    found.append(Sample((x[0, 0],), {}))
    found.append(Sample((x[:, ::-2].T,), {"axis": 1}))
    found.append(Sample((x[:0],), {"axis": 0, "include_initial": True}))
    found.append(Sample((x[:0],), {"axis": 2}))
    found.append(Sample((x[1],), {"axis": -2, "dtype": wide}))
    found.append(Sample((x[1].real > 0,), {"axis": 1, "dtype": "bool"}))
    return found


def _scan_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {}, ShapeError, "axis is needed"),
        ErrorSample((x,), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x,), {"axis": (0, 1)}, ShapeError, "is not an axis"),
        ErrorSample((x[0, 0],), {}, ShapeError, "axis is needed"),
    ]


def _scan_reference(function, first):
    def reference(x, axis, include_initial, reverse, dtype):
        rows = np.moveaxis(x if dtype is None else x.astype(dtype), axis or 0, -1)
        size = rows.shape[-1] + include_initial
        out = np.empty((*rows.shape[:-1], size), wide_dtype(rows.dtype) if dtype is None else dtype)
        for at in np.ndindex(rows.shape[:-1]):
            row = rows[at].tolist()[:: -1 if reverse else 1]
            initial = first if include_initial else None
            out[at] = list(itertools.accumulate(row, function, initial=initial))[
                :: -1 if reverse else 1
            ]
        return np.moveaxis(out, -1, axis or 0)

    return reference


def _recurrence_reference(a, b, axis, reverse):
    out = np.empty(b.shape, b.dtype)
    rows = [np.moveaxis(x, axis, -1) for x in (a, b, out)]
    for at in np.ndindex(rows[0].shape[:-1]):
        factors, terms, total = rows[0][at].tolist(), rows[1][at].tolist(), 0.0
        steps = range(len(terms))
        for i in reversed(steps) if reverse else steps:
            factor = factors[i + reverse] if i + reverse < len(factors) else 0.0
            total = terms[i] + factor * total
            rows[2][at][i] = total
    return out


def _recurrence_samples(rng, dtype):
    found = []
    for shape, axis in (*rows(dtype, empty=True), ((4, 40), 0), ((2, 0, 3), 2)):
        a, b = (make(rng, dtype, shape, -1, 1) for _ in range(2))
        found += [
            Sample((a, b), {"axis": axis, "reverse": False}),
            Sample((a.T[::-1].T, b), {"axis": axis, "reverse": True}),
        ]
    return found


CASES = {
    "cumulative_sum": Cases(_scan_samples, _scan_errors, _scan_reference(operator.add, 0)),
    "cumulative_prod": Cases(_scan_samples, _scan_errors, _scan_reference(operator.mul, 1)),
    "linear_recurrence": Cases(
        samples=_recurrence_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(3), np.ones(2)), {}, ShapeError, "differ"),
            ErrorSample((np.ones(3), np.ones(3)), {"axis": 1}, AxisError, "axis 1 does not exist"),
            ErrorSample((np.ones(3), np.ones(3)), {"axis": "t"}, ShapeError, "is not an axis"),
        ],
        reference=_recurrence_reference,
    ),
}
