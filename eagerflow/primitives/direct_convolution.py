"""The direct sums of a convolution as machine code, for windows that Winograd's is not meant for.

It pays where columns of windows would cost more to write down than to multiply: with few
channels or filters. How the work is cut follows from shapes alone, so results have the same bits
with any number of threads.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.primitives.blocks import ranges_of_sums
from eagerflow.primitives.llvm.convolution_writer import ConvolutionConfig
from eagerflow.primitives.llvm.direct_convolution import DirectFilterWriter, DirectForwardWriter
from eagerflow.primitives.llvm.staged_kernel import StagedKernel, aligned, kept, processor
from eagerflow.primitives.windows import Window, Windows
from eagerflow.runtime import buffers

MIN_COMPILED_PRODUCTS = 1 << 19  # multiplications from which making a kernel pays
MIN_SHARED_PRODUCTS = 1 << 22  # multiplications from which waking another thread pays
PATCH_BYTES = 1 << 15  # of the elements that a piece sees
PIECE_PRODUCTS = 1 << 17  # multiplications from which a piece is large enough


def takes(x: Any, windows: Windows, channels: int, filters: int) -> bool:
    """Whether a convolution of ``x``, or one that leads back to it, is meant for this, and pays."""
    if x.dtype.char not in "fd" or len(windows) > 2 or all(a.kernel == 1 for a in windows):
        return False
    window = prod(a.kernel for a in windows) * channels
    work = len(x) * prod(a.out for a in windows) * window * filters
    return work > 0 and filters * x.itemsize >= 32 and generated.pays(work, MIN_COMPILED_PRODUCTS)


def _config(
    dtype: str, windows: Windows, channels: int, filters: int, turned: bool
) -> ConvolutionConfig:
    high, wide = windows if len(windows) == 2 else (Window(1, 1, 1, 1, 0, 1), windows[0])
    line = (wide.size + wide.extent) * channels * np.dtype(dtype).itemsize * high.stride
    pieces = -(-high.out // max(PATCH_BYTES // line, 1))
    band = -(-high.out // pieces)
    return ConvolutionConfig(dtype, high, wide, channels, filters, band, turned=turned)


@kept
def _forward_kernel(
    dtype: str, windows: Windows, channels: int, filters: int, turned: bool
) -> StagedKernel[DirectForwardWriter]:
    config = _config(dtype, windows, channels, filters, turned)
    return StagedKernel(DirectForwardWriter, config, *processor(dtype))


@kept
def _filter_kernel(
    dtype: str, windows: Windows, channels: int, filters: int
) -> StagedKernel[DirectFilterWriter]:
    config = _config(dtype, windows, channels, filters, False)
    return StagedKernel(DirectFilterWriter, config, *processor(dtype))


def _rows(windows: Windows) -> int:
    return windows[0].out if len(windows) == 2 else 1


def forward(x: Any, w: Any, windows: Windows, turned: bool) -> Any:
    """The convolution of ``x`` with ``w``, or with the turned filters of one that leads back."""
    channels, filters = w.shape[-2:]
    if turned:
        channels, filters = filters, channels
    kernel = _forward_kernel(x.dtype.name, windows, channels, filters, turned)
    images, rows = len(x), _rows(windows)
    y = buffers.empty((images, *(a.out for a in windows), filters), x.dtype)
    work = y[0].size * prod(a.kernel for a in windows) * channels  # of an image
    band = kernel.writer.config.band
    height = 1 if band < rows else max(min(PIECE_PRODUCTS // work, images // 8), 1)
    kernel.run(
        (images, rows, height, band),
        work * images >= MIN_SHARED_PRODUCTS,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(w),
        result=y,
        weights=aligned("weights", kernel.writer.weights),
    )
    return y


def filter_gradient(x: Any, g: Any, windows: Windows) -> Any:
    """The gradient by the filters."""
    channels, filters = x.shape[-1], g.shape[-1]
    kernel = _filter_kernel(x.dtype.name, windows, channels, filters)
    images, rows = len(x), _rows(windows)
    shape = (*(a.kernel for a in windows), channels, filters)
    band = kernel.writer.config.band
    height, span, count = ranges_of_sums(images, rows, prod(shape), band)
    found = np.empty(shape, x.dtype)
    kernel.run(
        (images, rows, height, span),
        g.size * prod(shape[:-1]) >= MIN_SHARED_PRODUCTS,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(g),
        result=found,
        weights=aligned("weights", count * kernel.writer.sums),
    )
    return found


# Strides: elements of the images that see the same elements of the window ------------------------


class _Phase(NamedTuple):
    """Every ``stride``-th element along an axis, and what of the window it is seen by."""

    elements: slice
    taps: slice
    positions: slice
    """The first positions may see none of them."""
    window: Window
    """How the positions are seen from there."""


def _phases(a: Window) -> list[_Phase]:
    found = []
    for first in range(min(a.stride, a.kernel)):
        start = (first - a.before) % a.stride
        kernel, out = len(range(first, a.kernel, a.stride)), len(range(start, a.size, a.stride))
        before = kernel - 1 - (start + a.before - first) // a.stride
        beyond = max(-before, 0)
        window = Window(a.out - beyond, kernel, 1, 1, before + beyond, out)
        every = slice(start, None, a.stride), slice(first, None, a.stride), slice(beyond, None)
        found.append(_Phase(*every, window))
    return found


def scatters(g: Any, windows: Windows, channels: int) -> bool:
    """Whether ``strided_input_gradient`` is meant for this, and pays."""
    work = g.size * prod(a.kernel for a in windows) * channels
    return (
        g.dtype.char in "fd"
        and len(windows) <= 2
        and channels * g.itemsize >= 32
        and all(a.dilation == 1 for a in windows)
        and work > 0
        and generated.pays(work, MIN_COMPILED_PRODUCTS)
    )


def strided_input_gradient(g: Any, w: Any, windows: Windows) -> Any:
    """The gradient by the images: a convolution without strides for each phase of the strides."""
    shape = (len(g), *(a.size for a in windows), w.shape[-2])
    x = buffers.empty(shape, g.dtype)
    if any(a.stride > a.kernel for a in windows):
        x.fill(0)  # some elements are seen by no window
    for phases in product(*map(_phases, windows)):
        own = tuple(p.window for p in phases)
        aim = x[(slice(None), *(p.elements for p in phases))]
        if any(a.size < 1 for a in own):
            aim[...] = 0
        elif aim.size:
            seen = g[(slice(None), *(p.positions for p in phases))]
            aim[...] = forward(seen, w[tuple(p.taps for p in phases)], own, True)
    return x
