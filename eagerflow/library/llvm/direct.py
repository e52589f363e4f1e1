"""The direct sums of a convolution as LLVM's code, blocked in registers.

A piece of work is some rows of the results of an image: the elements that their windows cover
are copied with the zeros around them, so that nothing has to be asked after. Windows whose
elements lie side by side in memory are walked along as one run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eagerflow.library.llvm.pieces import LINE, Pieces
from eagerflow.library.llvm.products import Shape, Sum, block_shape, up

__all__ = ["SLOTS", "FilterWriter", "Form", "ForwardWriter"]

SLOTS = ("images", "other", "result", "weights")
"""What a frame holds after the numbers of the driver."""


class Form(NamedTuple):
    """A convolution over two axes: sizes, and how many rows of the result a piece has at most."""

    dtype: str
    height: int
    width: int
    channels: int
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    """Rows and columns of zeros before an image."""
    rows: int
    """Rows of the result."""
    columns: int
    band: int
    """Rows of a piece."""
    turned: bool = False
    """The filters are those that lead back to the images."""


class _Writer(Pieces):
    """What both kernels are made of; lengths are in bytes unless they count something."""

    def __init__(self, code: Any, form: Form, lanes: int, registers: int, slots: list[str]) -> None:
        super().__init__(code, form.dtype, lanes, slots)
        self.form, self.registers = form, registers
        self.filters = up(form.filters, lanes)
        self.pixel = form.channels * self.v.itemsize
        # A run: elements of a window side by side in memory.
        joined = form.dilation[1] == 1
        self.runs = 1 if joined else form.kernel[1]
        self.run = form.channels * (form.kernel[1] if joined else 1)
        self.covered = (
            (form.band - 1) * form.stride[0] + (form.kernel[0] - 1) * form.dilation[0] + 1
        )

    def columns(self, many: int) -> None:
        """Make room for the elements that so many columns of the result see."""
        form = self.form
        self.wide = (many - 1) * form.stride[1] + (form.kernel[1] - 1) * form.dilation[1] + 1
        self.line = self.wide * self.pixel

    @property
    def scratch(self) -> int:
        """Bytes that each thread needs."""
        return up(self.covered * self.line, LINE) + 16 * LINE

    def copy(self, image: str, first: str, rows: str) -> None:
        """Copy ``rows`` rows of an image from ``first`` on, with the zeros around, to scratch."""
        v, form, code = self.v, self.form, self.code
        left = form.before[1] * self.pixel
        inside = max(min(form.width, self.wide - form.before[1]), 0) * self.pixel
        with code.loop("row", "0", rows) as (i, _):
            row = v.number("add", first, i)
            to = v.step("%scratch", i, self.line)
            real = code.value(f"icmp ult i64 {row}, {form.height}")
            copy, clear, after = (code.name(f"{word}_") for word in ("copy", "clear", "after"))
            code.line(f"br i1 {real}, label %{copy}, label %{clear}")
            code.label(copy)
            start = v.step(image, row, form.width * self.pixel)
            self._clear(to, left)
            self.parts(
                inside // v.itemsize,
                lambda at, n: v.store(v.load(start, at, n), v.at(to, left), at, n),
            )
            self._clear(v.at(to, left + inside), self.line - left - inside)
            code.line(f"br label %{after}")
            code.label(clear)
            self._clear(to, self.line)
            code.line(f"br label %{after}")
            code.label(after)

    def _clear(self, to: str, size: int) -> None:
        v = self.v
        self.parts(size // v.itemsize, lambda at, n: v.store(v.zero, to, at, n))


class ForwardWriter(_Writer):
    """Writes ``weights``, which packs the filters, and ``kernel``, which does the rest."""

    def __init__(self, code: Any, form: Form, lanes: int, registers: int, slots: list[str]) -> None:
        super().__init__(code, form, lanes, registers, slots)
        self.block = block_shape(form.columns, self.filters // lanes, registers)
        self.columns(up(form.columns, self.block.rows))
        self.panel = self.block.vectors * self.v.size
        self.taps = form.kernel[0] * form.kernel[1]

    @property
    def weights(self) -> int:
        """Bytes of the packed filters."""
        return self.taps * self.form.channels * self.filters * self.v.itemsize

    def module(self) -> str:
        """The text of the module, but for the driver."""
        with self.function("weights"):
            self._weights()
        with self.function("kernel"):
            self._kernel()
        return self.text()

    def _weights(self) -> None:
        """Each piece packs its share: a line of all filters for each element of a window."""
        v, form, code = self.v, self.form, self.code
        _, _, first, last = self.share(self.taps * form.channels)
        filters, to = self.pointer("other"), self.pointer("weights")
        whole, wide = self.taps * form.channels * self.panel, self.block.vectors
        # Bytes from the filters of a vector to those of the next one.
        stride = self.lanes * self.pixel if form.turned else v.size
        panels = str(self.filters // self.lanes // wide)
        with (
            code.loop("panel", "0", panels) as (p, _),
            code.loop("element", first, last) as (element, _),
        ):
            aim = v.step(v.step(to, p, whole), element, self.panel)
            if form.turned:
                # From (*window, filters, channels), back to front.
                tap, channel = (
                    code.value(f"{op} i64 {element}, {form.channels}") for op in ("udiv", "urem")
                )
                back = v.number("sub", self.taps - 1, tap)
                start = v.step(filters, back, form.filters * self.pixel)
                start = v.step(start, channel, v.itemsize)
            else:
                start = v.step(filters, element, form.filters * v.itemsize)
            start = v.step(start, p, wide * stride)
            for j, mask in enumerate(self.masks(p, wide, form.filters)):
                place = v.at(start, j * stride)
                value = (
                    v.gather(place, self.pixel, mask) if form.turned else v.load(place, mask=mask)
                )
                v.store(value, aim, j * v.size)

    def _kernel(self) -> None:
        v, form, code, block = self.v, self.form, self.code, self.block
        rows = v.number("sub", "%c1", "%c0")
        x, y, weights = (self.pointer(name) for name in ("images", "result", "weights"))
        above = v.number("sub", v.number("mul", "%c0", form.stride[0]), form.before[0])
        seen = v.number("mul", v.number("sub", rows, 1), form.stride[0])
        seen = v.number("add", seen, (form.kernel[0] - 1) * form.dilation[0] + 1)
        place = form.filters * v.itemsize
        with code.loop("image", "%r0", "%r1") as (image, _):
            self.copy(v.step(x, image, form.height * form.width * self.pixel), above, seen)
            out = v.step(y, image, form.rows * form.columns * place)
            with code.loop("panel", "0", str(self.filters * v.itemsize // self.panel)) as (p, _):
                own = v.step(weights, p, self.taps * form.channels * self.panel)
                masks = self.masks(p, block.vectors, form.filters)
                with code.loop("row", "0", rows) as (row, _):
                    start = v.step("%scratch", row, form.stride[0] * self.line)
                    line = v.step(out, v.number("add", row, "%c0"), form.columns * place)
                    line = v.step(line, p, self.panel)
                    blocks = up(form.columns, block.rows) // block.rows
                    with code.loop("block", "0", str(blocks)) as (i, _):
                        many = v.number("mul", i, block.rows)
                        here = v.step(start, many, form.stride[1] * self.pixel)
                        sums = self._window(here, own)
                        self._store(sums, v.step(line, many, place), many, place, masks)

    def _window(self, start: str, weights: str) -> list[str]:
        """The sums over the windows of a block of columns."""
        v, form, code, block = self.v, self.form, self.code, self.block
        step = form.stride[1] * self.pixel
        sums = [Sum(v.zero, form.dtype, self.lanes)] * (block.rows * block.vectors)
        with code.loop("down", "0", str(form.kernel[0]), 1, sums) as (down, rows):
            here = v.step(start, down, form.dilation[0] * self.line)
            lines = v.step(weights, down, self.runs * self.run * self.panel)
            with code.loop("across", "0", str(self.runs), 1, rows) as (across, runs):
                run = v.step(here, across, form.dilation[1] * self.pixel)
                packed = v.step(lines, across, self.run * self.panel)
                runs[:] = v.accumulate(
                    block,
                    runs,
                    self.run,
                    lambda k, i: (v.step(run, k, v.itemsize), i * step),
                    lambda k: v.step(packed, k, self.panel),
                )
            rows[:] = runs
        return [s.text for s in rows]

    def _store(self, sums: list[str], to: str, first: str, place: int, masks: list[str]) -> None:
        """Write a block's columns, as far as the result has them."""
        v, form, block = self.v, self.form, self.block
        rest = form.columns % block.rows
        for i in range(block.rows):
            inside = ""
            if rest and i >= rest:
                number = v.number("add", first, i)
                inside = self.code.value(f"icmp ult i64 {number}, {form.columns}")
            with self.where(inside):
                for j in range(block.vectors):
                    value = sums[i * block.vectors + j]
                    v.store(value, to, i * place + j * v.size, mask=masks[j])


class FilterWriter(_Writer):
    """Writes ``sums``, which makes the sums of a piece, and ``join``, which makes the result."""

    def __init__(self, code: Any, form: Form, lanes: int, registers: int, slots: list[str]) -> None:
        super().__init__(code, form, lanes, registers, slots)
        self.columns(form.columns)
        vectors = self.filters // lanes
        window = form.kernel[0] * form.kernel[1] * form.channels
        wide = next(n for n in (4, 3, 2, 1) if vectors % n == 0)
        # All elements of a small window together: they are not side by side.
        while wide > 1 and window * wide > registers - 1 - wide and window <= 12:
            wide = next(n for n in range(wide - 1, 0, -1) if vectors % n == 0)
        self.whole = window * wide <= registers - 1 - wide
        if self.whole:
            self.block = Shape(window, wide)
        else:
            self.block = block_shape(self.run, vectors, registers)
        self.panel = self.block.vectors * self.v.size
        self.sum_line = self.filters * self.v.itemsize
        run = window if self.whole else self.run
        self.sum_run = up(run, self.block.rows) * self.sum_line

    @property
    def sums(self) -> int:
        """Bytes of the sums of a piece."""
        runs = 1 if self.whole else self.form.kernel[0] * self.runs
        return runs * self.sum_run

    def module(self) -> str:
        """The text of the module, but for the driver."""
        with self.function("sums"):
            self._sums()
        with self.function("join"):
            self._join()
        return self.text()

    def _sums(self) -> None:
        v, form, code = self.v, self.form, self.code
        own = v.step(self.pointer("weights"), self.piece(), self.sums)
        v.fill(own, self.sums // v.size)
        x, g = self.pointer("images"), self.pointer("other")
        place = form.filters * v.itemsize
        with (
            code.loop("image", "%r0", "%r1") as (image, _),
            code.loop("band", "%c0", "%c1", form.band) as (band, _),
        ):
            end = self.least(v.number("add", band, form.band), "%c1")
            rows = v.number("sub", end, band)
            above = v.number("sub", v.number("mul", band, form.stride[0]), form.before[0])
            seen = v.number("mul", v.number("sub", rows, 1), form.stride[0])
            seen = v.number("add", seen, (form.kernel[0] - 1) * form.dilation[0] + 1)
            self.copy(v.step(x, image, form.height * form.width * self.pixel), above, seen)
            given = v.step(g, image, form.rows * form.columns * place)
            given = v.step(given, band, form.columns * place)
            with code.loop("panel", "0", str(self.sum_line // self.panel)) as (p, _):
                self._panel(v.step(own, p, self.panel), v.step(given, p, self.panel), rows, p)

    def _panel(self, own: str, given: str, rows: str, panel: str) -> None:
        v, form, code, block = self.v, self.form, self.code, self.block
        masks = self.masks(panel, block.vectors, form.filters)
        if self.whole:
            offsets = [
                a * form.dilation[0] * self.line
                + b * form.dilation[1] * self.pixel
                + c * v.itemsize
                for a in range(form.kernel[0])
                for b in range(form.kernel[1])
                for c in range(form.channels)
            ]
            self._block("%scratch", offsets, given, rows, own, masks)
            return
        offsets = [i * v.itemsize for i in range(block.rows)]
        with (
            code.loop("down", "0", str(form.kernel[0])) as (down, _),
            code.loop("across", "0", str(self.runs)) as (across, _),
        ):
            here = v.step("%scratch", down, form.dilation[0] * self.line)
            here = v.step(here, across, form.dilation[1] * self.pixel)
            number = v.number("add", v.number("mul", down, self.runs), across)
            to = v.step(own, number, self.sum_run)
            blocks = self.sum_run // self.sum_line // block.rows
            with code.loop("block", "0", str(blocks)) as (i, _):
                self._block(
                    v.step(here, i, block.rows * v.itemsize),
                    offsets,
                    given,
                    rows,
                    v.step(to, i, block.rows * self.sum_line),
                    masks,
                )

    def _block(
        self, start: str, offsets: list[int], given: str, rows: str, to: str, masks: list[str]
    ) -> None:
        """Sums over all positions of some rows."""
        v, form, code, block = self.v, self.form, self.code, self.block
        place = form.filters * v.itemsize
        sums = [Sum(v.zero, form.dtype, self.lanes)] * (block.rows * block.vectors)
        with code.loop("row", "0", rows, 1, sums) as (row, held):
            here = v.step(start, row, form.stride[0] * self.line)
            there = v.step(given, row, form.columns * place)
            held[:] = v.accumulate(
                block,
                held,
                form.columns,
                lambda k, i: (v.step(here, k, form.stride[1] * self.pixel), offsets[i]),
                lambda k: v.step(there, k, place),
                masks,
            )
        self.add_block(block, [s.text for s in held], to, self.sum_line)

    def _join(self) -> None:
        """Each piece joins its share of the window's elements."""
        v, form, code = self.v, self.form, self.code
        window = form.kernel[0] * form.kernel[1] * form.channels
        _, count, first, last = self.share(window)
        known, to = self.pointer("weights"), self.pointer("result")
        size = window if self.whole else self.run
        with code.loop("element", first, last) as (element, _):
            run, inside = (code.value(f"{op} i64 {element}, {size}") for op in ("udiv", "urem"))
            here = v.step(v.step(known, run, self.sum_run), inside, self.sum_line)
            there = v.step(to, element, form.filters * v.itemsize)

            def one(at: str, many: int) -> None:
                start = v.at(here, at)
                total = Sum(v.load(start), form.dtype, self.lanes)
                with code.loop("piece", "1", count, 1, [total]) as (i, held):
                    more = v.load(v.step(start, i, self.sums))
                    held[0] = held[0]._replace(text=v.add(held[0].text, more))
                v.store(held[0].text, v.at(there, at), 0, many)

            self.parts(form.filters, one)
