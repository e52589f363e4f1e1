"""Convolutions: ours are channels-last, so inputs and outputs are transposed."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.dims import symbolic
from eagerflow.onnx.reading.calls import Call, known_list, operator
from eagerflow.onnx.reading.operators.limits import check_elements
from eagerflow.onnx.reading.operators.quantized import requantized, without_zero_point
from eagerflow.onnx.reading.operators.sampling import sample_linear
from eagerflow.onnx.reading.operators.windows import (
    Pairs,
    Windows,
    channels_first,
    channels_last,
    padding_of,
    per_channel,
    share,
    spatial_sizes,
    windows_of,
)


def _filters(w: Any) -> Any:
    """(filters, channels, *window) as (*window, channels, filters)."""
    return ops.permute_dims(w, (*range(2, w.ndim), 1, 0))


def _windows(call: Call, x: Any, w: Any, attributes: dict[str, Any]) -> Windows:
    """The windows of a convolution, with sizes from the filters."""
    given = attributes.pop("kernel_shape", None)
    sizes = spatial_sizes(call, x)
    if w.ndim != x.ndim:
        call.refuse(f"filters of {w.ndim} axes for a tensor of {x.ndim}")
    kernel = tuple(w.shape[2:])
    if given and tuple(given) != kernel:
        call.refuse(f"kernel_shape {list(given)} for filters with windows of {list(kernel)}")
    return windows_of(call, sizes, kernel, **attributes)


def convolve(call: Call, x: Any, w: Any, group: int = 1, **attributes: Any) -> Any:
    """The convolution of a channels-first tensor, channels last, before a bias is added."""
    # Our own name of this padding holds for all sizes, including unknown ones.
    same = attributes.get("auto_pad") == "SAME_UPPER" and symbolic(x.shape[2:])
    if same:
        attributes["auto_pad"] = "VALID"
    found = _windows(call, x, w, attributes)
    return ops.conv(
        channels_last(x),
        _filters(w),
        strides=found.strides,
        padding="same" if same else padding_of(tuple(x.shape[2:]), found),
        dilation=found.dilations,
        groups=int(group or 1),
    )


@operator("Conv")
def conv(call: Call, x: Any, w: Any, bias: Any = None, **attributes: Any) -> Any:
    """A convolution."""
    y = convolve(call, x, w, **attributes)
    return channels_first(y if bias is None else y + bias)


class _Room(NamedTuple):
    """For each axis: the size of the result, its cropping, and added zeros."""

    sizes: tuple[Any, ...]
    cut: Pairs
    added: Pairs


def _room(sizes: tuple[Any, ...], found: Windows, more: Any, wanted: Any, auto_pad: str) -> _Room:
    """The placement of a transposed convolution; ``wanted`` sizes replace the padding."""
    columns = []
    for axis, n in enumerate(sizes):
        whole = found.strides[axis] * (n - 1) + found.reach[axis]
        before, behind = found.pads[axis]
        behind -= more[axis]
        if wanted is not None:
            before, _ = share(max(whole + more[axis] - wanted[axis], 0), auto_pad)
            behind = whole - before - wanted[axis]
        cut = (max(before, 0), max(behind, 0))
        columns.append((whole - sum(cut), cut, (max(-before, 0), max(-behind, 0))))
    return _Room(*zip(*columns, strict=True))


@operator("ConvTranspose")
def conv_transpose(
    call: Call,
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    group: int = 1,
    output_padding: Any = None,
    output_shape: Any = None,
    auto_pad: str = "NOTSET",
    **attributes: Any,
) -> Any:
    """A transposed convolution: the gradient of a convolution with respect to its images."""
    found = _windows(call, x, w, attributes)
    if auto_pad == "VALID":
        found = found._replace(pads=((0, 0),) * len(found.kernel))
    sizes = tuple(x.shape[2:])
    wanted = known_list(output_shape)
    if not wanted and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * step for n, step in zip(sizes, found.strides, strict=True)]
    more = tuple(output_padding or (0,) * len(sizes))
    if len(more) != len(sizes) or (wanted and len(wanted) != len(sizes)):
        call.refuse(f"output_padding or output_shape do not fit {len(sizes)} spatial axes")
    room = _room(sizes, found, more, wanted or None, auto_pad)
    y = ops.conv_input_gradient(
        channels_last(x),
        _filters(w),
        size=room.sizes,
        strides=found.strides,
        padding=room.cut,
        dilation=found.dilations,
        groups=int(group or 1),
    )
    if any(map(any, room.added)):
        y = ops.pad(y, ((0, 0), *room.added, (0, 0)))
    return channels_first(y if bias is None else y + bias)


# Small integers ----------------------------------------------------------------------------------


def _integer_convolution(
    call: Call, x: Any, w: Any, x_zero: Any, w_zero: Any, attributes: dict[str, Any]
) -> Any:
    """Sums of products of small integers, exact in float64, channels last."""
    if w_zero is not None and w_zero.ndim == 1:
        w_zero = ops.reshape(w_zero, (-1, *[1] * (w.ndim - 1)))
    x = without_zero_point(x, x_zero, "float64")
    return convolve(call, x, without_zero_point(w, w_zero, "float64"), **attributes)


@operator("ConvInteger")
def conv_integer(
    call: Call, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **attributes: Any
) -> Any:
    """A convolution of small integers, in int32."""
    y = _integer_convolution(call, x, w, x_zero, w_zero, attributes)
    return channels_first(ops.astype(y, "int32"))


@operator("QLinearConv")
def qlinear_conv(
    call: Call,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
    **attributes: Any,
) -> Any:
    """A convolution of quantized tensors, with a quantized result."""
    y = _integer_convolution(call, x, w, x_zero, w_zero, attributes)
    if bias is not None:
        y = y + ops.astype(bias, "float64")
    return channels_first(requantized(y, x_scale * w_scale / y_scale, y_zero))


# Windows that are moved --------------------------------------------------------------------------


@operator("DeformConv")
def deform_conv(
    call: Call,
    x: Any,
    w: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    group: int = 1,
    offset_group: int = 1,
    **attributes: Any,
) -> Any:
    """A deformable convolution: ``offset`` shifts the positions of the windows' elements."""
    found = _windows(call, x, w, attributes)
    rank, taps = len(found.kernel), prod(found.kernel)
    channels, filters = x.shape[1], w.shape[0]
    out = tuple(offset.shape[2:])
    if symbolic((*offset.shape[1:], *x.shape[1:])):
        call.refuse("images or offsets of unknown size")
    check_elements(call, taps, *out)
    # (batch and offset groups, window, axes, *positions)
    offset = ops.reshape(offset, (-1, taps, rank, *out))
    places = [offset[:, :, axis] + grid for axis, grid in enumerate(_grids(found, out))]
    flat = [ops.reshape(place, (-1, taps * prod(out))) for place in places]
    parts = ops.reshape(x, (-1, channels // offset_group, *x.shape[2:]))
    seen = sample_linear(parts, [ops.astype(p, x.dtype) for p in flat], outside="zeros")
    if mask is not None:
        seen = seen * ops.reshape(mask, (-1, 1, taps * prod(out)))
    columns = ops.reshape(seen, (-1, group, channels // group * taps, prod(out)))
    weights = ops.reshape(w, (group, filters // group, -1))
    y = ops.reshape(weights @ columns, (-1, filters, *out))
    return y if bias is None else y + per_channel(bias, y.ndim)


def _grids(found: Windows, out: tuple[int, ...]) -> list[Any]:
    """The positions of windows' elements along each axis, of shape (window, *positions)."""
    taps = np.array(list(found.taps()))
    grids = []
    for axis, count in enumerate(out):
        first = taps[:, axis] * found.dilations[axis] - found.pads[axis][0]
        shape = [-1, *(count if a == axis else 1 for a in range(len(out)))]
        starts = first[:, None] + np.arange(count) * found.strides[axis]
        grids.append(starts.reshape(shape).astype("float32"))
    return grids
