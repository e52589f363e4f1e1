"""Resizing of images, signals and volumes, and its transpose.

Along each axis an element of the result is a sum of a few elements of the input, with weights that
the two sizes and the method decide. The transposed op has the same form, with other weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from eagerflow.errors import ShapeError
from eagerflow.ops.attributes import HINTS, Sizes, tuple_of
from eagerflow.ops.family import FLOATS, Batch, Split, define
from eagerflow.ops.nn.batching import call_merged
from eagerflow.primitives.windows import sizes_of, spatial_rank
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["resize", "resize_gradient"]


def _factor(x: Any) -> bool:
    return x is None or type(x) in (int, float)


Scales = Any
HINTS["Scales"] = (lambda x: _factor(x) or tuple_of(_factor)(x), "a number, numbers, or None")

# Weights -----------------------------------------------------------------------------------------


def _triangle(xp: Any, x: Any, a: float) -> Any:
    return xp.maximum(1 - x, 0)


def _cubic(xp: Any, x: Any, a: float) -> Any:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x < 1, near, xp.where(x < 2, far, 0))


def _lanczos(radius: int) -> Callable[[Any, Any, float], Any]:
    def kernel(xp: Any, x: Any, a: float) -> Any:
        turn = math.pi * xp.where(x < 1e-4, 1, x)
        value = radius * xp.sin(turn) * xp.sin(turn / radius) / (turn * turn)
        return xp.where(x < 1e-4, 1, xp.where(x < radius, value, 0))

    return kernel


KERNELS: dict[str, tuple[int, Callable[[Any, Any, float], Any]]] = {
    **dict.fromkeys(("linear", "bilinear", "trilinear"), (1, _triangle)),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), (2, _cubic)),
    "lanczos3": (3, _lanczos(3)),
    "lanczos5": (5, _lanczos(5)),
}
"""The radius of an element's influence, and its weight at a distance from a new one's center."""
MEANS = ("mean", "area")
METHODS = ("nearest", *MEANS, *KERNELS)
COORDINATES = ("half_pixel", "align_corners", "asymmetric")


class _How(NamedTuple):
    """The attributes of a resizing along one axis; ``scale`` is the factor, if it is given."""

    method: str
    antialias: bool
    coordinates: str
    a: float
    edge: bool
    scale: float | None


def _middles(size: int, new: int, how: _How) -> tuple[Any, float]:
    """The positions of new elements' centers among the old ones, and their spacing."""
    row = np.arange(new)[:, None]
    step = size / new if how.scale is None else 1 / how.scale
    if how.coordinates == "align_corners":
        step = (size - 1) / (new - 1) if new > 1 else 0.0
        if not how.antialias:
            return row * step, step
    return row * step if how.coordinates == "asymmetric" else (row + 0.5) * step - 0.5, step


def _nearest(size: int, new: int, how: _How) -> Any:
    """The number of the element that each new one is."""
    row = np.arange(new)[:, None]
    if how.scale is None and how.coordinates == "half_pixel":
        return (2 * row + 1) * size // (2 * new)
    if how.scale is None and how.coordinates == "asymmetric":
        return row * size // new
    middle, _ = _middles(size, new, how)
    found = np.floor(middle if how.coordinates == "asymmetric" else middle + 0.5)
    return found.clip(0, size - 1)


def _weights(size: int, new: int, how: _How) -> Any:
    """The weight of each of the ``size`` elements in each of the ``new`` ones: (new, size)."""
    row, column = np.arange(new)[:, None], np.arange(size)
    if how.method == "nearest":
        return (column == _nearest(size, new, how)).astype(float)
    if how.method in MEANS:
        inside = (row * size // new <= column) & (column < -(-(row + 1) * size // new))
        return inside / inside.sum(1, keepdims=True)
    reach, kernel = KERNELS[how.method]
    middle, step = _middles(size, new, how)
    spread = max(step, 1.0) if how.antialias else 1.0
    beside = math.ceil(reach * spread) if how.edge else 0
    if how.edge:
        middle = middle.clip(-beside, size - 1 + beside)
    column = np.arange(-2 * beside, size + 2 * beside)
    weights = kernel(np, np.abs(middle - column) / spread, how.a)
    weights[np.abs(weights) < 1e-12] = 0  # a computed sine is not exactly 0
    if how.edge:
        first, last = 2 * beside, 2 * beside + size - 1
        weights[:, first] += weights[:, :first].sum(1)
        weights[:, last] += weights[:, last + 1 :].sum(1)
        weights = weights[:, first : last + 1]
    total = weights.sum(1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


@lru_cache(256)
def _terms(size: int, new: int, how: _How, transposed: bool) -> Any:
    """For each element of the result, the elements that it is a sum of, and their weights."""
    weights = _weights(size, new, how)
    if transposed:
        weights = weights.T
    count = max(1, int((weights != 0).sum(1).max(initial=0)))
    index = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    return index, np.take_along_axis(weights, index, 1)


def _resized(xp: Namespace, x: Any, size: Any, back: bool, scale: Any, **more: Any) -> Any:
    """All spatial axes one after another, in float32 at least; ``back`` is the transposed map."""
    y = xp.astype(x, xp.float32) if x.dtype.itemsize < 4 else x
    sizes = sizes_of(size, x.ndim - 2)
    scales = scale if isinstance(scale, tuple) else (scale,) * len(sizes)
    for axis, (new, factor) in enumerate(zip(sizes, scales, strict=True), 1):
        old = y.shape[axis]
        if old != new or factor not in (None, 1):
            how = _How(**more, scale=factor)
            index, weights = _terms(*((new, old) if back else (old, new)), how, back)
            along = (-1, *(1,) * (x.ndim - 1 - axis))
            terms = (
                xp.take(y, xp.asarray(i), axis=axis)
                * xp.reshape(xp.asarray(w, dtype=y.dtype), along)
                for i, w in zip(index.T, weights.T, strict=True)
            )
            y = reduce(xp.add, terms)
    return xp.astype(y, x.dtype)


# Shapes ------------------------------------------------------------------------------------------


def resized_spec(
    x: TensorSpec,
    size: Any,
    method: str = "bilinear",
    antialias: bool = False,
    coordinates: str = "half_pixel",
    a: float = -0.5,
    edge: bool = False,
    scale: Any = None,
) -> TensorSpec:
    sizes = sizes_of(size, spatial_rank(x, "x"))
    for name, value, choices in (
        ("method", method, METHODS),
        ("coordinates", coordinates, COORDINATES),
    ):
        if value not in choices:
            raise ShapeError(
                f"{value!r} is not a {name.removesuffix('s')}",
                argument=name,
                expected="one of " + ", ".join(choices),
            )
    for what, given in (("x", x.shape[1:-1]), ("size", sizes)):
        if any(isinstance(n, int) and n < 1 for n in given):
            raise ShapeError(
                f"the sizes {tuple(given)} leave no elements", argument=what, expected="at least 1"
            )
    _check_scale(scale, len(sizes))
    if not _factor(a) or a is None or not abs(a) < 1e6:
        raise ShapeError(f"{a!r} is not a number", argument="a", expected="a number, as -0.5")
    return x.like((x.shape[0], *sizes, x.shape[-1]))


def _check_scale(scale: Any, rank: int) -> None:
    scales = scale if isinstance(scale, tuple) else (1.0 if scale is None else scale,) * rank
    if len(scales) != rank or not all(s is None or (_factor(s) and 1e-6 < s < 1e6) for s in scales):
        raise ShapeError(
            f"{scale!r} is not a factor for each spatial axis",
            argument="scale",
            expected=f"a number above 0, or {rank} of them",
        )


# The ops -----------------------------------------------------------------------------------------


def _op(**facts: Any) -> Any:
    return define(
        "contraction",
        dtypes=FLOATS,
        infer=resized_spec,
        jvp="linear",
        batch=Batch(
            lambda call, args, batched, size, /, **more: call_merged(
                call, args, batched, size, (0,), (0,), **more
            )
        ),
        split=lambda x, **attributes: [Split((i,), i) for i in (0, x.ndim - 1)],
        ulp=64,  # sums of many products, in another order
        threaded=False,
        version=2,
        since=dict.fromkeys(("coordinates", "a", "edge", "scale"), 2),
        **facts,
    )


@_op(vjp=(lambda g, y, x, size, **more: resize_gradient(g, size=x.shape[1:-1], **more),))
def resize(
    xp: Namespace,
    x: Array,
    /,
    size: Sizes,
    method: str = "bilinear",
    antialias: bool = False,
    coordinates: str = "half_pixel",
    a: float = -0.5,
    edge: bool = False,
    scale: Scales = None,
) -> Array:
    """Channels-last images, or signals or volumes, with other spatial sizes.

    ``x`` is (batch, *spatial, channels) and ``size`` an integer or one for each spatial axis.
    ``method`` is ``"nearest"``; ``"linear"`` (or ``"bilinear"``, ``"trilinear"``); ``"cubic"`` (or
    ``"bicubic"``, ``"tricubic"``: Keys, 1981, with the number ``a``); ``"lanczos3"`` or
    ``"lanczos5"``; or ``"mean"`` (or ``"area"``), of all elements that a new one covers at least in
    part. With ``antialias`` the weighted ones average over all pixels when downsampling.
    ``coordinates`` are the positions of new elements: with ``"half_pixel"`` pixels are areas, the
    center of element i of n is at ``(i + 0.5) / n`` of the axis; with ``"align_corners"`` the
    centers of the first and the last ones are preserved; with ``"asymmetric"`` element i is at ``i
    / n``. Outside of the image is nothing, or its ``edge``. ``scale`` is the factor of positions,
    one for each axis, if it differs from that of the sizes. Raises ShapeError for invalid sizes or
    an unknown method.

    >>> x = ef.tensor([0.0, 4.0]).reshape((1, 2, 1))
    >>> ef.resize(x, 4).reshape((-1,))
    Tensor([0., 1., 3., 4.], float32, cpu:0)
    """
    how = {"method": method, "antialias": antialias, "coordinates": coordinates}
    return _resized(xp, x, size, False, scale, a=a, edge=edge, **how)


@_op(vjp=(lambda t, y, g, size, **more: resize(t, size=g.shape[1:-1], **more),))
def resize_gradient(
    xp: Namespace,
    g: Array,
    /,
    size: Sizes,
    method: str = "bilinear",
    antialias: bool = False,
    coordinates: str = "half_pixel",
    a: float = -0.5,
    edge: bool = False,
    scale: Scales = None,
) -> Array:
    """Gradient of ``resize``: each element of ``g``, distributed over its source elements.

    ``size`` are the spatial sizes of the resized tensor (an integer or one for each axis); the rest
    is as in ``resize``. Raises ShapeError where sizes do not fit.

    >>> ef.resize_gradient(ef.ones((1, 4, 1)), 2).reshape((-1,))
    Tensor([2., 2.], float32, cpu:0)
    """
    how = {"method": method, "antialias": antialias, "coordinates": coordinates}
    return _resized(xp, g, size, True, scale, a=a, edge=edge, **how)
