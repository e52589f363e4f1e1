"""Packing of matrices for products: rows of the first one, panels of the second.

Both become units (``product_terms.py``) in the order of reads: a block of rows, or a panel of
columns, with the units of a part of the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from eagerflow.codegen.instructions import item_size
from eagerflow.primitives.llvm.product_terms import Terms, UnitReader
from eagerflow.primitives.llvm.stage_writer import CACHE_LINE_BYTES, StageWriter
from eagerflow.primitives.llvm.vectors import RegisterBlock, round_up

DEPTH = 256  # units of a part of the sums, at most
HEIGHT = 256  # rows of a piece, except those that complete a block


class ProductConfig(NamedTuple):
    """The parameters of a kernel; sizes and strides of the matrices are arguments of each call."""

    terms: Terms
    block: RegisterBlock
    rows: str
    """For the first matrix: "direct" if read in place; "copied" if elements are not units; or
    "interleaved" if its columns are contiguous."""
    panel: str
    """For the second matrix: "direct" for few rows, "packed", or "transposed" if its columns are
    contiguous."""
    ahead: bool
    """Whether the panels of a single second matrix are packed in advance; otherwise each piece
    packs its own."""


class PackingWriter(StageWriter):
    """Writes the packing of rows and panels for a part of the sums.

    ``self.count`` is the number of terms of the part, ``self.units`` that of units; ``self.first``
    and ``self.last`` are the bounds of the piece's rows.
    """

    slots: ClassVar[tuple[str, ...]] = (
        *("a", "b", "c", "a_next", "b_next", "c_next"),
        *("a_row", "a_term", "b_term", "b_column", "c_row"),
        *("row_count", "term_count", "column_count", "row_pieces", "piece_rows"),
    )
    given: dict[str, str]
    first: str
    last: str

    def __init__(self, llvm: Any, frame: Sequence[str], config: ProductConfig, lanes: int) -> None:
        terms = config.terms
        super().__init__(llvm, frame, terms.sums, lanes)
        self.config, self.terms, self.block = config, terms, config.block
        self.wide = self.block.vectors * lanes  # columns of a panel
        self.part = DEPTH * terms.group  # terms
        # Bytes of a unit of a packed panel, and of the panel, which ends with the initial sums if
        # the first matrix is shifted.
        self.line = self.block.vectors * self.v.size
        self.panel = (round_up(DEPTH, lanes) + terms.are_shifted) * self.line
        # Bytes of a unit of interleaved rows; of a copied row, and of a block of packed ones. Rows
        # that are a power of two apart would share few lines of the cache.
        self.unit = self.block.rows * self.v.itemsize
        self.row = DEPTH * self.v.itemsize + CACHE_LINE_BYTES
        copied = config.rows == "copied"
        self.packed_block = self.block.rows * self.row if copied else DEPTH * self.unit + 64
        if llvm is not None:
            self.reader = UnitReader(self.v, terms)

    @property
    def own_rows(self) -> int:
        """Bytes of working memory for rows, for each thread."""
        blocks = -(-HEIGHT // self.block.rows)
        return blocks * self.packed_block if self.config.rows != "direct" else 0

    @property
    def scratch(self) -> int:
        """Bytes of working memory for each thread."""
        return self.own_rows + self.panel + CACHE_LINE_BYTES

    def _read(self) -> None:
        """The numbers of the frame."""
        self.given = {name: self.argument(name) for name in self.slots[3:]}

    def _begin_part(self, part: str) -> None:
        """Set the part that begins with the term ``part``."""
        v, group = self.v, self.terms.group
        self.count = self.least(v.number("sub", self.given["term_count"], part), str(self.part))
        self.units = v.number("udiv", v.number("add", self.count, group - 1), group)
        # The complete units, and the number of terms in the last one.
        self.whole_units = v.number("udiv", self.count, group)
        self.rest = v.number("urem", self.count, group)

    def _below(self, count: str, first: str | int) -> str:
        """The mask of the elements below ``count`` in a vector that begins with ``first``."""
        left = self.v.count(self.v.number("sub", count, first))
        return str(self.s.less(self.v.memory.iota, left).text)

    def _lines(self, condition: str) -> Iterator[tuple[str, bool, str]]:
        """Loops over the units of a part: the index, whether masks are needed, remaining terms.

        Masks are unnecessary if a condition is true and the unit is complete.
        """
        begin = self.code.value(f"select i1 {condition}, i64 {self.whole_units}, i64 0")
        parts = [("0", begin, False, ""), (begin, self.whole_units, True, "")]
        if self.terms.group > 1:
            parts.append((self.whole_units, self.units, True, self.rest))
        for first, end, masked, left in parts:
            with self.code.loop("unit", first, end) as (k, _):
                yield k, masked, left

    # Rows ----------------------------------------------------------------------------------------

    def _pack_rows(self, a: str, to: str) -> None:
        """Pack the rows from ``first`` to ``last``; ``a`` is the address of the part's terms."""
        if self.config.rows == "copied":
            self._copy_rows(a, to)
        else:
            self._interleave(a, to)

    def _copy_rows(self, a: str, to: str) -> None:
        """Consecutive units of a row; the last block is completed by its last row."""
        v, code, dtype, high = self.v, self.code, self.terms.a, self.block.rows
        several = self.lanes * self.terms.group
        whole = v.number("mul", v.number("udiv", self.count, several), self.lanes)
        count = v.number("add", v.number("sub", self.last, self.first), high - 1)
        blocks = v.number("udiv", count, high)
        end = v.number("add", self.first, v.number("mul", blocks, high))
        final = v.number("sub", self.last, 1)
        with code.loop("row", self.first, end) as (i, _):
            here = v.step(a, self.least(i, final), self.given["a_row"])
            there = v.step(to, v.number("sub", i, self.first), self.row)
            for begin, stop, masked in (("0", whole, False), (whole, self.units, True)):
                with code.loop("vector", begin, stop, self.lanes) as (k, _):
                    begun = v.number("mul", k, self.terms.group)
                    left = v.number("sub", self.count, begun) if masked else ""
                    mask = self.reader.below(left) if masked else ""
                    units = self.reader.along(v.step(here, begun, item_size(dtype)), dtype, mask)
                    v.store(self.reader.of_first(units), v.step(there, k, v.itemsize))

    def _interleave(self, a: str, to: str) -> None:
        """Interleaved units of a block's rows.

        Writes beyond a block's unit are overwritten by the next one.
        """
        v, code, given, high = self.v, self.code, self.given, self.block.rows
        vectors = range(0, high, self.lanes)
        # Blocks with all vectors inside the matrix.
        beyond = round_up(high, self.lanes) - high
        end = self.least(self.last, self._less(given["row_count"], beyond))
        blocks = v.number("udiv", self._less(end, self.first), high)
        safe = v.number("add", self.first, v.number("mul", blocks, high))
        for k, masked, left in self._lines("true"):
            unit = v.step(a, v.number("mul", k, self.terms.group), given["a_term"])
            for first, last in ((self.first, safe), (safe, self.last)):
                with code.loop("row", first, last, high) as (row, _):
                    here = v.step(unit, row, item_size(self.terms.a))
                    number = v.number("udiv", v.number("sub", row, self.first), high)
                    there = v.step(v.step(to, number, self.packed_block), k, self.unit)
                    for i in vectors:
                        mask = ""
                        if masked or first == safe:
                            mask = self._below(given["row_count"], v.number("add", row, i))
                        self._interleave_vector(here, there, i, mask, left)

    def _interleave_vector(self, here: str, there: str, i: int, mask: str, left: str) -> None:
        v, dtype = self.v, self.terms.a
        start = v.at(here, i * item_size(dtype))
        units = self.reader.line(start, dtype, self.given["a_term"], mask, left)
        v.store(self.reader.of_first(units), there, i * v.itemsize)

    def _less(self, count: str, other: str | int) -> str:
        """A count minus another, at least 0."""
        v = self.v
        return v.number("sub", count, self.least(count, str(other)))

    # Panels --------------------------------------------------------------------------------------

    def _pack_panel(self, start: str, to: str, left: str) -> None:
        """Pack a panel with the given number of remaining columns, zero-padded."""
        if self.config.panel == "transposed":
            with self.code.loop("across", 0, self.block.vectors) as (j, _):
                first = self.v.number("mul", j, self.lanes)
                columns = self.v.step(start, first, self.given["b_column"])
                self._turn(columns, self.v.step(to, j, self.v.size), self._less(left, first))
        else:
            self._pack_lines(start, to, left)
        if self.terms.are_shifted:
            self._write_shift(to)

    def _pack_lines(self, start: str, to: str, left: str) -> None:
        """Units of adjacent columns."""
        v, given, dtype = self.v, self.given, self.terms.b
        masks = [self._below(left, j * self.lanes) for j in range(self.block.vectors)]
        whole = self.code.value(f"icmp uge i64 {left}, {self.wide}")
        for k, masked, terms in self._lines(whole):
            here = v.step(start, v.number("mul", k, self.terms.group), given["b_term"])
            there = v.step(to, k, self.line)
            for j, mask in enumerate(masks):
                at = v.at(here, j * self.lanes * item_size(dtype))
                units = self.reader.line(at, dtype, given["b_term"], mask if masked else "", terms)
                v.store(units, there, j * v.size)

    def _turn(self, panel: str, to: str, left: str) -> None:
        """Transpose a vector's number of columns of a panel, if they are available, into lines."""
        v, code, dtype, group = self.v, self.code, self.terms.b, self.terms.group
        columns, several = range(self.lanes), self.lanes * group
        there = [code.value(f"icmp ult i64 {i}, {left}") for i in columns]
        whole = v.number("mul", v.number("udiv", self.count, several), self.lanes)
        # Without a mask if all columns exist.
        begin = code.value(f"select i1 {there[-1]}, i64 {whole}, i64 0")
        for first, end in (("0", begin), (begin, self.units)):
            with code.loop("line", first, end, self.lanes) as (k, _):
                begun = v.number("mul", k, group)
                here = v.step(panel, begun, item_size(dtype))
                masks = [""] * self.lanes
                if first != "0":
                    below = self.reader.below(v.number("sub", self.count, begun))
                    masks = [v.where(condition, below, several) for condition in there]
                starts = [v.step(here, str(i), self.given["b_column"]) for i in columns]
                pairs = zip(starts, masks, strict=True)
                lines = [self.reader.along(x, dtype, mask) for x, mask in pairs]
                to_line = v.step(to, k, self.line)
                for i, line in enumerate(v.transposed(lines)):
                    v.store(line, to_line, i * self.line)

    def _write_shift(self, to: str) -> None:
        """After a panel, the initial sums for a shifted first matrix."""
        v, code = self.v, self.code
        totals = [v.zero] * self.block.vectors
        with code.loop("unit", 0, self.units, 1, totals) as (k, found):
            line = v.step(to, k, self.line)
            for j in range(self.block.vectors):
                found[j] = self.reader.shift(v.load(line, j * v.size), found[j])
        for j, total in enumerate(found):
            v.store(self.s.negative(total), to, self.panel - self.line + j * v.size)
