"""Matrix products in LLVM IR: packed panels, cache blocking, sums in registers.

A piece of work is some rows and columns of one result. Its columns are processed in panels: the
second matrix's part is packed line by line, and multiplied with blocks of rows of the first one
(Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). Long sums are
computed in consecutive parts of ``DEPTH`` units.
"""

from __future__ import annotations

from typing import Any, ClassVar

from eagerflow.codegen.instructions import item_size
from eagerflow.primitives.llvm.product_packing import PackingWriter
from eagerflow.primitives.llvm.stage_writer import CACHE_LINE_BYTES
from eagerflow.primitives.llvm.vectors import round_up


class ProductWriter(PackingWriter):
    """Writes ``multiply``: rows are those of all products, in pieces; columns are columns.

    ``a``, ``b`` and ``c`` are the addresses of the first product's matrices, ``..._next`` strides
    in bytes between products, ``a_row`` and ``a_term`` those between rows and between terms,
    ``b_term`` and ``b_column`` between terms and between columns, ``c_row`` between rows.
    Incomplete sums that will be rounded are in ``sums``, with ``sum_row`` bytes per row.
    """

    stages: ClassVar[tuple[str, ...]] = ("multiply",)
    slots: ClassVar[tuple[str, ...]] = (*PackingWriter.slots, "sum_row", "sums")

    def sums(self, products: int, rows: int, terms: int, columns: int) -> tuple[int, int]:
        """Bytes of a row of incomplete sums, and of all of them."""
        row = round_up(columns, self.wide) * self.v.itemsize
        needed = self.terms.are_rounded and terms > self.part
        return row, products * rows * row if needed else 0

    def _multiply(self) -> None:
        v, code = self.v, self.code
        self._read()
        given = self.given
        product, piece = (v.number(op, "%r0", given["row_pieces"]) for op in ("udiv", "urem"))
        a, b, c = (v.step(self.pointer(x), product, given[f"{x}_next"]) for x in ("a", "b", "c"))
        self.first = v.number("mul", piece, given["piece_rows"])
        self.last = self.least(v.number("add", self.first, given["piece_rows"]), given["row_count"])
        if self.terms.are_rounded:
            before = v.number("mul", product, given["row_count"])
            self.sums_start = v.step(self.pointer("sums"), before, given["sum_row"])
        self.own_panel = v.at("%scratch", self.own_rows)
        with code.loop("part", 0, given["term_count"], self.part) as (part, _):
            self._begin_part(part)
            of_a, of_b = v.step(a, part, given["a_term"]), v.step(b, part, given["b_term"])
            if self.config.rows != "direct":
                self._pack_rows(of_a, "%scratch")
            with code.loop("column", "%c0", "%c1", self.wide) as (column, _):
                self._multiply_panel(of_a, v.step(of_b, column, given["b_column"]), c, column, part)

    def _multiply_panel(self, a: str, b: str, c: str, column: str, part: str) -> None:
        """Multiply all rows of the piece with the columns of a panel."""
        v, code, given = self.v, self.code, self.given
        left = v.number("sub", "%c1", column)
        masks = [self._below(left, j * self.lanes) for j in range(self.block.vectors)]
        whole = code.value(f"icmp uge i64 {left}, {self.wide}")
        panel = self._panel(b, part, column, left, whole)
        to = v.step(c, column, item_size(self.terms.out))
        with code.loop("row", self.first, self.last, self.block.rows) as (row, _):
            rows = self._row_numbers(row)
            starts = [v.step(to, i, given["c_row"]) for i in rows]
            for start in starts:
                for at in range(0, self.line, CACHE_LINE_BYTES):
                    v.prefetch_to_write(start, at)
            inside = v.number("sub", row, self.first)
            block = v.number("udiv", inside, self.block.rows)
            sums = self._sums(*self._row_starts(a, block, rows), panel, b, block, whole)
            self._finish(sums, starts, rows, masks, whole, column, part)

    # Sums ----------------------------------------------------------------------------------------

    @property
    def _reads_directly(self) -> bool:
        """Whether the first block of rows reads whole panels directly from the matrix."""
        plain = self.terms.are_plain and self.config.panel != "transposed"
        return plain and not self.config.ahead

    def _panel(self, b: str, part: str, column: str, left: str, whole: str) -> str:
        """The address of the packed panel, which is packed first unless it is read directly."""
        condition = self.code.value(f"xor i1 {whole}, true") if self._reads_directly else ""
        with self.code.where(condition):
            self._pack_panel(b, self.own_panel, left)
        return self.own_panel

    def _row_numbers(self, row: str) -> list[str]:
        """The rows of a block; missing ones are replaced by the last."""
        v = self.v
        final = v.number("sub", self.last, 1)
        return [self.least(v.number("add", row, i), final) for i in range(self.block.rows)]

    def _row_starts(self, a: str, block: str, rows: list[str]) -> tuple[list[str], int]:
        """The addresses of a block's rows, and the stride of their units."""
        v, kind = self.v, self.config.rows
        if kind == "direct":
            return [v.step(a, i, self.given["a_row"]) for i in rows], v.itemsize
        start = v.step("%scratch", block, self.packed_block)
        apart, unit = (self.row, v.itemsize) if kind == "copied" else (v.itemsize, self.unit)
        return [v.at(start, i * apart) for i in range(len(rows))], unit

    def _sums(
        self, starts: list[str], unit: int, panel: str, b: str, block: str, whole: str
    ) -> list[Any]:
        """The sums of a block over the terms of a part."""
        v, code, vectors = self.v, self.code, self.block.vectors
        line, packs = str(self.line), ""
        source = panel
        if self._reads_directly:
            new = whole
            if self.config.panel == "packed":
                first = code.value(f"icmp eq i64 {block}, 0")
                new = packs = code.value(f"and i1 {first}, {whole}")
            source = code.value(f"select i1 {new}, ptr {b}, ptr {panel}")
            line = code.value(f"select i1 {new}, i64 {self.given['b_term']}, i64 {line}")
        with code.loop("unit", 0, self.units, 1, self._no_sums(panel)) as (k, sums):
            start = v.step(source, k, line)
            columns = [v.load(start, j * v.size) for j in range(vectors)]
            if packs:
                with code.where(packs):
                    for j, x in enumerate(columns):
                        v.store(x, v.step(panel, k, self.line), j * v.size)
            for i in range(self.block.rows):
                number = v.load_splat(v.step(starts[i], k, unit))
                for j in range(vectors):
                    at = i * vectors + j
                    sums[at] = self.reader.multiply_add(number, columns[j], sums[at])
        found: list[Any] = sums
        return found

    def _no_sums(self, panel: str) -> list[Any]:
        """The initial sums of a block."""
        v, vectors = self.v, self.block.vectors
        if not self.terms.are_shifted:
            return v.no_sums(self.block)
        end = v.at(panel, self.panel - self.line)
        return [v.load(end, j * v.size) for j in range(vectors)] * self.block.rows

    # Results -------------------------------------------------------------------------------------

    def _finish(
        self,
        sums: list[Any],
        starts: list[str],
        rows: list[str],
        masks: list[str],
        whole: str,
        column: str,
        part: str,
    ) -> None:
        """Add the sums of earlier parts, and store the result."""
        v, code = self.v, self.code
        if not self.terms.are_rounded:
            sums = self._with_parts_before(sums, starts, masks, part)
            self._write(sums, starts, masks, whole)
            return
        first = v.step(self.sums_start, column, v.itemsize)
        own = [v.step(first, i, self.given["sum_row"]) for i in rows]
        sums = self._with_parts_before(sums, own, [""] * len(masks), part)
        end = v.number("add", part, self.part)
        more = code.value(f"icmp ult i64 {end}, {self.given['term_count']}")
        with code.where(more):
            for n, value in reversed(list(enumerate(sums))):
                v.store(value, own[n // len(masks)], n % len(masks) * v.size)
        with code.where(code.value(f"xor i1 {more}, true")):
            self._write(sums, starts, masks, whole)

    def _with_parts_before(
        self, sums: list[Any], starts: list[str], masks: list[str], part: str
    ) -> list[Any]:
        """Sums plus those of earlier parts, if there are any."""
        v, wide = self.v, self.block.vectors
        once = self.least(part, "1")
        with self.code.loop("before", 0, once, 1, sums) as (_, found):
            for n, value in enumerate(found):
                before = v.load(starts[n // wide], n % wide * v.size, mask=masks[n % wide])
                found[n] = self.s.add(before, value)
        return found

    def _write(self, sums: list[Any], starts: list[str], masks: list[str], whole: str) -> None:
        """Store the sums of a block.

        Missing rows are stored at the last one's address, and overwritten by it.
        """
        v, code, wide, out = self.v, self.code, self.block.vectors, self.terms.out
        part = code.value(f"xor i1 {whole}, true")
        size = self.lanes * item_size(out)
        if out.startswith("int"):
            sums = [self.s.convert(x, out) for x in sums]
        for condition, own in ((whole, [""] * wide), (part, masks)):
            with code.where(condition):
                for n, value in reversed(list(enumerate(sums))):
                    to = v.span(v.at(starts[n // wide], n % wide * size), 0, out)
                    v.memory.store(to, value, own[n % wide])


class PackedProductWriter(ProductWriter):
    """Writes also ``pack``, which packs all panels before they are read."""

    stages: ClassVar[tuple[str, ...]] = ("pack", "multiply")
    slots = (*ProductWriter.slots, "packed_panels")

    def panels(self, terms: int, columns: int) -> int:
        """Bytes of all packed panels."""
        return -(-terms // self.part) * -(-columns // self.wide) * self.panel

    def _across(self) -> str:
        """The number of panels."""
        v = self.v
        return v.number(
            "udiv", v.number("add", self.given["column_count"], self.wide - 1), self.wide
        )

    def _pack(self) -> None:
        """Each piece packs its share of the panels."""
        self._read()
        v, given, across = self.v, self.given, self._across()
        parts = v.number("udiv", v.number("add", given["term_count"], self.part - 1), self.part)
        _, _, first, last = self.share(v.number("mul", across, parts))
        with self.code.loop("panel", first, last) as (number, _):
            part = v.number("mul", v.number("udiv", number, across), self.part)
            column = v.number("mul", v.number("urem", number, across), self.wide)
            start = v.step(self.pointer("b"), part, given["b_term"])
            start = v.step(start, column, given["b_column"])
            to = v.step(self.pointer("packed_panels"), number, self.panel)
            self._begin_part(part)
            self._pack_panel(start, to, v.number("sub", given["column_count"], column))

    def _panel(self, b: str, part: str, column: str, left: str, whole: str) -> str:
        v, across = self.v, self._across()
        before = v.number("mul", v.number("udiv", part, self.part), across)
        number = v.number("add", before, v.number("udiv", column, self.wide))
        return v.step(self.pointer("packed_panels"), number, self.panel)


class PackWriter(PackedProductWriter):
    """Writes ``pack`` alone, for panels that are packed once and read by several products."""

    stages = ("pack",)


class PackedRowsWriter(PackedProductWriter):
    """Writes ``multiply`` alone, for packed panels."""

    stages = ("multiply",)
