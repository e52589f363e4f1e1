"""Convolution on the CPU: machine code, or tiles of columns and matrix products.

Machine code is used for large enough convolutions over one or two axes in one group, if there is a
compiler. Others use NumPy with tiles of columns ("im2col").

The work is cut into blocks of images, or of rows of one image, that stay in the caches; the blocks
depend only on shapes, and sums over blocks have a fixed order, so results are bit-identical for any
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from eagerflow.primitives import compiled_convolution
from eagerflow.primitives.blocks import Block, cut, load, pieces, strided, total
from eagerflow.primitives.compiled_convolution import Method, methods_for
from eagerflow.primitives.windows import Windows, taps
from eagerflow.runtime import buffers
from eagerflow.runtime.threads import run, scratch
from eagerflow.spec import Array

# With fewer contiguous floats in a window, columns are copied along the positions.
MIN_RUN_ELEMENTS = 32


# Columns -----------------------------------------------------------------------------------------


def _rows(block: Block, windows: Windows) -> Windows:
    """The windows of one block: those of its rows along the first spatial axis."""
    first = windows[0]
    shifted = first._replace(
        before=first.before - block.start * first.stride, out=block.stop - block.start
    )
    return (shifted, *windows[1:])


def _covered(x: Array, block: Block, windows: Windows, planes: bool = False) -> Array:
    """The part of the images covered by a block's windows, zero-padded."""
    spans = [(-w.before, (w.out - 1) * w.stride + w.extent) for w in windows]
    return load(x, block, spans, planes)


def _window_view(part: Any, windows: Windows, groups: int) -> Array:
    """All windows of ``part``: (images, *positions, *window, groups, channels / groups)."""
    channels = part.shape[-1] // groups
    n, *steps, c = part.strides
    return strided(
        part,
        (len(part), *(w.out for w in windows), *(w.kernel for w in windows), groups, channels),
        (
            n,
            *(w.stride * s for w, s in zip(windows, steps, strict=True)),
            *(w.dilation * s for w, s in zip(windows, steps, strict=True)),
            c * channels,
            c,
        ),
    )


def columns_of(x: Array, block: Block, windows: Windows, groups: int) -> Array:
    """(groups, images * positions, window * channels / groups), in reused memory."""
    windows = _rows(block, windows)
    rank, channels = len(windows), x.shape[-1] // groups
    window = prod(w.kernel for w in windows) * channels
    positions = (block.last - block.first) * prod(w.out for w in windows)
    if groups == 1 and all(w.kernel == 1 and w.stride == 1 for w in windows):
        return _covered(x, block, windows).reshape(1, positions, window)
    run_length = windows[-1].kernel * channels if windows[-1].dilation == 1 else channels
    planes = run_length < min(MIN_RUN_ELEMENTS, windows[-1].out)
    view = _window_view(_covered(x, block, windows, planes), windows, groups)
    inside, outside = list(range(1 + rank)), list(range(1 + rank, 1 + 2 * rank))
    # Few channels are instead copied along the positions, into a transposed matrix.
    of_window = [*outside, 2 + 2 * rank]
    order = [*of_window, *inside] if planes else [*inside, *of_window]
    view = view.transpose(1 + 2 * rank, *order)
    columns = scratch("columns", view.shape, x.dtype)
    np.copyto(columns, view)
    if planes:
        return columns.reshape(groups, window, positions).transpose(0, 2, 1)
    return columns.reshape(groups, positions, window)


def by_group(matrix: Array, groups: int) -> Array:
    """(rows, groups * columns) as a view (groups, rows, columns)."""
    rows, columns = matrix.shape
    return matrix.reshape(rows, groups, columns // groups).transpose(1, 0, 2)


def cuts_for(images: int, windows: Windows, window: int, filters: int) -> list[Block]:
    """Blocks with columns that stay in the caches."""
    target = min(max(2**18 // max(window, 1), 256), 8192)
    per_row = prod(w.out for w in windows[1:])
    return cut(images, windows[0].out, per_row, target, 2 * window * filters)


# Forward -----------------------------------------------------------------------------------------


def forward(x: Array, w: Array, windows: Windows, groups: int, turned: bool = False) -> Array:
    """The convolution of ``x`` (batch, *spatial, channels) with ``w`` at ``windows``.

    ``turned`` means that ``w`` are the filters of the convolution whose input gradient this is.
    """
    sizes = w.shape[-1:-3:-1] if turned else w.shape[-2:]
    if groups == 1 and (method := next(methods_for(x, windows, *sizes), None)):
        return compiled(method, x, w, windows, turned)
    w = _turned(w, groups) if turned else w
    y = buffers.empty((len(x), *(a.out for a in windows), w.shape[-1]), x.dtype)
    if not y.size or not w.size:
        y[...] = 0
        return y
    if groups > 1 and groups == x.shape[-1]:
        return _depthwise(x, w, windows, y)
    direct = _direct(x, w, windows, groups)
    blocks = cuts_for(len(x), windows, w[..., 0].size, w.shape[-1] // groups)
    run(lambda i: direct(y, blocks[i]), len(blocks))
    return y


def compiled(method: Method, x: Array, w: Array, windows: Windows, turned: bool) -> Array:
    """A convolution by machine code, with sums that overflowed in a tile computed directly."""
    y, again = compiled_convolution.forward(method, x, w, windows, turned)
    if again:
        direct = _direct(x, _turned(w, 1) if turned else w, windows, 1)
        for block in again:
            direct(y, block)
    return y


def _direct(x: Array, w: Array, windows: Windows, groups: int) -> Callable[[Any, Block], None]:
    """The function that fills a block of a result: columns times filters."""
    weights = np.ascontiguousarray(by_group(w.reshape(-1, w.shape[-1]), groups))

    def fill(y: Array, block: Block) -> None:
        columns = columns_of(x, block, windows, groups)
        out = by_group(y[block.images, block.rows].reshape(-1, y.shape[-1]), groups)
        for a, b in pieces(out.shape[1], weights[0].size):
            np.matmul(columns[:, a:b], weights, out=out[:, a:b])

    return fill


def _depthwise(x: Array, w: Array, windows: Windows, y: Array) -> Array:
    """Depthwise convolution: products and sums, position by position."""
    channels, each = x.shape[-1], y.shape[-1] // x.shape[-1]
    weights = w.reshape(*(a.kernel for a in windows), channels, each)

    def work(i: int) -> None:
        block = blocks[i]
        out = y[block.images, block.rows]
        out = out.reshape(*out.shape[:-1], channels, each)
        term = scratch("terms", out.shape, x.dtype)
        for count, (at, seen) in enumerate(_depthwise_taps(x, block, windows)):
            np.multiply(seen, weights[at], out=term if count else out)
            if count:
                np.add(out, term, out=out)

    blocks = _depthwise_cuts(windows, y)
    run(work, len(blocks))
    return y


def _depthwise_cuts(windows: Windows, y: Array) -> list[Block]:
    per_row = prod(y.shape[2:])
    return cut(len(y), windows[0].out, per_row, 2**15, 2 * prod(a.kernel for a in windows))


def _depthwise_taps(x: Array, block: Block, windows: Windows) -> Any:
    """Each offset in the window, with the part of the images under it at a block's positions."""
    windows = _rows(block, windows)
    view = _window_view(_covered(x, block, windows), windows, 1)[..., 0, :, None]
    before = (slice(None),) * (1 + len(windows))
    for at in product(*(range(a.kernel) for a in windows)):
        yield at, view[(*before, *at)]


# Gradient by the filters -------------------------------------------------------------------------


def filter_gradient(x: Array, g: Array, windows: Windows, groups: int) -> Array:
    """The gradient by ``w`` of the sum of ``g * forward(x, w, windows, groups)``."""
    kernel, channels = [a.kernel for a in windows], x.shape[-1] // groups
    shape = (*kernel, channels, g.shape[-1])
    if not g.size or not prod(shape):
        return np.zeros(shape, x.dtype)
    if groups > 1 and channels == 1:
        return _depthwise_filters(x, g, windows, shape)
    if groups == 1 and (found := _in_one_group(x, g, windows, shape)) is not None:
        return found
    window, filters = prod(kernel) * channels, g.shape[-1] // groups

    def terms(block: Block) -> Iterator[Any]:
        columns = columns_of(x, block, windows, groups).transpose(0, 2, 1)
        weights = by_group(g[block.images, block.rows].reshape(-1, g.shape[-1]), groups)
        term = scratch("filters", (groups, window, filters), x.dtype)
        for a, b in pieces(weights.shape[1], window * filters):
            yield np.matmul(columns[..., a:b], weights[:, a:b], out=term)

    result = total(terms, cuts_for(len(x), windows, window, filters), groups * window * filters)
    return np.ascontiguousarray(result.transpose(1, 0, 2)).reshape(shape)


def _in_one_group(x: Array, g: Array, windows: Windows, shape: Any) -> Array | None:
    """The gradient by methods without groups; None if none supports it."""
    for method in methods_for(x, windows, *shape[-2:]):
        found = compiled_convolution.filter_gradient(method, x, g, windows)
        if found is not None:
            return found
    return None


def _depthwise_filters(x: Array, g: Array, windows: Windows, shape: Any) -> Array:
    channels, each = x.shape[-1], g.shape[-1] // x.shape[-1]

    def terms(block: Block) -> Iterator[Any]:
        weights = g[block.images, block.rows]
        weights = weights.reshape(*weights.shape[:-1], channels, each)
        products = scratch("terms", weights.shape, x.dtype)
        sums = scratch("filters", (*shape[:-2], g.shape[-1]), x.dtype)
        for at, seen in _depthwise_taps(x, block, windows):
            np.multiply(seen, weights, out=products)
            np.add.reduce(products.reshape(-1, g.shape[-1]), axis=0, out=sums[at])
        yield sums

    return total(terms, _depthwise_cuts(windows, g), prod(shape)).reshape(shape)


# Gradient by the images --------------------------------------------------------------------------


def input_gradient(g: Array, w: Array, windows: Windows, groups: int) -> Array:
    """The gradient by ``x`` of the sum of ``g * forward(x, w, windows, groups)``."""
    channels = w.shape[-2] * groups
    if _leads_back(w, windows, groups):
        return forward(g, w, tuple(a.back for a in windows), groups, turned=True)
    if groups == 1 and compiled_convolution.scatters(g, windows, channels):
        return compiled_convolution.strided_input_gradient(g, w, windows)
    x = np.zeros((len(g), *(a.size for a in windows), channels), g.dtype)
    if g.size and w.size:
        _scatter(g, w, windows, groups, x)
    return x


def _leads_back(w: Any, windows: Windows, groups: int) -> bool:
    """Whether the gradient is the convolution of g with flipped filters."""
    channels = w.shape[-2] * groups
    return all(a.stride == 1 for a in windows) and (channels > 4 or channels >= w.shape[-1])


def _turned(w: Array, groups: int) -> Array:
    """The filters from g's channels to those of x, flipped along each axis."""
    kernel, channels, filters = w.shape[:-2], w.shape[-2], w.shape[-1] // groups
    flipped = w[(slice(None, None, -1),) * len(kernel)]
    split = np.moveaxis(flipped.reshape(*kernel, channels, groups, filters), -1, -3)
    return np.swapaxes(split, -1, -2).reshape(*kernel, filters, groups * channels)


def _scatter(g: Array, w: Array, windows: Windows, groups: int, x: Array) -> None:
    """Add each position's contribution to its window, image by image."""
    places = taps(windows)
    positions = prod(a.out for a in windows)
    blocks = cut(len(g), 1, positions, 1024, 2 * w.size // groups)

    def work(i: int) -> None:
        images = blocks[i].images
        part, target = g[images], x[images]
        shares = _shares(part.reshape(-1, g.shape[-1]), w, groups, places)
        for (_, outs, ins), share in zip(places, shares, strict=True):
            aim = target[ins]
            np.add(aim, share.reshape(*part.shape[:-1], x.shape[-1])[outs], out=aim)

    run(work, len(blocks))


def _shares(flat: Array, w: Array, groups: int, places: Any) -> Any:
    """For each offset in the window, the contributions of all positions.

    The results have the shape (positions, channels).
    """
    channels, filters = w.shape[-2], w.shape[-1] // groups
    if groups == 1 and channels <= 4:
        # A product for each offset would be too narrow, so one computes all of them.
        kernel = w.shape[:-2]
        table = w.reshape(-1, filters) @ flat.T
        table = table.reshape(*kernel, channels, -1)
        for at, _, _ in places:
            yield table[at].T
    elif channels == filters == 1:
        for at, _, _ in places:
            yield np.multiply(flat, w[at], out=scratch("terms", flat.shape, flat.dtype))
    else:
        out = scratch("terms", (len(flat), groups * channels), flat.dtype)
        for at, _, _ in places:
            back = by_group(w[at], groups).transpose(0, 2, 1)
            np.matmul(by_group(flat, groups), back, out=by_group(out, groups))
            yield out


# As steps of a plan's segment --------------------------------------------------------------------

# Each function takes specs and returns a segment's call of ``conv``, ``conv_filter_gradient`` or
# ``conv_input_gradient``, on the arrays of two arguments and of the result; None if machine code
# does not support it.


def native_forward(
    x: Any, w: Any, windows: Windows, groups: int, turned: bool = False
) -> Callable[..., Any] | None:
    """The convolution, or the one with flipped filters."""
    sizes = w.shape[-1:-3:-1] if turned else w.shape[-2:]
    method = next(methods_for(x, windows, *sizes), None) if groups == 1 else None
    if method is None:
        return None
    return _staged(compiled_convolution.forward_call, method=method, windows=windows, turned=turned)


def native_filter_gradient(
    x: Any, g: Any, windows: Windows, groups: int
) -> Callable[..., Any] | None:
    """The gradient of the filters."""
    sizes = x.shape[-1], g.shape[-1]
    method = next(methods_for(x, windows, *sizes), None) if groups == 1 else None
    if method is None:
        return None
    return _staged(compiled_convolution.filter_gradient_call, method=method, windows=windows)


def native_input_gradient(
    g: Any, w: Any, windows: Windows, groups: int
) -> Callable[..., Any] | None:
    """The gradient of the images, where it is a convolution without strides."""
    if not _leads_back(w, windows, groups):
        return None
    return native_forward(g, w, tuple(a.back for a in windows), groups, turned=True)


def _staged(make: Callable[..., Any], **facts: Any) -> Callable[..., Any]:
    return lambda *arrays: (
        make(*arrays, **facts) if all(x.flags.c_contiguous for x in arrays) else None
    )
