"""Cases of eagerflow/ops/nn/mean_differences.py."""

import math

import numpy as np

from eagerflow.errors import AxisError, ShapeError
from eagerflow.ops.family import op_of
from eagerflow.ops.nn.differences import absolute_difference, huber_difference, squared_difference
from tests.cases import cases_of
from tests.cases.samples import Cases, ErrorSample, Sample, each, make


def _errors(*more):
    x = np.ones((2, 3))
    return lambda rng: [
        ErrorSample((x, x[:1], *more), {}, ShapeError, "differ"),
        ErrorSample((x, x, *more), {"axis": 2}, AxisError, "axis 2 does not exist"),
    ]


def _samples(difference, rng, dtype):
    """Arrays of one shape, and each of their axes."""
    found = []
    for args, attributes in cases_of(op_of(difference)).samples(rng, dtype):
        pair = tuple(np.broadcast_arrays(*args))
        for axis in range(-1, pair[0].ndim - 1):
            found.append(Sample(pair, {**attributes, "axis": axis}))
    return found


def _mean_of(difference):
    """Cases of the mean of an op along an axis."""

    def reference(a, b, axis, **more):
        """The mean, in float64."""
        lines = np.moveaxis(cases_of(op_of(difference)).reference(a, b, **more), axis, -1)
        out = np.empty(lines.shape[:-1])
        for at in np.ndindex(out.shape):
            count = len(lines[at])
            out[at] = math.fsum(lines[at].tolist()) / count if count else math.nan
        return out

    return Cases(lambda rng, dtype: _samples(difference, rng, dtype), _errors(), reference)


def _gradient_of(difference, slope):
    """Cases of the gradient of that mean; ``slope`` is the derivative of the difference."""

    def samples(rng, dtype):
        """Those of the mean, with a g for each."""
        return [
            Sample((*args, make(rng, dtype, args[0].sum(more["axis"]).shape)), more)
            for args, more in _samples(difference, rng, dtype)
        ]

    def reference(a, b, g, axis, **more):
        """The gradient, in float64."""
        slopes = each(lambda a, b, **own: slope(a - b, **own))(a, b, **more)
        return np.expand_dims(g, axis) / max(a.shape[axis], 1) * slopes

    return Cases(samples, _errors(np.ones(2)), reference)


CASES = {
    "mean_squared_difference": _mean_of(squared_difference),
    "mean_absolute_difference": _mean_of(absolute_difference),
    "mean_huber_difference": _mean_of(huber_difference),
    "mean_squared_difference_gradient": _gradient_of(squared_difference, lambda d: 2 * d),
    "mean_absolute_difference_gradient": _gradient_of(
        absolute_difference, lambda d: (d > 0) - (d < 0)
    ),
    "mean_huber_difference_gradient": _gradient_of(
        huber_difference, lambda d, delta: max(-delta, min(delta, d))
    ),
}
