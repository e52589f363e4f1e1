"""Images sampled at the positions of a grid."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.onnx.reading.calls import Call, known_list, operator
from eagerflow.onnx.reading.operators.limits import check_elements
from eagerflow.onnx.reading.operators.sampling import (
    reflected,
    sample_cubic,
    sample_linear,
    sample_nearest,
)

_SAMPLERS = {
    "nearest": sample_nearest,
    "linear": sample_linear,
    "bilinear": sample_linear,
    "cubic": sample_cubic,
    "bicubic": sample_cubic,
}


def _inside(place: Any, size: int, outside: str, corners: bool) -> Any:
    """Positions outside the image clipped to its border, or reflected."""
    if outside == "border":
        return ops.clip(place, 0, size - 1)
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    beside = (place < low) | (place > high)
    return ops.where(beside, reflected(place, size, corners), place)


@operator("GridSample")
def grid_sample(
    call: Call,
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Any:
    """Images sampled at the positions of ``grid`` (batch, *new sizes, axes).

    Positions range from -1 to 1 over the image, with the last axis first.
    """
    if mode not in _SAMPLERS or padding_mode not in ("zeros", "border", "reflection"):
        call.refuse(f"there is no mode {mode!r}, or no padding_mode {padding_mode!r}")
    sizes, out = x.shape[2:], grid.shape[1:-1]
    if not all(isinstance(n, int) for n in (*sizes, *out)):
        call.refuse("images of unknown size")
    if grid.ndim != x.ndim or grid.shape[-1] != len(sizes):
        call.refuse(f"a grid of shape {grid.shape} for images with {len(sizes)} spatial axes")
    corners, places = bool(align_corners), []
    for axis, size in enumerate(sizes):
        place = ops.reshape(grid[..., len(sizes) - 1 - axis], (-1, prod(out)))
        place = (place + 1) / 2 * (size - 1) if corners else ((place + 1) * size - 1) / 2
        if mode == "nearest":
            place = ops.round(place)
        # Cubic interpolation also reads pixels beyond the border, each padded on its own.
        if padding_mode != "zeros" and "cubic" not in mode:
            place = _inside(place, size, padding_mode, corners)
        places.append(place)
    y = _SAMPLERS[mode](x, places, padding_mode, corners)
    return ops.astype(ops.reshape(y, (*x.shape[:2], *out)), x.dtype)


@operator("AffineGrid")
def affine_grid(call: Call, theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    """The grid for ``GridSample`` of an affine transformation by matrices ``theta``."""
    shape = known_list(size)
    spatial = shape[2:]
    if len(spatial) not in (2, 3) or theta.shape[1:] != (len(spatial), len(spatial) + 1):
        call.refuse(f"matrices of shape {theta.shape} for images of shape {shape}")
    check_elements(call, *spatial)
    lines = []
    for n in spatial:
        middle = (2 * np.arange(n) + 1) / n - 1
        lines.append(2 * np.arange(n) / max(n - 1, 1) - (n > 1) if align_corners else middle)
    # The last axis comes first, and a 1 at the end.
    axes = np.meshgrid(*lines, indexing="ij")[::-1]
    points = np.stack([*axes, np.ones(spatial)], axis=-1).reshape(-1, len(spatial) + 1)
    moved = as_tensor(points, dtype=theta.dtype) @ ops.swapaxes(theta, 1, 2)
    return ops.reshape(moved, (-1, *spatial, len(spatial)))
