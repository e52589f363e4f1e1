"""Cases of eagerflow/ops/indexing/scattering.py."""

import numpy as np

from eagerflow.errors import AxisError, DTypeError, IndexRangeError, ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, make, values


def _scatter_reference(indices, updates, shape):
    out = np.zeros(shape, updates.dtype)
    for at in np.ndindex(indices.shape[:-1]):
        out[tuple(indices[at])] += updates[at]
    return out


def _scatter_samples(rng, dtype):
    found = []
    for shape, places in (
        ((4,), (3, 1)),
        ((4,), (1,)),
        ((2, 3), (4, 2)),
        ((2, 3), (4, 1)),
        ((2, 3), (2, 2, 2)),
        ((2, 3), (0, 1)),
        ((2, 3, 2), (5, 2)),
        ((3,), (2, 0)),
        ((2, 0), (3, 1)),
        ((1, 1), (6, 2)),
    ):
        depth = places[-1]
        columns = [rng.integers(0, n, places[:-1]) for n in shape[:depth]]
        indices = np.stack(columns, -1) if depth else np.zeros(places, np.int64)
        updates = make(rng, dtype, (*places[:-1], *shape[depth:]))
        found.append(Sample((indices, updates), {"shape": shape}))
    base = make(rng, dtype, (4, 6))
    found.append(Sample((np.array([[2], [2], [0]]), base.T[::2]), {"shape": (3, 4)}))
    found.append(Sample((np.array([[1], [1]], np.int8), base[0, 4:]), {"shape": 3}))
    return found


CASES = {
    "scatter": Cases(
        samples=_scatter_samples,
        errors=lambda rng: [
            ErrorSample(
                (np.array([[3]]), np.ones(1)),
                {"shape": (3,)},
                IndexRangeError,
                "index 3 is out of range for axis 0 of length 3",
            ),
            ErrorSample(
                (np.array([[-1]]), np.ones(1)), {"shape": (3,)}, IndexRangeError, "index -1"
            ),
            ErrorSample(
                (np.array([[1]]), np.ones(2)), {"shape": (3,)}, ShapeError, "do not fit the indices"
            ),
            ErrorSample(
                (np.array([[1, 1]]), np.ones(1)), {"shape": (3,)}, ShapeError, "too long for 1 axes"
            ),
        ],
        reference=_scatter_reference,
    ),
    "one_hot": Cases(
        samples=lambda rng, dtype: [
            Sample((np.asarray(rng.integers(0, 3, shape), dtype),), {"num_classes": 3} | more)
            for shape, more in (
                ((), {}),
                ((4,), {}),
                ((2, 3), {"axis": 1}),
                ((2, 3), {"axis": 0}),
                ((0, 2), {}),
                ((2, 2), {"axis": -2, "dtype": "int32"}),
                ((3,), {"dtype": "bool"}),
                ((3,), {"num_classes": 7}),
            )
        ],
        errors=lambda rng: [
            ErrorSample((np.array([3]), 3), {}, IndexRangeError, "index 3 is out of range"),
            ErrorSample((np.array([-1]), 3), {}, IndexRangeError, "index -1 is out of range"),
            ErrorSample((np.array([0.5]), 3), {}, DTypeError, "cannot be indices"),
            ErrorSample((np.array([0]), -3), {}, ShapeError, "negative"),
            ErrorSample((np.array([0]), 3, 2), {}, AxisError, "axis 2 does not exist"),
        ],
        reference=lambda x, num_classes, axis, dtype: np.moveaxis(
            np.array([[i == k for k in range(num_classes)] for i in x.ravel().tolist()])
            .reshape(*x.shape, num_classes)
            .astype(dtype or "float32"),
            -1,
            axis,
        ),
    ),
    "nonzero": Cases(
        samples=lambda rng, dtype: [
            Sample((x * (rng.random(x.shape) < 0.5).astype(x.dtype),))
            for x in values(rng, dtype)
            if x.ndim
        ],
        errors=lambda rng: [ErrorSample((np.ones(()),), {}, ShapeError, "has no positions")],
        reference=lambda x: tuple(
            np.array([at[i] for at in np.ndindex(x.shape) if x[at] != 0], np.int64)
            for i in range(x.ndim)
        ),
    ),
}
