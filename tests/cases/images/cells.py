"""Cases of eagerflow/ops/images/cells.py."""

import numpy as np

from eagerflow.errors import ShapeError
from tests.cases.samples import Cases, ErrorSample, Sample, distinct


def _cells(size, count):
    """The bounds of the cells: without gaps, and possibly overlapping."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _cells_reference(x, size, function):
    sizes = size if isinstance(size, tuple) else (size,) * (x.ndim - 2)
    columns = [_cells(n, m) for n, m in zip(x.shape[1:-1], sizes, strict=True)]
    found = np.zeros((len(x), *sizes, x.shape[-1]), np.result_type(function(x, 0)))
    for at in np.ndindex(*sizes):
        ends = [cells[i] for cells, i in zip(columns, at, strict=True)]
        part = x[(slice(None), *(slice(*e) for e in ends))]
        for n, c in np.ndindex(len(x), x.shape[-1]):
            found[(n, *at, c)] = function(part[n, ..., c], [e[0] for e in ends])
    return found


_GRIDS = (
    ((2, 4, 6, 2), (2, 3)),
    ((1, 5, 4, 1), 3),
    ((1, 7, 3), 2),
    ((1, 3, 2, 2), (5, 2)),
    ((1, 3, 4, 5, 1), (2, 1, 3)),
    ((0, 4, 4, 1), 2),
)


def _grid_samples(**more):
    return lambda rng, dtype: [
        Sample((distinct(rng, dtype, shape),), {"size": size} | more) for shape, size in _GRIDS
    ]


def _grid_errors(rng):
    x = rng.standard_normal((1, 4, 4, 2))
    return [
        ErrorSample((x,), {"size": 0}, ShapeError, "no elements"),
        ErrorSample((x,), {"size": (2,)}, ShapeError, "for each spatial axis"),
        ErrorSample((x[:, :0],), {"size": 2}, ShapeError, "no elements"),
        ErrorSample((x[0, 0],), {"size": 2}, ShapeError, "too few"),
    ]


def _largest_of(part, starts):
    return part.max() if part.size else 0.0


def _adaptive_reference(x, size, return_indices):
    values = _cells_reference(x, size, _largest_of)
    if not return_indices:
        return values

    def place(part, starts):
        if not part.size or not isinstance(starts, list):
            return 0
        at = np.unravel_index(int(part.argmax()), part.shape)
        whole = [s + int(i) for s, i in zip(starts, at, strict=True)]
        return int(np.ravel_multi_index(whole, x.shape[1:-1]))

    return values, _cells_reference(x, size, place)


CASES = {
    "adaptive_avg_pool": Cases(
        samples=_grid_samples(),
        errors=_grid_errors,
        reference=lambda x, size: _cells_reference(
            x.astype(float), size, lambda part, _: part.mean() if part.size else 0.0
        ),
    ),
    "adaptive_max_pool": Cases(
        samples=lambda rng, dtype: [
            *_grid_samples()(rng, dtype),
            *_grid_samples(return_indices=True)(rng, dtype),
        ],
        errors=_grid_errors,
        reference=_adaptive_reference,
    ),
}
