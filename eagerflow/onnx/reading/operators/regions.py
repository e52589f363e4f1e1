"""Regions of images: pooling to a fixed size, and non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.onnx.reading.calls import Call, known, known_number, operator
from eagerflow.onnx.reading.operators.limits import check_steps

# Pooling -----------------------------------------------------------------------------------------


def _samples(call: Call, start: Any, length: Any, bins: int, ratio: int) -> tuple[Any, Any]:
    """The sample positions of each bin (regions, bins, samples) along an axis, with weights.

    Without a ratio, the number of samples of a bin is its number of pixels.
    """
    size = ops.expand_dims(length, -1) / bins
    counts = ops.full(size.shape, ratio, dtype=size.dtype) if ratio else ops.ceil(size)
    most = ratio or max(1, int(known(ops.max(counts)))) if size.shape[0] else 1
    number = ops.reshape(ops.arange(most, dtype=size.dtype), (1, 1, -1))
    counts = ops.reshape(counts, (-1, 1, 1))
    first = ops.reshape(start, (-1, 1)) + ops.arange(bins, dtype=size.dtype) * size
    first = ops.expand_dims(first, -1)
    places = first + (number + 0.5) * ops.expand_dims(size, -1) / ops.maximum(counts, 1)
    return places, ops.where(number < counts, 1 / ops.maximum(counts, 1), 0)


def _corners(place: Any, size: int) -> list[tuple[Any, Any]]:
    """The two pixels around each position and their weights, which are 0 outside the image."""
    beside = (place < -1) | (place > size)
    place = ops.clip(place, 0, size - 1)
    low = ops.floor(place)
    way = place - low
    high = ops.minimum(low + 1, size - 1)
    return [
        (ops.astype(pixel, "int64"), ops.where(beside, 0, share))
        for pixel, share in ((low, 1 - way), (high, way))
    ]


@operator("RoiAlign")
def roi_align(
    call: Call,
    x: Any,
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: str = "output_half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    """Regions (x1, y1, x2, y2) of images as means, or maxima, of samples in each bin."""
    if mode not in ("avg", "max"):
        call.refuse(f"there is no mode {mode!r}")
    half = coordinate_transformation_mode == "half_pixel"
    height, width = x.shape[2:]
    if not isinstance(height * width, int):
        call.refuse("images of unknown size")
    edges = rois * spatial_scale - (0.5 if half else 0.0)
    axes = []
    for axis, (bins, size) in enumerate(((output_height, height), (output_width, width))):
        start, end = edges[:, 1 - axis], edges[:, 3 - axis]
        length = end - start if half else ops.maximum(end - start, 1)
        places, weights = _samples(call, start, length, bins, sampling_ratio)
        axes.append((_corners(places, size), weights))
    # Channels first, and the pixels of all images flattened.
    pixels = ops.reshape(ops.permute_dims(x, (1, 0, 2, 3)), (x.shape[1], -1))
    image = ops.reshape(ops.astype(batch_indices, "int64"), (-1, 1, 1, 1, 1)) * (height * width)
    rows, columns = (corners for corners, _ in axes)
    terms = []
    for row, row_share in rows:
        for column, column_share in columns:
            place = image + row[:, :, :, None, None] * width + column[:, None, None]
            share = row_share[:, :, :, None, None] * column_share[:, None, None]
            terms.append(ops.take(pixels, place, axis=1) * share)
    counted = axes[0][1][:, :, :, None, None] * axes[1][1][:, None, None]
    if mode == "avg":
        y = ops.sum(sum(terms) * counted, axis=(3, 5))
    else:
        largest = ops.max(ops.stack(terms), axis=0)
        y = ops.max(ops.where(counted > 0, largest, -np.inf), axis=(3, 5))
        y = ops.where(ops.isinf(y), 0, y)
    return ops.astype(ops.swapaxes(y, 0, 1), x.dtype)


@operator("MaxRoiPool")
def max_roi_pool(
    call: Call, x: Any, rois: Any, *, pooled_shape: Any, spatial_scale: float = 1.0
) -> Any:
    """The maxima of the bins of regions (image, x1, y1, x2, y2) with integer coordinates."""
    check_steps(call, *pooled_shape)
    images = ops.take(x, ops.astype(rois[:, 0], "int64"), axis=0)
    edges = ops.floor(rois[:, 1:] * spatial_scale + 0.5)
    # Over the columns of each bin first, then over its rows.
    for axis, bins in ((3, pooled_shape[1]), (2, pooled_shape[0])):
        start, end = edges[:, 3 - axis], edges[:, 5 - axis]
        size = ops.maximum(end - start + 1, 1) / bins
        shape = [1] * 4
        shape[axis] = -1
        place = ops.reshape(ops.arange(x.shape[axis], dtype=size.dtype), shape)
        made = []
        for number in range(bins):
            first, behind = start + ops.floor(number * size), start + ops.ceil((number + 1) * size)
            first, behind = (ops.reshape(t, (-1, 1, 1, 1)) for t in (first, behind))
            within = (place >= first) & (place < behind)
            made.append(ops.max(ops.where(within, images, -np.inf), axis=axis, keepdims=True))
        images = ops.concat(made, axis=axis)
    return ops.where(images == -np.inf, 0, images)


# Choosing ----------------------------------------------------------------------------------------


def _sides(boxes: Any, center: bool) -> tuple[Any, Any]:
    """The lower and the upper corners of boxes, (boxes, 2) each."""
    if center:
        half = boxes[:, 2:] / 2
        return boxes[:, :2] - half, boxes[:, :2] + half
    return np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])


def _overlaps(low: Any, high: Any, one: int, others: list[int]) -> Any:
    """The intersection over union of a box with others."""
    sides = np.minimum(high[one], high[others]) - np.maximum(low[one], low[others])
    common = np.maximum(sides, 0).prod(axis=1)
    area = (high - low).prod(axis=1)
    union = area[one] + area[others] - common
    fine = (common > 0) & (union > 0)
    return np.where(fine, common / np.where(fine, union, 1), 0)


def _chosen(low: Any, high: Any, scores: Any, limits: tuple[int, float, float | None]) -> list[int]:
    """Non-maximum suppression: the best boxes that do not overlap with better ones."""
    most, overlap, least = limits
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable").tolist():
        if len(kept) >= most or (least is not None and not scores[box] > least):
            break
        if not kept or not (_overlaps(low, high, box, kept) > overlap).any():
            kept.append(box)
    return kept


@operator("NonMaxSuppression")
def non_max_suppression(
    call: Call,
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    center_point_box: int = 0,
) -> Any:
    """Rows (image, class, box) of the selected boxes, whose number depends on values."""
    boxes, scores = known(boxes), known(scores)
    limits = (
        int(_number(max_output_boxes_per_class) or 0),
        _number(iou_threshold) or 0.0,
        _number(score_threshold),
    )
    rows = []
    for image, places in enumerate(boxes):
        low, high = _sides(places, bool(center_point_box))
        for kind, values in enumerate(scores[image]):
            rows += [(image, kind, box) for box in _chosen(low, high, values, limits)]
    return as_tensor(np.array(rows, "int64").reshape(-1, 3))


def _number(x: Any) -> Any:
    """The number in an input; None if it is omitted or empty."""
    return None if x is None or 0 in x.shape else known_number(x)
