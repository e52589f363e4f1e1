"""Common parts of attention kernels, in LLVM IR.

Rows of queries, keys and values are copied, a chunk at a time, into memory that stays in a core's
caches; products of tiles are accumulated in registers. Only the scores of one tile are in memory
(T. Dao, FlashAttention-2, arXiv:2307.08691).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from eagerflow.codegen.functions.exponential import EXP2
from eagerflow.codegen.functions.parts import FORMATS, horner, nearest, power_of_two
from eagerflow.codegen.llvm.instructions import llvm_type
from eagerflow.primitives.llvm.stage_writer import CACHE_LINE_BYTES, StageWriter
from eagerflow.primitives.llvm.vectors import RegisterBlock, register_block, round_up

UNROLLED_VECTORS = 8  # of a row, copied without a loop

Rows = tuple[str, str | int]
"""Rows in memory: their address, and the stride in bytes."""


def place_slots(*names: str) -> tuple[str, ...]:
    """An array in the frame: an address, and the strides of three axes in bytes."""
    return tuple(f"{name}{part}" for name in names for part in ("", "_batch", "_head", "_row"))


class AttentionConfig(NamedTuple):
    """The parameters of a kernel."""

    dtype: str
    width: int
    """Of queries and keys."""
    value_width: int
    is_causal: bool
    mask: str
    """The type of the mask or bias; "" if there is none."""
    by_query: bool
    """Whether the mask has separate rows for queries."""


class AttentionWriter(StageWriter):
    """Common parts of both kernels."""

    def __init__(
        self, llvm: Any, frame: Sequence[str], config: AttentionConfig, lanes: int, registers: int
    ) -> None:
        super().__init__(llvm, frame, config.dtype, lanes)
        self.config, self.registers = config, registers
        self.itemsize = self.v.itemsize
        self.width, self.value_width = (
            round_up(n, lanes) for n in (config.width, config.value_width)
        )
        self.line, self.value_line = (n * self.itemsize for n in (self.width, self.value_width))
        self.integer = FORMATS[config.dtype].integer
        self._taken = 0

    def block(self, rows: int, width: int) -> RegisterBlock:
        """The register block for the rows of a tile, and their elements."""
        return register_block(rows, width // self.lanes, self.registers, exact=True)

    # Memory --------------------------------------------------------------------------------------

    @property
    def scratch(self) -> int:
        """Bytes of working memory for each thread."""
        return self._taken

    def room(self, size: int) -> int:
        """Reserve a part of it; returns its offset."""
        at = self._taken
        self._taken += round_up(size, CACHE_LINE_BYTES)
        return at

    def clear(self, offset: int, size: int) -> None:
        """Zero memory that blocks may read without any row or column written to it."""
        self.v.fill(self.own(offset), -(-size // self.v.size))

    def own(self, offset: int) -> str:
        """The address of reserved memory."""
        return self.v.at("%scratch", offset)

    def head(self, name: str, batch: str, head: str) -> str:
        """The address of a head's rows in an array."""
        v = self.v
        whole = v.step(self.pointer(name), batch, self.argument(f"{name}_batch"))
        return v.step(whole, head, self.argument(f"{name}_head"))

    def rows(self, name: str, start: str, first: str) -> Rows:
        """The rows of a head from ``first`` on."""
        stride = self.argument(f"{name}_row")
        return self.v.step(start, first, stride), stride

    def each_vector(self, count: str, width: int, one: Callable[..., None], *rows: Rows) -> None:
        """Call ``one(*addresses, elements)`` for all vectors of the rows of some arrays."""
        v = self.v
        with self.code.loop("row", 0, count) as (i, _):
            starts = [v.step(start, i, stride) for start, stride in rows]
            self.parts(
                width, lambda at, n: one(*(v.at(x, at) for x in starts), n), UNROLLED_VECTORS
            )

    def copy(
        self,
        count: str,
        width: int,
        source: Rows,
        target: Rows,
        factor: Any = None,
        padded: bool = False,
    ) -> None:
        """Copy rows, multiplied by a factor.

        Rows of a ``padded`` target are whole vectors: they are filled with zeros.
        """
        v, s = self.v, self.s

        def one(start: str, to: str, many: int) -> None:
            x = v.load(start, 0, many)
            v.store(x if factor is None else s.multiply(x, factor), to, 0, 0 if padded else many)

        self.each_vector(count, width, one, source, target)

    def neighbours(self, first: str, count: str, rows: Rows) -> list[str]:
        """The addresses of the rows in a vector; missing ones are replaced by the last."""
        v, (start, stride) = self.v, rows
        last = v.number("sub", count, 1)
        numbers = (v.number("add", first, k) for k in range(self.lanes))
        return [v.step(start, self.least(number, last), stride) for number in numbers]

    def module(self) -> str:
        """The code of all stages, and of the functions that they call."""
        v, s, floats = self.v, self.s, llvm_type(self.v.dtype)
        sizes = "i64 %stride, i64 %rows, i64 %width, i64 %line"
        with self.code.function(f"turn(ptr %source, ptr %to, {sizes}, {floats} %factor)"):
            factor = s.splat(s.constant(0, v.dtype)._replace(text="%factor"), self.lanes)
            with self.code.loop("row", 0, "%rows", self.lanes) as (i, _):
                rows = self.neighbours(i, "%rows", ("%source", "%stride"))
                to = v.step("%to", i, self.itemsize)
                with self.code.loop("column", 0, "%width", self.lanes) as (j, _):
                    at = v.number("mul", j, self.itemsize)
                    there = self.below(v.number("sub", "%width", j))
                    columns = v.transposed([v.load(row, at, mask=there) for row in rows])
                    for k, x in enumerate(columns):
                        line = v.number("add", j, k)
                        v.store(s.multiply(x, factor), v.step(to, line, "%line"))
        return super().module()

    def turn(self, count: str, width: int, source: Rows, target: Rows, factor: Any = None) -> None:
        """Copy rows, multiplied by a factor, as columns; both are padded to whole vectors."""
        kind = llvm_type(self.v.dtype)
        number = self.s.constant(1, self.v.dtype) if factor is None else factor
        (start, stride), (to, line) = source, target
        sizes = ", ".join(f"i64 {x}" for x in (stride, count, width, line))
        self.code.line(f"call void @turn(ptr {start}, ptr {to}, {sizes}, {kind} {number.text})")

    def added(self, place: str, first: str | int, mask: str) -> Any:
        """The mask's bias for a vector of scores; ``first`` is the index of the element."""
        kind = self.config.mask
        span = self.v.span(place, dtype=kind, position=str(first))
        x = self.v.memory.load(span, mask)
        if kind in FORMATS:
            return x
        return self.s.select(x, self.s.constant(0, self.v.dtype), -math.inf)

    def masked(self, x: Any, added: Any) -> Any:
        """Scores plus the mask's bias; masked ones are hidden even if they are NaN or infinite."""
        s = self.s
        return s.select(s.equal(added, -math.inf), -math.inf, s.add(x, added))

    # Numbers -------------------------------------------------------------------------------------

    def most(self, a: str, b: str) -> str:
        """The larger one of two counts."""
        return str(self.s.maximum(self.v.count(a), self.v.count(b)).text)

    def index(self, number: str) -> Any:
        """A count broadcast to all lanes, as an integer of the elements' size."""
        return self.s.splat(self.s.convert(self.v.count(number), self.integer), self.lanes)

    def indices(self, first: str) -> Any:
        """Counts from the first one on."""
        return self.s.add(self.s.convert(self.v.memory.iota, self.integer), self.index(first))

    def below(self, end: str) -> str:
        """The mask of the lanes before a count."""
        return str(self.s.less(self.v.memory.iota, self.s.convert(self.v.count(end), "int64")).text)

    def power(self, x: Any) -> Any:
        """e^x for numbers below 88; those below the smallest normal number are 0."""
        s, dtype = self.s, self.v.dtype
        form = FORMATS[dtype]
        x = s.multiply(x, math.log2(math.e))
        n, bits = nearest(s, x, 1, form.bias)
        r = s.subtract(x, n)
        y = s.fma(r, horner(s, r, EXP2[dtype]), 1)
        y = s.multiply(y, power_of_two(s, bits, dtype))
        return s.select(s.less(x, 1.0 - form.bias), 0, y)

    # Products ------------------------------------------------------------------------------------

    def product(
        self,
        block: RegisterBlock,
        extents: tuple[str | int, int, str | int],
        row: Callable[[str, str], tuple[str, int]],
        columns: Rows,
        begin: Callable[[str, str], list[Any]],
        end: Callable[[str, str, list[Any]], None],
    ) -> None:
        """The product of two matrices of given rows, columns, and terms of each sum.

        ``row(i, k)`` returns the address of term k of row i, and the stride to the next row;
        ``columns`` are the rows of the second matrix. ``begin(i, offset)`` returns the initial sums
        of the block at row i and an offset of columns; ``end(i, offset, sums)`` consumes the final
        ones.
        """
        v, code, panel = self.v, self.code, block.vectors * self.v.size
        high, wide, terms = extents
        with (
            code.loop("row", 0, high, block.rows) as (i, _),
            code.loop("panel", 0, wide * self.itemsize // panel) as (p, _),
        ):
            at = v.number("mul", p, panel)
            start, line = v.at(columns[0], at), columns[1]

            def term(k: str, r: int) -> tuple[str, int]:
                place, stride = row(i, k)
                return place, r * stride

            sums = v.accumulate(block, begin(i, at), terms, term, lambda k: v.step(start, k, line))
            end(i, at, sums)
