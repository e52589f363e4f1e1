"""Counts of values: of integers, in bins, and in bins of several dimensions."""

from __future__ import annotations

from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.dtypes import BOOL, FLOATS, INEXACT, INTEGERS, REAL
from eagerflow.errors import ArgumentError, ShapeError, short_repr
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.filled import ones, zeros
from eagerflow.ops.creation.ranges import arange, linspace
from eagerflow.ops.elementwise.arithmetic import add, divide, multiply, subtract
from eagerflow.ops.elementwise.comparison import equal, greater_equal, less_equal, logical_and
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import as_operand
from eagerflow.ops.indexing.segments import segment_sum
from eagerflow.ops.operands import as_wide_integers, floating, real_numbers, vector, whole_number
from eagerflow.ops.plain import plain
from eagerflow.ops.reductions.cumulative import diff
from eagerflow.ops.reductions.sorting import searchsorted
from eagerflow.ops.reductions.sums import max as largest
from eagerflow.ops.reductions.sums import min as smallest
from eagerflow.ops.reductions.sums import sum as total
from eagerflow.ops.shapes.padding import flip
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.tensor import Operators, Tensor

__all__ = [
    "bincount",
    "digitize",
    "histogram",
    "histogram2d",
    "histogram_bin_edges",
    "histogramdd",
]

_COUNT = Missing("the result is a count, which does not change smoothly")


# Integers -----------------------------------------------------------------------------------------


@composed(
    dtypes=FLOATS,
    whole=True,
    sizes=Missing("without length, the size of the result depends on values"),
    batch=Missing("without length, the size of the result depends on values"),
)
def bincount(
    x: Any, weights: Any = None, /, minlength: int = 0, length: int | None = None
) -> Tensor:
    """The number of occurrences of each nonnegative integer, or the sum of its weights.

    ``x`` is a vector of integers from 0 on, ``weights`` one of numbers; the result has ``length``
    elements, and larger integers are ignored; by default it is determined by the largest integer,
    and at least ``minlength``. Raises ArgumentError for negative integers, CaptureError without
    ``length`` while a graph is captured, since the shape depends on values.

    >>> ef.bincount(ef.tensor([0, 2, 2]))
    Tensor([1, 0, 2], int64, cpu:0)
    """
    x = astype(vector(real_numbers(x, "x", INTEGERS | BOOL)), "int64")
    if weights is not None and weights.shape != x.shape:
        raise ShapeError("x and weights have different shapes", argument="weights")
    size = whole_number(minlength, "minlength", 0)
    if length is not None:
        size = whole_number(length, "length", 0)
    elif x.shape[0]:
        if int(smallest(x)) < 0:
            raise ArgumentError("negative integers are not counted", argument="x")
        size = max(size, int(largest(x)) + 1)
    counted = weights is not None
    count = as_wide_integers(weights) if counted else ones(x.shape, "int64", str(x.device))
    if length is not None:
        count = where(logical_and(greater_equal(x, 0), less_equal(x, size - 1)), count, 0)
        x = where(logical_and(greater_equal(x, 0), less_equal(x, size - 1)), x, 0)
        if size == 0:
            return zeros((0,), count.dtype, str(x.device))
    return segment_sum(count, x, size)


# Bins ---------------------------------------------------------------------------------------------


@composed(dtypes=REAL, gradient=Missing("the result is an index, which does not change smoothly"))
def digitize(x: Any, bins: Any, /, right: bool = False) -> Tensor:
    """The bin of each element, counted from 1; 0 and ``len(bins)`` are outside.

    ``x`` is a real tensor, ``bins`` a vector of ascending or descending edges; an element on an
    edge is in the bin with the larger elements, with ``right`` in the other one. The result is
    int64. Raises ShapeError for edges that are not a vector.

    >>> ef.digitize(ef.tensor([0.5, 2.5, 9.0]), ef.tensor([1.0, 2.0, 3.0]))
    Tensor([0, 2, 3], int64, cpu:0)
    """
    size = vector(bins, "bins").shape[0]
    if type(size) is int and size == 0:
        return zeros(x.shape, "int64", str(x.device))
    rises = less_equal(bins[0], bins[-1])
    ordered = where(rises, bins, flip(bins))
    place = searchsorted(ordered, x, side="left" if right else "right")
    return where(rises, place, subtract(size, place))


def _no_range(limits: Any) -> ArgumentError:
    return ArgumentError(
        f"{short_repr(limits)} is not a range", argument="range", expected="(low, high)"
    )


def _limits(x: Any, limits: Any) -> tuple[Any, Any]:
    """The ends of all bins; for a single value one half around it."""
    if limits is not None:
        if not isinstance(limits, tuple | list) or len(limits) != 2:
            raise _no_range(limits)
        low, high = (as_tensor(end, x.dtype, x.device) for end in limits)
        if not any(isinstance(end, Operators) for end in limits) and limits[0] > limits[1]:
            raise _no_range(limits)
    elif type(x.size) is int and x.size == 0:
        low, high = zeros((), x.dtype, str(x.device)), ones((), x.dtype, str(x.device))
    else:
        low, high = smallest(x), largest(x)
    alone = astype(equal(low, high), x.dtype)
    return subtract(low, multiply(alone, 0.5)), add(high, multiply(alone, 0.5))


def _edges(x: Any, bins: Any, limits: Any) -> Any:
    """The edges of bins, given as their number or as they are."""
    if isinstance(bins, int) and not isinstance(bins, bool):
        low, high = _limits(x, limits)
        return linspace(low, high, whole_number(bins, "bins", 1) + 1, x.dtype)
    if isinstance(bins, str):
        raise ArgumentError(
            f"{bins!r} is not a number of bins",
            argument="bins",
            expected="an integer, or edges",
            hint="np.histogram_bin_edges(x.numpy(), ...), which counts them by such rules",
        )
    return vector(floating(as_operand(bins, x), "bins"), "bins")


def _binned(columns: list[Any], edges: list[Any], weights: Any, density: bool) -> Any:
    """The number of points in each bin; ``columns`` are their coordinates."""
    sizes = [e.shape[0] - 1 for e in edges]
    flat: Any = None
    inside: Any = None
    for x, edge, size in zip(columns, edges, sizes, strict=True):
        place = subtract(searchsorted(edge, x, side="right"), 1)
        # The last bin has its right edge, too.
        place = where(equal(x, edge[-1]), size - 1, place)
        within = logical_and(greater_equal(x, edge[0]), less_equal(x, edge[-1]))
        inside = within if inside is None else logical_and(inside, within)
        place = where(within, place, 0)
        flat = place if flat is None else add(multiply(flat, size), place)
    if weights is None:
        weights = astype(ones(columns[0].shape, "int64", str(columns[0].device)), "int64")
    weights = as_wide_integers(weights)
    count = 1
    for size in sizes:
        count *= size
    found = reshape(segment_sum(where(inside, weights, 0), flat, count), tuple(sizes))
    if not density:
        return found
    found = found if found.dtype in INEXACT else astype(found, columns[0].dtype)
    for axis, edge in enumerate(edges):
        shape = tuple(-1 if i == axis else 1 for i in range(len(edges)))
        found = divide(found, reshape(diff(edge), shape))
    weight = astype(where(inside, weights, 0), found.dtype)
    return divide(found, total(weight))


_HISTOGRAM: dict[str, Any] = {
    "dtypes": FLOATS,
    "small": Missing("edges of 16 bits lie elsewhere than those of 32"),
    "sizes": Missing("bins take the sizes as they are"),
    "batch": Missing("each example would have edges of its own"),
    "gradient": _COUNT,
}


@composed(**_HISTOGRAM)
def histogram(
    x: Any, weights: Any = None, /, bins: Any = 10, range: Any = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """The number of elements in each bin, and the edges of the bins.

    ``x`` is a real tensor; ``weights``, of its shape, are summed instead of counts, and get
    gradients; ``bins`` is a number of equal bins or a vector of rising edges; ``range`` is where
    the first begins and the last ends, by default the extremes of ``x``. Each bin has its left
    edge, the last one its right edge, too. ``density`` divides by the widths and by the sum. The
    results are ``(counts, edges)``. Raises ArgumentError for invalid bins and ranges.

    >>> ef.histogram(ef.tensor([1.0, 2.0, 4.0, 5.0]), bins=2)
    (Tensor([2, 2], int64, cpu:0), Tensor([1., 3., 5.], float32, cpu:0))
    """
    x = floating(x)
    if weights is not None and weights.shape != x.shape:
        raise ShapeError("x and weights have different shapes", argument="weights")
    flat = reshape(x, (-1,))
    edges = _edges(flat, bins, range)
    weights = None if weights is None else reshape(weights, (-1,))
    return _binned([flat], [edges], weights, density), edges


@composed(**_HISTOGRAM)
def histogram_bin_edges(x: Any, /, bins: Any = 10, range: Any = None) -> Tensor:
    """The edges of the bins that ``ef.histogram`` counts in.

    ``x`` is a real tensor, ``bins`` a number of equal bins or a vector of edges, ``range`` where
    they begin and end. Raises ArgumentError for invalid bins and ranges.

    >>> ef.histogram_bin_edges(ef.tensor([1.0, 2.0, 5.0]), bins=2)
    Tensor([1., 3., 5.], float32, cpu:0)
    """
    return _edges(reshape(floating(x), (-1,)), bins, range)


@plain
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Tensor, list[Tensor]]:
    """The number of points in each bin of several dimensions, and the edges along each.

    ``sample`` is a real tensor of shape (points, dimensions), or a list of one vector for each
    dimension; ``bins`` is a number of bins, or for each dimension a number or a vector of edges;
    ``range`` has for each dimension the ends of the bins, or None; ``weights`` are summed instead
    of counts; ``density`` divides by the sizes of the bins and by the sum. Raises ShapeError and
    ArgumentError for mismatched arguments.

    >>> counts, edges = ef.histogramdd(ef.tensor([[0.0, 0.0], [1.0, 3.0]]), bins=2)
    >>> counts.tolist()
    [[1, 0], [0, 1]]
    """
    if isinstance(sample, list | tuple):
        columns = [vector(floating(as_tensor(x)), "sample") for x in sample]
    else:
        points = floating(as_tensor(sample), "sample")
        points = reshape(points, (-1, 1)) if points.ndim < 2 else points
        columns = [points[:, i] for i in arange(points.shape[1]).tolist()]
    count = len(columns)
    bins = [bins] * count if isinstance(bins, int) else list(bins)
    limits = [None] * count if range is None else list(range)
    if len(bins) != count or len(limits) != count:
        raise ShapeError(
            f"there are {count} dimensions",
            op="histogramdd",
            argument="bins" if len(bins) != count else "range",
            expected=f"{count} of them",
        )
    edges = [_edges(x, b, r) for x, b, r in zip(columns, bins, limits, strict=True)]
    weights = None if weights is None else as_tensor(weights)
    return _binned(columns, edges, weights, density), edges


@plain
def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool = False,
    weights: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The number of points of a plane in each bin, and the edges along both axes.

    ``x`` and ``y`` are vectors of coordinates; ``bins`` is a number of bins, a vector of edges for
    both, or a pair of either; ``range`` is a pair of pairs; ``weights`` and ``density`` are as in
    ``ef.histogramdd``. The results are ``(counts, x edges, y edges)``. Raises the same errors.

    >>> ef.histogram2d(ef.tensor([0.0, 1.0]), ef.tensor([0.0, 3.0]), bins=2)[0].tolist()
    [[1, 0], [0, 1]]
    """
    both = isinstance(bins, int) or len(bins) == 2
    counts, edges = histogramdd([x, y], bins if both else [bins, bins], range, density, weights)
    return counts, edges[0], edges[1]
