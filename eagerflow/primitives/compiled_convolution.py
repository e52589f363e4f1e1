"""Convolutions over one or two axes, in one group, as machine code: Winograd or direct sums.

Direct sums pay if storing columns of windows costs more than multiplying them: with few channels or
filters. The division of work depends only on shapes, so results are bit-identical for any number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dtypes import dtype_name, float32
from eagerflow.primitives.blocks import Block, ranges_of_sums
from eagerflow.primitives.llvm.convolution_writer import ConvolutionConfig, ConvolutionWriter
from eagerflow.primitives.llvm.direct_convolution import DirectFilterWriter, DirectForwardWriter
from eagerflow.primitives.llvm.staged_kernel import (
    MAX_KEPT_KERNELS,
    Flags,
    Prepared,
    Room,
    StagedCall,
    StagedKernel,
    kept,
    processor,
)
from eagerflow.primitives.llvm.winograd import WinogradFilterWriter, WinogradForwardWriter
from eagerflow.primitives.windows import Window, Windows
from eagerflow.runtime import buffers
from eagerflow.spec import Array

MIN_WINOGRAD_PRODUCTS = 1 << 22  # of the direct sum, from which compiling a kernel pays
CACHED_TILE_BYTES = 900_000  # of transformed tiles that stay in the L2 cache
MIN_PIECE_TILES, MAX_PIECE_TILES = 48, 128  # if an image has as many
MAX_COLUMNS = 512  # of a result with tiles in one piece

MIN_DIRECT_PRODUCTS = 1 << 19  # multiplications from which compiling a kernel pays
PATCH_BYTES = 1 << 15  # of the input elements of a piece
PIECE_PRODUCTS = 1 << 17  # multiplications from which a piece is large enough


@dataclass(eq=False)
class Method:
    """A method to compute convolutions and the gradients of their filters."""

    takes: Callable[[Any, Windows, int, int], bool]
    """Whether it supports arrays of a dtype with so many channels and filters."""
    min_products: int
    """Multiplications of the direct sum from which compiling a kernel pays."""
    configure: Callable[[str, Windows, int, int, bool], ConvolutionConfig]
    forward: type[ConvolutionWriter]
    filter_gradient: type[ConvolutionWriter]
    tile: int
    """Rows of the result in a row of work."""
    sums: int
    """Elements that are summed for each channel and filter; 0 for the window's size."""
    min_shared_products: int
    """Multiplications of the direct sum from which using another thread pays."""


def methods_for(x: Array, windows: Windows, channels: int, filters: int) -> Iterator[Method]:
    """The methods that support a convolution of ``x`` and pay, the best one first."""
    products, supported = _supported(x.shape[0], x.dtype, windows, channels, filters)
    for method in supported:
        if generated.pays(products, method.min_products):
            yield method


@lru_cache(MAX_KEPT_KERNELS)
def _supported(
    images: int, dtype: Any, windows: Windows, channels: int, filters: int
) -> tuple[int, tuple[Method, ...]]:
    """Multiplications of the direct sum, and the methods for such a convolution."""
    products = _products(images, windows, channels, filters)
    given = dtype, windows, channels, filters
    return products, tuple(m for m in (WINOGRAD, DIRECT) if products and m.takes(*given))


def _products(images: int, windows: Windows, channels: int, filters: int) -> int:
    """Multiplications of the direct sum."""
    return images * prod([a.out * a.kernel for a in windows]) * channels * filters


def _takes_winograd(dtype: Any, windows: Windows, channels: int, filters: int) -> bool:
    return (
        dtype == float32
        and len(windows) == 2
        and all(a.kernel == 3 and a.stride == 1 and a.dilation == 1 for a in windows)
        and min(channels, filters) >= 16
        and windows[0].out * windows[1].out >= 4
        and windows[1].out <= MAX_COLUMNS
    )


def _winograd_config(
    dtype: str, windows: Windows, channels: int, filters: int, turned: bool
) -> ConvolutionConfig:
    """The convolution, with the numbers of rows of tiles and of images in a piece."""
    high, wide = windows
    rows, columns = (-(-a.out // 2) for a in windows)
    target = CACHED_TILE_BYTES // (64 * (channels + filters))
    target = min(max(target, MIN_PIECE_TILES), MAX_PIECE_TILES)
    group = max(target // (rows * columns), 1)
    band = rows
    if rows * columns > target:
        pieces = -(-rows // max(target // columns, 1))
        band = -(-rows // pieces)
    return ConvolutionConfig(dtype, high, wide, channels, filters, band, group, turned)


def _takes_direct(dtype: Any, windows: Windows, channels: int, filters: int) -> bool:
    return _sums_directly(dtype, windows, filters) and not all(a.kernel == 1 for a in windows)


def _sums_directly(dtype: Any, windows: Windows, filters: int) -> bool:
    return dtype.char in "fd" and len(windows) <= 2 and filters * dtype.itemsize >= 32


def _direct_config(
    dtype: str, windows: Windows, channels: int, filters: int, turned: bool
) -> ConvolutionConfig:
    high, wide = windows if len(windows) == 2 else (Window(1, 1, 1, 1, 0, 1), windows[0])
    line = (wide.size + wide.extent) * channels * np.dtype(dtype).itemsize * high.stride
    pieces = -(-high.out // max(PATCH_BYTES // line, 1))
    band = -(-high.out // pieces)
    whole = PIECE_PRODUCTS // _products(1, windows, channels, filters)
    group = 1 if band < high.out else max(whole, 1)
    return ConvolutionConfig(dtype, high, wide, channels, filters, band, group, turned)


WINOGRAD = Method(
    _takes_winograd,
    MIN_WINOGRAD_PRODUCTS,
    _winograd_config,
    WinogradForwardWriter,
    WinogradFilterWriter,
    tile=2,
    sums=16,
    min_shared_products=1 << 24,
)
DIRECT = Method(
    _takes_direct,
    MIN_DIRECT_PRODUCTS,
    _direct_config,
    DirectForwardWriter,
    DirectFilterWriter,
    tile=1,
    sums=0,
    min_shared_products=1 << 22,
)


@kept
def _kernel(
    method: Method,
    writer: type[ConvolutionWriter],
    dtype: str,
    windows: Windows,
    channels: int,
    filters: int,
    turned: bool = False,
) -> StagedKernel[Any]:
    config = method.configure(dtype, windows, channels, filters, turned)
    return StagedKernel(writer, config, *processor(dtype))


def forward(
    method: Method, x: Array, w: Array, windows: Windows, turned: bool
) -> tuple[Any, list[Block]]:
    """The convolution of ``x`` with ``w``, or with flipped filters for the input gradient.

    Blocks of the result that are not finite are recomputed by the direct sum: in a Winograd tile,
    infinity and NaN spread to neighbors that do not depend on them.
    """
    filters = w.shape[-2] if turned else w.shape[-1]
    y = buffers.empty((len(x), *[a.out for a in windows], filters), x.dtype)
    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    call = forward_call(x, w, y, method=method, windows=windows, turned=turned)
    flags = call.run()
    if flags is None or not flags.any():
        return y, []
    images, rows, height, band = call.prepared.cut
    blocks, again = -(-rows // band), []
    for piece in np.flatnonzero(flags).tolist():
        first, start = piece // blocks * height, method.tile * (piece % blocks * band)
        stop = min(start + method.tile * band, windows[0].out)
        last = min(first + height, images)
        again += [Block(image, image + 1, start, stop) for image in range(first, last)]
    return y, again


def forward_call(
    x: Array, w: Array, y: Array, *, method: Method, windows: Windows, turned: bool
) -> StagedCall:
    """The kernel of the convolution, with flags of non-finite pieces."""
    channels, filters = w.shape[-1:-3:-1] if turned else w.shape[-2:]
    prepared = _prepared_forward(method, len(x), x.dtype, windows, channels, filters, turned)
    return prepared.on(images=x, other=w, result=y)


@kept
def _prepared_forward(
    method: Method,
    images: int,
    dtype: Any,
    windows: Windows,
    channels: int,
    filters: int,
    turned: bool,
) -> Prepared:
    kernel = _kernel(method, method.forward, dtype_name(dtype), windows, channels, filters, turned)
    config = kernel.writer.config
    rows = -(-config.high.out // method.tile)
    height = max(min(config.group, images // 8), 1)
    return Prepared(
        kernel,
        (images, rows, height, config.band),
        _products(images, windows, channels, filters) >= method.min_shared_products,
        weights=Room(kernel.writer.weights),
        flags=_flags(method, -(-images // height) * -(-rows // config.band)),
    )


def _flags(method: Method, pieces: int) -> Flags | int:
    """The flags of pieces with non-finite results, where a method needs them."""
    return Flags(pieces) if method.tile > 1 else 0


def filter_gradient(method: Method, x: Array, g: Array, windows: Windows) -> Array:
    """The gradient of the filters; None if it is not finite and needs the direct sum."""
    shape = (*(a.kernel for a in windows), x.shape[-1], g.shape[-1])
    found, x, g = np.empty(shape, x.dtype), np.ascontiguousarray(x), np.ascontiguousarray(g)
    flags = filter_gradient_call(x, g, found, method=method, windows=windows).run()
    return None if flags is not None and flags.any() else found


def filter_gradient_call(
    x: Array, g: Array, found: Array, *, method: Method, windows: Windows
) -> StagedCall:
    """The kernel of the filters' gradient, with flags of non-finite pieces."""
    sizes = x.shape[-1], g.shape[-1]
    prepared = _prepared_filter_gradient(method, len(x), x.dtype, windows, *sizes)
    return prepared.on(images=x, other=g, result=found)


@kept
def _prepared_filter_gradient(
    method: Method, images: int, dtype: Any, windows: Windows, channels: int, filters: int
) -> Prepared:
    name = dtype_name(dtype)
    kernel = _kernel(method, method.filter_gradient, name, windows, channels, filters)
    config = kernel.writer.config
    rows = -(-config.high.out // method.tile)
    sums = (method.sums or prod([a.kernel for a in windows])) * channels * filters
    height, span, count = ranges_of_sums(images, rows, sums, config.band)
    return Prepared(
        kernel,
        (images, rows, height, span),
        _products(images, windows, channels, filters) >= method.min_shared_products,
        flags=_flags(method, count),
        weights=Room(count * kernel.writer.sums),
    )


# Strides: elements of the images that see the same elements of the window ------------------------


class _Phase(NamedTuple):
    """A phase of strides along an axis, with the part of the window that meets it."""

    elements: slice
    taps: slice
    positions: slice
    """The number of first positions that may see no element of it."""
    window: Window
    """The window relative to the phase."""


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


class _Part(NamedTuple):
    """A phase of all axes: a convolution without strides from a part of g to a part of x."""

    aim: Any
    seen: Any
    taps: Any
    windows: Windows | None
    """None if no position sees the phase."""


@lru_cache(MAX_KEPT_KERNELS)
def _parts(windows: Windows) -> tuple[_Part, ...]:
    every, found = slice(None), []
    for phases in product(*[_phases(a) for a in windows]):
        own = tuple(p.window for p in phases)
        found.append(
            _Part(
                (every, *(p.elements for p in phases)),
                (every, *(p.positions for p in phases)),
                tuple(p.taps for p in phases),
                own if all(a.size > 0 for a in own) else None,
            )
        )
    return tuple(found)


def scatters(g: Array, windows: Windows, channels: int) -> bool:
    """Whether ``strided_input_gradient`` supports this, and pays."""
    if not (all(a.dilation == 1 for a in windows) and _sums_directly(g.dtype, windows, channels)):
        return False
    products = _products(len(g), windows, g.shape[-1], channels)
    return products > 0 and generated.pays(products, MIN_DIRECT_PRODUCTS)


def strided_input_gradient(g: Array, w: Array, windows: Windows) -> Array:
    """The gradient of the images: a convolution without strides for each phase of the strides."""
    shape = (len(g), *(a.size for a in windows), w.shape[-2])
    x = buffers.empty(shape, g.dtype)
    if any(a.stride > a.kernel for a in windows):
        x.fill(0)  # some elements are in no window
    for part in _parts(windows):
        aim = x[part.aim]
        if part.windows is None:
            aim[...] = 0
        elif aim.size:
            aim[...], _ = forward(DIRECT, g[part.seen], w[part.taps], part.windows, True)
    return x
