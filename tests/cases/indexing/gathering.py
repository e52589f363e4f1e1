"""Cases of eagerflow/ops/indexing/gathering.py."""

import numpy as np

from eagerflow.errors import AxisError, DTypeError, IndexRangeError, ShapeError
from eagerflow.ops.indexing.gathering import gathered_spec
from eagerflow.spec import TensorSpec
from tests.cases.samples import Cases, ErrorSample, Sample, make


def _index_errors(rng):
    """Indices that no op of this module takes, for a tensor of shape (2, 3) and axis 1."""
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x, np.array([3])), {"axis": 1}, IndexRangeError, "for axis 1 of length 3"),
        ErrorSample((x, np.array([0])), {"axis": 2}, AxisError, "axis 2 does not exist"),
        ErrorSample((x, np.array([0.5])), {"axis": 1}, DTypeError, "cannot be indices"),
        ErrorSample((x, "ab"), {"axis": 1}, DTypeError, "str"),
    ]


def _take_samples(rng, dtype):
    x = make(rng, dtype, (3, 4))
    found = [
        Sample((make(rng, dtype, shape), np.array(indices, kind)), {"axis": axis})
        for shape, indices, axis, kind in (
            ((4,), [0, 3, 3], 0, "int64"),
            ((4,), 2, 0, "int32"),
            ((4,), [[0, 1], [2, -1]], -1, "int8"),
            ((2, 3), [1, 1, 0], 0, "int64"),
            ((2, 3), [2], 1, "uint8"),
            ((2, 3), [], 1, "int64"),
            ((2, 3), [[0], [2]], -1, "int64"),
            ((2, 3), [0, 5, -6], None, "int64"),
            ((0, 3), [1, 2], 1, "int64"),
            ((2, 3, 2), [0, 0, 2, 2], 1, "int64"),
        )
    ]
    found.append(Sample((x.T[::2], np.array([2, 0, 2])), {"axis": 1}))
    found.append(Sample((np.broadcast_to(x[0], (2, 4)), np.array([1, 0])[::-1]), {"axis": 0}))
    return found


def _along_samples(rng, dtype):
    def of(shape, places, axis):
        size = shape[axis]
        indices = rng.integers(-size, size, places) if size else np.zeros(places, np.int64)
        return Sample((make(rng, dtype, shape), indices), {"axis": axis})

    found = [
        of((4,), (3,), 0),
        of((4,), (6,), -1),
        of((2, 3), (2, 2), 1),
        of((2, 3), (4, 3), 0),
        of((2, 3), (1, 2), 1),
        of((1, 3), (2, 2), -1),
        of((2, 3), (2, 0), 1),
        of((0, 3), (0, 2), 1),
        of((2, 3, 4), (2, 1, 4), 1),
        of((2, 3, 4), (2, 3, 1), -1),
        of((1,), (3,), 0),
    ]
    base = make(rng, dtype, (4, 6))
    found.append(Sample((base.T[::2], rng.integers(0, 4, (3, 2))), {"axis": 1}))
    found.append(Sample((np.broadcast_to(base[0], (2, 6)), np.array([[1, 1], [0, 5]]))))
    return found


def _scatter_along_reference(updates, indices, shape, axis):
    out = np.zeros(shape, updates.dtype)
    indices = np.broadcast_to(indices, updates.shape)
    for at in np.ndindex(updates.shape):
        place = list(at)
        place[axis] = indices[at]
        out[tuple(place)] += updates[at]
    return out


def _scatter_along_samples(rng, dtype):
    found = []
    for x, indices in (s.args for s in _along_samples(rng, "float64")):
        axis = 1 if indices.shape[:1] == x.shape[:1] and x.ndim > 1 else 0
        if axis < x.ndim and all(
            n in (1, m)
            for i, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True))
            if i != axis
        ):
            shape = tuple(indices.shape[i] if i == axis else n for i, n in enumerate(x.shape))
            size = x.shape[axis]
            places = indices % size if size else indices
            sample = (make(rng, dtype, shape), places)
            found.append(Sample(sample, {"shape": x.shape, "axis": axis}))
    updates, places = make(rng, dtype, (2, 4)), np.array([[0, 0, 2, -1]])
    found += [Sample((updates, places), {"shape": (2, 3), "axis": axis}) for axis in (1, -1)] + [
        Sample((updates[::-1, ::2], places[:, :2]), {"shape": (2, 3), "axis": 1})
    ] * 3
    return found


def _gather_reference(x, indices, axis, batch_dims):
    if batch_dims == 0:
        return np.take(x, indices, 0 if axis is None else axis)
    inner = None if axis is None else axis % x.ndim - 1
    shape = gathered_spec(
        TensorSpec(x.shape, x.dtype), TensorSpec(indices.shape, indices.dtype), axis, batch_dims
    ).shape
    rows = [_gather_reference(a, i, inner, batch_dims - 1) for a, i in zip(x, indices, strict=True)]
    return np.array(rows, x.dtype).reshape(shape)


def _gather_samples(rng, dtype):
    def of(shape, places, axis, batch_dims=0):
        size = shape[batch_dims if axis is None else axis]
        indices = rng.integers(0, size, places)
        return Sample((make(rng, dtype, shape), indices), {"axis": axis, "batch_dims": batch_dims})

    found = [
        of((4,), (3,), 0),
        of((4,), (), None),
        of((2, 3), (4,), 1),
        of((2, 3), (2, 2), 0),
        of((2, 3), (0,), -1),
        of((2, 3), (2,), 1, 1),
        of((2, 3), (2, 4), None, 1),
        of((2, 3, 4), (2, 2), 2, 1),
        of((2, 3, 4), (2, 3, 2), 2, 2),
        of((2, 3, 4), (2, 3), -1, 2),
        of((2, 0, 4), (2, 3), 2, 1),
        of((2, 3, 2, 2), (2, 2), 2, 1),
    ]
    base = make(rng, dtype, (4, 6))
    found.append(Sample((base.T[::2], np.array([2, 2, 0]))))
    wide = np.broadcast_to(base[0], (2, 6))
    found.append(Sample((wide, np.array([[5], [5]])), {"batch_dims": 1}))
    return found


CASES = {
    "take": Cases(
        samples=_take_samples,
        errors=_index_errors,
        reference=lambda x, indices, axis: (
            np.take_along_axis(x.ravel(), indices.astype(np.int64).ravel(), 0).reshape(
                indices.shape
            )
            if axis is None
            else x[(slice(None),) * (axis % x.ndim) + (indices,)]
        ),
    ),
    "take_along_axis": Cases(
        samples=_along_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 3)), np.array([0])), {"axis": 1}, ShapeError, "x has 2 axes"),
            *(e._replace(args=(e.args[0], np.array([[5]]))) for e in _index_errors(rng)[:2]),
            ErrorSample((np.ones(2), np.array([0.5])), {}, DTypeError, "cannot be indices"),
            ErrorSample((np.ones((2, 3)), np.zeros((3, 1), int)), {}, ShapeError, "broadcast"),
        ],
        reference=lambda x, indices, axis: np.take_along_axis(x, indices, axis),
    ),
    "scatter_along_axis": Cases(
        samples=_scatter_along_samples,
        errors=lambda rng: [
            ErrorSample(
                (np.ones((2, 1)), np.array([[3], [0]])),
                {"shape": (2, 3), "axis": 1},
                IndexRangeError,
                "index 3 is out of range for axis 1 of length 3",
            ),
            ErrorSample(
                (np.ones((2, 2)), np.array([[0], [0]])),
                {"shape": (2, 3), "axis": 1},
                ShapeError,
                "the shape of the places",
            ),
            ErrorSample(
                (np.ones((2, 1)), np.array([0])),
                {"shape": (2, 3), "axis": 1},
                ShapeError,
                "x has 2 axes",
            ),
        ],
        reference=_scatter_along_reference,
    ),
    "gather": Cases(
        samples=_gather_samples,
        errors=lambda rng: [
            *_index_errors(rng),
            ErrorSample((np.ones(3), np.array([-1])), {}, IndexRangeError, "index -1 is out of"),
            ErrorSample(
                (np.ones((2, 3)), np.zeros((3, 1), int)), {"batch_dims": 1}, ShapeError, "differ"
            ),
            ErrorSample(
                (np.ones((2, 3)), np.zeros((2, 1), int)), {"batch_dims": 2}, ShapeError, "batch"
            ),
        ],
        reference=_gather_reference,
    ),
}
