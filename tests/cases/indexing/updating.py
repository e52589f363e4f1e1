"""Cases of eagerflow/ops/indexing/updating.py."""

import operator

import numpy as np

from eagerflow.errors import DTypeError, IndexRangeError, ShapeError
from eagerflow.ops.indexing.indices import filled
from tests.cases.indexing.indexing import index_samples, written
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _write_samples(rng, dtype):
    found = []
    for shape, arrays, index in index_samples(rng):
        part = np.zeros(shape)[filled(index, arrays)]
        x, value = make(rng, dtype, shape), make(rng, dtype, np.shape(part))
        found.append(Sample((x, value, *arrays), {"index": index}))
    x = make(rng, dtype, (4, 6))
    found.append(Sample((x.T[::2], make(rng, dtype, ())), {"index": (slice(1, 3), -1)}))
    found.append(Sample((x, make(rng, dtype, (2, 1))), {"index": (slice(0, 2), slice(1, 4))}))
    return found


def _write_errors(rng):
    x, one = rng.standard_normal((2, 3)), np.ones(())
    return [
        ErrorSample((x, one), {"index": 2}, IndexRangeError, "index 2 is out of range for axis 0"),
        ErrorSample((x, one, np.array([3])), {"index": (0, "array")}, IndexRangeError, "index 3"),
        ErrorSample((x, np.ones(2)), {"index": 0}, ShapeError, "does not broadcast"),
        ErrorSample((x, one * 1j), {"index": 0}, DTypeError, "do not fit into"),
        ErrorSample((x, one), {"index": 0.5}, DTypeError, "cannot be indices"),
    ]


def _writing(combine):
    """The cases of an op that combines the selected elements with those of a value."""
    return Cases(
        _write_samples,
        _write_errors,
        lambda x, value, *indices, index: written(x, index, indices, value, combine),
    )


CASES = {
    "index_set": _writing(lambda a, b: b),
    "index_add": _writing(operator.add),
    "index_multiply": _writing(operator.mul),
    "index_min": _writing(min),
    "index_max": _writing(max),
}
