"""Winograd's convolutions as machine code: pieces of work, and what becomes of infinities.

How the work is cut follows from shapes alone, so results have the same bits with any number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.library.blocks import Block
from eagerflow.library.llvm.program import Program, aligned, kept, processor
from eagerflow.library.llvm.winograd import SLOTS, Form, ForwardWriter
from eagerflow.library.llvm.winograd_filters import FilterWriter
from eagerflow.library.windows import Window
from eagerflow.runtime import buffers

__all__ = ["filter_gradient", "forward", "pays"]

Windows = tuple[Window, ...]

BORDER = 1 << 22  # multiplications of the direct sum from which making a kernel pays
SHARED = 1 << 24  # multiplications of the direct sum from which waking another thread pays
FAR = 900_000  # bytes of transformed tiles that stay in the second cache
FEWEST, MOST = 48, 128  # tiles of a piece, if an image has as many
SUMS = 1 << 18  # elements of all pieces' sums, as long as there are no fewer than LANES
LANES = 4
WIDEST = 512  # columns of a result, whose tiles are in one piece


def pays(images: int, windows: Windows, channels: int, filters: int) -> bool:
    """Whether a convolution is of the right size, on a machine with a compiler."""
    work = _work(images, windows, channels, filters)
    return work > 0 and windows[1].out <= WIDEST and generated.pays(work, BORDER)


def _work(images: int, windows: Windows, channels: int, filters: int) -> int:
    """Multiplications of the direct sum."""
    return 9 * images * windows[0].out * windows[1].out * channels * filters


class _Kernel(NamedTuple):
    """A program, the bytes that it works in, and how many images a piece has at most."""

    program: Program
    scratch: int
    shared: int
    group: int
    band: int


def _form(windows: Windows, channels: int, filters: int, turned: bool) -> tuple[Form, int]:
    """The convolution with the tiles of a piece, and the images of one."""
    rows, columns = (-(-a.out // 2) for a in windows)
    target = min(max(FAR // (64 * (channels + filters)), FEWEST), MOST)
    group = max(target // (rows * columns), 1)
    band = rows
    if rows * columns > target:
        pieces = -(-rows // max(target // columns, 1))
        band = -(-rows // pieces)
    high, wide = windows
    sizes = high.size, wide.size, channels, filters, high.before, wide.before, high.out, wide.out
    return Form(*sizes, group * band * columns, band, turned), group


@kept
def _forward_kernel(windows: Windows, channels: int, filters: int, turned: bool) -> _Kernel:
    form, group = _form(windows, channels, filters, turned)
    lanes, registers = processor("float32")

    def writer(code: Any, slots: list[str]) -> ForwardWriter:
        return ForwardWriter(code, form, lanes, registers, slots)

    plan = writer(None, [])
    made = Program(
        f"winograd {form}", lambda *given: writer(*given).module(), ["weights", "kernel"], SLOTS
    )
    return _Kernel(made, plan.scratch, plan.weights, group, form.band)


@kept
def _filter_kernel(windows: Windows, channels: int, filters: int) -> _Kernel:
    form, group = _form(windows, channels, filters, False)
    lanes, registers = processor("float32")

    def writer(code: Any, slots: list[str]) -> FilterWriter:
        return FilterWriter(code, form, lanes, registers, slots, group)

    plan = writer(None, [])
    made = Program(
        f"winograd filters {form} {group}",
        lambda *given: writer(*given).module(),
        ["sums", "join"],
        SLOTS,
    )
    return _Kernel(made, plan.scratch, plan.sums, group, form.band)


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
    images, rows = len(x), -(-windows[0].out // 2)
    y = buffers.empty((images, windows[0].out, windows[1].out, filters), x.dtype)
    height = max(min(kernel.group, images // 8), 1)
    blocks = -(-rows // kernel.band)
    flags = np.zeros(-(-images // height) * blocks, np.uint8)
    kernel.program.run(
        (images, rows, height, kernel.band),
        kernel.scratch,
        _work(images, windows, channels, filters) >= SHARED,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(w),
        result=y,
        weights=aligned("weights", kernel.shared),
        flags=flags,
    )
    if flags.any():
        for piece in np.flatnonzero(flags).tolist():
            first, start = piece // blocks * height, 2 * (piece % blocks * kernel.band)
            stop = min(start + 2 * kernel.band, windows[0].out)
            for image in range(first, min(first + height, images)):
                direct(y, Block(image, image + 1, start, stop))
    return y


def filter_gradient(x: Any, g: Any, windows: Windows) -> Any:
    """The gradient by the filters; None where it is not finite and wants the direct sum."""
    channels, filters = x.shape[-1], g.shape[-1]
    kernel = _filter_kernel(windows, channels, filters)
    images, rows = len(x), -(-windows[0].out // 2)
    # Lanes of whole images if there are enough, else of rows of tiles.
    lanes = max(LANES, min(16, SUMS // (16 * channels * filters)))
    height = max(images // lanes, 1)
    span = rows if images >= lanes else -(-rows * images // lanes)
    span = -(-span // kernel.band) * kernel.band
    count = -(-images // height) * -(-rows // span)
    flags = np.zeros(count, np.uint8)
    found = np.empty((3, 3, channels, filters), x.dtype)
    kernel.program.run(
        (images, rows, height, span),
        kernel.scratch,
        _work(images, windows, channels, filters) >= SHARED,
        images=np.ascontiguousarray(x),
        other=np.ascontiguousarray(g),
        result=found,
        flags=flags,
        weights=aligned("weights", count * kernel.shared),
    )
    return None if flags.any() else found
