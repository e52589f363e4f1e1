"""What the kernels of convolutions have in common, as LLVM's code.

A piece of work is some images, or some rows of one: the elements that their windows cover are
copied with the zeros around them, so that nothing has to be asked after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow.primitives.llvm.stage_writer import StageWriter
from eagerflow.primitives.llvm.vectors import RegisterBlock, round_up
from eagerflow.primitives.windows import Window


class ConvolutionConfig(NamedTuple):
    """A convolution over two axes: its windows, and what a piece of work is."""

    dtype: str
    high: Window
    """Along the rows of an image."""
    wide: Window
    """Along the columns."""
    channels: int
    filters: int
    band: int
    """Rows of the result, or of Winograd's tiles, that are worked on together at most."""
    group: int = 1
    """Images whose tiles are worked on together at most."""
    turned: bool = False
    """The filters are those of a convolution that this one leads back."""


class ConvolutionWriter(StageWriter):
    """Writes what all kernels of convolutions are made of.

    Subclasses set ``pixel``, the bytes of a position in the copy of an image, and ``block``, what
    is summed up in registers, and call ``make_room``.
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
        """Let copies of rows have so many columns."""
        self.columns, self.line = columns, columns * self.pixel

    @property
    def sums(self) -> int:
        """Bytes of what each piece adds up, which ``_join`` joins."""
        raise NotImplementedError

    # Filters -------------------------------------------------------------------------------------

    def pack_filters(self, size: int, start_of: Callable[[str, str], str]) -> None:
        """Each piece packs its share of ``size`` elements, each with vectors of all filters.

        ``start_of(filters, element)`` is where those of an element begin.
        """
        v, config, code, block = self.v, self.config, self.code, self.block
        _, _, first, last = self.share(size)
        filters, to = self.pointer("other"), self.pointer("weights")
        panel, panels = block.vectors * v.size, self.filters // self.lanes // block.vectors
        # Bytes from the filters of a vector to those of the next one.
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
        """Write what is made of a vector of filters."""
        raise NotImplementedError

    # Copies of images ----------------------------------------------------------------------------

    def copy(self, image: str, first: str, rows: str) -> None:
        """Copy ``rows`` rows of an image from ``first`` on, with the zeros around, to scratch."""
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
        """Copy so many positions of a row, which lie as in the image."""
        v, elements = self.v, count * self.config.channels
        self.parts(elements, lambda at, n: v.store(v.load(start, at, n), to, at, n))

    def clear(self, to: str, size: int) -> None:
        """Write so many bytes of zeros."""
        v = self.v
        self.parts(size // self.itemsize, lambda at, n: v.store(v.zero, to, at, n))

    # Sums of pieces ------------------------------------------------------------------------------

    def joined(self, start: str, offsets: Sequence[int], count: str) -> list[Any]:
        """For each offset the sum of what all ``count`` pieces have there, in their order."""
        v = self.v
        first = [v.load(start, offset) for offset in offsets]
        with self.code.loop("piece", 1, count, 1, first) as (i, totals):
            other = v.step(start, i, self.sums)
            for k, offset in enumerate(offsets):
                totals[k] = self.s.add(totals[k], v.load(other, offset))
        found: list[Any] = totals
        return found
