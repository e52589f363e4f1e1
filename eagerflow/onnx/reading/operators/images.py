"""Resizing, axis by axis: each new element is a weighted sum of old ones.

Sizes and scales are known, so the positions and weights are constant arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dims import DimLike
from eagerflow.onnx.reading.calls import Call, known, known_list, operator
from eagerflow.onnx.reading.operators.limits import check_elements

_FEW = 8
"""Up to so many elements are gathered and added; more are a matrix product."""


class _Axis(NamedTuple):
    """The change of an axis of ``size`` elements to ``made``, by the factor ``scale``."""

    size: int
    made: int
    scale: float
    roi: tuple[float, float]


class _Mode(NamedTuple):
    """The attributes of a Resize node."""

    mode: str
    nearest: str
    coordinates: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


# Where new elements lie --------------------------------------------------------------------------


def _half_pixel(a: _Axis, i: Any) -> Any:
    return (i + 0.5) / a.scale - 0.5


def _align_corners(a: _Axis, i: Any) -> Any:
    whole = a.scale * a.size
    return i * 0.0 if whole == 1 else i * (a.size - 1) / (whole - 1)


def _half_pixel_symmetric(a: _Axis, i: Any) -> Any:
    return a.size / 2 * (1 - a.made / (a.scale * a.size)) + _half_pixel(a, i)


def _pytorch_half_pixel(a: _Axis, i: Any) -> Any:
    return i * 0.0 if a.made == 1 else _half_pixel(a, i)


def _crop_and_resize(a: _Axis, i: Any) -> Any:
    start, end = a.roi
    if a.made == 1:
        return i * 0.0 + 0.5 * (start + end) * (a.size - 1)
    return start * (a.size - 1) + i * (end - start) * (a.size - 1) / (a.made - 1)


def _asymmetric(a: _Axis, i: Any) -> Any:
    return i / a.scale


_COORDINATES: dict[str, Callable[[_Axis, Any], Any]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_crop_and_resize": _crop_and_resize,
    "tf_half_pixel_for_nn": lambda a, i: (i + 0.5) / a.scale,
}

_NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


# Weights -----------------------------------------------------------------------------------------


def _triangle(x: Any) -> Any:
    return np.clip(1 - np.abs(x), 0, 1)


def _cubic(x: Any, a: float) -> Any:
    """The kernel of Keys (1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _taps(a: _Axis, mode: _Mode, x: Any) -> tuple[Any, Any]:
    """The source positions (elements, taps) of new elements at ``x``, and their weights."""
    shrink = min(a.scale, 1.0) if mode.antialias else 1.0
    first = int(np.floor((-1 if mode.mode == "linear" else -2) / shrink)) + 1
    offsets = np.arange(first, 2 - first)
    # The previous element, or the left neighbor of an exact hit.
    base = np.ceil(x) - 1
    distance = (offsets - (x - base)[:, None]) * shrink
    weights = _triangle(distance) if mode.mode == "linear" else _cubic(distance, mode.cubic)
    places = (base[:, None] + offsets).astype("int64")
    if mode.exclude_outside:
        weights = np.where((places >= 0) & (places < a.size), weights, 0)
    if mode.antialias or mode.exclude_outside:
        weights = weights / np.where((total := weights.sum(1, keepdims=True)) == 0, 1, total)
    return np.clip(places, 0, a.size - 1), weights


def _along(x: Any, number: int, a: _Axis, mode: _Mode) -> Any:
    """The tensor resized along the axis of this number."""
    at = _COORDINATES[mode.coordinates](a, np.arange(a.made, dtype="float64"))
    if mode.mode == "nearest":
        places = np.clip(_NEAREST[mode.nearest](at), 0, a.size - 1).astype("int64")
        y = ops.take(x, places, axis=number)
    else:
        y = _weighted(x, number, *_taps(a, mode, at))
    outside = (at < 0) | (at > a.size - 1)
    if mode.coordinates != "tf_crop_and_resize" or not outside.any():
        return y
    shape = [-1 if axis == number else 1 for axis in range(x.ndim)]
    return ops.where(outside.reshape(shape), mode.extrapolation, y)


def _weighted(x: Any, number: int, places: Any, weights: Any) -> Any:
    """Sums of elements at ``places`` (new elements, taps) along an axis, weighted."""
    if places.shape[1] > _FEW:
        matrix = np.zeros((len(places), x.shape[number]))
        np.add.at(matrix, (np.arange(len(places))[:, None], places), weights)
        made = ops.tensordot(x, as_tensor(matrix, dtype=x.dtype), axes=((number,), (1,)))
        return ops.moveaxis(made, -1, number)
    shape = [-1 if axis == number else 1 for axis in range(x.ndim)]
    total: Any = None
    for place, weight in zip(places.T, weights.T, strict=True):
        factor = as_tensor(weight.reshape(shape), dtype=x.dtype)
        term = ops.take(x, place, axis=number) * factor
        total = term if total is None else total + term
    return total


# The nodes ---------------------------------------------------------------------------------------


def _made(size: DimLike, scale: float) -> Any:
    """The scaled size of an axis, rounded down as in float32."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    return size * int(scale) if float(scale).is_integer() else None


def _axes(
    call: Call, x: Any, axes: list[int], scales: Any, sizes: Any, policy: str, roi: Any
) -> dict[int, _Axis]:
    """The changes of all axes whose sizes change."""
    count = len(axes)
    for what, given in (("scales", scales), ("sizes", sizes), ("roi", roi)):
        if given is not None and len(given) != (2 * count if what == "roi" else count):
            call.refuse(f"{len(given)} {what} for {count} axes")
    if sizes is not None and policy != "stretch":
        if not all(isinstance(x.shape[a], int) for a in axes):
            call.refuse(f"keep_aspect_ratio_policy {policy} for axes of unknown size")
        choose = min if policy == "not_larger" else max
        scale = choose(n / x.shape[a] for n, a in zip(sizes, axes, strict=True))
        scales = [scale] * count
        sizes = [int(scale * x.shape[a] + 0.5) for a in axes]
    found = {}
    for i, axis in enumerate(axes):
        size = x.shape[axis]
        made = sizes[i] if sizes is not None else _made(size, scales[i])
        part = (0.0, 1.0) if roi is None else (roi[i], roi[i + count])
        if isinstance(size, int):
            scale = scales[i] if scales is not None else made / size
            if made != size or scale != 1 or part != (0.0, 1.0):
                found[axis] = _Axis(size, made, scale, part)
        elif made != size or part != (0.0, 1.0):
            call.refuse(f"axis {axis} of unknown size {size} resized")
    return found


def _resized(call: Call, x: Any, changes: dict[int, _Axis], mode: _Mode) -> Any:
    """The tensor with these axes resized; integers are rounded and clipped to their range."""
    if any(a.made < 0 or a.scale <= 0 or not a.size for a in changes.values()):
        call.refuse("an axis without elements, or a scale that is not above 0")
    if mode.mode == "nearest":
        y = x
    else:
        y = x if x.dtype.name == "float64" else ops.astype(x, "float32")
    for number, a in changes.items():
        # A matrix product needs an array of this size.
        check_elements(call, a.made, min(a.size, int(4 / min(a.scale, 1)) + 2))
        y = _along(y, number, a, mode)
    if x.dtype.kind in "iu" and y.dtype != x.dtype:
        limits = np.iinfo(x.dtype)
        y = ops.clip(ops.round(y), limits.min, limits.max)
    return ops.astype(y, x.dtype)


@operator("Resize")
def resize(
    call: Call,
    x: Any,
    *inputs: Any,
    mode: str = "nearest",
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    """A resized tensor, by scales or sizes; version 10 has only scales."""
    if call.version < 11:
        return _upsampled(call, x, inputs[0], mode)
    roi, scales, sizes = [_values(x) for x in (*inputs, None, None, None)[:3]]
    if (scales is None) == (sizes is None):
        call.refuse("either scales or sizes are needed")
    asked = _Mode(
        mode,
        nearest_mode,
        coordinate_transformation_mode,
        cubic_coeff_a,
        bool(antialias),
        bool(exclude_outside),
        extrapolation_value,
    )
    for name, choices in (
        (mode, ("nearest", "linear", "cubic")),
        (nearest_mode, _NEAREST),
        (coordinate_transformation_mode, _COORDINATES),
        (keep_aspect_ratio_policy, ("stretch", "not_larger", "not_smaller")),
    ):
        if name not in choices:
            call.refuse(f"there is no {name!r} among {list(choices)}")
    numbers = [int(a) % x.ndim for a in axes or range(x.ndim)]
    roi = roi if coordinate_transformation_mode == "tf_crop_and_resize" else None
    changes = _axes(call, x, numbers, scales, sizes, keep_aspect_ratio_policy, roi)
    return _resized(call, x, changes, asked)


def _values(t: Any) -> Any:
    """The numbers of an input; None if it is omitted or empty."""
    return None if t is None or 0 in t.shape else known_list(t)


@operator("Upsample")
def upsample(call: Call, x: Any, scales: Any = None, *, mode: str = "nearest") -> Any:
    """An upsampled tensor; ``scales`` was an attribute before version 9."""
    return _upsampled(call, x, scales, mode)


def _upsampled(call: Call, x: Any, scales: Any, mode: str) -> Any:
    """The original rule of Resize: element i is at i / scale."""
    if mode not in ("nearest", "linear"):
        call.refuse(f"there is no mode {mode!r}")
    factors = [float(f) for f in np.atleast_1d(known(scales))]
    changes = _axes(call, x, list(range(x.ndim)), factors, None, "stretch", None)
    plain = _Mode(mode, "floor", "asymmetric", -0.75, False, False, 0.0)
    return _resized(call, x, changes, plain)
