"""Interpolation of images at positions given by tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from eagerflow import ops

Weights = Callable[[Any], list[Any]]
"""From the distance to the previous pixel (0 to 1) to the weights of neighboring pixels."""


def _pixels(x: Any, places: Sequence[Any]) -> Any:
    """Elements of x (batch, channels, *sizes) at integer ``places`` (batch, points) per axis."""
    sizes = x.shape[2:]
    flat = ops.reshape(x, (*x.shape[:2], -1))
    number = places[0]
    for place, size in zip(places[1:], sizes[1:], strict=True):
        number = number * size + place
    return ops.take_along_axis(flat, ops.expand_dims(number, 1), axis=2)


def reflected(place: Any, size: int, corners: bool) -> Any:
    """Positions reflected at the outer pixels' centers (``corners``) or edges into the image."""
    low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
    if span == 0:
        return place * 0
    way = ops.abs(place - low)
    turns = ops.floor(way / span)
    rest = way - turns * span
    return low + ops.where(ops.remainder(turns, 2) == 0, rest, span - rest)


def pixels(x: Any, places: Sequence[Any], outside: str, corners: bool = True) -> Any:
    """The pixels at ``places``: integers stored as floats, (batch, points) for each axis.

    Outside of the image, ``"zeros"``, the ``"border"`` or the ``"reflection"`` is used.
    """
    inside, whole = None, []
    for place, size in zip(places, x.shape[2:], strict=True):
        if outside == "zeros":
            here = (place >= 0) & (place <= size - 1)
            inside = here if inside is None else inside & here
        if outside == "reflection":
            place = ops.trunc(reflected(place, size, corners))
        whole.append(ops.astype(ops.clip(place, 0, size - 1), "int64"))
    found = _pixels(x, whole)
    return found if inside is None else ops.where(ops.expand_dims(inside, 1), found, 0)


def _linear(way: Any) -> list[Any]:
    return [1 - way, way]


def cubic_weights(way: Any, a: float = -0.75) -> list[Any]:
    """The weights of four pixels (Keys, 1981), the second ``way`` before the position."""
    far, near, other = way + 1, way, 1 - way

    def outer(t: Any) -> Any:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    def inner(t: Any) -> Any:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    return [outer(far), inner(near), inner(other), outer(other + 1)]


def sample(
    x: Any, places: Sequence[Any], weights: Weights, first: int, outside: str, corners: bool = True
) -> Any:
    """Weighted sums of the pixels around ``places``, beginning ``first`` from the floor."""
    floors = [ops.floor(place) for place in places]
    shares = [weights(place - f) for place, f in zip(places, floors, strict=True)]
    total: Any = None
    for tap in itertools.product(*(range(len(share)) for share in shares)):
        at = [f + (first + t) for f, t in zip(floors, tap, strict=True)]
        weight: Any = None
        for share, t in zip(shares, tap, strict=True):
            weight = share[t] if weight is None else weight * share[t]
        term = pixels(x, at, outside, corners) * ops.expand_dims(weight, 1)
        total = term if total is None else total + term
    return total


def sample_linear(x: Any, places: Sequence[Any], outside: str, corners: bool = True) -> Any:
    """Images (batch, channels, *sizes) at ``places``: (batch, points) for each axis."""
    return sample(x, places, _linear, 0, outside, corners)


def sample_cubic(x: Any, places: Sequence[Any], outside: str, corners: bool = True) -> Any:
    """As ``sample_linear``, with four pixels along each axis."""
    return sample(x, places, cubic_weights, -1, outside, corners)


def sample_nearest(x: Any, places: Sequence[Any], outside: str, corners: bool = True) -> Any:
    """The pixels nearest to ``places``; halves are rounded to even."""
    return pixels(x, [ops.round(place) for place in places], outside, corners)
