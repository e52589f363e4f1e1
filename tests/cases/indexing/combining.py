"""Cases of eagerflow/ops/indexing/combining.py."""

import math

import numpy as np

from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.ops.indexing.combining import WRITING
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make


def _segmented(rng, dtype):
    rows = (((5,), 3), ((4, 3), 2), ((3,), 1), ((2, 3, 2), 4), ((0, 2), 2), ((6, 2), 6))
    return [
        Sample(
            (make(rng, dtype, shape), np.asarray(rng.integers(0, count, shape[:1]))),
            {"num_segments": count},
        )
        for shape, count in rows
    ]


def _means(x, segment_ids, num_segments):
    found = np.zeros((num_segments, *x.shape[1:]))
    for k in range(num_segments):
        if (segment_ids == k).any():
            found[k] = x[segment_ids == k].astype(float).mean(0)
    return found


def _scattered(rng, dtype, rows):
    found = []
    for i, (shape, count, axis) in enumerate(
        (((4,), 6, 0), ((3, 4), 5, 1), ((3, 4), 2, 0), ((2, 3, 2), 4, -2), ((4,), 0, 0))
    ):
        for j, reduce in enumerate(WRITING):
            if i < 2 or j == i - 2:
                at = axis % len(shape)
                whole = (*shape[:at], count, *shape[at + 1 :])
                places = rng.integers(0, shape[at], (count,) if rows else whole)
                args = (distinct(rng, dtype, shape), places, distinct(rng, dtype, whole))
                more = {"axis": axis, "reduce": reduce, "include_self": (i + j) % 2 == 0}
                found.append(Sample(args, more))
    return found


def _scatter_reference(x, indices, updates, axis, reduce, include_self):
    at = axis % x.ndim
    if indices.ndim < x.ndim:  # one index for each row
        rows = (len(indices), *(1,) * (x.ndim - 1 - at))
        indices = np.broadcast_to(indices.reshape(rows), updates.shape)
    found = {place: [] for place in np.ndindex(x.shape)}
    for source in np.ndindex(indices.shape):
        found[(*source[:at], int(indices[source]), *source[at + 1 :])].append(
            float(updates[source])
        )
    of = {"sum": math.fsum, "mean": math.fsum, "prod": math.prod, "amax": max, "amin": min}
    out = np.array(x, float)
    for place, values in found.items():
        if values:
            values += [float(x[place])] if include_self else []
            out[place] = of[reduce](values) / (len(values) if reduce == "mean" else 1)
    return np.floor(out) if x.dtype.kind in "iu" else out


def _refused(rng):
    x = rng.random((2, 3))
    more = {"axis": 1, "reduce": "median"}
    return [
        ErrorSample((x, np.zeros((2, 3), int), x), more, ArgumentError, "'median' is not"),
        ErrorSample((x, np.zeros((2, 3), int), x[:1]), {"axis": 1}, ShapeError, ""),
        ErrorSample((x, x, x), {"axis": 1}, DTypeError, "cannot be indices"),
    ]


def _scattered_parts(rng, dtype):
    """Samples with fewer indices than rows of ``x``, or than updates."""
    x, updates = distinct(rng, dtype, (3, 4)), distinct(rng, dtype, (5, 3))
    cases = (((2, 2), "sum"), ((5, 3), "mean"), ((1, 3), "amax"))
    return [
        Sample(
            (x, rng.integers(0, 3, size), updates),
            {"axis": 0, "reduce": reduce, "include_self": reduce != "mean"},
        )
        for size, reduce in cases
    ]


def _bags(rng, dtype):
    found = []
    for i, mode in enumerate(("sum", "mean", "max") * 2):
        table = distinct(rng, dtype, (5, 3))
        weights = make(rng, dtype, (2, 4), 0.5, 2) if mode == "sum" and i > 2 else None
        ids = rng.integers(0, 5, (2, 4))
        found.append(Sample((table, ids, None, weights), {"mode": mode}))
        offsets = np.array([0, 2, 2, 5]) if i > 2 else np.array([0])
        weights = make(rng, dtype, (7,), 0.5, 2) if mode == "sum" else None
        found.append(Sample((table, rng.integers(0, 5, 7), offsets, weights), {"mode": mode}))
    return [*found, Sample((table, ids), {"mode": "mean", "padding_id": int(ids[0, 0])})]


def _bag_reference(table, ids, offsets, weights, mode, padding_id):
    if ids.ndim == 2:
        bags = [list(enumerate(row, i * ids.shape[1])) for i, row in enumerate(ids.tolist())]
    else:
        ends = [*offsets.tolist()[1:], ids.size]
        places = list(enumerate(ids.tolist()))
        bags = [places[a:b] for a, b in zip(offsets.tolist(), ends, strict=True)]
    out = np.zeros((len(bags), table.shape[1]))
    factors = None if weights is None else weights.ravel().astype(float)
    for k, bag in enumerate(bags):
        rows = [
            table[i].astype(float) * (1 if factors is None else factors[at])
            for at, i in bag
            if i != padding_id
        ]
        if rows:
            out[k] = getattr(np, mode)(rows, axis=0)
    return out


CASES = {
    "segment_mean": Cases(
        samples=_segmented,
        errors=lambda rng: [
            ErrorSample((np.ones(2), np.array([0]), 1), {}, ShapeError, "do not fit x"),
        ],
        reference=_means,
    ),
    "scatter_reduce": Cases(
        samples=lambda rng, dtype: [
            *_scattered(rng, dtype, False),
            *_scattered_parts(rng, dtype),
        ],
        errors=_refused,
        reference=_scatter_reference,
    ),
    "index_reduce": Cases(
        samples=lambda rng, dtype: _scattered(rng, dtype, True),
        errors=lambda rng: [
            ErrorSample((np.ones(3), np.array([[0]]), np.ones(1)), {}, ShapeError, "one axis"),
        ],
        reference=_scatter_reference,
    ),
    "embedding_bag": Cases(
        samples=_bags,
        errors=lambda rng: [
            ErrorSample((np.ones((3, 2)), np.zeros(2, int)), {}, ShapeError, "offsets"),
            ErrorSample(
                (np.ones((3, 2)), np.zeros((1, 2), int)), {"mode": "min"}, ArgumentError, "min"
            ),
            ErrorSample(
                (np.ones((3, 2)), np.zeros((1, 2), int), None, np.ones((1, 2))),
                {"mode": "max"},
                ArgumentError,
                "weights",
            ),
        ],
        reference=_bag_reference,
    ),
}
