"""Common parts of convolution kernels, in LLVM IR.

A piece of work is some images, or some rows of one: the elements under their windows are copied
with zero padding, so that inner loops need no bounds checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow.primitives.llvm.stage_writer import StageWriter
from eagerflow.primitives.llvm.vectors import RegisterBlock, round_up
from eagerflow.primitives.windows import Window


class ConvolutionConfig(NamedTuple):
    """A convolution over two axes: its windows, and the size of a piece of work."""

    dtype: str
    high: Window
    """The window along the rows of an image."""
    wide: Window
    """The window along the columns."""
    channels: int
    filters: int
    band: int
    """The largest number of rows of the result, or of Winograd tiles, processed together."""
    group: int = 1
    """The largest number of images with tiles processed together."""
    turned: bool = False
    """Whether the filters are those of a convolution whose input gradient this is."""


class ConvolutionWriter(StageWriter):
    """Common parts of convolution kernels.

    Subclasses set ``pixel``, the bytes of a position in the copy of an image, and ``block``, the
    sums in registers, and call ``make_room``.
    """

    slots = ("images", "other", "result", "weights", "flags")
    pixel: int
    block: RegisterBlock

    def __init__(
        self,
        llvm: Any,
        frame: Sequence[str],
        config: ConvolutionConfig,
        lanes: int,
        registers: int,
    ) -> None:
        super().__init__(llvm, frame, config.dtype, lanes)
        self.config, self.registers = config, registers
        self.filters = round_up(config.filters, lanes)
        self.itemsize = self.v.itemsize
        self.image_bytes = config.high.size * config.wide.size * config.channels * self.itemsize
        self.result_pixel = config.filters * self.itemsize
        self.result_line = config.wide.out * self.result_pixel
        self.result_bytes = config.high.out * self.result_line

    def make_room(self, columns: int) -> None:
        """Set the number of columns of the copied rows."""
        self.columns, self.line = columns, columns * self.pixel

    @property
    def sums(self) -> int:
        """Bytes of the sums of each piece, which ``_join`` combines."""
        raise NotImplementedError

    # Filters -------------------------------------------------------------------------------------

    def pack_filters(self, size: int, start_of: Callable[[str, str], str]) -> None:
        """Each piece packs its share of ``size`` elements, each with vectors of all filters.

        ``start_of(filters, element)`` returns the address of an element's filters.
        """
        v, config, code, block = self.v, self.config, self.code, self.block
        _, _, first, last = self.share(size)
        filters, to = self.pointer("other"), self.pointer("weights")
        panel, panels = block.vectors * v.size, self.filters // self.lanes // block.vectors
        # The stride in bytes from one vector of filters to the next.
        stride = v.size * (config.channels if config.turned else 1)
        with (
            code.loop("panel", 0, panels) as (p, _),
            code.loop("element", first, last) as (element, _),
        ):
            aim = v.step(v.step(to, p, size * panel), element, panel)
            start = v.step(start_of(filters, element), p, block.vectors * stride)
            for j, mask in enumerate(self.masks(p, block.vectors, config.filters)):
                self._pack(v.at(start, j * stride), v.at(aim, j * v.size), mask)

    def _pack(self, start: str, to: str, mask: str) -> None:
        """Store the packed form of a vector of filters."""
        raise NotImplementedError

    # Copies of images ----------------------------------------------------------------------------

    def copy(self, image: str, first: str, rows: str) -> None:
        """Copy ``rows`` rows of an image from ``first`` on, zero-padded, to scratch memory."""
        v, code, high, wide = self.v, self.code, self.config.high, self.config.wide
        inside = max(min(wide.size, self.columns - wide.before), 0)
        left, end = wide.before * self.pixel, (wide.before + inside) * self.pixel
        with code.loop("row", 0, rows) as (i, _):
            row = v.number("add", first, i)
            to = v.step("%scratch", i, self.line)
            real = code.value(f"icmp ult i64 {row}, {high.size}")
            copy, clear, after = (code.name(f"{word}_") for word in ("copy", "clear", "after"))
            code.line(f"br i1 {real}, label %{copy}, label %{clear}")
            code.label(copy)
            start = v.step(image, row, wide.size * self.config.channels * self.itemsize)
            self.clear(to, left)
            self.copy_positions(start, v.at(to, left), inside)
            self.clear(v.at(to, end), self.line - end)
            code.line(f"br label %{after}")
            code.label(clear)
            self.clear(to, self.line)
            code.line(f"br label %{after}")
            code.label(after)

    def copy_positions(self, start: str, to: str, count: int) -> None:
        """Copy consecutive positions of a row."""
        v, elements = self.v, count * self.config.channels
        self.parts(elements, lambda at, n: v.store(v.load(start, at, n), to, at, n))

    def clear(self, to: str, size: int) -> None:
        """Write a number of zero bytes."""
        v = self.v
        self.parts(size // self.itemsize, lambda at, n: v.store(v.zero, to, at, n))

    # Sums of pieces ------------------------------------------------------------------------------

    def joined(self, start: str, offsets: Sequence[int], count: str) -> list[Any]:
        """For each offset, the sum over all ``count`` pieces, in order."""
        v = self.v
        first = [v.load(start, offset) for offset in offsets]
        with self.code.loop("piece", 1, count, 1, first) as (i, totals):
            other = v.step(start, i, self.sums)
            for k, offset in enumerate(offsets):
                totals[k] = self.s.add(totals[k], v.load(other, offset))
        found: list[Any] = totals
        return found
