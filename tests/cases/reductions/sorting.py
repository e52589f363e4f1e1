"""Cases of eagerflow/ops/reductions/sorting.py."""

import bisect

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make


def _sort_samples(rng, dtype):
    found = []
    for shape, axis in (
        ((5,), 0),
        ((1,), -1),
        ((0,), 0),
        ((2, 3), -1),
        ((3, 4), 0),
        ((2, 3, 4), -2),
    ):
        for descending in (False, True):
            x = distinct(rng, dtype, shape)
            found.append(Sample((x,), {"axis": axis, "descending": descending}))
    x = distinct(rng, dtype, (4, 6))
    # The order of equal elements is arbitrary unless it has to be stable.
    found.append(Sample((x[::2, ::-1],), {"stable": dtype.kind in "bui"}))
    found.append(Sample((x.T,), {"axis": 0, "descending": True}))
    found.append(Sample((np.broadcast_to(x[0], (2, 6)),), {}))
    return found


def _sort_errors(rng):
    x = rng.standard_normal((2, 3))
    return [
        ErrorSample((x,), {"axis": None}, ShapeError, "is not an axis"),
        ErrorSample((x * 1j,), {}, DTypeError, "complex128 is not taken"),
        ErrorSample((x,), {"descending": "yes"}, DTypeError, "is no bool"),
    ]


def _by_row(function):
    def reference(x, axis, descending, stable):
        moved = np.moveaxis(x, axis, -1)
        out = np.empty(moved.shape)
        for at in np.ndindex(moved.shape[:-1]):
            out[at] = function(moved[at].tolist(), descending)
        return np.moveaxis(out, -1, axis)

    return reference


def _places(row, descending):
    return sorted(range(len(row)), key=row.__getitem__, reverse=descending)


def _top_samples(rng, dtype):
    found = [
        Sample((distinct(rng, dtype, shape),), {"k": k, "axis": axis})
        for shape, k, axis in (
            ((5,), 2, 0),
            ((5,), 5, -1),
            ((5,), 0, 0),
            ((1,), 1, 0),
            ((2, 4), 1, -1),
            ((4, 2), 3, 0),
            ((2, 3, 4), 2, 1),
            ((0, 3), 2, 1),
            ((0,), 0, 0),
        )
    ]
    x = distinct(rng, dtype, (4, 6))
    found.append(Sample((x[::2, ::-1],), {"k": 3}))
    found.append(Sample((x.T,), {"k": 4, "axis": 0}))
    found.append(Sample((np.broadcast_to(x[:1], (2, 6)),), {"k": 2}))
    return found


def _top_reference(x, k, axis):
    moved = np.moveaxis(x, axis, -1)
    values, places = np.empty((*moved.shape[:-1], k)), np.empty((*moved.shape[:-1], k), np.int64)
    for at in np.ndindex(moved.shape[:-1]):
        row = moved[at].tolist()
        places[at] = _places(row, True)[:k]
        values[at] = [row[i] for i in places[at]]
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


def _places_samples(rng, dtype):
    found = []
    for n, shape in ((5, (3,)), (5, ()), (1, (2, 2)), (0, (2,)), (4, (0, 2)), (6, (2, 3))):
        for side in ("left", "right"):
            x1 = np.sort(make(rng, dtype, (n,)))
            found.append(Sample((x1, make(rng, dtype, shape)), {"side": side}))
    x1 = np.sort(make(rng, dtype, (6,)))
    backwards = np.arange(6)[::-1]
    found.append(Sample((x1[::-1], np.repeat(x1[::2], 2), backwards), {"side": "right"}))
    found.append(Sample((x1, x1[::-1].reshape(2, 3).T), {}))
    several = (((2, 5), 3, "left"), ((2, 3, 4), 2, "right"), ((2, 0), 3, "left"))
    for batch, count, side in several:
        rows = make(rng, dtype, batch)
        points = make(rng, dtype, (*batch[:-1], count))
        found.append(Sample((np.sort(rows), points), {"side": side}))
        found.append(Sample((rows, points, np.argsort(rows, -1, "stable")), {"side": side}))
    return found


def _places_reference(x1, x2, sorter=None, *, side):
    if x1.ndim > 1:
        orders = [None] * len(x1) if sorter is None else sorter
        rows = [_places_reference(*row, side=side) for row in zip(x1, x2, orders, strict=True)]
        return np.array(rows, np.int64).reshape(x2.shape)
    values = (x1 if sorter is None else x1[sorter]).tolist()
    find = bisect.bisect_left if side == "left" else bisect.bisect_right
    found = [find(values, point) for point in x2.ravel().tolist()]
    return np.array(found, np.int64).reshape(x2.shape)


CASES = {
    "sort": Cases(
        _sort_samples,
        _sort_errors,
        _by_row(lambda row, descending: sorted(row, reverse=descending)),
    ),
    "argsort": Cases(_sort_samples, _sort_errors, _by_row(_places)),
    "top_k": Cases(
        samples=_top_samples,
        errors=lambda rng: [
            ErrorSample(("a string",), {"k": 1}, DTypeError, "str"),
            ErrorSample((np.ones(3),), {"k": 4}, ShapeError, "4 elements cannot be taken"),
            ErrorSample((np.ones(3),), {"k": -1}, ShapeError, "cannot be taken"),
        ],
        reference=_top_reference,
    ),
    "searchsorted": Cases(
        samples=_places_samples,
        errors=lambda rng: [
            ErrorSample((np.ones((2, 2)), np.ones(2)), {}, ShapeError, "the rows of x1"),
            ErrorSample((np.ones(()), np.ones(2)), {}, ShapeError, "x1 has no axes"),
            ErrorSample((np.ones(2), np.ones(2)), {"side": "top"}, ShapeError, "is not a side"),
            ErrorSample((np.ones(2) * 1j, np.ones(2)), {}, DTypeError, "is not taken"),
            ErrorSample((np.ones(2), np.ones(2), np.array([0, 7])), {}, ShapeError, "sorter holds"),
        ],
        reference=_places_reference,
    ),
}
