"""Products of small matrices in registers, as LLVM's code: what convolutions are made of.

A block of rows and of vectors of columns is summed up in registers: each step reads a vector of
columns once for all rows and a number of each row once for all columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Shape", "Sum", "Vectors", "block_shape", "up"]

_KINDS = {"float32": ("float", "f32", 4), "float64": ("double", "f64", 8)}


def up(size: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-size // step) * step


class Shape(NamedTuple):
    """A block of sums: rows, and vectors side by side."""

    rows: int
    vectors: int


class Sum(NamedTuple):
    """A value that a loop carries on, as ``Code.loop`` has them."""

    text: str
    dtype: str
    lanes: int


def block_shape(rows: int, vectors: int, registers: int) -> Shape:
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
            found.append((blocks * cycles, -high * wide, Shape(high, wide)))
    return min(found)[2]


class Vectors:
    """Writes loads, stores and arithmetic of vectors of one type into a ``Code``."""

    def __init__(self, code: Any, dtype: str, lanes: int) -> None:
        self.code, self.dtype, self.lanes = code, dtype, lanes
        self.element, self._suffix, self.itemsize = _KINDS[dtype]
        self.type = f"<{lanes} x {self.element}>"
        self.size = lanes * self.itemsize
        self.zero = "zeroinitializer"

    # Addresses and numbers -----------------------------------------------------------------------

    def at(self, pointer: str, offset: str | int) -> str:
        """The address ``offset`` bytes further on."""
        if offset == 0:
            return pointer
        return self.code.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def number(self, operation: str, a: str | int, b: str | int) -> str:
        """Arithmetic of 64-bit integers."""
        if operation == "mul" and b == 1:
            return str(a)
        return self.code.value(f"{operation} i64 {a}, {b}")

    def step(self, pointer: str, count: str, size: int) -> str:
        """The address ``count`` times ``size`` bytes further on."""
        return self.at(pointer, self.number("mul", count, size))

    def argument(self, slot: int) -> str:
        """A number of the frame."""
        place = self.at("%frame", 8 * slot)
        return self.code.value(f"load i64, ptr {place}, align 8")

    def pointer(self, slot: int) -> str:
        """An address of the frame."""
        place = self.at("%frame", 8 * slot)
        return self.code.value(f"load ptr, ptr {place}, align 8")

    # Memory --------------------------------------------------------------------------------------

    def _mask(self, count: int, mask: str = "") -> str:
        if mask:
            return f"<{self.lanes} x i1> {mask}"
        bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(self.lanes))
        return f"<{self.lanes} x i1> <{bits}>"

    def load(self, pointer: str, offset: str | int = 0, count: int = 0, mask: str = "") -> str:
        """A vector; of ``count`` elements, or those of a mask, if that is given, and zeros."""
        place = self.at(pointer, offset)
        if not mask and (not count or count == self.lanes):
            return self.code.value(f"load {self.type}, ptr {place}, align {self.itemsize}")
        name = f"llvm.masked.load.v{self.lanes}{self._suffix}.p0"
        bits = f"<{self.lanes} x i1>"
        self.code.declarations[name] = f"declare {self.type} @{name}(ptr, i32, {bits}, {self.type})"
        return self.code.value(
            f"call {self.type} @{name}(ptr {place}, i32 {self.itemsize}, "
            f"{self._mask(count, mask)}, {self.type} zeroinitializer)"
        )

    def store(
        self, value: str, pointer: str, offset: str | int = 0, count: int = 0, mask: str = ""
    ) -> None:
        """Write a vector, or its first ``count`` elements, or those of a mask."""
        place = self.at(pointer, offset)
        if not mask and (not count or count == self.lanes):
            self.code.line(f"store {self.type} {value}, ptr {place}, align {self.itemsize}")
            return
        name = f"llvm.masked.store.v{self.lanes}{self._suffix}.p0"
        bits = f"<{self.lanes} x i1>"
        self.code.declarations[name] = f"declare void @{name}({self.type}, ptr, i32, {bits})"
        self.code.line(
            f"call void @{name}({self.type} {value}, ptr {place}, i32 {self.itemsize}, "
            f"{self._mask(count, mask)})"
        )

    def gather(self, pointer: str, stride: int, mask: str = "") -> str:
        """Elements ``stride`` bytes apart, those of a mask if it is given, and zeros."""
        numbers = ", ".join(f"i64 {i * stride}" for i in range(self.lanes))
        places = self.code.value(
            f"getelementptr i8, ptr {pointer}, <{self.lanes} x i64> <{numbers}>"
        )
        name = f"llvm.masked.gather.v{self.lanes}{self._suffix}.v{self.lanes}p0"
        bits, pointers = f"<{self.lanes} x i1>", f"<{self.lanes} x ptr>"
        self.code.declarations[name] = (
            f"declare {self.type} @{name}({pointers}, i32, {bits}, {self.type})"
        )
        return self.code.value(
            f"call {self.type} @{name}({pointers} {places}, i32 {self.itemsize}, "
            f"{self._mask(self.lanes, mask)}, {self.type} zeroinitializer)"
        )

    def everywhere(self, pointer: str, offset: str | int = 0) -> str:
        """One element in all lanes."""
        place = self.at(pointer, offset)
        one = self.code.value(f"load {self.element}, ptr {place}, align {self.itemsize}")
        first = self.code.value(f"insertelement {self.type} poison, {self.element} {one}, i64 0")
        return self.code.value(
            f"shufflevector {self.type} {first}, {self.type} poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )

    # Arithmetic ----------------------------------------------------------------------------------

    def constant(self, value: float) -> str:
        """A number, exact in float32, in all lanes."""
        return f"splat ({self.element} {value:.8e})"

    def add(self, a: str, b: str) -> str:
        """A + b."""
        return self.code.value(f"fadd {self.type} {a}, {b}")

    def subtract(self, a: str, b: str) -> str:
        """A - b."""
        return self.code.value(f"fsub {self.type} {a}, {b}")

    def multiply(self, a: str, b: str) -> str:
        """A * b."""
        return self.code.value(f"fmul {self.type} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        """A * b + c, rounded once where the processor has an instruction for it."""
        name = f"llvm.fmuladd.v{self.lanes}{self._suffix}"
        kind = self.type
        self.code.declarations[name] = f"declare {kind} @{name}({kind}, {kind}, {kind})"
        return self.code.value(f"call {kind} @{name}({kind} {a}, {kind} {b}, {kind} {c})")

    # Loops ---------------------------------------------------------------------------------------

    def fill(self, pointer: str, vectors: str | int) -> None:
        """Zeros in ``vectors`` vectors."""
        with self.code.loop("zero", "0", str(vectors)) as (i, _):
            self.store(self.zero, self.step(pointer, i, self.size))

    def accumulate(
        self,
        shape: Shape,
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
        masks = masks or [""] * shape.vectors
        with self.code.loop("k", "0", str(count), 1, sums) as (k, carried):
            start = column(k)
            columns = [self.load(start, j * self.size, mask=m) for j, m in enumerate(masks)]
            for i in range(shape.rows):
                number = self.everywhere(*row(k, i))
                for j in range(shape.vectors):
                    at = i * shape.vectors + j
                    total = self.fma(number, columns[j], carried[at].text)
                    carried[at] = carried[at]._replace(text=total)
        return carried
