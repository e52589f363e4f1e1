"""Products of a matrix with a few columns in LLVM IR, which read the matrix once.

Blocks of columns would leave most lanes of a vector empty. So vectors go along the terms, if these
are contiguous, and an element of the result is the sum of a vector's lanes; or they go along the
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from eagerflow.primitives.llvm.stage_writer import StageWriter


class ThinConfig(NamedTuple):
    """The parameters of a kernel; sizes and strides are arguments of each call."""

    dtype: str
    columns: int
    along: str
    """The contiguous dimension of the first matrix: "terms" or "rows"."""
    high: int
    """Rows of a block, or vectors of them."""
    packs: bool
    """Whether the columns are packed first; otherwise their terms are contiguous."""


class ThinProductWriter(StageWriter):
    """Writes ``pack``, which packs the columns contiguously, and ``multiply``.

    Rows are those of the first matrix. ``a_row`` and ``a_term`` are its strides in bytes,
    ``b_term`` and ``b_column`` those of the second matrix, ``c_row`` and ``c_column`` those of the
    result. ``packed`` is memory for packed columns.
    """

    stages: ClassVar[tuple[str, ...]] = ("pack", "multiply")
    slots = (
        *("a", "b", "c", "a_row", "a_term", "b_term", "b_column", "c_row", "c_column"),
        *("terms", "packed"),
    )

    def __init__(self, llvm: Any, frame: Sequence[str], config: ThinConfig, lanes: int) -> None:
        super().__init__(llvm, frame, config.dtype, lanes)
        _, self.columns, self.along, self.high, self.packs = config

    def _pack(self) -> None:
        """Each piece packs its share of the terms."""
        v, code, terms = self.v, self.code, self.argument("terms")
        _, _, first, last = self.share(terms)
        b, packed = self.pointer("b"), self.pointer("packed")
        term, column = self.argument("b_term"), self.argument("b_column")
        for j in range(self.columns):
            start = v.step(b, str(j), column)
            to = v.step(packed, v.number("mul", terms, j), v.itemsize)
            with code.loop("term", first, last) as (k, _):
                number = v.memory.load_one(v.step(start, k, term), v.dtype)
                v.memory.store_one(v.step(to, k, v.itemsize), number, v.dtype)

    def _multiply(self) -> None:
        v, terms = self.v, self.argument("terms")
        start, line = self.pointer("b"), self.argument("b_column")
        if self.packs:
            start, line = self.pointer("packed"), v.number("mul", terms, v.itemsize)
        self.own = [v.step(start, str(j), line) for j in range(self.columns)]
        if self.along == "terms":
            self._along_terms(terms)
        else:
            self._along_rows(terms)

    def _result(self, row: str, column: int) -> str:
        """The address of an element of the result."""
        to = self.v.step(self.pointer("c"), row, self.argument("c_row"))
        return str(self.v.step(to, str(column), self.argument("c_column")))

    # Vectors of rows -----------------------------------------------------------------------------

    def _along_rows(self, terms: str) -> None:
        v, code, a = self.v, self.code, self.pointer("a")
        with code.loop("row", "%r0", "%r1", self.high * self.lanes) as (row, _):
            ends = [v.number("add", row, i * self.lanes) for i in range(self.high + 1)]
            ends = [self.least(end, "%r1") for end in ends]
            counts = [v.number("sub", end, i) for i, end in pairwise(ends)]
            masks = [str(self.s.less(v.memory.iota, v.count(n)).text) for n in counts]
            start = v.step(a, row, v.itemsize)
            none = [v.zero] * (self.high * self.columns)
            with code.loop("term", 0, terms, 1, none) as (k, sums):
                here = v.step(start, k, self.argument("a_term"))
                factors = [v.load_splat(v.step(x, k, v.itemsize)) for x in self.own]
                rows = [v.load(here, i * v.size, mask=mask) for i, mask in enumerate(masks)]
                self._add(sums, rows, factors)
            for number, total in enumerate(sums):
                i, j = divmod(number, self.columns)
                to = self._result(ends[i], j)
                v.scatter(total, to, self.argument("c_row"), masks[i])

    # Vectors of terms ----------------------------------------------------------------------------

    def _along_terms(self, terms: str) -> None:
        v, code = self.v, self.code
        whole = v.number("mul", v.number("udiv", terms, self.lanes), self.lanes)
        rest = v.number("sub", terms, whole)
        tail = str(self.s.less(v.memory.iota, v.count(rest)).text)
        final = v.number("sub", "%r1", 1)
        with code.loop("row", "%r0", "%r1", self.high) as (row, _):
            # The last row replaces missing ones.
            rows = [self.least(v.number("add", row, i), final) for i in range(self.high)]
            starts = [v.step(self.pointer("a"), i, self.argument("a_row")) for i in rows]
            none = [v.zero] * (self.high * self.columns)
            with code.loop("term", 0, whole, self.lanes, none) as (k, sums):
                self._add(sums, self._loaded(starts, k), self._loaded(self.own, k))
            with code.loop("rest", 0, self.least(rest, "1"), 1, sums) as (_, found):
                own = self._loaded(starts, whole, tail), self._loaded(self.own, whole, tail)
                self._add(found, *own)
            for number, total in enumerate(found):
                i, j = divmod(number, self.columns)
                v.memory.store_one(self._result(rows[i], j), v.total(total), v.dtype)

    def _loaded(self, starts: list[str], k: str, mask: str = "") -> list[Any]:
        v = self.v
        return [v.load(v.step(x, k, v.itemsize), mask=mask) for x in starts]

    def _add(self, sums: list[Any], rows: list[Any], factors: list[Any]) -> None:
        """Add the products of all rows and columns."""
        for i, own in enumerate(rows):
            for j, factor in enumerate(factors):
                at = i * self.columns + j
                sums[at] = self.s.multiply_add(own, factor, sums[at])


class ReadyThinWriter(ThinProductWriter):
    """Writes ``multiply`` alone, for columns with contiguous terms."""

    stages = ("multiply",)
