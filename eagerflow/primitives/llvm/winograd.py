"""Winograd's F(2x2, 3x3) and F(3x3, 2x2) in LLVM IR (Lavin and Gray, 2015).

The elements of a piece are transformed into 16 matrices with a row for each tile, multiplied in
registers and transformed back, all in memory that stays in a core's cache. For the gradient of the
filters, each piece sums the contributions of its images, in a matrix for each of the 16 products;
then the sums of all pieces are added in order and transformed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eagerflow.primitives.llvm.convolution_writer import ConvolutionWriter
from eagerflow.primitives.llvm.stage_writer import CACHE_LINE_BYTES
from eagerflow.primitives.llvm.vectors import register_block, round_up

# Polynomials at the points 0, 1, -1 and infinity; for each result the factors of its terms.
INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1))
FORWARD_FILTERS = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
FORWARD_RESULT = ((1, 1, 1, 0), (0, 1, -1, 1))
# The same with two elements of g instead of three of the filter, and three results.
GRADIENT_GIVEN = ((1, 0), (0.5, 0.5), (0.5, -0.5), (0, 1))
GRADIENT_RESULT = ((1, 1, 1, 0), (0, 1, -1, 0), (0, 1, 1, 1))


def _apart(size: int) -> int:
    """The stride of lines, padded so that they do not map to the same cache sets."""
    return size if size % 512 else size + CACHE_LINE_BYTES


class _WinogradWriter(ConvolutionWriter):
    """Common parts of both kernels."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config = self.config
        self.tile_columns = -(-config.wide.out // 2)
        self.tiles = config.group * config.band * self.tile_columns  # of a piece, at most
        # Channels of the copies and of the transformed tiles: whole vectors.
        self.channels = round_up(config.channels, self.lanes)
        self.pixel = self.channels * 4
        self.make_room(2 * self.tile_columns + 2)
        # Bytes of a row of the matrices, with a row for each tile.
        self.tile_line, self.other_line = _apart(self.pixel), _apart(self.filters * 4)
        self.patch = round_up((2 * config.band + 2) * self.line, CACHE_LINE_BYTES)

    def _sum(self, terms: list[tuple[float, Any]]) -> Any:
        """A sum of values with factors of 1, -1, 1/2 and -1/2."""
        s = self.s
        half = any(abs(sign) == 0.5 for sign, _ in terms)
        terms = sorted(terms, key=lambda term: -term[0])
        total = terms[0][1]
        for sign, term in terms[1:]:
            total = s.add(total, term) if sign > 0 else s.subtract(total, term)
        return s.multiply(total, 0.5) if half else total

    def _transform(self, matrix: Any, square: list[list[Any]]) -> list[list[Any]]:
        """``matrix @ square @ matrix.T``."""

        def along(lines: list[list[Any]]) -> list[list[Any]]:
            """The matrix times each line, transposed."""
            return [
                [self._sum([(s, x) for s, x in zip(row, line, strict=True) if s]) for line in lines]
                for row in matrix
            ]

        return along(along(square))

    # Tiles of the images -------------------------------------------------------------------------

    def copy_positions(self, start: str, to: str, count: int) -> None:
        """Copy consecutive positions of a row, with channels zero-padded to whole vectors."""
        v, channels = self.v, self.config.channels
        if channels == self.channels:
            super().copy_positions(start, to, count)
            return
        with self.code.loop("x", 0, count) as (i, _):
            here, there = v.step(start, i, channels * 4), v.step(to, i, self.pixel)
            for c in range(0, self.channels, self.lanes):
                v.store(v.load(here, 4 * c, min(self.lanes, channels - c)), there, 4 * c)

    def copy_tiles(self, image: str, tile_row: str, rows: str) -> None:
        """Copy the elements of ``rows`` rows of an image's tiles."""
        v, config = self.v, self.config
        start = v.step(self.pointer("images"), image, self.image_bytes)
        above = v.number("sub", v.number("mul", tile_row, 2), config.high.before)
        self.copy(start, above, v.number("add", v.number("mul", rows, 2), 2))

    @contextmanager
    def _each_tile(self, rows: str) -> Iterator[tuple[str, str, str]]:
        """A loop over the tiles of some rows: row, column, and index of the tile."""
        v, columns = self.v, self.tile_columns
        with (
            self.code.loop("i", 0, rows) as (i, _),
            self.code.loop("j", 0, columns) as (j, _),
        ):
            yield i, j, v.number("add", v.number("mul", i, columns), j)

    def _image_tiles(self, first: str, rows: str, plane: int) -> None:
        """Transform the copied rows; ``first`` is the index of the first tile in each matrix."""
        v = self.v
        with self._each_tile(rows) as (i, j, number):
            corner = v.step(v.step("%scratch", i, 2 * self.line), j, 2 * self.pixel)
            aim = v.step(first, number, self.tile_line)
            with self.code.loop("c", 0, self.channels // self.lanes) as (c, _):
                at = v.number("mul", c, v.size)
                here, there = v.at(corner, at), v.at(aim, at)
                square = [
                    [v.load(here, k * self.line + m * self.pixel) for m in range(4)]
                    for k in range(4)
                ]
                self._set_planes(self._transform(INPUT, square), there, plane)

    def _set_planes(self, square: list[list[Any]], to: str, plane: int) -> None:
        for k, line in enumerate(square):
            for m, value in enumerate(line):
                self.v.store(value, to, (4 * k + m) * plane)

    def _square_of(self, start: str, plane: int) -> list[list[Any]]:
        return [[self.v.load(start, (4 * k + m) * plane) for m in range(4)] for k in range(4)]

    # Whether all is finite -----------------------------------------------------------------------

    def _zeros(self) -> str:
        """A vector of zeros in memory."""
        place: str = self.code.entry(f"alloca {self.v.zero.type}, align {self.v.size}")
        self.v.store(self.v.zero, place)
        return place

    def _check(self, held: str, square: list[list[Any]]) -> None:
        """Add NaN to ``held`` if a value is not finite."""
        v, s = self.v, self.s
        terms = [s.subtract(value, value) for line in square for value in line]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [s.add(a, b) for a, b in pairs] + terms[len(terms) // 2 * 2 :]
        v.store(s.add(v.load(held), terms[0]), held)

    def _report(self, held: str, piece: str) -> None:
        """Flag the piece if a value was not finite."""
        v, s = self.v, self.s
        some = s.any_lane(s.isnan(v.load(held)))
        v.memory.store_one(v.at(self.pointer("flags"), piece), some, "bool")


class WinogradForwardWriter(_WinogradWriter):
    """Writes ``weights``, which transforms the filters, and ``kernel``, which does the rest."""

    stages = ("weights", "kernel")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.block = register_block(self.tiles, self.filters // self.lanes, self.registers)
        rows = round_up(self.tiles, self.block.rows)
        # Planes a power of two apart would share few cache sets.
        self.tile_plane = rows * self.tile_line + CACHE_LINE_BYTES
        self.product_plane = rows * self.other_line + CACHE_LINE_BYTES
        self.weight_plane = self.config.channels * self.filters * 4

    @property
    def scratch(self) -> int:
        """Bytes of working memory for each thread."""
        return self.patch + 16 * (self.tile_plane + self.product_plane)

    @property
    def weights(self) -> int:
        """Bytes of the transformed filters."""
        return 16 * self.weight_plane

    def _weights(self) -> None:
        # Channels inside: the filters for the input gradient are then contiguous.
        size = 4 if self.config.turned else self.result_pixel
        self.pack_filters(self.config.channels, lambda w, c: self.v.step(w, c, size))

    def _pack(self, start: str, to: str, mask: str) -> None:
        taps = self._taps(start, mask)
        square = self._transform(FORWARD_FILTERS, [taps[:3], taps[3:6], taps[6:]])
        self._set_planes(square, to, self.weight_plane)

    def _taps(self, start: str, mask: str) -> list[str]:
        """The nine elements of a vector of filters."""
        v, config = self.v, self.config
        size = config.channels * self.result_pixel
        if not config.turned:
            return [v.load(start, k * size, mask=mask) for k in range(9)]
        # From (3, 3, filters, channels), flipped.
        places = [v.at(start, (8 - k) * size) for k in range(9)]
        return [v.gather(place, config.channels * 4, mask) for place in places]

    def _kernel(self) -> None:
        v, code = self.v, self.code
        held = self._zeros()
        tiles = v.at("%scratch", self.patch)
        products = v.at(tiles, 16 * self.tile_plane)
        rows = v.number("sub", "%c1", "%c0")
        each = v.number("mul", rows, self.tile_columns)
        y = self.pointer("result")
        with code.loop("image", "%r0", "%r1") as (image, _):
            self.copy_tiles(image, "%c0", rows)
            number = v.number("mul", v.number("sub", image, "%r0"), each)
            self._image_tiles(v.step(tiles, number, self.tile_line), rows, self.tile_plane)
        count = v.number("mul", v.number("sub", "%r1", "%r0"), each)
        self._multiply(tiles, products, self.pointer("weights"), count)
        with code.loop("image", "%r0", "%r1") as (image, _):
            number = v.number("mul", v.number("sub", image, "%r0"), each)
            here = v.step(products, number, self.other_line)
            self._results(here, v.step(y, image, self.result_bytes), rows, held)
        self._report(held, self.piece())

    def _multiply(self, tiles: str, products: str, weights: str, count: str) -> None:
        v, code, block = self.v, self.code, self.block
        blocks = v.number("udiv", v.number("add", count, block.rows - 1), block.rows)
        self._clear_rest(tiles, count, blocks)
        line, panel = self.tile_line, block.vectors * v.size
        with code.loop("plane", 0, "16") as (plane, _):
            a, b, c = (
                v.step(tiles, plane, self.tile_plane),
                v.step(weights, plane, self.weight_plane),
                v.step(products, plane, self.product_plane),
            )
            with code.loop("panel", 0, self.filters * 4 // panel) as (p, _):
                own, out = v.step(b, p, self.config.channels * panel), v.step(c, p, panel)
                with code.loop("block", 0, blocks) as (i, _):
                    rows = v.step(a, i, block.rows * line)
                    to = v.step(out, i, block.rows * self.other_line)
                    sums = v.accumulate(
                        block,
                        v.no_sums(block),
                        self.config.channels,
                        lambda k, i: (v.step(rows, k, 4), i * line),
                        lambda k: v.step(own, k, panel),
                    )
                    self.store_block(block, sums, to, self.other_line)

    def _clear_rest(self, tiles: str, count: str, blocks: str) -> None:
        """Zero the rows that pad the last block, to avoid denormal numbers."""
        v, code = self.v, self.code
        end = v.number("mul", blocks, self.block.rows)
        with code.loop("plane", 0, "16") as (plane, _):
            start = v.step(tiles, plane, self.tile_plane)
            with code.loop("rest", count, end) as (i, _):
                v.fill(v.step(start, i, self.tile_line), self.channels // self.lanes)

    def _results(self, products: str, image: str, rows: str, held: str) -> None:
        """Transform the products of one image back, and store the part inside the image."""
        v, high, wide = self.v, self.config.high, self.config.wide
        with self._each_tile(rows) as (i, j, number):
            here = v.step(products, number, self.other_line)
            row = v.number("mul", v.number("add", i, "%c0"), 2)
            column = v.number("mul", j, 2)
            there = v.step(v.step(image, row, self.result_line), column, self.result_pixel)

            def one(at: str, count: int) -> None:
                square = self._square_of(v.at(here, at), self.product_plane)
                found = self._transform(FORWARD_RESULT, square)
                self._check(held, found)
                aim = v.at(there, at)
                for a in range(2):
                    for b in range(2):
                        down = self._inside(row, a, high.out)
                        across = self._inside(column, b, wide.out)
                        with self.code.where(down), self.code.where(across):
                            offset = a * self.result_line + b * self.result_pixel
                            v.store(found[a][b], aim, offset, count)

            self.parts(self.config.filters, one)

    def _inside(self, first: str, further: int, size: int) -> str:
        """The condition that a position is within the result; "" if it always is."""
        if not further or size % 2 == 0:
            return ""
        return self.code.value(f"icmp ult i64 {self.v.number('add', first, 1)}, {size}")


class WinogradFilterWriter(_WinogradWriter):
    """Writes ``sums``, which computes the sums of a piece, and ``join``, which combines them."""

    stages = ("sums", "join")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.block = register_block(self.channels, self.filters // self.lanes, self.registers)
        self.tile_plane = self.tiles * self.tile_line + CACHE_LINE_BYTES
        self.other_plane = self.tiles * self.other_line + CACHE_LINE_BYTES
        rows = round_up(self.channels, self.block.rows)
        self.sum_plane = rows * self.filters * 4 + CACHE_LINE_BYTES

    @property
    def scratch(self) -> int:
        """Bytes of working memory for each thread."""
        return self.patch + 16 * (self.tile_plane + self.other_plane)

    @property
    def sums(self) -> int:
        """Bytes of the sums of a piece."""
        return 16 * self.sum_plane

    def _sums(self) -> None:
        v, band, code = self.v, self.config.band, self.code
        self.nothing = self._zeros()
        tiles = v.at("%scratch", self.patch)
        others = v.at(tiles, 16 * self.tile_plane)
        own = v.step(self.pointer("weights"), self.piece(), self.sums)
        v.fill(own, self.sums // v.size)
        g = self.pointer("other")
        with (
            code.loop("first", "%r0", "%r1", self.config.group) as (first, _),
            code.loop("row", "%c0", "%c1", band) as (row, _),
        ):
            last = self.least(v.number("add", first, self.config.group), "%r1")
            rows = v.number("sub", self.least(v.number("add", row, band), "%c1"), row)
            each = v.number("mul", rows, self.tile_columns)
            with code.loop("image", first, last) as (image, _):
                self.copy_tiles(image, row, rows)
                number = v.number("mul", v.number("sub", image, first), each)
                self._image_tiles(v.step(tiles, number, self.tile_line), rows, self.tile_plane)
                given = v.step(g, image, self.result_bytes)
                self._other_tiles(given, v.step(others, number, self.other_line), row, rows)
            count = v.number("mul", v.number("sub", last, first), each)
            self._add_products(tiles, others, own, count)

    def _other_tiles(self, image: str, first: str, above: str, rows: str) -> None:
        """Transform 2 by 2 tiles of g, zero-padded at the edges."""
        v, high, wide = self.v, self.config.high, self.config.wide
        pixel, line = self.result_pixel, self.result_line
        with self._each_tile(rows) as (i, j, number):
            row = v.number("mul", v.number("add", i, above), 2)
            column = v.number("mul", j, 2)
            corner = v.step(v.step(image, row, line), column, pixel)
            aim = v.step(first, number, self.other_line)

            def one(at: str, count: int) -> None:
                square = []
                for a in range(2):
                    places = [v.at(v.at(corner, at), a * line + b * pixel) for b in range(2)]
                    if wide.out % 2:
                        places[1] = self._or_nothing(places[1], column, wide.out)
                    if a and high.out % 2:
                        places = [self._or_nothing(p, row, high.out) for p in places]
                    square.append([v.load(p, 0, count) for p in places])
                spread = self._transform(GRADIENT_GIVEN, square)
                self._set_planes(spread, v.at(aim, at), self.other_plane)

            self.parts(self.config.filters, one)

    def _or_nothing(self, place: str, first: str, size: int) -> str:
        """An address, or that of zeros if the index after ``first`` is not below ``size``."""
        after = self.v.number("add", first, 1)
        inside = self.code.value(f"icmp ult i64 {after}, {size}")
        return self.code.value(f"select i1 {inside}, ptr {place}, ptr {self.nothing}")

    def _add_products(self, tiles: str, others: str, own: str, count: str) -> None:
        v, code, block = self.v, self.code, self.block
        panel, sum_line = block.vectors * v.size, self.filters * 4
        blocks = round_up(self.channels, block.rows) // block.rows
        with (
            code.loop("plane", 0, "16") as (plane, _),
            code.loop("panel", 0, sum_line // panel) as (p, _),
            code.loop("block", 0, blocks) as (i, _),
        ):
            rows = v.step(v.step(tiles, plane, self.tile_plane), i, block.rows * 4)
            columns = v.step(v.step(others, plane, self.other_plane), p, panel)
            to = v.step(v.step(own, plane, self.sum_plane), p, panel)
            sums = v.accumulate(
                block,
                v.no_sums(block),
                count,
                lambda t, m: (v.step(rows, t, self.tile_line), 4 * m),
                lambda t: v.step(columns, t, self.other_line),
            )
            self.store_block(block, sums, v.step(to, i, block.rows * sum_line), sum_line, add=True)

    def _join(self) -> None:
        """Each piece combines its share of the channels."""
        v, config = self.v, self.config
        held = self._zeros()
        piece, count, first, last = self.share(config.channels)
        known, to = self.pointer("weights"), self.pointer("result")
        planes = [self.sum_plane * k for k in range(16)]
        with self.code.loop("c", first, last) as (c, _):
            here = v.step(known, c, self.filters * 4)
            there = v.step(to, c, self.result_pixel)

            def one(at: str, many: int) -> None:
                totals = self.joined(v.at(here, at), planes, count)
                square = [totals[k : k + 4] for k in range(0, 16, 4)]
                found = self._transform(GRADIENT_RESULT, square)
                self._check(held, found)
                for k in range(9):
                    offset = k * config.channels * self.result_pixel
                    v.store(found[k // 3][k % 3], v.at(there, at), offset, many)

            self.parts(config.filters, one)
        self._report(held, piece)
