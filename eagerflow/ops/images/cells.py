"""Adaptive pooling: over the cells of a grid of a given size."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
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
from eagerflow.ops.shapes.repeating import repeat
from eagerflow.ops.shapes.reshaping import reshape, squeeze
from eagerflow.primitives.windows import per_axis, spatial_rank
from eagerflow.tensor import Tensor

__all__ = ["adaptive_avg_pool", "adaptive_max_pool"]


@composed(
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
