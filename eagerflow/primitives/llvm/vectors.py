"""Vectors of floats in LLVM's code, and products of small matrices in registers.

A block of rows and of vectors of columns is summed up in registers: each step reads a vector of
columns once for all rows and a number of each row once for all columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

AVX512_BYTES = 64


def round_up(size: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-size // step) * step


class RegisterBlock(NamedTuple):
    """A block of sums: rows, and vectors side by side."""

    rows: int
    vectors: int


def register_block(rows: int, vectors: int, registers: int) -> RegisterBlock:
    """The block that covers ``rows`` times ``vectors`` in the fewest cycles.

    A cycle makes two products and reads two operands; a sum waits four cycles for the next one.
    """
    found = []
    for wide in range(1, min(vectors, 4) + 1):
        if vectors % wide:
            continue
        for high in range(1, (registers - 1 - wide) // wide + 1):
            cycles = max(high * wide, high + wide, 8) / 2 + 0.5
            blocks = -(-rows // high) * (vectors // wide)
            found.append((blocks * cycles, -high * wide, RegisterBlock(high, wide)))
    return min(found)[2]


class VectorWriter:
    """Writes loads and stores of vectors of one type, at addresses and offsets in bytes.

    ``llvm`` is the package of modules that write code, or None where nothing is to be written.
    Values are Operands; addresses, counts and masks are their names in the code.
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
            self.memory = llvm.memory.Memory(self.code, self.s, lanes, half_hardware=False)
            self.zero = self.s.splat(self.s.constant(0, dtype), lanes)

    def count(self, text: str) -> Any:
        """A count as an operand of scalar instructions."""
        return self._llvm.instructions.Operand(text, "uint64", 0)

    # Memory --------------------------------------------------------------------------------------

    def _span(self, pointer: str, offset: str | int, **more: Any) -> Any:
        return self._llvm.memory.Span(self.at(pointer, offset), self.dtype, **more)

    def _mask(self, count: int, mask: str) -> str:
        """A mask, or that of the first ``count`` elements; "" for all of them."""
        if mask or not count or count == self.lanes:
            return mask
        bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(self.lanes))
        return f"<{bits}>"

    def load(self, pointer: str, offset: str | int = 0, count: int = 0, mask: str = "") -> Any:
        """A vector; of ``count`` elements, or those of a mask, if that is given, and zeros."""
        return self.memory.load(self._span(pointer, offset), self._mask(count, mask))

    def store(
        self, value: Any, pointer: str, offset: str | int = 0, count: int = 0, mask: str = ""
    ) -> None:
        """Write a vector, or its first ``count`` elements, or those of a mask."""
        self.memory.store(self._span(pointer, offset), value, self._mask(count, mask))

    def stream(self, value: Any, pointer: str) -> None:
        """Write a vector to an address that is placed for it, past the caches.

        Who reads it must have waited for what the writer has done atomically since.
        """
        self.code.declarations["nontemporal"] = "!0 = !{i32 1}"
        place = f"ptr {pointer}, align {self.size}"
        self.code.line(f"store {value.typed}, {place}, !nontemporal !0")

    def gather(self, pointer: str, stride: int, mask: str = "") -> Any:
        """Elements ``stride`` bytes apart, those of a mask if it is given, and zeros."""
        strided = self._llvm.memory.STRIDED
        return self.memory.load(self._span(pointer, 0, kind=strided, stride=str(stride)), mask)

    def load_splat(self, pointer: str, offset: str | int = 0, dtype: str = "") -> Any:
        """The element at an address, of another type if it is given, in all lanes."""
        one = self.memory.load_one(self.at(pointer, offset), dtype or self.dtype)
        return self.s.splat(one, self.lanes)

    def together(self, elements: list[Any]) -> Any:
        """A vector of single elements."""
        found = "poison"
        for i, x in enumerate(elements):
            found = self.code.value(f"insertelement {self.zero.type} {found}, {x.typed}, i64 {i}")
        return self.zero._replace(text=found)

    def transposed(self, rows: list[Any]) -> list[Any]:
        """The columns of a square of as many vectors as each has lanes."""
        lanes, apart = self.lanes, 1
        while apart < lanes:
            found = list(rows)
            for i in range(lanes):
                if i & apart:
                    continue
                for side in (0, apart):
                    # Squares of ``apart`` by ``apart`` elements change their places.
                    order = [
                        (k & ~apart | side) + (lanes if k & apart else 0) for k in range(lanes)
                    ]
                    found[i + side] = self._shuffled(rows[i], rows[i + apart], order)
            rows, apart = found, 2 * apart
        return rows

    def _shuffled(self, a: Any, b: Any, order: list[int]) -> Any:
        """Elements of two vectors, of which those of the second are counted on."""
        mask = ", ".join(f"i32 {i}" for i in order)
        text = f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{mask}>"
        return a._replace(text=self.code.value(text))

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
        """``sums`` of a block, to which ``count`` steps are added.

        ``row(step, i)`` is the address of a number of row i, as a pointer and an offset,
        ``column(step)`` that of the vectors, of which ``masks`` tell what there is.
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
        """The sums of a block before anything is added."""
        return [self.zero] * (block.rows * block.vectors)
