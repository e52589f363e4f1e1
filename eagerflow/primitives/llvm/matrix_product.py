"""Products of matrices as LLVM's code: packed panels, blocks of the caches, sums in registers.

A piece of work is some rows and columns of one result. Its columns are taken panel by panel: what
the second matrix has there is packed line by line, and multiplied with blocks of rows of the first
one (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). Long sums
are made in parts of ``DEPTH`` terms, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from eagerflow.primitives.llvm.stage_writer import CACHE_LINE_BYTES, StageWriter
from eagerflow.primitives.llvm.vectors import RegisterBlock, round_up

DEPTH = 256  # terms of a part of the sums, at most
HEIGHT = 256  # rows of a piece, at most
BLOCKS_TOGETHER = 8  # of rows that lie side by side, to pack whole lines of a cache


class ProductConfig(NamedTuple):
    """What a kernel depends on; sizes and strides of the matrices come with each call."""

    dtype: str
    block: RegisterBlock
    rows: str
    """Of the first matrix: "direct" as they lie in memory, "copied" as they lie too far apart for
    the caches, or "interleaved" as its columns lie in one piece each."""
    panel: str
    """Of the second matrix: "direct" for few rows, "packed", or "transposed" where its columns
    lie in one piece each."""
    ahead: bool
    """Whether the panels of the one second matrix are packed before they are read; else each
    piece packs its own."""

    @property
    def packs(self) -> bool:
        """Whether there is something to pack before pieces are multiplied."""
        return self.ahead or self.rows != "direct"


class ProductWriter(StageWriter):
    """Writes ``multiply``: rows count the pieces of rows of all products, columns are columns.

    ``a``, ``b`` and ``c`` are the addresses of the first product's matrices, ``..._next`` bytes
    from one product to the next, ``a_row`` and ``a_term`` bytes between rows and between terms,
    ``b_term`` and ``b_column`` between terms and between columns, ``c_row`` between rows.
    """

    stages: ClassVar[tuple[str, ...]] = ("multiply",)
    slots: ClassVar[tuple[str, ...]] = (
        *("a", "b", "c", "a_next", "b_next", "c_next"),
        *("a_row", "a_term", "b_term", "b_column", "c_row"),
        *("row_count", "term_count", "column_count", "row_pieces", "piece_rows"),
    )

    def __init__(self, llvm: Any, frame: Sequence[str], config: ProductConfig, lanes: int) -> None:
        super().__init__(llvm, frame, config.dtype, lanes)
        self.config, self.block = config, config.block
        self.wide = self.block.vectors * lanes  # columns of a panel
        # Bytes of a term of a packed panel, and of the panel.
        self.line = self.block.vectors * self.v.size
        self.panel = round_up(DEPTH, lanes) * self.line

    @property
    def scratch(self) -> int:
        """Bytes that each thread needs for a panel."""
        own = self.config.panel != "direct" and not self.config.ahead
        return self.panel + CACHE_LINE_BYTES if own else 0

    def _read(self) -> None:
        """The numbers of the frame."""
        self.given = {name: self.argument(name) for name in self.slots[3:]}

    def _below(self, count: str, first: str | int) -> str:
        """The mask of the elements of a vector that begins with ``first`` below ``count``."""
        left = self.v.count(self.v.number("sub", count, first))
        return str(self.s.less(self.v.memory.iota, left).text)

    def _whole_and_rest(self, count: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
        """Two loops over vectors of ``count`` elements: first, end, and the mask of each."""
        whole = self.v.number("and", count, -self.lanes)
        return ("0", whole, ""), (whole, count, self._below(count, whole))

    # Multiplying ---------------------------------------------------------------------------------

    def _multiply(self) -> None:
        v, code = self.v, self.code
        self._read()
        given = self.given
        self.product, piece = (v.number(op, "%r0", given["row_pieces"]) for op in ("udiv", "urem"))
        a, b, c = (
            v.step(self.pointer(x), self.product, given[f"{x}_next"]) for x in ("a", "b", "c")
        )
        self.first = v.number("mul", piece, given["piece_rows"])
        self.last = self.least(v.number("add", self.first, given["piece_rows"]), given["row_count"])
        with code.loop("part", 0, given["term_count"], DEPTH) as (part, _):
            self.depth = self._depth(part)
            of_a, of_b = v.step(a, part, given["a_term"]), v.step(b, part, given["b_term"])
            with code.loop("column", "%c0", "%c1", self.wide) as (column, _):
                panel = self._panel(v.step(of_b, column, given["b_column"]), part, column)
                self._multiply_panel(of_a, panel, c, column, part)

    def _depth(self, part: str) -> str:
        """How many terms a part has."""
        return self.least(self.v.number("sub", self.given["term_count"], part), str(DEPTH))

    def _multiply_panel(self, a: str, panel: str, c: str, column: str, part: str) -> None:
        """Multiply all rows of the piece with the columns of a panel."""
        v, code = self.v, self.code
        left = v.number("sub", "%c1", column)
        masks = [self._below(left, j * self.lanes) for j in range(self.block.vectors)]
        whole = code.value(f"icmp uge i64 {left}, {self.wide}")
        to = v.step(c, column, v.itemsize)
        with code.loop("row", self.first, self.last, self.block.rows) as (row, _):
            rows = self._row_numbers(row)
            starts = [v.step(to, i, self.given["c_row"]) for i in rows]
            for start in starts:
                for at in range(0, self.line, CACHE_LINE_BYTES):
                    v.prefetch_to_write(start, at)
            sums = self._sums(*self._row_starts(a, part, row, rows), panel, masks)
            sums = self._with_parts_before(sums, starts, masks, part)
            self._write(sums, starts, masks, whole)

    def _row_numbers(self, row: str) -> list[str]:
        """The rows of a block; the last one stands for those that are not there."""
        v = self.v
        final = v.number("sub", self.last, 1)
        return [self.least(v.number("add", row, i), final) for i in range(self.block.rows)]

    def _row_starts(self, a: str, part: str, row: str, rows: list[str]) -> tuple[list[str], int]:
        """Where the rows of a block begin, and bytes between their terms."""
        return [self.v.step(a, i, self.given["a_row"]) for i in rows], self.v.itemsize

    def _sums(self, starts: list[str], term: int, panel: str, masks: list[str]) -> list[Any]:
        """The sums of a block over the terms of a part."""
        v, direct = self.v, self.config.panel == "direct"
        line = self.given["b_term"] if direct else str(self.line)
        return v.accumulate(
            self.block,
            v.no_sums(self.block),
            self.depth,
            lambda k, i: (v.step(starts[i], k, term), 0),
            lambda k: v.step(panel, k, line),
            masks if direct else None,
        )

    def _with_parts_before(
        self, sums: list[Any], starts: list[str], masks: list[str], part: str
    ) -> list[Any]:
        """Sums with those of the parts before, if there are any."""
        v, wide = self.v, self.block.vectors
        later = self.code.value(f"icmp ne i64 {part}, 0")
        held = [self._where(later, mask) for mask in masks]
        return [
            self.s.add(v.load(starts[n // wide], n % wide * v.size, mask=held[n % wide]), value)
            for n, value in enumerate(sums)
        ]

    def _write(self, sums: list[Any], starts: list[str], masks: list[str], whole: str) -> None:
        """Write the sums of a block.

        Rows that are not there are written in the place of the last one, which comes after them.
        """
        v, code, wide = self.v, self.code, self.block.vectors
        part = code.value(f"xor i1 {whole}, true")
        for condition, own in ((whole, [""] * wide), (part, masks)):
            with code.where(condition):
                for n, value in reversed(list(enumerate(sums))):
                    v.store(value, starts[n // wide], n % wide * v.size, mask=own[n % wide])

    # Packing panels ------------------------------------------------------------------------------

    def _panel(self, start: str, part: str, column: str) -> str:
        """Where a panel begins, which is packed now if it has to be."""
        if self.config.panel == "direct":
            return start
        self._pack_panel(start, "%scratch", self.v.number("sub", "%c1", column), self.depth)
        return "%scratch"

    def _pack_panel(self, start: str, to: str, left: str, depth: str) -> None:
        """Pack a panel, of which so many columns are left, with zeros behind the last one."""
        v, vectors = self.v, range(self.block.vectors)
        if self.config.panel == "transposed":
            for j in vectors:
                self._turn(start, to, left, depth, j)
            return
        masks = [self._below(left, j * self.lanes) for j in vectors]
        with self.code.loop("line", 0, depth) as (k, _):
            here, there = v.step(start, k, self.given["b_term"]), v.step(to, k, self.line)
            for j, mask in enumerate(masks):
                v.store(v.load(here, j * v.size, mask=mask), there, j * v.size)

    def _turn(self, panel: str, to: str, left: str, depth: str, j: int) -> None:
        """Turn as many columns of a panel as a vector has lanes, if they are left, into lines."""
        v, code = self.v, self.code
        columns = range(j * self.lanes, (j + 1) * self.lanes)
        there = [code.value(f"icmp ult i64 {i}, {left}") for i in columns]
        whole = self._whole_and_rest(depth)[0][1]
        # Without a mask where all columns are there.
        begin = code.value(f"select i1 {there[-1]}, i64 {whole}, i64 0")
        for first, end in ((0, begin), (begin, depth)):
            with code.loop("line", first, end, self.lanes) as (k, _):
                here = v.step(panel, k, v.itemsize)
                masks = [""] * self.lanes
                if first:
                    below = self._below(depth, k)
                    masks = [self._where(condition, below) for condition in there]
                starts = [v.step(here, str(i), self.given["b_column"]) for i in columns]
                lines = [v.load(x, mask=m) for x, m in zip(starts, masks, strict=True)]
                to_line = v.step(to, k, self.line)
                for i, line in enumerate(v.transposed(lines)):
                    v.store(line, to_line, i * self.line + j * v.size)

    def _where(self, condition: str, mask: str) -> str:
        """A mask, or none of its elements where a condition does not hold."""
        kind = f"<{self.lanes} x i1>"
        return self.code.value(f"select i1 {condition}, {kind} {mask}, {kind} zeroinitializer")


class PackedProductWriter(ProductWriter):
    """Writes ``pack`` as well, which packs rows or panels before they are read."""

    stages = ("pack", "multiply")
    slots = (*ProductWriter.slots, "packed_rows", "packed_panels", "row_sets")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # Bytes of a term of interleaved rows, and of a block of packed ones. Rows that are a power
        # of two apart would share few lines of the cache.
        self.term = self.block.rows * self.v.itemsize
        self.row = DEPTH * self.v.itemsize + CACHE_LINE_BYTES
        copied = self.config.rows == "copied"
        self.packed_block = self.block.rows * self.row if copied else DEPTH * self.term + 64

    def rows(self, sets: int, rows: int, terms: int) -> int:
        """Bytes of all packed rows of so many matrices."""
        blocks = sets * -(-terms // DEPTH) * -(-rows // self.block.rows)
        return blocks * self.packed_block if self.config.rows != "direct" else 0

    def panels(self, terms: int, columns: int) -> int:
        """Bytes of all packed panels."""
        panels = -(-terms // DEPTH) * -(-columns // self.wide)
        return panels * self.panel if self.config.ahead else 0

    def _over(self, count: str, size: int) -> str:
        """How many blocks of a size cover what the frame counts."""
        v = self.v
        return v.number("udiv", v.number("add", self.given[count], size - 1), size)

    def _pack(self) -> None:
        """Each piece packs its share of the blocks of rows, and of the panels."""
        self._read()
        self.part_count = self._over("term_count", DEPTH)
        if self.config.rows != "direct":
            self._pack_rows()
        if self.config.ahead:
            self._pack_panels()

    # Rows ----------------------------------------------------------------------------------------

    def _pack_rows(self) -> None:
        """Pack a share of all blocks; where rows lie side by side, several blocks together."""
        v, given = self.v, self.given
        copied = self.config.rows == "copied"
        together = 1 if copied else BLOCKS_TOGETHER
        down = self._over("row_count", self.block.rows)
        sets = self._over("row_count", together * self.block.rows)
        each = v.number("mul", sets, self.part_count)
        _, _, first, last = self.share(v.number("mul", each, given["row_sets"]))
        with self.code.loop("set", first, last) as (number, _):
            matrix, inside = (v.number(op, number, each) for op in ("udiv", "urem"))
            part, block = (v.number(op, inside, sets) for op in ("udiv", "urem"))
            block = v.number("mul", block, together)
            before = v.number("add", v.number("mul", matrix, self.part_count), part)
            before = v.number("add", v.number("mul", before, down), block)
            part, row = v.number("mul", part, DEPTH), v.number("mul", block, self.block.rows)
            start = v.step(self.pointer("a"), matrix, given["a_next"])
            start = v.step(start, part, given["a_term"])
            self.depth, left = self._depth(part), v.number("sub", given["row_count"], row)
            to = v.step(self.pointer("packed_rows"), before, self.packed_block)
            if copied:
                self._copy_rows(v.step(start, row, given["a_row"]), to, left)
            else:
                self._interleave(v.step(start, row, v.itemsize), to, left)

    def _copy_rows(self, start: str, to: str, left: str) -> None:
        """Copy the rows of a block, of which so many are left."""
        v, code = self.v, self.code
        with code.loop("row", 0, self.least(left, str(self.block.rows))) as (i, _):
            here, there = v.step(start, i, self.given["a_row"]), v.step(to, i, self.row)
            for first, end, mask in self._whole_and_rest(self.depth):
                with code.loop("element", first, end, self.lanes) as (k, _):
                    at = v.number("mul", k, v.itemsize)
                    v.store(v.load(v.at(here, at), mask=mask), v.at(there, at))

    def _interleave(self, start: str, to: str, left: str) -> None:
        """Copy the terms of some blocks; what is written beyond one, the next one overwrites."""
        v, code, high = self.v, self.code, self.block.rows
        end = self.least(left, str(BLOCKS_TOGETHER * high))
        with (
            code.loop("term", 0, self.depth) as (k, _),
            code.loop("row", 0, end, high) as (row, _),
        ):
            here = v.step(v.step(start, k, self.given["a_term"]), row, v.itemsize)
            block = v.step(to, v.number("udiv", row, high), self.packed_block)
            there = v.step(block, k, self.term)
            for i in range(0, high, self.lanes):
                mask = self._below(left, v.number("add", row, i))
                v.store(v.load(here, i * v.itemsize, mask=mask), there, i * v.itemsize)

    def _row_starts(self, a: str, part: str, row: str, rows: list[str]) -> tuple[list[str], int]:
        v, kind = self.v, self.config.rows
        if kind == "direct":
            return super()._row_starts(a, part, row, rows)
        down, parts = self._over("row_count", self.block.rows), self._over("term_count", DEPTH)
        matrix = v.number("urem", self.product, self.given["row_sets"])
        number = v.number("add", v.number("mul", matrix, parts), v.number("udiv", part, DEPTH))
        inside = v.number("udiv", row, self.block.rows)
        number = v.number("add", v.number("mul", number, down), inside)
        start = v.step(self.pointer("packed_rows"), number, self.packed_block)
        apart, term = (self.row, v.itemsize) if kind == "copied" else (v.itemsize, self.term)
        return [v.at(start, i * apart) for i in range(len(rows))], term

    # Panels --------------------------------------------------------------------------------------

    def _pack_panels(self) -> None:
        v, given, across = self.v, self.given, self._over("column_count", self.wide)
        _, _, first, last = self.share(v.number("mul", across, self.part_count))
        with self.code.loop("panel", first, last) as (number, _):
            part = v.number("mul", v.number("udiv", number, across), DEPTH)
            column = v.number("mul", v.number("urem", number, across), self.wide)
            start = v.step(self.pointer("b"), part, given["b_term"])
            start = v.step(start, column, given["b_column"])
            to = v.step(self.pointer("packed_panels"), number, self.panel)
            left = v.number("sub", given["column_count"], column)
            self._pack_panel(start, to, left, self._depth(part))

    def _panel(self, start: str, part: str, column: str) -> str:
        if not self.config.ahead:
            return super()._panel(start, part, column)
        v, across = self.v, self._over("column_count", self.wide)
        before = v.number("mul", v.number("udiv", part, DEPTH), across)
        number = v.number("add", before, v.number("udiv", column, self.wide))
        return v.step(self.pointer("packed_panels"), number, self.panel)
