"""Winograd's F(3x3, 2x2) as LLVM's code: the gradient of a convolution by its filters.

Each piece of work sums up what its images give, in a matrix for each of the 16 products; then
the sums of all pieces are added in their order and transformed.
"""

from __future__ import annotations

from typing import Any

from eagerflow.library.llvm.pieces import LINE
from eagerflow.library.llvm.products import Sum, block_shape, up
from eagerflow.library.llvm.winograd import Form, Writer

__all__ = ["FilterWriter"]

# Polynomials at the points 0, 1, -1 and infinity, with two elements of g and three results.
SPREAD = ((1, 0), (0.5, 0.5), (0.5, -0.5), (0, 1))
RESULT = ((1, 1, 1, 0), (0, 1, -1, 0), (0, 1, 1, 1))


class FilterWriter(Writer):
    """Writes ``sums``, which makes the sums of a piece, and ``join``, which makes the result.

    ``group`` images are worked on at a time.
    """

    def __init__(
        self, code: Any, form: Form, lanes: int, registers: int, slots: list[str], group: int
    ) -> None:
        super().__init__(code, form, lanes, registers, slots)
        self.group = group
        self.block = block_shape(self.channels, self.filters // lanes, registers)
        self.tile_plane = form.tiles * self.tile_line + LINE
        self.other_plane = form.tiles * self.other_line + LINE
        self.sum_plane = up(self.channels, self.block.rows) * self.filters * 4 + LINE

    @property
    def scratch(self) -> int:
        """Bytes that each thread needs."""
        return self.patch + 16 * (self.tile_plane + self.other_plane)

    @property
    def sums(self) -> int:
        """Bytes of the sums of a piece."""
        return 16 * self.sum_plane

    def module(self) -> str:
        """The text of the module, but for the driver."""
        self._sums()
        self._join()
        return self.text()

    def _sums(self) -> None:
        v, form, code = self.v, self.form, self.code
        with self.function("sums"):
            self.nothing = code.entry(f"alloca {v.type}, align {v.size}")
            v.store(v.zero, self.nothing)
            tiles = v.at("%scratch", self.patch)
            others = v.at(tiles, 16 * self.tile_plane)
            own = v.step(self.pointer("weights"), self.piece(), self.sums)
            v.fill(own, self.sums // v.size)
            x, g = self.pointer("images"), self.pointer("other")
            with (
                code.loop("first", "%r0", "%r1", self.group) as (first, _),
                code.loop("row", "%c0", "%c1", form.band) as (row, _),
            ):
                last = self.least(v.number("add", first, self.group), "%r1")
                end = self.least(v.number("add", row, form.band), "%c1")
                rows = v.number("sub", end, row)
                each = v.number("mul", rows, form.tile_columns)
                with code.loop("image", first, last) as (image, _):
                    start = v.step(x, image, form.height * form.width * form.channels * 4)
                    above = v.number("sub", v.number("mul", row, 2), form.top)
                    self._copy(start, above, v.number("add", v.number("mul", rows, 2), 2))
                    number = v.number("mul", v.number("sub", image, first), each)
                    self._image_tiles(v.step(tiles, number, self.tile_line), rows, self.tile_plane)
                    given = v.step(g, image, form.rows * form.columns * form.filters * 4)
                    self._other_tiles(given, v.step(others, number, self.other_line), row, rows)
                count = v.number("mul", v.number("sub", last, first), each)
                self._add_products(tiles, others, own, count)

    def _other_tiles(self, image: str, first: str, above: str, rows: str) -> None:
        """Transform squares of 2 by 2 elements of g; beyond the edges are zeros."""
        v, form = self.v, self.form
        pixel, line = form.filters * 4, form.columns * form.filters * 4
        with self._each_tile(rows) as (i, j, number):
            row = v.number("mul", v.number("add", i, above), 2)
            column = v.number("mul", j, 2)
            corner = v.step(v.step(image, row, line), column, pixel)
            aim = v.step(first, number, self.other_line)

            def one(at: str, count: int) -> None:
                square = []
                for a in range(2):
                    places = [v.at(v.at(corner, at), a * line + b * pixel) for b in range(2)]
                    if form.columns % 2:
                        places[1] = self._or_nothing(places[1], column, form.columns)
                    if a and form.rows % 2:
                        places = [self._or_nothing(p, row, form.rows) for p in places]
                    square.append([v.load(p, 0, count) for p in places])
                self._set_planes(self._transform(SPREAD, square), v.at(aim, at), self.other_plane)

            self.parts(form.filters, one)

    def _or_nothing(self, place: str, first: str, size: int) -> str:
        """An address, or that of zeros where the number after ``first`` is not below ``size``."""
        after = self.v.number("add", first, 1)
        inside = self.code.value(f"icmp ult i64 {after}, {size}")
        return self.code.value(f"select i1 {inside}, ptr {place}, ptr {self.nothing}")

    def _add_products(self, tiles: str, others: str, own: str, count: str) -> None:
        v, code, block = self.v, self.code, self.block
        line, panel = self.tile_line, block.vectors * v.size
        with code.loop("plane", "0", "16") as (plane, _):
            a, b, c = (
                v.step(tiles, plane, self.tile_plane),
                v.step(others, plane, self.other_plane),
                v.step(own, plane, self.sum_plane),
            )
            blocks = up(self.channels, block.rows) // block.rows
            with (
                code.loop("panel", "0", str(self.filters * 4 // panel)) as (p, _),
                code.loop("block", "0", str(blocks)) as (i, _),
            ):
                columns, rows = v.step(b, p, panel), v.step(a, i, block.rows * 4)
                to = v.step(v.step(c, p, panel), i, block.rows * self.filters * 4)
                sums = [Sum(v.zero, "float32", self.lanes)] * (block.rows * block.vectors)
                sums = v.accumulate(
                    block,
                    sums,
                    count,
                    lambda t, m: (v.step(rows, t, line), 4 * m),
                    lambda t: v.step(columns, t, self.other_line),
                )
                self.add_block(block, [s.text for s in sums], to, self.filters * 4)

    def _join(self) -> None:
        """Each piece joins its share of the channels."""
        v, form, code = self.v, self.form, self.code
        with self.function("join"):
            held = code.entry(f"alloca {v.type}, align {v.size}")
            v.store(v.zero, held)
            piece, count, first, last = self.share(form.channels)
            known, to = self.pointer("weights"), self.pointer("result")
            size = form.channels * form.filters * 4
            with code.loop("c", first, last) as (c, _):
                here = v.step(known, c, self.filters * 4)
                there = v.step(to, c, form.filters * 4)

                def one(at: str, many: int) -> None:
                    start = v.at(here, at)
                    planes = [self.sum_plane * k for k in range(16)]
                    sums = [Sum(v.load(start, plane), "float32", self.lanes) for plane in planes]
                    with code.loop("piece", "1", count, 1, sums) as (i, carried):
                        other = v.step(start, i, self.sums)
                        for k, plane in enumerate(planes):
                            total = v.add(carried[k].text, v.load(other, plane))
                            carried[k] = carried[k]._replace(text=total)
                    texts = [s.text for s in carried]
                    found = self._transform(RESULT, [texts[k : k + 4] for k in range(0, 16, 4)])
                    self._check(held, [x for own in found for x in own])
                    for k in range(9):
                        v.store(found[k // 3][k % 3], v.at(there, at), k * size, many)

                self.parts(form.filters, one)
            self._report(held, piece)
