"""Cases of eagerflow/ops/images/pools.py."""

import math

import numpy as np

from eagerflow.errors import DTypeError, ShapeError
from eagerflow.op import ops
from tests.cases import cases_of
from tests.cases.samples import Cases, ErrorSample, Sample, distinct, make

_CASES = (
    ((2, 4, 4, 2), {"window": 2}),
    ((1, 5, 4, 1), {"window": 2, "ceil_mode": True}),
    ((1, 5, 5, 1), {"window": 3, "strides": 2, "padding": "same"}),
    ((1, 6, 5, 2), {"window": (3, 2), "strides": 1, "dilation": (1, 2)}),
    ((2, 6, 1), {"window": 2, "padding": 1}),
    ((1, 4, 2, 3, 1), {"window": (2, 2, 1)}),
    ((0, 4, 4, 2), {"window": 2}),
)


def _reference_of(op):
    return cases_of(ops[op]).reference


def _windows_samples(**more):
    return lambda rng, dtype: [
        Sample((distinct(rng, dtype, shape),), given | more) for shape, given in _CASES
    ]


def _indices_reference(x, **where):
    pool, gather = _reference_of("max_pool"), _reference_of("max_pool_gather")
    numbers = np.arange(math.prod(x.shape[1:-1]), dtype=float).reshape((1, *x.shape[1:-1], 1))
    wide, whole = x.astype(float), _DEFAULTS | where
    places = gather(wide, np.broadcast_to(numbers, x.shape), **whole)
    return pool(wide, **whole), places.astype(np.int64)


_DEFAULTS = {"strides": None, "padding": "valid", "dilation": 1, "ceil_mode": False}


def _unpool_samples(rng, dtype):
    found = []
    for shape, where in _CASES:
        values, indices = _indices_reference(distinct(rng, np.dtype("float64"), shape), **where)
        if where.get("strides") is None:  # otherwise windows may share their largest element
            args = make(rng, dtype, values.shape), indices
            found.append(Sample(args, {"size": shape[1:-1]}))
    found.append(Sample((make(rng, dtype, (1, 2, 1)), np.array([[[3], [1]]])), {"size": 4}))
    return found


def _unpool_reference(x, indices, size):
    sizes = size if isinstance(size, tuple) else (size,) * (x.ndim - 2)
    found = np.zeros((len(x), math.prod(sizes), x.shape[-1]), x.dtype)
    for n, *at, c in np.ndindex(x.shape):
        found[n, indices[(n, *at, c)], c] = x[(n, *at, c)]
    return found.reshape((len(x), *sizes, x.shape[-1]))


def _norm_reference(x, norm_type, window, **where):
    mean = _reference_of("avg_pool")(
        np.abs(x.astype(float)) ** norm_type, window=window, **_DEFAULTS | where
    )
    count = math.prod(window) if isinstance(window, tuple) else window ** (x.ndim - 2)
    return (mean * count) ** (1 / norm_type)


CASES = {
    "max_pool_with_indices": Cases(
        samples=_windows_samples(),
        errors=lambda rng: [
            ErrorSample((np.ones((2, 5, 5, 1)),), {"window": 6}, ShapeError, "does not fit"),
            ErrorSample((np.ones((2, 5, 5, 1)),), {"window": 0}, ShapeError, "too small"),
            ErrorSample((np.ones((2, 5)),), {"window": 2}, ShapeError, "too few"),
        ],
        reference=_indices_reference,
    ),
    "max_unpool": Cases(
        samples=_unpool_samples,
        errors=lambda rng: [
            ErrorSample(
                (np.ones((1, 2, 1)), np.ones((1, 3, 1), int)), {"size": 4}, ShapeError, "shape"
            ),
            ErrorSample(
                (np.ones((1, 2, 1)), np.ones((1, 2, 1))), {"size": 4}, DTypeError, "indices"
            ),
            ErrorSample(
                (np.ones((1, 2)), np.ones((1, 2), int)), {"size": 4}, ShapeError, "too few"
            ),
        ],
        reference=_unpool_reference,
    ),
    "lp_pool": Cases(
        samples=lambda rng, dtype: (
            [
                Sample(args, {"norm_type": p} | more)
                for p, (args, more) in zip(
                    (2, 3, 1.5, 1, 2, 2.5), _windows_samples()(rng, dtype), strict=False
                )
                if more.get("padding") is None
            ]
            + [
                Sample((distinct(rng, dtype, (2, 4, 2)),), {"norm_type": 2, "window": w})
                for w in (1, 2, 3)
            ]
        ),
        errors=lambda rng: [
            ErrorSample(
                (np.ones((2, 5, 1)),), {"norm_type": 2, "window": 6}, ShapeError, "not fit"
            ),
            ErrorSample(
                (np.ones((2, 5, 1)),), {"norm_type": 0, "window": 2}, ShapeError, "norm_type"
            ),
            ErrorSample((np.ones((2, 5)),), {"norm_type": 2, "window": 2}, ShapeError, "too few"),
        ],
        reference=_norm_reference,
    ),
}
