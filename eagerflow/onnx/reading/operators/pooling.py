"""Pooling: by our ops if possible, otherwise by iterating over the windows' elements.

ONNX is channels-first; inputs and outputs of our pooling ops are transposed.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.dims import symbolic
from eagerflow.dtypes import FLOATS, DType
from eagerflow.onnx.reading.calls import Call, known_list, operator
from eagerflow.onnx.reading.operators.limits import check_elements
from eagerflow.onnx.reading.operators.windows import (
    Pairs,
    Windows,
    channels_first,
    channels_last,
    over_windows,
    padding_of,
    pairs,
    spatial_sizes,
    tap_slices,
    windows_of,
)


class Pooling(NamedTuple):
    """Windows over axes of given sizes, their number, and the padding for ``ceil_mode``."""

    windows: Windows
    sizes: tuple[Any, ...]
    out: tuple[Any, ...]
    extra: tuple[Any, ...]

    @property
    def pads(self) -> tuple[tuple[Any, Any], ...]:
        """The padding, extended for the last windows."""
        pads = zip(self.windows.pads, self.extra, strict=True)
        return tuple((before, behind + more) for (before, behind), more in pads)

    @property
    def padding(self) -> str | Pairs:
        """The padding in the form of our ops."""
        return padding_of(self.sizes, self.windows._replace(pads=self.pads))

    @property
    def fits_ours(self) -> bool:
        """Whether ``ef.max_pool`` and ``ef.avg_pool`` support such windows."""
        w = self.windows
        beside = any(max(pad) >= k for pad, k in zip(self.pads, w.kernel, strict=True))
        return all(d == 1 for d in w.dilations) and not beside

    def padded(self, x: Any, value: Any) -> Any:
        """A padded channels-first tensor."""
        return ops.pad(x, ((0, 0), (0, 0), *self.pads), constant_values=value)


def pooling(call: Call, x: Any, kernel: Any, ceil_mode: int, attributes: dict[str, Any]) -> Pooling:
    """The pooling of a channels-first tensor, from attributes."""
    sizes = spatial_sizes(call, x)
    windows = windows_of(call, sizes, kernel, **attributes)
    if not ceil_mode:
        return Pooling(windows, sizes, windows.positions(sizes), (0,) * len(sizes))
    if symbolic(sizes):
        call.refuse("ceil_mode along axes of unknown size")
    out, extra = [], []
    for n, reach, step, pad in zip(
        sizes, windows.reach, windows.strides, windows.pads, strict=True
    ):
        whole = n + sum(pad)
        count = -(-(whole - reach) // step) + 1
        # No window starts beyond the tensor and its leading padding.
        count -= (count - 1) * step >= n + pad[0]
        out.append(count)
        extra.append(max((count - 1) * step + reach - whole, 0))
    return Pooling(windows, sizes, tuple(out), tuple(extra))


def _lowest(dtype: DType) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


# Maxima ------------------------------------------------------------------------------------------


@operator("MaxPool")
def max_pool(
    call: Call,
    x: Any,
    *,
    kernel_shape: Any,
    ceil_mode: int = 0,
    storage_order: int = 0,
    **attributes: Any,
) -> Any:
    """The largest element of each window, and its index in the whole tensor."""
    found = pooling(call, x, kernel_shape, ceil_mode, attributes)
    windows = found.windows
    if not call.wants(1) and found.fits_ours and x.dtype in FLOATS:
        y = ops.max_pool(
            channels_last(x), windows.kernel, strides=windows.strides, padding=found.padding
        )
        return channels_first(y)
    padded = found.padded(x, _lowest(x.dtype))
    if not call.wants(1):
        return over_windows(call, ops.maximum, padded, windows, found.out)
    stacked = ops.stack(list(tap_slices(call, padded, windows, found.out)))
    best = ops.argmax(stacked, axis=0)
    return ops.max(stacked, axis=0), _indices(call, x, found, best, storage_order)


def _indices(call: Call, x: Any, found: Pooling, best: Any, column_major: int) -> Any:
    """The flat indices in x of the elements at ``best`` in their windows."""
    sizes, windows = x.shape[2:], found.windows
    if symbolic(x.shape):
        call.refuse("indices into a tensor of unknown size")
    check_elements(call, *x.shape[:2])
    for count in found.out:
        check_elements(call, count)
    order = range(len(sizes)) if column_major else range(len(sizes) - 1, -1, -1)
    pitch, number = 1, 0
    pitches = {}
    for axis in order:
        pitches[axis] = pitch
        pitch *= sizes[axis]
    for axis in range(len(sizes) - 1, -1, -1):
        place = best % windows.kernel[axis]
        best = best // windows.kernel[axis]
        starts = np.arange(found.out[axis]) * windows.strides[axis] - windows.pads[axis][0]
        starts = starts.reshape([-1, *[1] * (len(sizes) - 1 - axis)])
        number = number + (place * windows.dilations[axis] + starts) * pitches[axis]
    images = np.arange(prod(x.shape[:2])).reshape((*x.shape[:2], *[1] * len(sizes)))
    return number + images * pitch


@operator("MaxUnpool")
def max_unpool(
    call: Call,
    x: Any,
    indices: Any,
    output_shape: Any = None,
    *,
    kernel_shape: Any,
    strides: Any = None,
    pads: Any = None,
) -> Any:
    """The elements scattered to the indices from ``MaxPool``, with zeros elsewhere."""
    if symbolic(x.shape):
        call.refuse("indices into a tensor of unknown size")
    sizes = spatial_sizes(call, x)
    steps = strides or (1,) * len(sizes)
    columns = zip(sizes, kernel_shape, steps, pairs(call, pads, len(sizes)), strict=True)
    whole = [*x.shape[:2], *((n - 1) * step + k - sum(pad) for n, k, step, pad in columns)]
    y = ops.zeros((prod(whole),), dtype=x.dtype)
    y = y.at[ops.reshape(indices, (-1,))].set(ops.reshape(x, (-1,)))
    y = ops.reshape(y, tuple(whole))
    wanted = known_list(output_shape) or whole
    if any(n < m for n, m in zip(wanted, whole, strict=True)):
        call.refuse(f"output_shape {wanted} is smaller than {whole}")
    return ops.pad(y, tuple((0, n - m) for n, m in zip(wanted, whole, strict=True)))


# Means and norms ---------------------------------------------------------------------------------


def _sums(call: Call, x: Any, found: Pooling) -> Any:
    """The sum over each window, with zero padding."""
    return over_windows(call, ops.add, found.padded(x, 0), found.windows, found.out)


def _counts(call: Call, x: Any, found: Pooling, with_padding: bool) -> Any:
    """The number of elements of each window, with or without padding."""
    if symbolic(x.shape[2:]):
        call.refuse("windows beside the edge of axes of unknown size")
    for count, kernel in zip(found.out, found.windows.kernel, strict=True):
        check_elements(call, count, kernel)
    check_elements(call, *x.shape[2:])
    windows, total = found.windows, np.ones(())
    columns = zip(x.shape[2:], windows.pads, found.extra, found.out, strict=True)
    for axis, (size, pad, extra, count) in enumerate(columns):
        counted = np.pad(np.ones(size), pad, constant_values=float(with_padding))
        counted = np.pad(counted, (0, extra))
        starts = np.arange(count)[:, None] * windows.strides[axis]
        places = starts + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        total = total[..., None] * counted[places].sum(axis=1)
    return total


@operator("AveragePool")
def average_pool(
    call: Call,
    x: Any,
    *,
    kernel_shape: Any,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    **attributes: Any,
) -> Any:
    """The mean of each window, including padding if ``count_include_pad``."""
    found = pooling(call, x, kernel_shape, ceil_mode, attributes)
    windows = found.windows
    unpadded = not any(map(any, found.pads))
    if found.fits_ours and (unpadded or not count_include_pad):
        y = ops.avg_pool(
            channels_last(x), windows.kernel, strides=windows.strides, padding=found.padding
        )
        return channels_first(y)
    if unpadded:
        return _sums(call, x, found) / prod(windows.kernel)
    counts = _counts(call, x, found, bool(count_include_pad))
    return _sums(call, x, found) / as_tensor(counts, dtype=x.dtype)


@operator("LpPool")
def lp_pool(
    call: Call, x: Any, *, kernel_shape: Any, p: int = 2, ceil_mode: int = 0, **attributes: Any
) -> Any:
    """The p-norm of each window."""
    found = pooling(call, x, kernel_shape, ceil_mode, attributes)
    return _sums(call, ops.abs(x) ** p, found) ** (1 / p)


# Over all of space -------------------------------------------------------------------------------


@operator("GlobalAveragePool")
def global_average_pool(call: Call, x: Any) -> Any:
    """The mean over all spatial axes."""
    return ops.mean(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call, x: Any) -> Any:
    """The largest element over all spatial axes."""
    return ops.max(x, axis=tuple(range(2, x.ndim)), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Any, *, p: int = 2) -> Any:
    """The p-norm over all spatial axes."""
    total = ops.sum(ops.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True)
    return total ** (1 / p)
