"""Cases of eagerflow/ops/reductions/quantiles.py."""

import math
import statistics

import numpy as np

from eagerflow.errors import ArgumentError, AxisError, DTypeError, ShapeError
from eagerflow.ops.reductions.quantiles import CHOICES, PLOTTING
from eagerflow.spec import reduced_axes
from tests.cases.samples import Cases, ErrorSample, Sample, distinct


def _median_samples(rng, dtype):
    return [
        Sample((distinct(rng, dtype, shape),), {"axis": axis, "keepdims": keepdims})
        for shape, axis in (
            ((5,), None),
            ((6,), 0),
            ((1,), -1),
            ((3, 4), 0),
            ((3, 5), (0, 1)),
            ((2, 3, 4), (0, 2)),
            ((4, 0), 0),
        )
        for keepdims in (False, True)
    ]


def _quantile_samples(most):
    def samples(rng, dtype):
        x = distinct(rng, dtype, (3, 4))
        shares = np.array([0.13, 0.57, 0.91]) * most
        found = [
            Sample((x, most * q, axis), {"keepdims": keepdims})
            for q, axis, keepdims in ((0.3, None, False), (0.77, 1, True), (0.6, (0, 1), False))
        ]
        found += [Sample((x, shares, 0)), Sample((x[:, ::2].T, shares.reshape(3, 1), 1))]
        found += [Sample((x, [0.0, most], 1)), Sample((x[0], 0.5 * most))]
        found += [
            Sample((distinct(rng, dtype, (2, 7)), 0.37 * most, 1), {"method": method})
            for method in sorted({*CHOICES, *PLOTTING})
        ]
        return found

    return samples


def _along(function, most=1):
    """A reference that sorts each row and computes a share of it by ``function``."""

    def reference(x, q=0.5, axis=None, *, keepdims, **more):
        x = np.asarray(x, np.float64 if x.dtype == np.float64 else np.float32)
        axes = reduced_axes(axis, x.ndim)
        kept = [i for i in range(x.ndim) if i not in axes]
        rows = x.transpose(*kept, *axes).reshape(
            *(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes)
        )
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        shares = np.asarray(q, np.float64) / most
        out = np.empty((*shares.shape, *rows.shape[:-1]), x.dtype)
        for at in np.ndindex(shares.shape):
            for place in np.ndindex(rows.shape[:-1]):
                row = sorted(rows[place].tolist())
                out[(*at, *place)] = function(row, float(shares[at]), **more)
        return out.reshape(*shares.shape, *shape) if keepdims else out

    return reference


def _of_row(row, q, method="linear", weights=None):
    """The quantile by the definitions of Hyndman and Fan, with elements counted from 1."""
    n = len(row)
    if method in PLOTTING or method == "linear":
        a, b = PLOTTING.get(method, (1, 1))
        h = n * q + a + q * (1 - a - b)
    elif method in ("lower", "higher", "midpoint", "nearest"):
        h = (n - 1) * q + 1
        ends = math.floor(h), math.ceil(h)
        nearest = round(h - 1) + 1
        h = {"lower": ends[0], "higher": ends[1], "midpoint": sum(ends) / 2}.get(method, nearest)
    else:
        h = n * q if method != "closest_observation" else n * q - 0.5
        j, g = math.floor(h), h - math.floor(h)
        exact = {"inverted_cdf": 0.0, "averaged_inverted_cdf": 0.5}.get(method, float(j % 2))
        h = j + (1.0 if g > 0 else exact)
    h = min(max(h, 1), n)
    low, high = row[math.floor(h) - 1], row[math.ceil(h) - 1]
    return low + (high - low) * (h - math.floor(h))


def _errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x, 1000.0), {}, ArgumentError, "out of range"),
        ErrorSample((x, 0.5), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x[:0], 0.5), {"axis": 0}, ShapeError, "nothing to reduce"),
        ErrorSample((x, 0.5), {"method": "middle"}, ArgumentError, "is not a method"),
        ErrorSample((x, 0.5), {"weights": x}, ArgumentError, "takes no weights"),
        ErrorSample(("text", 0.5), {}, DTypeError, "str"),
    ]


_MEDIAN = Cases(
    _median_samples,
    lambda rng: [
        ErrorSample((np.ones((2, 0)),), {"axis": 1}, ShapeError, "nothing to reduce"),
        ErrorSample((np.ones(2) * 1j,), {}, DTypeError, "complex128 is not taken"),
    ],
    _along(lambda row, q: statistics.median(row)),
)
_QUANTILE = Cases(_quantile_samples(1), _errors, _along(_of_row))
_PERCENTILE = Cases(_quantile_samples(100), _errors, _along(_of_row, 100))
CASES = {
    "median": _MEDIAN,
    "nanmedian": _MEDIAN,
    "quantile": _QUANTILE,
    "percentile": _PERCENTILE,
    "nanquantile": _QUANTILE,
    "nanpercentile": _PERCENTILE,
}
