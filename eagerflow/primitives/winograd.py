"""Convolution with 3 by 3 windows in fewer multiplications, for the CPU with NumPy.

Winograd's F(2x2, 3x3) computes tiles of 2 by 2 results from tiles of 4 by 4 elements with 16
multiplications instead of 36, and the gradient of the filters likewise, as F(3x3, 2x2) (Lavin and
Gray, "Fast algorithms for convolutional neural networks", 2015). A transform of a tile is a product
with a fixed 16 by 16 matrix; the multiplications of all channels are 16 matrix products. The
matrices contain only 0, 1, 1/2 and 1/4 in magnitude, so rounding errors stay as small as those of
the direct sum, relative to the largest element of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eagerflow.primitives.blocks import (
    UNPACKED_PRODUCTS,
    Block,
    cut,
    load,
    pieces,
    strided,
    total,
)
from eagerflow.primitives.llvm.winograd import (
    FORWARD_FILTERS,
    FORWARD_RESULT,
    GRADIENT_GIVEN,
    GRADIENT_RESULT,
    INPUT,
)
from eagerflow.primitives.windows import Windows
from eagerflow.runtime import blas
from eagerflow.runtime.threads import run, scratch
from eagerflow.spec import Array

float32 = np.dtype("float32")


def _kron(rows: tuple[tuple[float, ...], ...]) -> Array:
    matrix = np.array(rows, float32)
    return np.kron(matrix, matrix)


# y = A [(G w) * (B x)] along each axis, with three elements of the filter and two results.
B, G3, A2 = _kron(INPUT), _kron(FORWARD_FILTERS), _kron(FORWARD_RESULT)
# The same with two elements of the filter and three results.
G2, A3 = _kron(GRADIENT_GIVEN), _kron(GRADIENT_RESULT)


def fits(dtype: Any, windows: Windows, channels: int, filters: int) -> bool:
    """Whether this method supports such a convolution, and pays."""
    return (
        dtype == float32
        and len(windows) == 2
        and all(a.kernel == 3 and a.stride == 1 and a.dilation == 1 for a in windows)
        and min(channels, filters) >= 16
        and windows[0].out * windows[1].out >= 4
    )


def _transform(matrix: Array, tiles: Array, name: str) -> Array:
    """``matrix @ tiles``, in reused memory."""
    rows, columns = matrix.shape
    out = scratch(name, (rows, tiles.shape[1]), float32)
    parts = pieces(tiles.shape[1], rows * columns)
    count = 1 << (len(parts) - 1).bit_length()
    if tiles.shape[1] % count:
        for a, b in parts:
            np.matmul(matrix, tiles[:, a:b], out=out[:, a:b])
        return out
    # One call for all parts, to reduce contention for the interpreter lock.
    stack, results = (_side_by_side(array, count) for array in (tiles, out))
    np.matmul(matrix, stack, out=results)
    return out


def _side_by_side(matrix: Array, count: int) -> Array:
    """A matrix as a stack of ``count`` parts of its columns; a view."""
    return matrix.reshape(len(matrix), count, -1).transpose(1, 0, 2)


def _cuts(images: int, windows: Windows, channels: int, filters: int) -> list[Block]:
    """Blocks of tiles; their rows are rows of tiles."""
    rows, columns = (-(-a.out // 2) for a in windows)
    target = UNPACKED_PRODUCTS // (channels * filters)
    target = min(target, 256) if target >= 48 else 128
    return cut(images, rows, columns, target, 32 * channels * filters)


def _input_tiles(x: Array, block: Block, windows: Windows) -> Array:
    """The transformed tiles of a block: (16, tiles, channels)."""
    images, rows, columns = _extent(block, windows)
    high, wide = windows
    spans = [(2 * block.start - high.before, 2 * rows + 2), (-wide.before, 2 * columns + 2)]
    part = load(x, block, spans)
    n, h, w, c = part.strides
    shape = (4, 4, images, rows, columns, x.shape[-1])
    view = strided(part, shape, (h, w, n, 2 * h, 2 * w, c))
    tiles = scratch("tiles", shape, float32)
    np.copyto(tiles, view)
    return _transform(B, tiles.reshape(16, -1), "transformed").reshape(16, -1, x.shape[-1])


def _extent(block: Block, windows: Windows) -> tuple[int, int, int]:
    """The numbers of images, and of rows and columns of tiles in each."""
    return block.last - block.first, block.stop - block.start, -(-windows[1].out // 2)


def _finite(array: Array) -> bool:
    """False where an element is infinite or NaN (or so large that its square is)."""
    flat = array.reshape(-1)
    return bool(np.isfinite(np.dot(flat, flat)))


def _corners(images: Array, block: Block) -> Any:
    """For each corner of a 2 by 2 tile: its offset, and all elements there in a block."""
    rows = images[block.images, 2 * block.start : 2 * block.stop]
    for i in range(2):
        for j in range(2):
            yield (i, j), rows[:, i::2, j::2]


def _set_corners(y: Array, block: Block, results: Array) -> None:
    """Scatter the corners of a block's tiles to their positions."""
    images, rows, columns, filters = results.shape[2:]
    if y.shape[1] % 2 == 0 == y.shape[2] % 2:
        part = y[block.images, 2 * block.start : 2 * block.stop]
        squares = part.reshape(images, rows, 2, columns, 2, filters)
        squares[...] = results.transpose(2, 3, 0, 4, 1, 5)
        return
    for at, corner in _corners(y, block):
        corner[...] = results[at][:, : corner.shape[1], : corner.shape[2]]


def forward(
    x: Array, w: Array, windows: Windows, y: Array, direct: Callable[[Any, Block], None]
) -> None:
    """Write the convolution of ``x`` with ``w`` into ``y``.

    If a block's result is not finite, ``direct(y, block)`` recomputes it: in a tile, infinity and
    NaN would spread to neighbors that do not depend on them.
    """
    channels, filters = w.shape[-2:]
    with blas.single_threaded():
        weights = (G3 @ w.reshape(9, -1)).reshape(16, channels, filters)
    blocks = _cuts(len(x), windows, channels, filters)

    def work(i: int) -> None:
        block = blocks[i]
        tiles = _input_tiles(x, block, windows)
        products = scratch("products", (16, tiles.shape[1], filters), float32)
        np.matmul(tiles, weights, out=products)
        results = _transform(A2, products.reshape(16, -1), "results")
        if not _finite(results):
            stop = min(2 * block.stop, windows[0].out)
            for image in range(block.first, block.last):
                direct(y, Block(image, image + 1, 2 * block.start, stop))
            return
        results = results.reshape(2, 2, *_extent(block, windows), filters)
        _set_corners(y, block, results)

    run(work, len(blocks))


def filter_gradient(x: Array, g: Array, windows: Windows) -> Array:
    """The gradient of the filters; None if it is not finite and needs the direct sum."""
    channels, filters = x.shape[-1], g.shape[-1]

    def terms(block: Block) -> Iterator[Any]:
        tiles = _input_tiles(x, block, windows).transpose(0, 2, 1)
        weights = scratch("results", (2, 2, *_extent(block, windows), filters), float32)
        for at, corner in _corners(g, block):
            _, rows, columns = corner.shape[:3]
            weights[at][:, rows:] = 0
            weights[at][:, :, columns:] = 0
            weights[at][:, :rows, :columns] = corner
        spread = _transform(G2, weights.reshape(4, -1), "products").reshape(16, -1, filters)
        term = scratch("filters", (16, channels, filters), float32)
        yield np.matmul(tiles, spread, out=term)

    blocks = _cuts(len(x), windows, channels, filters)
    products = total(terms, blocks, 16 * channels * filters).reshape(16, -1)
    with blas.single_threaded():
        found = (A3 @ products).reshape(3, 3, channels, filters)
    return found if _finite(found) else None
