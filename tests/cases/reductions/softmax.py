"""Cases of eagerflow/ops/reductions/softmax.py."""

import cmath
import math

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.reductions.sums import along
from tests.cases.samples import Cases, ErrorSample, Sample, make, reduced, rows


def _row_samples(count):
    """Samples of ``count`` arrays of one shape and an axis."""

    def samples(rng, dtype):
        found = []
        for shape, axis in rows(dtype, empty=True):
            arrays = tuple(make(rng, dtype, shape) for _ in range(count))
            found.append(Sample(arrays, {"axis": axis}))
        found.append(Sample(tuple(make(rng, dtype, (4, 6))[::2, ::-1] for _ in range(count))))
        found.append(Sample(tuple(make(rng, dtype, (4, 3)).T for _ in range(count))))
        return found

    return samples


def _gradient_errors(rng):
    return [ErrorSample((np.ones((1, 3)), np.ones((2, 3))), {}, ShapeError, "differ")]


def _by_row(function):
    """A reference that maps rows along ``axis``, as lists of Python numbers, to rows."""

    def reference(*arrays, axis):
        moved = [np.moveaxis(a, axis, -1) for a in arrays]
        out = np.empty(moved[0].shape, "D" if moved[0].dtype.kind == "c" else "d")
        for at in np.ndindex(out.shape[:-1]):
            out[at] = function(*(a[at].tolist() for a in moved))
        return np.moveaxis(out, -1, axis)

    return reference


def _softmax_of(row):
    top = max((value.real for value in row), default=0.0)
    powers = [_exponential_of(value - top) for value in row]
    total = _sum_of(powers)
    return [power / total for power in powers]


def _exponential_of(x):
    """The exponential of a Python number."""
    return cmath.exp(x) if isinstance(x, complex) else math.exp(x)


def _sum_of(row):
    """The exact sum of Python numbers, rounded."""
    real = math.fsum(value.real for value in row)
    found = complex(real, math.fsum(value.imag for value in row))
    return found if any(isinstance(value, complex) for value in row) else real


def _log_softmax_of(row):
    total = _logsumexp_of(row) if row else 0.0
    return [value - total for value in row]


def _logsumexp_of(row):
    top = max((value.real for value in row), default=-math.inf)
    if math.isinf(top):
        return top
    total = _sum_of([_exponential_of(value - top) for value in row])
    return top + (cmath.log(total) if isinstance(total, complex) else math.log(total))


CASES = {
    "softmax": Cases(_row_samples(1), reference=_by_row(_softmax_of)),
    "softmax_gradient": Cases(
        _row_samples(2),
        _gradient_errors,
        _by_row(
            lambda y, g: [
                a * (b - _sum_of([v * w for v, w in zip(y, g, strict=True)]))
                for a, b in zip(y, g, strict=True)
            ]
        ),
    ),
    "log_softmax": Cases(_row_samples(1), reference=_by_row(_log_softmax_of)),
    "log_softmax_gradient": Cases(
        _row_samples(2),
        _gradient_errors,
        _by_row(
            lambda y, g: [b - _exponential_of(a) * _sum_of(g) for a, b in zip(y, g, strict=True)]
        ),
    ),
    "logsumexp": Cases(samples=reduced(), reference=along(_logsumexp_of)),
}
