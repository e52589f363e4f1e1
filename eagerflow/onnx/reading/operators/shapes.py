"""Operators that move elements: shapes, axes, slices, pads and repetitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow import ops
from eagerflow.dims import Dim
from eagerflow.onnx.reading.calls import (
    Call,
    Refused,
    SizeVector,
    known_list,
    known_number,
    operator,
    sizes,
)
from eagerflow.onnx.reading.sizing import with_sizes
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

MAX_PLACES = 2**26
"""The limit of elements of blocks with explicit positions."""
FAR = 2**31 - 1
"""A number that files use as the end of an axis; also any larger one."""


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes from an attribute or an input, counted from the front, without duplicates."""
    found = tuple(normalize_axis(int(axis), rank) for axis in known_list(axes))
    if len(set(found)) < len(found):
        raise Refused(f"the axes {found} repeat")
    return found


# Shapes -------------------------------------------------------------------------------------------


def _reshaped_sizes(data: Any, shape: Any, allowzero: int = 0) -> Any:
    return data.reshape([int(size) for size in shape])


@operator("Reshape", takes_sizes=True)
def reshape(call: Call, data: Any, shape: Any, allowzero: int = 0) -> Any:
    """The same elements in another shape; 0 keeps a size unless ``allowzero``."""
    if isinstance(data, SizeVector):
        return with_sizes(_reshaped_sizes)(reshape)(call, data, shape, allowzero=allowzero)
    wanted = list(sizes(shape))
    if not allowzero:
        for i, size in enumerate(wanted):
            if isinstance(size, int) and size == 0:
                if i >= data.ndim:
                    call.refuse(f"the shape {tuple(wanted)} keeps a size that is not there")
                wanted[i] = data.shape[i]
    return ops.reshape(data, tuple(wanted))


@operator("Flatten")
def flatten(call: Call, x: Any, axis: int = 1) -> Any:
    """A matrix: the axes before a position, and those from it on, flattened."""
    if not -x.ndim <= axis <= x.ndim:
        call.refuse(f"the axis {axis} does not exist")
    axis = axis + x.ndim if axis < 0 else axis
    return ops.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose")
def transpose(call: Call, x: Any, perm: Any = None) -> Any:
    """The axes in another order, reversed by default."""
    order = tuple(reversed(range(x.ndim))) if perm is None else perm
    return ops.permute_dims(x, order)


@operator("Squeeze", takes_sizes=True)
@with_sizes(lambda data, axes=None: data.reshape(()))
def squeeze(call: Call, data: Any, axes: Any = None) -> Any:
    """Without axes of size 1: all of them, or the given ones."""
    if axes is None:
        named = any(isinstance(size, Dim) for size in data.shape)
        if named:
            call.refuse("axes that are to go must be given where sizes are known by name alone")
        where = tuple(i for i, size in enumerate(data.shape) if size == 1)
    else:
        where = axes_of(axes, data.ndim)
    return ops.squeeze(data, where) if where else data


def _with_axis(data: Any, axes: Any) -> Any:
    return data.reshape((1,) * len(axes)) if data.ndim == 0 else _no_vector()


def _no_vector() -> Any:
    raise Refused("sizes as a matrix")


@operator("Unsqueeze", takes_sizes=True)
@with_sizes(_with_axis)
def unsqueeze(call: Call, data: Any, axes: Any) -> Any:
    """With new axes of size 1."""
    count = data.ndim + len(known_list(axes))
    where = axes_of(axes, count)
    rest = iter(data.shape)
    return ops.reshape(data, tuple(1 if i in where else next(rest) for i in range(count)))


@operator("Expand", takes_sizes=True)
def expand(call: Call, x: Any, shape: Any) -> Any:
    """Broadcast to a shape."""
    from_shape = ops.broadcast_shapes(x.shape, sizes(shape))
    return ops.broadcast_to(x, from_shape)


@operator("Tile", takes_sizes=True)
def tile(call: Call, x: Any, repeats: Any) -> Any:
    """Tiled along each axis."""
    often = sizes(repeats)
    if len(often) != x.ndim:
        call.refuse(f"{len(often)} repeats for {x.ndim} axes")
    return ops.tile(x, often)


@operator("DepthToSpace")
def depth_to_space(call: Call, x: Any, blocksize: int, mode: str = "DCR") -> Any:
    """Depth to space: channels become blocks of pixels."""
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        parts = ops.permute_dims(ops.reshape(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    elif mode == "CRD":
        parts = ops.permute_dims(ops.reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    else:
        call.refuse(f"the mode {mode!r}")
    return ops.reshape(parts, (n, c // (b * b), h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(call: Call, x: Any, blocksize: int, mode: str = "DCR") -> Any:
    """Space to depth: blocks of pixels become channels."""
    n, c, h, w = x.shape
    b = blocksize
    parts = ops.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return ops.reshape(ops.permute_dims(parts, order), (n, c * b * b, h // b, w // b))


# Parts --------------------------------------------------------------------------------------------


def _sliced_sizes(data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    step = 1 if steps is None else int(steps[0])
    return data[slice(int(starts[0]), int(ends[0]), step)]


@operator("Slice", takes_sizes=True)
def slice_(
    call: Call, data: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    """The slice between starts and ends along some axes, with Python's semantics."""
    if not isinstance(data, SizeVector):
        return _slice(call, data, starts, ends, axes, steps)
    return with_sizes(_sliced_sizes)(_slice)(call, data, starts, ends, axes, steps)


def _slice(call: Call, data: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    first, last = sizes(starts), sizes(ends)
    where = range(len(first)) if axes is None else axes_of(axes, data.ndim)
    step = [1] * len(first) if steps is None else known_list(steps)
    if not len(first) == len(last) == len(where) == len(step):
        call.refuse("starts, ends, axes and steps are not equally many")
    index = [slice(None)] * data.ndim
    for axis, a, b, by in zip(where, first, last, step, strict=True):
        index[axis] = _part(data.shape[axis], a, b, int(by))
    return data[tuple(index)] if index else data


def _part(size: Any, start: Any, end: Any, step: int) -> slice:
    """A slice without bounds beyond the axis, so that it does not constrain the size."""
    if step == 0:
        raise Refused("a step of 0")
    if step > 0:
        begins = isinstance(start, int) and (start == 0 or start < -FAR)
        ends = end == size or (isinstance(end, int) and end >= FAR)
    else:
        begins = isinstance(start, int) and (start >= FAR or start == -1)
        ends = isinstance(end, int) and end < -FAR
    return slice(None if begins else start, None if ends else end, step)


_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@operator("Pad")
def pad(
    call: Call,
    data: Any,
    pads: Any,
    constant_value: Any = None,
    axes: Any = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    """Padding before and after axes, or cropping where a number is negative."""
    if mode not in _MODES:
        call.refuse(f"the mode {mode!r}")
    where = range(data.ndim) if axes is None else axes_of(axes, data.ndim)
    numbers = known_list(pads)
    if len(numbers) != 2 * len(where):
        call.refuse(f"{len(numbers)} pads for {len(where)} axes")
    widths = [(0, 0)] * data.ndim
    for i, axis in enumerate(where):
        widths[axis] = int(numbers[i]), int(numbers[i + len(where)])
    cut = tuple(slice(max(-a, 0), -max(-b, 0) or None) for a, b in widths)
    if any(a < 0 or b < 0 for a, b in widths):
        data = data[cut]
    grown = tuple((max(a, 0), max(b, 0)) for a, b in widths)
    if not any(map(any, grown)):
        return data
    fill = (value or 0) if constant_value is None else ops.reshape(constant_value, ())
    return ops.pad(data, grown, mode, fill)


@operator("CenterCropPad", takes_sizes=True)
def center_crop_pad(call: Call, x: Any, shape: Any, axes: Any = None) -> Any:
    """Cropped or padded symmetrically to a shape."""
    wanted = sizes(shape)
    where = range(x.ndim) if axes is None else axes_of(axes, x.ndim)
    if len(wanted) != len(where):
        call.refuse(f"{len(wanted)} sizes for {len(where)} axes")
    index, widths = [slice(None)] * x.ndim, [(0, 0)] * x.ndim
    for axis, size in zip(where, wanted, strict=True):
        own = x.shape[axis]
        if own > size:
            index[axis] = slice((own - size) // 2, (own - size) // 2 + size)
        elif own < size:
            widths[axis] = (size - own) // 2, (size - own) - (size - own) // 2
    x = x[tuple(index)]
    return ops.pad(x, tuple(widths)) if any(map(any, widths)) else x


@operator("Trilu")
def trilu(call: Call, x: Any, k: Any = None, upper: int = 1) -> Any:
    """The upper or lower triangle of matrices, with zeros elsewhere."""
    number = 0 if k is None else int(known_number(k))
    number = max(-FAR, min(FAR, number))
    if x.dtype == bool:
        return ops.astype(_triangle(ops.astype(x, "int8"), number, upper), "bool")
    return _triangle(x, number, upper)


def _triangle(x: Tensor, k: int, upper: int) -> Any:
    return ops.triu(x, k=k) if upper else ops.tril(x, k=k)


# Columns and images -------------------------------------------------------------------------------


@operator("Col2Im")
def col2im(
    call: Call,
    x: Any,
    image_shape: Any,
    block_shape: Any,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """Images that are sums of overlapping blocks, the columns of a matrix."""
    image, block = known_list(image_shape), known_list(block_shape)
    count = len(image)
    dilations, strides = dilations or (1,) * count, strides or (1,) * count
    pads = pads or (0,) * (2 * count)
    n, columns, length = x.shape
    channels = columns // math.prod(block)
    padded = [image[i] + pads[i] + pads[i + count] for i in range(count)]
    if math.prod(block) * length > MAX_PLACES or min(*block, *strides, *dilations) < 1:
        call.refuse(f"blocks of {block}")
    spans = [dilations[i] * (block[i] - 1) + 1 for i in range(count)]
    fits = [max((padded[i] - spans[i]) // strides[i] + 1, 0) for i in range(count)]
    if math.prod(fits) != length:
        call.refuse(f"{length} blocks where {math.prod(fits)} fit")
    starts = [np.arange(fits[i], dtype="int64") * strides[i] for i in range(count)]
    flat = np.zeros((1, 1), "int64")
    for i in range(count):  # the position of each element of each block in the padded image
        own = np.arange(block[i])[:, None] * dilations[i] + starts[i]
        flat = flat[:, None, :, None] * padded[i] + own[None, :, None, :]
        flat = flat.reshape(flat.shape[0] * flat.shape[1], flat.shape[2] * flat.shape[3])
    rows = ops.reshape(x, (n * channels, math.prod(block) * length))
    zeros = ops.zeros((n * channels, math.prod(padded)), dtype=x.dtype)
    summed = zeros.at[:, flat.reshape(-1)].add(rows)
    whole = ops.reshape(summed, (n, channels, *padded))
    inside = tuple(slice(pads[i], pads[i] + image[i]) for i in range(count))
    return whole[(slice(None), slice(None), *inside)]
