"""Cases of eagerflow/ops/indexing/indexing.py."""

import numpy as np

from eagerflow.errors import DTypeError, IndexRangeError, ShapeError
from eagerflow.ops.indexing.indices import ALL, filled
from tests.cases.samples import Cases, ErrorSample, Sample, make


def index_samples(rng):
    """Shapes of tensors with indices for them: (shape, index arrays, recorded index).

    There are no masks among them: the shape of their selection is not known in advance.
    """
    return [
        ((4,), (), 1),
        ((4,), (), (-1,)),
        ((3, 4), (), (slice(None), 2)),
        ((3, 4), (), (slice(0, 2), slice(None, None, -2))),
        ((2, 3, 4), (), (Ellipsis, None, 0)),
        ((3,), (), (slice(2, 1),)),
        ((), (), (None, Ellipsis)),
        ((0, 3), (), (slice(None), 1)),
        ((4,), (np.array([0, 2, 2, -1]),), ("array",)),
        ((3, 4), (np.array([[0, 1], [1, 1]]),), (slice(None), "array")),
        ((3, 4), (np.array([0, 0, -3]), np.array([1, 1, 2])), ("array", "array")),
        ((2, 3, 4), (np.array([0, 1, 1]), np.array([[2], [0]])), ("array", slice(1, 3), "array")),
        ((2, 3, 4), (np.array([1, 0]),), (0, slice(None), "array")),
        ((2, 3, 4), (np.array([1, 0]),), (slice(None), 1, "array")),
        ((3, 4), (np.array(2, np.int32),), ("array", slice(1, None))),
        ((3, 2), (np.empty((0,), np.int64),), ("array",)),
    ]


def _getitem_samples(rng, dtype):
    found = []
    for shape, arrays, index in index_samples(rng):
        found.append(Sample((make(rng, dtype, shape), *arrays), {"index": index}))
    x = make(rng, dtype, (4, 6))
    found.append(Sample((x.T[::2], np.array([1, 1])), {"index": ("array", slice(1, 3))}))
    found.append(Sample((np.broadcast_to(x[0], (2, 6)),), {"index": (1, slice(None, 4, 3))}))
    return found


def _getitem_errors(rng):
    x = rng.standard_normal((2, 3))
    mask = np.array([True, False, True])
    return [
        ErrorSample((x,), {"index": 5}, IndexRangeError, "index 5 is out of range"),
        ErrorSample((x,), {"index": (0, -4)}, IndexRangeError, "for axis 1 of length 3"),
        ErrorSample((x, np.array([0, 2])), {"index": ("array",)}, IndexRangeError, "index 2"),
        ErrorSample((x,), {"index": (0, 0, 0)}, IndexRangeError, "3 indices for 2 axes"),
        ErrorSample((x,), {"index": 1.5}, DTypeError, "cannot be indices"),
        ErrorSample((x,), {"index": "rows"}, DTypeError, "str"),
        ErrorSample((x, mask), {"index": ("mask",)}, IndexRangeError, "does not fit axes"),
        ErrorSample((x,), {"index": slice(None, None, 0)}, ShapeError, "step of a slice is 0"),
    ]


def _select(array, index, arrays):
    """The selection of an index, position by position."""
    index = filled(index, arrays)
    positions = np.arange(array.size).reshape(array.shape)[index]
    flat = array.ravel().tolist()
    picked = [flat[i] for i in np.ravel(positions).tolist()]
    return np.array(picked, array.dtype).reshape(np.shape(positions))


def written(x, index, arrays, value, combine=None):
    """A copy of ``x`` changed position by position; the reference of all writing ops."""
    positions = np.arange(x.size).reshape(x.shape)[filled(index, arrays)]
    values = np.broadcast_to(value, np.shape(positions))
    out = x.ravel().tolist()
    combine = combine or (lambda a, b: a + b)
    for at, v in zip(np.ravel(positions).tolist(), np.ravel(values).tolist(), strict=True):
        out[at] = combine(out[at], v)
    return np.array(out, x.dtype).reshape(x.shape)


def _scatter_samples(rng, dtype):
    found = []
    for shape, arrays, index in index_samples(rng):
        part = np.zeros(shape)[filled(index, arrays)]
        updates = make(rng, dtype, np.shape(part))
        found.append(Sample((updates, *arrays), {"shape": shape, "index": index}))
    return found


CASES = {
    "getitem": Cases(
        samples=_getitem_samples,
        errors=_getitem_errors,
        reference=lambda x, *indices, index: _select(x, index, indices),
    ),
    "index_scatter": Cases(
        samples=_scatter_samples,
        errors=lambda rng: [
            ErrorSample((np.ones(2),), {"shape": (3,), "index": 3}, IndexRangeError, "index 3 is"),
            ErrorSample((np.ones(2),), {"shape": (3,), "index": ALL}, ShapeError, "broadcast"),
            ErrorSample((np.ones(2),), {"shape": (-3,), "index": ALL}, ShapeError, "negative"),
        ],
        reference=lambda updates, *indices, shape, index: written(
            np.zeros(shape, updates.dtype), index, indices, updates
        ),
    ),
}
