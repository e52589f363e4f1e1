"""Direct convolution in LLVM IR, blocked in registers.

Windows with contiguous elements are processed as one run.
"""

from __future__ import annotations

from typing import Any

from eagerflow.primitives.llvm.convolution_writer import ConvolutionWriter
from eagerflow.primitives.llvm.stage_writer import CACHE_LINE_BYTES
from eagerflow.primitives.llvm.vectors import RegisterBlock, register_block, round_up


class _DirectWriter(ConvolutionWriter):
    """Common parts of both kernels."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config = self.config
        self.pixel = config.channels * self.itemsize
        self.taps = config.high.kernel * config.wide.kernel
        # A run: contiguous elements of a window.
        joined = config.wide.dilation == 1
        self.runs = 1 if joined else config.wide.kernel
        self.run = config.channels * (config.wide.kernel if joined else 1)

    def make_room_for(self, many: int) -> None:
        """Make room for the inputs of a number of result columns."""
        wide = self.config.wide
        self.make_room((many - 1) * wide.stride + wide.extent)

    @property
    def scratch(self) -> int:
        """Bytes of working memory for each thread."""
        config = self.config
        rows = (config.band - 1) * config.high.stride + config.high.extent
        return round_up(rows * self.line, CACHE_LINE_BYTES) + 16 * CACHE_LINE_BYTES

    def copy_seen(self, image: str, first: str, rows: str, beyond: int = 0) -> None:
        """Copy the inputs of ``rows`` rows of an image's results, from the row ``first`` on.

        ``beyond`` more elements are zeros.
        """
        v, high = self.v, self.config.high
        above = v.number("sub", v.number("mul", first, high.stride), high.before)
        seen = v.number("mul", v.number("sub", rows, 1), high.stride)
        seen = v.number("add", seen, high.extent)
        self.copy(v.step(self.pointer("images"), image, self.image_bytes), above, seen)
        self.clear(v.step("%scratch", seen, self.line), beyond * self.itemsize)


class DirectForwardWriter(_DirectWriter):
    """Writes ``weights``, which packs the filters, and ``kernel``, which computes the result."""

    stages = ("weights", "kernel")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.block = register_block(
            self.config.wide.out, self.filters // self.lanes, self.registers
        )
        self.make_room_for(round_up(self.config.wide.out, self.block.rows))
        self.panel = self.block.vectors * self.v.size

    @property
    def weights(self) -> int:
        """Bytes of the packed filters."""
        return self.taps * self.config.channels * self.filters * self.itemsize

    def _weights(self) -> None:
        self.pack_filters(self.taps * self.config.channels, self._filters_of)

    def _filters_of(self, filters: str, element: str) -> str:
        """The address of the filters for an element of a window."""
        v, config = self.v, self.config
        if not config.turned:
            return v.step(filters, element, self.result_pixel)
        # From (*window, filters, channels), flipped.
        tap, channel = (v.number(op, element, config.channels) for op in ("udiv", "urem"))
        back = v.number("sub", self.taps - 1, tap)
        start = v.step(filters, back, config.filters * self.pixel)
        return v.step(start, channel, self.itemsize)

    def _pack(self, start: str, to: str, mask: str) -> None:
        v, turned = self.v, self.config.turned
        v.store(v.gather(start, self.pixel, mask) if turned else v.load(start, mask=mask), to)

    def _kernel(self) -> None:
        v, config, code, block = self.v, self.config, self.code, self.block
        rows = v.number("sub", "%c1", "%c0")
        y, weights = self.pointer("result"), self.pointer("weights")
        with code.loop("image", "%r0", "%r1") as (image, _):
            self.copy_seen(image, "%c0", rows)
            out = v.step(y, image, self.result_bytes)
            with code.loop("panel", 0, self.filters * self.itemsize // self.panel) as (p, _):
                own = v.step(weights, p, self.taps * config.channels * self.panel)
                masks = self.masks(p, block.vectors, config.filters)
                with code.loop("row", 0, rows) as (row, _):
                    start = v.step("%scratch", row, config.high.stride * self.line)
                    line = v.step(out, v.number("add", row, "%c0"), self.result_line)
                    line = v.step(line, p, self.panel)
                    blocks = round_up(config.wide.out, block.rows) // block.rows
                    with code.loop("block", 0, blocks) as (i, _):
                        many = v.number("mul", i, block.rows)
                        here = v.step(start, many, config.wide.stride * self.pixel)
                        sums = self._window(here, own)
                        self._store(sums, v.step(line, many, self.result_pixel), many, masks)

    def _window(self, start: str, weights: str) -> list[Any]:
        """The sums over the windows of a block of columns."""
        v, high, wide, block = self.v, self.config.high, self.config.wide, self.block
        step = wide.stride * self.pixel
        with self.code.loop("down", 0, high.kernel, 1, v.no_sums(block)) as (down, rows):
            here = v.step(start, down, high.dilation * self.line)
            lines = v.step(weights, down, self.runs * self.run * self.panel)
            with self.code.loop("across", 0, self.runs, 1, rows) as (across, runs):
                run = v.step(here, across, wide.dilation * self.pixel)
                packed = v.step(lines, across, self.run * self.panel)
                runs[:] = v.accumulate(
                    block,
                    runs,
                    self.run,
                    lambda k, i: (v.step(run, k, self.itemsize), i * step),
                    lambda k: v.step(packed, k, self.panel),
                )
            rows[:] = runs
        return rows

    def _store(self, sums: list[Any], to: str, first: str, masks: list[str]) -> None:
        """Write a block's columns, limited to the result's size."""
        v, columns, block = self.v, self.config.wide.out, self.block
        rest = columns % block.rows
        for i in range(block.rows):
            inside = ""
            if rest and i >= rest:
                inside = self.code.value(f"icmp ult i64 {v.number('add', first, i)}, {columns}")
            with self.code.where(inside):
                for j in range(block.vectors):
                    value = sums[i * block.vectors + j]
                    v.store(value, to, i * self.result_pixel + j * v.size, mask=masks[j])


class DirectFilterWriter(_DirectWriter):
    """Writes ``sums``, which computes the sums of a piece, and ``join``, which combines them."""

    stages = ("sums", "join")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.make_room_for(self.config.wide.out)
        vectors, registers = self.filters // self.lanes, self.registers
        self.window = self.taps * self.config.channels
        wide = next(n for n in (4, 3, 2, 1) if vectors % n == 0)
        # All elements of a small window together, which are not contiguous.
        while wide > 1 and self.window * wide > registers - 1 - wide and self.window <= 12:
            wide = next(n for n in range(wide - 1, 0, -1) if vectors % n == 0)
        self.whole = self.window * wide <= registers - 1 - wide
        if self.whole:
            self.block = RegisterBlock(self.window, wide)
        else:
            self.block = register_block(self.run, vectors, registers)
        self.panel = self.block.vectors * self.v.size
        self.sum_line = self.filters * self.itemsize
        run = self.window if self.whole else self.run
        rows = round_up(run, self.block.rows)
        self.read_beyond = rows - run  # elements that the last block of a run reads beyond it
        self.sum_run = rows * self.sum_line

    @property
    def sums(self) -> int:
        """Bytes of the sums of a piece."""
        runs = 1 if self.whole else self.config.high.kernel * self.runs
        return runs * self.sum_run

    def _sums(self) -> None:
        v, band, code = self.v, self.config.band, self.code
        own = v.step(self.pointer("weights"), self.piece(), self.sums)
        v.fill(own, self.sums // v.size)
        g = self.pointer("other")
        with (
            code.loop("image", "%r0", "%r1") as (image, _),
            code.loop("band", "%c0", "%c1", band) as (first, _),
        ):
            rows = v.number("sub", self.least(v.number("add", first, band), "%c1"), first)
            self.copy_seen(image, first, rows, self.read_beyond)
            given = v.step(v.step(g, image, self.result_bytes), first, self.result_line)
            with code.loop("panel", 0, self.sum_line // self.panel) as (p, _):
                self._panel(v.step(own, p, self.panel), v.step(given, p, self.panel), rows, p)

    def _panel(self, own: str, given: str, rows: str, panel: str) -> None:
        v, config, code, block = self.v, self.config, self.code, self.block
        masks = self.masks(panel, block.vectors, config.filters)
        down_bytes, across_bytes = (
            config.high.dilation * self.line,
            config.wide.dilation * self.pixel,
        )
        if self.whole:
            offsets = [
                a * down_bytes + b * across_bytes + c * self.itemsize
                for a in range(config.high.kernel)
                for b in range(config.wide.kernel)
                for c in range(config.channels)
            ]
            self._block("%scratch", offsets, given, rows, own, masks)
            return
        offsets = [i * self.itemsize for i in range(block.rows)]
        with (
            code.loop("down", 0, config.high.kernel) as (down, _),
            code.loop("across", 0, self.runs) as (across, _),
        ):
            here = v.step(v.step("%scratch", down, down_bytes), across, across_bytes)
            number = v.number("add", v.number("mul", down, self.runs), across)
            to = v.step(own, number, self.sum_run)
            blocks = self.sum_run // self.sum_line // block.rows
            with code.loop("block", 0, blocks) as (i, _):
                start = v.step(here, i, block.rows * self.itemsize)
                aim = v.step(to, i, block.rows * self.sum_line)
                self._block(start, offsets, given, rows, aim, masks)

    def _block(
        self, start: str, offsets: list[int], given: str, rows: str, to: str, masks: list[str]
    ) -> None:
        """Sums over all positions of some rows."""
        v, high, wide, block = self.v, self.config.high, self.config.wide, self.block
        with self.code.loop("row", 0, rows, 1, v.no_sums(block)) as (row, held):
            here = v.step(start, row, high.stride * self.line)
            there = v.step(given, row, self.result_line)
            held[:] = v.accumulate(
                block,
                held,
                wide.out,
                lambda k, i: (v.step(here, k, wide.stride * self.pixel), offsets[i]),
                lambda k: v.step(there, k, self.result_pixel),
                masks,
            )
        self.store_block(block, held, to, self.sum_line, add=True)

    def _join(self) -> None:
        """Each piece combines its share of the window's elements."""
        v = self.v
        _, count, first, last = self.share(self.window)
        known, to = self.pointer("weights"), self.pointer("result")
        size = self.window if self.whole else self.run
        with self.code.loop("element", first, last) as (element, _):
            run, inside = (v.number(op, element, size) for op in ("udiv", "urem"))
            here = v.step(v.step(known, run, self.sum_run), inside, self.sum_line)
            there = v.step(to, element, self.result_pixel)

            def one(at: str, many: int) -> None:
                (total,) = self.joined(v.at(here, at), (0,), count)
                v.store(total, v.at(there, at), 0, many)

            self.parts(self.config.filters, one)
