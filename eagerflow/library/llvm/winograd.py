"""Winograd's F(2x2, 3x3) and F(3x3, 2x2) as LLVM's code (Lavin and Gray, 2015).

A piece of work is some images, or some rows of tiles of one: their elements are copied with the
zeros around them, transformed into 16 matrices with a row for each tile, multiplied in registers
and transformed back, all in memory that stays in a core's cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eagerflow.library.llvm.pieces import LINE, Pieces
from eagerflow.library.llvm.products import Sum, block_shape, up

__all__ = ["SLOTS", "Form", "ForwardWriter", "Writer"]

SLOTS = ("images", "other", "result", "weights", "flags")
"""What a frame holds after the numbers of the driver."""

# Polynomials at the points 0, 1, -1 and infinity; for each result the signs of its terms.
INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1))
RESULT = ((1, 1, 1, 0), (0, 1, -1, 1))
SPREAD = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))


def _apart(size: int) -> int:
    """Bytes between lines of so many bytes that do not all go to the same places of a cache."""
    return size if size % 512 else size + LINE


class Form(NamedTuple):
    """A convolution with 3 by 3 windows: sizes, and how many tiles a piece has at most."""

    height: int
    width: int
    channels: int
    filters: int
    top: int
    """Rows of zeros above an image."""
    left: int
    rows: int
    """Rows of the result."""
    columns: int
    tiles: int
    """Of a piece."""
    band: int
    """Rows of tiles of a piece."""
    turned: bool = False
    """The filters are those that lead back to the images."""

    @property
    def tile_rows(self) -> int:
        """Rows of tiles of an image."""
        return -(-self.rows // 2)

    @property
    def tile_columns(self) -> int:
        """Tiles of a row."""
        return -(-self.columns // 2)


class Writer(Pieces):
    """What both kernels are made of; lengths are in bytes unless they count something."""

    def __init__(self, code: Any, form: Form, lanes: int, registers: int, slots: list[str]) -> None:
        super().__init__(code, "float32", lanes, slots)
        self.form, self.registers = form, registers
        # Channels of the copies and of the transformed tiles: whole vectors.
        self.channels = up(form.channels, lanes)
        self.filters = up(form.filters, lanes)
        # Bytes of a row of the matrices, with a row for each tile.
        self.tile_line, self.other_line = _apart(self.channels * 4), _apart(self.filters * 4)
        self.wide = 2 * form.tile_columns + 2
        self.patch = up((2 * form.band + 2) * self.wide * self.channels * 4, LINE)

    def _sum(self, terms: list[tuple[float, str]]) -> str:
        """A sum of values with factors of 1, -1, 1/2 and -1/2."""
        v = self.v
        half = any(abs(sign) == 0.5 for sign, _ in terms)
        terms = sorted(terms, key=lambda term: -term[0])
        total = terms[0][1]
        for sign, term in terms[1:]:
            total = v.add(total, term) if sign > 0 else v.subtract(total, term)
        return v.multiply(total, v.constant(0.5)) if half else total

    def _transform(self, matrix: Any, square: list[list[str]]) -> list[list[str]]:
        """``matrix @ square @ matrix.T``."""

        def along(lines: list[list[str]]) -> list[list[str]]:
            """The matrix times each line; lines and elements change places."""
            return [
                [self._sum([(s, x) for s, x in zip(row, line, strict=True) if s]) for line in lines]
                for row in matrix
            ]

        return along(along(square))

    # Tiles of the images -------------------------------------------------------------------------

    def _copy(self, image: str, first: str, rows: str) -> None:
        """Copy ``rows`` rows of an image from ``first`` on, with the zeros around, to scratch."""
        v, form, code = self.v, self.form, self.code
        line = self.wide * self.channels * 4
        inside = min(form.width, self.wide - form.left)
        with code.loop("row", "0", rows) as (i, _):
            row = v.number("add", first, i)
            to = v.step("%scratch", i, line)
            real = code.value(f"icmp ult i64 {row}, {form.height}")
            copy, clear, after = (code.name(f"{word}_") for word in ("copy", "clear", "after"))
            code.line(f"br i1 {real}, label %{copy}, label %{clear}")
            code.label(copy)
            start = v.step(image, row, form.width * form.channels * 4)
            v.fill(to, form.left * self.channels // self.lanes)
            aim = v.at(to, form.left * self.channels * 4)
            self._copy_line(start, aim, inside)
            rest = self.wide - form.left - inside
            v.fill(v.at(aim, inside * self.channels * 4), rest * self.channels // self.lanes)
            code.line(f"br label %{after}")
            code.label(clear)
            v.fill(to, line // v.size)
            code.line(f"br label %{after}")
            code.label(after)

    def _copy_line(self, start: str, to: str, places: int) -> None:
        v, form = self.v, self.form
        if form.channels == self.channels:
            with self.code.loop("x", "0", str(places * form.channels // self.lanes)) as (i, _):
                at = v.number("mul", i, v.size)
                v.store(v.load(start, at), to, at)
            return
        with self.code.loop("x", "0", str(places)) as (i, _):
            here = v.step(start, i, form.channels * 4)
            there = v.step(to, i, self.channels * 4)
            for c in range(0, self.channels, self.lanes):
                count = min(self.lanes, form.channels - c)
                v.store(v.load(here, 4 * c, count), there, 4 * c)

    def _each_tile(self, rows: str) -> Any:
        """A loop over tiles: row and column, and the number of the tile."""
        return _Tiles(self, rows)

    def _image_tiles(self, first: str, rows: str, plane: int) -> None:
        """Transform the copied rows; ``first`` is where the first tile goes in each matrix."""
        v = self.v
        with self._each_tile(rows) as (i, j, number):
            top = v.step("%scratch", i, 2 * self.wide * self.channels * 4)
            corner = v.step(top, j, 2 * self.channels * 4)
            aim = v.step(first, number, self.tile_line)
            with self.code.loop("c", "0", str(self.channels // self.lanes)) as (c, _):
                at = v.number("mul", c, v.size)
                here, there = v.at(corner, at), v.at(aim, at)
                square = [
                    [v.load(here, (k * self.wide + m) * self.channels * 4) for m in range(4)]
                    for k in range(4)
                ]
                self._set_planes(self._transform(INPUT, square), there, plane)

    def _set_planes(self, square: list[list[str]], to: str, plane: int) -> None:
        for k, line in enumerate(square):
            for m, value in enumerate(line):
                self.v.store(value, to, (4 * k + m) * plane)

    def _square_of(self, start: str, plane: int) -> list[list[str]]:
        return [[self.v.load(start, (4 * k + m) * plane) for m in range(4)] for k in range(4)]

    def _check(self, held: str, values: Any) -> None:
        """Add to ``held`` what is NaN where a value is not finite."""
        v = self.v
        terms = [v.subtract(value, value) for value in values]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [v.add(a, b) for a, b in pairs] + terms[len(terms) // 2 * 2 :]
        v.store(v.add(v.load(held), terms[0]), held)

    def _report(self, held: str, piece: str) -> None:
        """Note the piece's number where a value was not finite."""
        v, code = self.v, self.code
        bad = code.value(f"fcmp uno {v.type} {v.load(held)}, {v.zero}")
        bits = code.value(f"bitcast <{self.lanes} x i1> {bad} to i{self.lanes}")
        some = code.value(f"icmp ne i{self.lanes} {bits}, 0")
        place = v.at(self.pointer("flags"), piece)
        code.line(f"store i8 {code.value(f'zext i1 {some} to i8')}, ptr {place}, align 1")


class _Tiles:
    """A context: two loops over the tiles of some rows."""

    def __init__(self, writer: Writer, rows: str) -> None:
        code = writer.code
        self.writer = writer
        self.outer = code.loop("i", "0", rows)
        self.inner = code.loop("j", "0", str(writer.form.tile_columns))

    def __enter__(self) -> tuple[str, str, str]:
        v = self.writer.v
        i, _ = self.outer.__enter__()
        j, _ = self.inner.__enter__()
        line = v.number("mul", i, self.writer.form.tile_columns)
        return i, j, v.number("add", line, j)

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)
        self.outer.__exit__(*error)


class ForwardWriter(Writer):
    """Writes ``weights``, which transforms the filters, and ``kernel``, which does the rest."""

    def __init__(self, code: Any, form: Form, lanes: int, registers: int, slots: list[str]) -> None:
        super().__init__(code, form, lanes, registers, slots)
        self.block = block_shape(form.tiles, self.filters // lanes, registers)
        rows = up(form.tiles, self.block.rows)
        # Planes a power of two apart would share few lines of the cache.
        self.tile_plane = rows * self.tile_line + LINE
        self.product_plane = rows * self.other_line + LINE
        self.weight_plane = form.channels * self.filters * 4

    @property
    def scratch(self) -> int:
        """Bytes that each thread needs."""
        return self.patch + 16 * (self.tile_plane + self.product_plane)

    @property
    def weights(self) -> int:
        """Bytes of the transformed filters."""
        return 16 * self.weight_plane

    def module(self) -> str:
        """The text of the module, but for the driver."""
        self._weights()
        self._kernel()
        return self.text()

    def _weights(self) -> None:
        """Each piece transforms its share of the channels."""
        v, form, code = self.v, self.form, self.code
        with self.function("weights"):
            _, _, first, last = self.share(form.channels)
            filters, to = self.pointer("other"), self.pointer("weights")
            size = form.channels * form.filters * 4
            wide = self.block.vectors
            panel = wide * v.size
            panels = str(self.filters // self.lanes // wide)
            # Channels inside: their filters to lead back lie side by side.
            with code.loop("panel", "0", panels) as (p, _), code.loop("c", first, last) as (c, _):
                aim = v.step(v.step(to, p, form.channels * panel), c, panel)
                start = v.step(filters, c, 4 if form.turned else form.filters * 4)
                # Bytes from the filters of a vector to those of the next one.
                stride = self.lanes * 4 * (form.channels if form.turned else 1)
                start = v.step(start, p, wide * stride)
                for j, mask in enumerate(self.masks(p, wide, form.filters)):
                    here = v.at(start, j * stride)
                    if form.turned:
                        # From (3, 3, filters, channels), back to front.
                        taps = [
                            v.gather(v.at(here, (8 - k) * size), form.channels * 4, mask)
                            for k in range(9)
                        ]
                    else:
                        taps = [v.load(here, k * size, mask=mask) for k in range(9)]
                    square = self._transform(SPREAD, [taps[:3], taps[3:6], taps[6:]])
                    self._set_planes(square, v.at(aim, j * v.size), self.weight_plane)

    def _kernel(self) -> None:
        v, form, code = self.v, self.form, self.code
        with self.function("kernel"):
            held = code.entry(f"alloca {v.type}, align {v.size}")
            v.store(v.zero, held)
            tiles = v.at("%scratch", self.patch)
            products = v.at(tiles, 16 * self.tile_plane)
            rows = v.number("sub", "%c1", "%c0")
            each = v.number("mul", rows, form.tile_columns)
            x, y = self.pointer("images"), self.pointer("result")
            with code.loop("image", "%r0", "%r1") as (image, _):
                start = v.step(x, image, form.height * form.width * form.channels * 4)
                first = v.number("sub", v.number("mul", "%c0", 2), form.top)
                self._copy(start, first, v.number("add", v.number("mul", rows, 2), 2))
                number = v.number("mul", v.number("sub", image, "%r0"), each)
                self._image_tiles(v.step(tiles, number, self.tile_line), rows, self.tile_plane)
            count = v.number("mul", v.number("sub", "%r1", "%r0"), each)
            self._multiply(tiles, products, self.pointer("weights"), count)
            with code.loop("image", "%r0", "%r1") as (image, _):
                number = v.number("mul", v.number("sub", image, "%r0"), each)
                start = v.step(y, image, form.rows * form.columns * form.filters * 4)
                here = v.step(products, number, self.other_line)
                self._results(here, start, rows, held)
            self._report(held, self.piece())

    def _multiply(self, tiles: str, products: str, weights: str, count: str) -> None:
        v, form, code, block = self.v, self.form, self.code, self.block
        blocks = code.value(f"udiv i64 {v.number('add', count, block.rows - 1)}, {block.rows}")
        self._clear_rest(tiles, count, blocks)
        line, panel = self.tile_line, block.vectors * v.size
        with code.loop("plane", "0", "16") as (plane, _):
            a, b, c = (
                v.step(tiles, plane, self.tile_plane),
                v.step(weights, plane, self.weight_plane),
                v.step(products, plane, self.product_plane),
            )
            with code.loop("panel", "0", str(self.filters * 4 // panel)) as (p, _):
                own, out = v.step(b, p, form.channels * panel), v.step(c, p, panel)
                with code.loop("block", "0", blocks) as (i, _):
                    rows = v.step(a, i, block.rows * line)
                    to = v.step(out, i, block.rows * self.other_line)
                    sums = self._block_sums(rows, own, line, panel)
                    self.store_block(block, sums, to, self.other_line)

    def _block_sums(self, rows: str, weights: str, line: int, panel: int) -> list[str]:
        """Sums over all channels."""
        v, block = self.v, self.block
        sums = v.accumulate(
            block,
            [Sum(v.zero, "float32", self.lanes)] * (block.rows * block.vectors),
            self.form.channels,
            lambda k, i: (v.step(rows, k, 4), i * line),
            lambda k: v.step(weights, k, panel),
        )
        return [s.text for s in sums]

    def _clear_rest(self, tiles: str, count: str, blocks: str) -> None:
        """Zeros in the rows that fill the last block, lest slow numbers be there."""
        v, code = self.v, self.code
        end = v.number("mul", blocks, self.block.rows)
        with code.loop("plane", "0", "16") as (plane, _):
            start = v.step(tiles, plane, self.tile_plane)
            with code.loop("rest", count, end) as (i, _):
                v.fill(v.step(start, i, self.tile_line), self.channels // self.lanes)

    def _results(self, products: str, image: str, rows: str, held: str) -> None:
        """Transform the products of one image back, and write what lies inside of it."""
        v, form = self.v, self.form
        pixel, line = form.filters * 4, form.columns * form.filters * 4
        with self._each_tile(rows) as (i, j, number):
            here = v.step(products, number, self.other_line)
            row = v.number("mul", v.number("add", i, "%c0"), 2)
            column = v.number("mul", j, 2)
            there = v.step(v.step(image, row, line), column, pixel)

            def one(at: str, count: int) -> None:
                square = self._square_of(v.at(here, at), self.product_plane)
                found = self._transform(RESULT, square)
                self._check(held, [x for own in found for x in own])
                aim = v.at(there, at)
                for a in range(2):
                    for b in range(2):
                        down, across = (
                            self._inside(row, a, form.rows),
                            self._inside(column, b, form.columns),
                        )
                        with self.where(down), self.where(across):
                            v.store(found[a][b], aim, a * line + b * pixel, count)

            self.parts(form.filters, one)

    def _inside(self, first: str, further: int, size: int) -> str:
        """The condition that a place is within the result; "" where it always is."""
        if not further or size % 2 == 0:
            return ""
        return self.code.value(f"icmp ult i64 {self.v.number('add', first, 1)}, {size}")
