"""Sampling: values between the points of a grid, and outside of it.

Along each axis, a position is interpolated from a few points of the grid, its taps, each with a
weight. All taps of all positions are gathered at once, so that their gradient is one scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import FLOATS, promote
from eagerflow.errors import ShapeError
from eagerflow.ops.creation.cast import astype, stop_gradient
from eagerflow.ops.creation.filled import full
from eagerflow.ops.creation.ranges import arange
from eagerflow.ops.elementwise.arithmetic import abs as magnitude
from eagerflow.ops.elementwise.arithmetic import add, multiply, remainder
from eagerflow.ops.elementwise.comparison import equal, logical_or
from eagerflow.ops.elementwise.rounding import floor
from eagerflow.ops.elementwise.rounding import round as rounded
from eagerflow.ops.elementwise.selection import clip, minimum, where
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.reductions.sums import sum as summed
from eagerflow.ops.shapes.joining import concat, stack
from eagerflow.ops.shapes.reshaping import broadcast_to, reshape

__all__ = ["MODES", "check_places", "places_dtype", "sampled"]

MODES = ("constant", "grid-constant", "nearest", "mirror", "reflect", "wrap", "grid-wrap")
"""The extension of a grid, in SciPy's terms."""


class Taps(NamedTuple):
    """For positions along one axis: the taps (first axis), their weights, and outside ones."""

    points: Any
    weights: Any
    outside: Any


def check_places(sizes: Any, argument: str = "x") -> None:
    """Refuse axes without points, which cannot be interpolated."""
    if any(isinstance(n, int) and n < 1 for n in sizes):
        raise ShapeError(
            f"the sizes {tuple(sizes)} leave no points", argument=argument, expected="at least 1"
        )


def places_dtype(x: Any, at: Any) -> Any:
    """The dtype of positions: at least float32, and that of x or of the positions."""
    own = at.dtype if at.dtype in FLOATS else x.dtype
    return promote(own, np.dtype("float32"))


# Outside of the grid ------------------------------------------------------------------------------


def _least(size: Any) -> Any:
    """At least 1, where the size is known."""
    return max(size, 1) if isinstance(size, int) else size


def _mirrored(p: Any, n: Any) -> Any:
    """Points mirrored at the first and the last one."""
    return magnitude(remainder(p + (n - 1), _least(2 * (n - 1))) - (n - 1))


def _reflected(p: Any, n: Any) -> Any:
    """Points reflected half a step before the first one and after the last one."""
    q = remainder(p, 2 * n)
    return minimum(q, (2 * n - 1) - q)


_FIXED: dict[str, Callable[[Any, Any], Any]] = {
    "constant": _mirrored,
    "mirror": _mirrored,
    "reflect": _reflected,
    "wrap": _mirrored,
    "grid-wrap": remainder,
}
"""The index for points outside of the grid; splines are mirrored near its ends."""


def _wrapped(at: Any, n: Any) -> Any:
    """Positions with the last point identified with the first one, as in SciPy's ``"wrap"``."""
    if isinstance(n, int) and n == 1:
        return at * 0
    behind = remainder(at, n - 1)
    before = (n - 1) - remainder(-at, n - 1)
    return where(at < 0, before, where(at > n - 1, behind, at))


# Weights ------------------------------------------------------------------------------------------


def _linear(f: Any) -> list[Any]:
    return [1 - f, f]


def keys(a: float) -> Callable[[Any], list[Any]]:
    """Weights of cubic convolution (Keys, 1981)."""

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return lambda f: [far(f + 1), near(f), near(1 - f), far(2 - f)]


def _spline(f: Any) -> list[Any]:
    """The cubic B-spline at four points."""

    def near(x: Any) -> Any:
        return 2 / 3 - x * x * (1 - x / 2)

    g = 1 - f
    return [g * g * g / 6, near(f), near(g), f * f * f / 6]


WEIGHTS: dict[str, tuple[int, Callable[[Any], list[Any]]]] = {
    "linear": (0, _linear),
    "cubic": (-1, keys(-0.75)),
    "spline": (-1, _spline),
}
"""The first tap, relative to the point before a position, and the weights of all."""


def _taps(at: Any, n: Any, method: str, mode: str) -> Taps:
    """The taps of positions along an axis of n points."""
    beside = None
    if mode == "constant":
        beside = logical_or(at < 0, at > n - 1)
    elif mode == "wrap":
        at = _wrapped(at, n)
    fixed, weights = stop_gradient(at), None
    if method in WEIGHTS:
        first, function = WEIGHTS[method]
        base = floor(fixed)
        weights = stack(function(at - base))
        points = stack([base + (first + i) for i in range(weights.shape[0])])
    else:
        points = (rounded(fixed) if method == "nearest-even" else floor(fixed + 0.5))[None]
    if mode == "grid-constant":
        beside = logical_or(points < 0, points > n - 1)
    elif beside is not None:
        beside = beside[None]
    if mode in _FIXED:
        points = _FIXED[mode](points, n)
    points = clip(points, 0, n - 1)
    points = where(equal(points, points), points, 0)  # the weights of a NaN position are NaN
    return Taps(astype(points, "int64"), weights, beside)


def _met(found: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    """Per-axis parts combined for all combinations of taps, along the first axis."""

    def both(a: Any, b: Any) -> Any:
        met = join(a[:, None], b[None])
        return reshape(met, (met.shape[0] * met.shape[1], *met.shape[2:]))

    return reduce(both, found)


def sampled(
    x: Any, places: Sequence[Any], method: str, mode: str, cval: float = 0.0, images: Any = None
) -> Any:
    """Values of ``x`` (batch, *points, channels) at positions: (rows, count, channels).

    ``places`` has for each axis of points a tensor (rows, count), in steps between points;
    ``images`` is the image of each row, by default that with its index. Outside positions are
    ``cval`` for constant modes. ``method`` is ``"nearest"``, of two points that are as near the
    second one, ``"nearest-even"``, or one of ``WEIGHTS``.
    """
    sizes, batch, channels = x.shape[1:-1], x.shape[0], x.shape[-1]
    check_places(sizes)
    found = [_taps(at, n, method, mode) for at, n in zip(places, sizes, strict=True)]
    strides = (product(sizes[i + 1 :]) for i in range(len(sizes)))
    points = _met([t.points * s for t, s in zip(found, strides, strict=True)], add)
    rows = product(sizes)
    flat = reshape(x, (batch, rows, channels))
    if found[0].outside is not None:
        beside = _met([broadcast_to(t.outside, t.points.shape) for t in found], logical_or)
        points = where(beside, rows, points)
        more = full((batch, 1, channels), cval, dtype=x.dtype, device=str(x.device))
        flat, rows = concat([flat, more], axis=1), rows + 1
    if images is None and not (isinstance(batch, int) and batch == 1):
        images = arange(batch, dtype="int64", device=str(x.device))
    if images is not None:
        points = points + reshape(images, (-1, 1)) * rows
    values = take(reshape(flat, (batch * rows, channels)), points, axis=0)
    if found[0].weights is None:
        return values[0]
    weights = _met([t.weights for t in found], multiply)
    wide = promote(x.dtype, np.dtype("float32"))
    return astype(summed(astype(values, wide) * weights[..., None], axis=0), x.dtype)
