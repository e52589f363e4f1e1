"""Winograd's convolutions as machine code: pieces of work, and what becomes of infinities.

How the work is cut follows from shapes alone, so results have the same bits with any number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.primitives.blocks import Block, ranges_of_sums
from eagerflow.primitives.llvm.convolution_writer import ConvolutionConfig
from eagerflow.primitives.llvm.staged_kernel import StagedKernel, aligned, kept, processor
from eagerflow.primitives.llvm.winograd import WinogradFilterWriter, WinogradForwardWriter
from eagerflow.primitives.windows import Windows
from eagerflow.runtime import buffers

MIN_COMPILED_PRODUCTS = 1 << 22  # of the direct sum, from which making a kernel pays
MIN_SHARED_PRODUCTS = 1 << 24  # of the direct sum, from which waking another thread pays
CACHED_TILE_BYTES = 900_000  # of transformed tiles that stay in the second cache
MIN_PIECE_TILES, MAX_PIECE_TILES = 48, 128  # if an image has as many
MAX_COLUMNS = 512  # of a result, whose tiles are in one piece


def pays(images: int, windows: Windows, channels: int, filters: int) -> bool:
    """Whether a convolution is of the right size, on a machine with a compiler."""
    products = _products(images, windows, channels, filters)
    small = windows[1].out <= MAX_COLUMNS
    return products > 0 and small and generated.pays(products, MIN_COMPILED_PRODUCTS)


def _products(images: int, windows: Windows, channels: int, filters: int) -> int:
    """Multiplications of the direct sum."""
    return 9 * images * windows[0].out * windows[1].out * channels * filters


def _config(windows: Windows, channels: int, filters: int, turned: bool) -> ConvolutionConfig:
    """The convolution, with the rows of tiles and the images of a piece."""
    rows, columns = (-(-a.out // 2) for a in windows)
    target = CACHED_TILE_BYTES // (64 * (channels + filters))
    target = min(max(target, MIN_PIECE_TILES), MAX_PIECE_TILES)
    group = max(target // (rows * columns), 1)
    band = rows
    if rows * columns > target:
        pieces = -(-rows // max(target // columns, 1))
        band = -(-rows // pieces)
    high, wide = windows
    return ConvolutionConfig("float32", high, wide, channels, filters, band, group, turned)


@kept
def _forward_kernel(
    windows: Windows, channels: int, filters: int, turned: bool
) -> StagedKernel[WinogradForwardWriter]:
    config = _config(windows, channels, filters, turned)
    return StagedKernel(WinogradForwardWriter, config, *processor("float32"))


@kept
def _filter_kernel(
    windows: Windows, channels: int, filters: int
) -> StagedKernel[WinogradFilterWriter]:
    config = _config(windows, channels, filters, False)
    return StagedKernel(WinogradFilterWriter, config, *processor("float32"))


def forward(
    x: Any, w: Any, windows: Windows, turned: bool, direct: Callable[[Any, Block], None]
) -> Any:
    """The convolution of ``x`` with ``w``, or with the turned filters of one that leads back.

    Where a piece's result is not finite, ``direct(y, block)`` computes it again: in a tile,
    infinity and NaN would spread to neighbours that do not see them.
    """
    channels, filters = w.shape[-2:]
    if turned:
        channels, filters = filters, channels
    kernel = _forward_kernel(windows, channels, filters, turned)
    band, group = kernel.writer.config.band, kernel.writer.config.group
    images, rows = len(x), -(-windows[0].out // 2)
    y = buffers.empty((images, windows[0].out, windows[1].out, filters), x.dtype)
    height = max(min(group, images // 8), 1)
    blocks = -(-rows // band)
    flags = np.zeros(-(-images // height) * blocks, np.uint8)
    kernel.run(
        (images, rows, height, band),
        _products(images, windows, channels, filters) >= MIN_SHARED_PRODUCTS,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(w),
        result=y,
        weights=aligned("weights", kernel.writer.weights),
        flags=flags,
    )
    if flags.any():
        for piece in np.flatnonzero(flags).tolist():
            first, start = piece // blocks * height, 2 * (piece % blocks * band)
            stop = min(start + 2 * band, windows[0].out)
            for image in range(first, min(first + height, images)):
                direct(y, Block(image, image + 1, start, stop))
    return y


def filter_gradient(x: Any, g: Any, windows: Windows) -> Any:
    """The gradient by the filters; None where it is not finite and wants the direct sum."""
    channels, filters = x.shape[-1], g.shape[-1]
    kernel = _filter_kernel(windows, channels, filters)
    images, rows = len(x), -(-windows[0].out // 2)
    sums = 16 * channels * filters
    height, span, count = ranges_of_sums(images, rows, sums, kernel.writer.config.band)
    flags = np.zeros(count, np.uint8)
    found = np.empty((3, 3, channels, filters), x.dtype)
    kernel.run(
        (images, rows, height, span),
        _products(images, windows, channels, filters) >= MIN_SHARED_PRODUCTS,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(g),
        result=found,
        flags=flags,
        weights=aligned("weights", count * kernel.writer.sums),
    )
    return None if flags.any() else found
