"""Adaptive pooling: over the cells of a grid of a given size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import add, floor_divide, multiply
from eagerflow.ops.elementwise.selection import minimum
from eagerflow.ops.images.pools import positions_of
from eagerflow.ops.indexing.gathering import take, take_along_axis
from eagerflow.ops.nn.resizing import resize
from eagerflow.ops.reductions.sums import argmax
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.samples import distinct
from eagerflow.ops.shapes.repeating import repeat
from eagerflow.ops.shapes.reshaping import reshape, squeeze
from eagerflow.primitives.windows import per_axis, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["adaptive_avg_pool", "adaptive_max_pool"]


def _cells(size: int, count: int) -> list[tuple[int, int]]:
    """The bounds of the cells: without gaps, and possibly overlapping."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _cells_reference(x: Any, size: Any, function: Any) -> Any:
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


def _grid_samples(**more: Any) -> Any:
    return lambda rng, dtype: [
        Sample((distinct(rng, dtype, shape),), {"size": size} | more) for shape, size in _GRIDS
    ]


def _grid_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.standard_normal((1, 4, 4, 2))
    return [
        ErrorSample((x,), {"size": 0}, ShapeError, "no elements"),
        ErrorSample((x,), {"size": (2,)}, ShapeError, "for each spatial axis"),
        ErrorSample((x[:, :0],), {"size": 2}, ShapeError, "no elements"),
        ErrorSample((x[0, 0],), {"size": 2}, ShapeError, "too few"),
    ]


@composed(
    samples=_grid_samples(),
    reference=lambda x, size: _cells_reference(
        x.astype(float), size, lambda part, _: part.mean() if part.size else 0.0
    ),
    errors=_grid_errors,
    dtypes=FLOATS,
)
def adaptive_avg_pool(x: Any, /, size: Any) -> Tensor:
    """The mean in each cell of a grid of ``size`` cells over the spatial axes.

    ``x`` is (batch, *spatial, channels), ``size`` an integer or one for each axis; cell i of m over
    n elements goes from i * n / m, rounded down, to (i + 1) * n / m, rounded up. Raises ShapeError
    for invalid sizes.

    >>> ef.adaptive_avg_pool(ef.arange(5.0).reshape((1, 5, 1)), 2).reshape((-1,))
    Tensor([1., 3.], float32, cpu:0)
    """
    return resize(x, size, "mean")


def _largest_of(part: Any, starts: Any) -> Any:
    return part.max() if part.size else 0.0


def _adaptive_reference(x: Any, size: Any, return_indices: bool) -> Any:
    values = _cells_reference(x, size, _largest_of)
    if not return_indices:
        return values

    def place(part: Any, starts: Any) -> Any:
        if not part.size or not isinstance(starts, list):
            return 0
        at = np.unravel_index(int(part.argmax()), part.shape)
        whole = [s + int(i) for s, i in zip(starts, at, strict=True)]
        return int(np.ravel_multi_index(whole, x.shape[1:-1]))

    return values, _cells_reference(x, size, place)


def _in_cells(x: Any, axis: int, count: int) -> Any:
    """The elements of each cell along an axis, in a new axis after it, possibly repeated."""
    size = x.shape[axis]
    if isinstance(size, int) and size % count:
        cell = arange(count, device=str(x.device))[:, None]
        start = floor_divide(multiply(cell, size), count)
        last = floor_divide(add(multiply(cell, size), size - 1), count)
        most = size // count + 1 + (size % count > math.gcd(size, count))
        return take(x, minimum(add(start, arange(most, device=str(x.device))), last), axis=axis)
    if not isinstance(size, int):
        x = repeat(x, count, axis=axis)
        return reshape(x, (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))
    return reshape(x, (*x.shape[:axis], count, size // count, *x.shape[axis + 1 :]))


@composed(
    samples=lambda rng, dtype: [
        *_grid_samples()(rng, dtype),
        *_grid_samples(return_indices=True)(rng, dtype),
    ],
    reference=_adaptive_reference,
    errors=_grid_errors,
    dtypes=FLOATS,
)
def adaptive_max_pool(x: Any, /, size: Any, return_indices: bool = False) -> Any:
    """The largest element in each cell of a grid of ``size`` cells over the spatial axes.

    The cells are those of ``adaptive_avg_pool``. With ``return_indices`` the result is ``(values,
    indices)``, as in ``max_pool_with_indices``. Raises ShapeError for sizes that do not fit.

    >>> ef.adaptive_max_pool(ef.arange(5.0).reshape((1, 5, 1)), 2).reshape((-1,))
    Tensor([2., 4.], float32, cpu:0)
    """
    rank = spatial_rank(x, "x")
    counts = per_axis(size, rank, "size", 0)
    if 0 in counts or any(isinstance(n, int) and n < 1 for n in x.shape[1:-1]):
        raise ShapeError(
            f"{size} cells over {x.shape[1:-1]} have no elements",
            argument="size",
            expected="at least 1",
        )
    numbers = astype(positions_of(x), "int64") if return_indices else None
    for axis in range(rank, 0, -1):  # the last first: of equal elements the first one counts
        x = _in_cells(x, axis, counts[axis - 1])
        if numbers is None:
            x = largest(x, axis=axis + 1)
            continue
        at = argmax(x, axis=axis + 1, keepdims=True)
        x = squeeze(take_along_axis(x, at, axis + 1), axis + 1)
        numbers = _in_cells(numbers, axis, counts[axis - 1])
        numbers = squeeze(take_along_axis(numbers, at, axis + 1), axis + 1)
    return x if numbers is None else (x, numbers)
