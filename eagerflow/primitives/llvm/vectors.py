"""Vectors of floats in LLVM IR, and products of small matrices in registers.

A block of rows and of vectors of columns is accumulated in registers: each step reads a vector of
columns once for all rows and a number of each row once for all columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eagerflow.runtime import machine_code

AVX512_BYTES = 64


def round_up(size: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-size // step) * step


class RegisterBlock(NamedTuple):
    """A block of sums: rows, and vectors side by side."""

    rows: int
    vectors: int


def register_block(rows: int, vectors: int, registers: int, exact: bool = False) -> RegisterBlock:
    """The block that covers ``rows`` times ``vectors`` in the fewest cycles.

    A cycle does two products and reads two operands; each sum has a latency of four cycles.
    ``exact`` blocks do not extend beyond the last row.
    """
    found = []
    for wide in range(1, min(vectors, 4) + 1):
        if vectors % wide:
            continue
        for high in range(1, (registers - 1 - wide) // wide + 1):
            if exact and rows % high:
                continue
            cycles = max(high * wide, high + wide, 8) / 2 + 0.5
            blocks = -(-rows // high) * (vectors // wide)
            found.append((blocks * cycles, -high * wide, RegisterBlock(high, wide)))
    return min(found)[2]


class VectorWriter:
    """Writes loads and stores of vectors of one type, at addresses and offsets in bytes.

    ``llvm`` is the package that writes code, or None if nothing is written. Values are Operands;
    addresses, counts and masks are their names in the code.
    """

    def __init__(self, llvm: Any, dtype: str, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        self.itemsize = np.dtype(dtype).itemsize
        self.size = lanes * self.itemsize
        if llvm is not None:
            self._llvm = llvm
            self.code = code = llvm.instructions.Code()
            self.at, self.number, self.step = code.at, code.number, code.step
            self.s = llvm.instructions.Emitter(self.code, avx512=self.size == AVX512_BYTES)
            self.memory = self.memory_of(lanes)
            self.zero = self.s.splat(self.s.constant(0, dtype), lanes)

    def count(self, text: str) -> Any:
        """A count as an operand of scalar instructions."""
        return self._llvm.instructions.Operand(text, "uint64", 0)

    # Memory --------------------------------------------------------------------------------------

    def memory_of(self, lanes: int) -> Any:
        """The writer of loads and stores of vectors of a number of elements."""
        halves = machine_code.host().has_halves
        return self._llvm.memory.Memory(self.code, self.s, lanes, half_hardware=halves)

    def first(self, count: str, lanes: int) -> str:
        """The mask of the first ``count`` lanes, of 64 at most."""
        kind = f"<{lanes} x i8>"
        few = self.s.minimum(self.count(count), lanes)
        byte = self.s.splat(self.s.convert(few, "uint8"), lanes)
        places = ", ".join(f"i8 {i}" for i in range(lanes))
        return str(self.code.value(f"icmp ugt {kind} {byte.text}, <{places}>"))

    def where(self, condition: str, mask: str, lanes: int = 0) -> str:
        """A mask, or an empty one if a condition is false."""
        kind = f"<{lanes or self.lanes} x i1>"
        return str(self.code.value(f"select i1 {condition}, {kind} {mask}, {kind} zeroinitializer"))

    def span(self, pointer: str, offset: str | int = 0, dtype: str = "", **more: Any) -> Any:
        """Elements in memory, optionally of another type."""
        return self._llvm.memory.Span(self.at(pointer, offset), dtype or self.dtype, **more)

    def _mask(self, count: int, mask: str) -> str:
        """A mask, or that of the first ``count`` elements; "" for all."""
        if mask or not count or count == self.lanes:
            return mask
        bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(self.lanes))
        return f"<{bits}>"

    def load(self, pointer: str, offset: str | int = 0, count: int = 0, mask: str = "") -> Any:
        """Load a vector; with a count or a mask, the other elements are zeros."""
        return self.memory.load(self.span(pointer, offset), self._mask(count, mask))

    def store(
        self, value: Any, pointer: str, offset: str | int = 0, count: int = 0, mask: str = ""
    ) -> None:
        """Store a vector, or its first ``count`` elements, or those of a mask."""
        self.memory.store(self.span(pointer, offset), value, self._mask(count, mask))

    def stream(self, value: Any, pointer: str) -> None:
        """Store a vector to an aligned address, bypassing the caches.

        A reader must synchronize with a later atomic write of the writer.
        """
        self.code.declarations["nontemporal"] = "!0 = !{i32 1}"
        place = f"ptr {pointer}, align {self.size}"
        self.code.line(f"store {value.typed}, {place}, !nontemporal !0")

    def gather(self, pointer: str, stride: int, mask: str = "") -> Any:
        """Load elements ``stride`` bytes apart; with a mask, the other elements are zeros."""
        strided = self._llvm.memory.STRIDED
        return self.memory.load(self.span(pointer, 0, kind=strided, stride=str(stride)), mask)

    def scatter(self, value: Any, pointer: str, stride: str, mask: str) -> None:
        """Store the elements of a mask ``stride`` bytes apart."""
        strided = self._llvm.memory.STRIDED
        self.memory.store(self.span(pointer, 0, kind=strided, stride=stride), value, mask)

    def prefetch_to_write(self, pointer: str, offset: int = 0) -> None:
        """Prefetch a cache line for writing."""
        # For writing, into all cache levels, data.
        how = (("i32", "1"), ("i32", "3"), ("i32", "1"))
        self.code.call("void", "llvm.prefetch.p0", ("ptr", self.at(pointer, offset)), *how)

    def load_splat(self, pointer: str, offset: str | int = 0, dtype: str = "") -> Any:
        """The element at an address, optionally of another type, broadcast to all lanes."""
        one = self.memory.load_one(self.at(pointer, offset), dtype or self.dtype)
        return self.s.splat(one, self.lanes)

    # Lanes ---------------------------------------------------------------------------------------

    def transposed(self, rows: list[Any]) -> list[Any]:
        """The columns of a square matrix, given as a vector for each row.

        log2(lanes) times, the first half of the vectors is interleaved with the second: this
        rotates the bits of an element's index, vector and lane, by one.
        """
        half = self.lanes // 2
        low = [lane for i in range(half) for lane in (i, self.lanes + i)]
        for _ in range(self.lanes.bit_length() - 1):
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [
                self.shuffled(a, b, [lane + first for lane in low])
                for a, b in pairs
                for first in (0, half)
            ]
        return rows

    def total(self, x: Any) -> Any:
        """The sum of all lanes of a vector, by halving, as a scalar."""
        while x.lanes > 1:
            half = x.lanes // 2
            halves = (list(range(first, first + half)) for first in (0, half))
            x = self.s.add(*(self.shuffled(x, x, order) for order in halves))
        return x._replace(text=self.code.value(f"extractelement {x.typed}, i64 0"), lanes=0)

    def shuffled(self, a: Any, b: Any, order: list[int]) -> Any:
        """The lanes of two concatenated vectors, in the given order."""
        mask = ", ".join(f"i32 {lane}" for lane in order)
        text = f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{mask}>"
        return a._replace(text=self.code.value(text), lanes=len(order))

    def together(self, elements: list[Any]) -> Any:
        """A vector of scalars."""
        found = "poison"
        for i, x in enumerate(elements):
            found = self.code.value(f"insertelement {self.zero.type} {found}, {x.typed}, i64 {i}")
        return self.zero._replace(text=found)

    # Loops ---------------------------------------------------------------------------------------

    def fill(self, pointer: str, vectors: str | int) -> None:
        """Zeros in ``vectors`` vectors."""
        with self.code.loop("zero", 0, vectors) as (i, _):
            self.store(self.zero, self.step(pointer, i, self.size))

    def accumulate(
        self,
        block: RegisterBlock,
        sums: list[Any],
        count: str | int,
        row: Callable[[str, int], tuple[str, int]],
        column: Callable[[str], str],
        masks: list[str] | None = None,
    ) -> list[Any]:
        """The ``sums`` of a block after ``count`` steps.

        ``row(step, i)`` is the address of a number of row i, as a pointer and an offset,
        ``column(step)`` that of the vectors, with ``masks`` for existing elements.
        """
        masks = masks or [""] * block.vectors
        with self.code.loop("k", 0, count, 1, sums) as (k, carried):
            start = column(k)
            columns = [self.load(start, j * self.size, mask=m) for j, m in enumerate(masks)]
            for i in range(block.rows):
                number = self.load_splat(*row(k, i))
                for j in range(block.vectors):
                    at = i * block.vectors + j
                    carried[at] = self.s.multiply_add(number, columns[j], carried[at])
        found: list[Any] = carried
        return found

    def no_sums(self, block: RegisterBlock) -> list[Any]:
        """The initial sums of a block."""
        return [self.zero] * (block.rows * block.vectors)
