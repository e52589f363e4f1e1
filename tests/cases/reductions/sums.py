"""Cases of eagerflow/ops/reductions/sums.py."""

import math

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.spec import reduced_axes
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make, reduced


def along(function, dtype=None):
    """A reference that applies ``function`` of a list of Python numbers to each reduced row."""

    def reference(x, axis, keepdims, **more):
        axes = reduced_axes(axis, x.ndim)
        kept = [i for i in range(x.ndim) if i not in axes]
        rows = x.transpose(kept + list(axes)).reshape(
            *(x.shape[i] for i in kept), math.prod(x.shape[i] for i in axes)
        )
        out = np.empty(rows.shape[:-1], object)
        for at in np.ndindex(out.shape):
            out[at] = function(rows[at].tolist())
        if keepdims:
            out = out.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])
        found = np.result_type(*out.ravel().tolist()) if out.size else x.dtype
        return out.astype(more.get("dtype") or dtype or found)

    return reference


def reduced_with_dtype(low=-2, high=2):
    """Samples of a reduction that has ``dtype``."""

    def samples(rng, dtype):
        found = reduced(low, high)(rng, dtype)
        wide = {"f": "float64", "c": "complex128", "V": "float32"}.get(dtype.kind, "int32")
        x = make(rng, dtype, (2, 3), low, high)
        return [*found, Sample((x,), {"axis": 0, "dtype": wide}), Sample((x,), {"dtype": wide})]

    return samples


def _extreme_samples(rng, dtype):
    found = reduced(empty=False)(rng, dtype)
    if dtype.kind in "biu":
        return found
    return [Sample((distinct(rng, dtype, s.args[0].shape),), s.attributes) for s in found]


def _extreme_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": (0, -2)}, ShapeError, "repeat"),
        ErrorSample((x[:, :0],), {"axis": 1}, ShapeError, "nothing to reduce"),
    ]


def _index_samples(rng, dtype):
    return [s for s in _extreme_samples(rng, dtype) if type(s.attributes.get("axis")) is not tuple]


def _index_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": (0, 1)}, ShapeError, "is not an axis"),
        ErrorSample((x[:0],), {}, ShapeError, "nothing to search"),
    ]


CASES = {
    "sum": Cases(samples=reduced_with_dtype(), reference=along(sum)),
    "prod": Cases(samples=reduced_with_dtype(), reference=along(math.prod)),
    "max": Cases(_extreme_samples, _extreme_errors, along(max)),
    "min": Cases(_extreme_samples, _extreme_errors, along(min)),
    "any": Cases(reduced(-1, 1), reference=along(any, "bool")),
    "all": Cases(reduced(-1, 1), reference=along(all, "bool")),
    "count_nonzero": Cases(
        samples=reduced(-1, 1), reference=along(lambda row: len(row) - row.count(0), "int64")
    ),
    "argmax": Cases(_index_samples, _index_errors, along(lambda row: row.index(max(row)), "int64")),
    "argmin": Cases(_index_samples, _index_errors, along(lambda row: row.index(min(row)), "int64")),
}
