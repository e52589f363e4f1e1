"""Cases of eagerflow/ops/indexing/segments.py."""

import math
import operator
from functools import reduce

import numpy as np

from eagerflow.errors import IndexRangeError, ShapeError
from eagerflow.ops.indexing.segments import identity_of
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make


def _segment_samples(rng, dtype, values=make):
    found = [
        Sample(
            (
                values(rng, dtype, shape),
                rng.permutation(np.arange(math.prod(shape[:rank])) % max(count, 1)).reshape(
                    shape[:rank]
                ),
            ),
            {"num_segments": count},
        )
        for shape, rank, count in (
            ((5,), 1, 3),
            ((5,), 1, 1),
            ((1,), 1, 4),
            ((0,), 1, 2),
            ((4, 3), 1, 2),
            ((4, 3), 2, 5),
            ((4, 0), 1, 3),
            ((2, 3, 2), 1, 2),
            ((2, 3, 2), 2, 4),
            ((6, 2), 1, 8),
            ((6, 2), 1, 4),
            ((3, 2), 2, 6),
            ((3,), 1, 2),
        )
    ]
    base = values(rng, dtype, (4, 6))
    found.append(Sample((base.T[::2], np.array([1, 1, 0], np.int8)), {"num_segments": 2}))
    wide = np.broadcast_to(base[0], (2, 6))
    found.append(Sample((wide, np.array([2, 1])), {"num_segments": 3}))
    many = make(rng, "float64", (300, 2)) * 0.05 + 1  # more than are added one by one
    if dtype.itemsize >= 4 and dtype.kind == "f":
        ids = rng.integers(0, 40, 300)
        found.append(Sample((many.astype(dtype), ids), {"num_segments": 40}))
    return found


def _segment_errors(rng):
    ones = np.ones(2)
    return [
        ErrorSample(
            (ones, np.array([0, 3])),
            {"num_segments": 3},
            IndexRangeError,
            "index 3 is out of range for axis 0 of length 3",
        ),
        ErrorSample((ones, np.array([0, -1])), {"num_segments": 3}, IndexRangeError, "index -1"),
        ErrorSample((ones, np.array([0])), {"num_segments": 3}, ShapeError, "do not fit x"),
        ErrorSample((ones, np.array([0, 0])), {"num_segments": -1}, ShapeError, "negative"),
    ]


def _finite_samples(rng, dtype):
    """Without segments that are empty, where gradients are checked: their results are infinite."""
    return [
        s
        for s in _segment_samples(rng, dtype, distinct)
        if dtype.itemsize < 8 or len(set(s.args[1].flat)) == s.attributes["num_segments"]
    ]


def _joined(join, ufunc):
    """A reference that joins the elements of each segment by a function of two numbers."""

    def reference(x, segment_ids, num_segments):
        rest = x.shape[segment_ids.ndim :]
        out = np.empty((num_segments, *rest), x.dtype)
        for at in np.ndindex(out.shape):
            rows = [x[i][at[1:]] for i in np.ndindex(segment_ids.shape) if segment_ids[i] == at[0]]
            out[at] = reduce(join, rows, identity_of(ufunc, x.dtype))
        return out

    return reference


CASES = {
    "segment_sum": Cases(_segment_samples, _segment_errors, _joined(operator.add, "add")),
    "segment_max": Cases(_finite_samples, _segment_errors, _joined(max, "maximum")),
    "segment_min": Cases(_finite_samples, _segment_errors, _joined(min, "minimum")),
    "segment_prod": Cases(_segment_samples, _segment_errors, _joined(operator.mul, "multiply")),
}
