"""Cutting the work of a kernel on images into blocks, by shape alone.

A block is a range of images, all rows of them, or a range of rows of one image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.runtime.threads import run, scratch
from eagerflow.spec import Array

MIN_SHARED_OPERATIONS = 2_000_000  # threshold for using another thread
# OpenBLAS computes products of up to a million multiplications without packing the operands, which
# makes thin ones 25 % faster.
UNPACKED_PRODUCTS = 1_000_000
MAX_SUM_ELEMENTS = 1 << 18  # of the sums of all ranges, if there are more than these
MIN_RANGES = 4


class Block(NamedTuple):
    """Images ``first`` to ``last``, rows ``start`` to ``stop`` of each."""

    first: int
    last: int
    start: int
    stop: int

    @property
    def images(self) -> slice:
        """The images as a slice."""
        return slice(self.first, self.last)

    @property
    def rows(self) -> slice:
        """The rows of each image as a slice."""
        return slice(self.start, self.stop)


def _ranges(size: int, count: int) -> list[tuple[int, int]]:
    """``size`` split into ``count`` parts that differ by one at most."""
    ends = [size * i // count for i in range(count + 1)]
    return list(pairwise(ends))


def cut(images: int, rows: int, per_row: int, target: int, work: float) -> list[Block]:
    """Blocks of about ``target`` positions; each of them costs ``work`` operations.

    The number of blocks is a multiple of four if possible, to balance threads.
    """
    positions = images * rows * per_row
    count = -(-positions // target)
    if count < 4:
        count = max(count, min(4, int(positions * work / MIN_SHARED_OPERATIONS)))
    if count > 1:
        count = 2 if count == 2 else -(-count // 4) * 4
    if count <= images:
        return [Block(a, b, 0, rows) for a, b in _ranges(images, max(count, 1))]
    pieces = min(-(-count // images), rows)
    return [Block(i, i + 1, a, b) for i in range(images) for a, b in _ranges(rows, pieces)]


def each_image_block(array: Array, target: int, work: float, fill: Callable[[slice], None]) -> None:
    """Call ``fill(images)`` for blocks of an array's images, of about ``target`` elements."""
    blocks = cut(len(array), 1, prod(array.shape[1:]), target, work)
    run(lambda i: fill(blocks[i].images), len(blocks))


def pieces(rows: int, per_row: int) -> list[tuple[int, int]]:
    """Ranges of rows with products that BLAS computes without packing; one if rows are too few.

    ``per_row`` is the number of multiplications of one row.
    """
    if UNPACKED_PRODUCTS // max(per_row, 1) < 256:
        return [(0, rows)]
    return _ranges(rows, -(-rows * per_row // UNPACKED_PRODUCTS) or 1)


def strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view of ``array`` with other strides, for reading."""
    if array.flags.c_contiguous:  # the usual case, five times as fast
        return np.ndarray(shape, array.dtype, array, 0, strides)
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)


def ranges_of_sums(images: int, rows: int, size: int, band: int) -> tuple[int, int, int]:
    """The ranges of images and rows for separate sums: their sizes, and their number.

    Each range has a separate sum of ``size`` elements, so large sums mean few ranges. Ranges are
    whole images if there are enough, otherwise multiples of ``band`` rows of one image.
    """
    count = max(MIN_RANGES, min(16, MAX_SUM_ELEMENTS // size))
    height = max(images // count, 1)
    span = rows if images >= count else -(-rows * images // count)
    span = -(-span // band) * band
    return height, span, -(-images // height) * -(-rows // span)


def total(terms: Callable[[Block], Iterable[Any]], blocks: list[Block], size: int) -> Array:
    """The sum of the terms of all blocks, each of ``size`` elements.

    Blocks are added sequentially within parallel lanes, and the sums of lanes in order. Each lane
    has a separate sum, so large sums mean few lanes.
    """
    count = min(len(blocks), max(4, min(16, 2**22 // max(size, 1))))
    shares = _ranges(len(blocks), count)
    found: list[Any] = [None] * count

    def work(i: int) -> None:
        a, b = shares[i]
        for block in blocks[a:b]:
            for term in terms(block):
                if found[i] is None:
                    found[i] = term.copy()
                else:
                    np.add(found[i], term, out=found[i])

    run(work, count)
    for term in found[1:]:
        np.add(found[0], term, out=found[0])
    return found[0]


def load(x: Array, block: Block, spans: list[tuple[int, int]], planes: bool = False) -> Array:
    """Elements of a block's images: along each spatial axis ``length`` of them from ``start``.

    Elements beyond the edges are zero. The result is a view if there are none, otherwise in reused
    memory. ``planes`` stores each channel in a plane of its own; the order of the axes is
    unchanged.
    """
    sizes = x.shape[1:-1]
    inside = all(a >= 0 and a + n <= size for (a, n), size in zip(spans, sizes, strict=True))
    if inside and not (planes and x.shape[-1] > 1):
        return x[(block.images, *(slice(a, a + n) for a, n in spans))]
    shape = (block.last - block.first, *(n for _, n in spans))
    if planes:
        part = np.moveaxis(scratch("padded", (x.shape[-1], *shape), x.dtype), 0, -1)
    else:
        part = scratch("padded", (*shape, x.shape[-1]), x.dtype)
    source, inner = [block.images], [slice(None)]
    for (start, length), size in zip(spans, sizes, strict=True):
        begin = min(max(start, 0), size)
        end = max(begin, min(start + length, size))
        at = begin - start if end > begin else 0
        source.append(slice(begin, end))
        part[(*inner, slice(0, at))] = 0
        part[(*inner, slice(at + end - begin, None))] = 0
        inner.append(slice(at, at + end - begin))
    if prod(part.shape):
        part[tuple(inner)] = x[tuple(source)]
    return part
