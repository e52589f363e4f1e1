"""Vectors of floats in LLVM's code, and products of small matrices in registers.

A block of rows and of vectors of columns is summed up in registers: each step reads a vector of
columns once for all rows and a number of each row once for all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_KINDS = {"float32": ("float", "f32", 4), "float64": ("double", "f64", 8)}


def round_up(size: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-size // step) * step


def splat(code: Any, kind: str, lanes: int, number: str) -> str:
    """A vector with one number, of the type that LLVM calls ``kind``, in all lanes."""
    vector = f"<{lanes} x {kind}>"
    one = code.value(f"insertelement {vector} poison, {kind} {number}, i64 0")
    mask = f"<{lanes} x i32> zeroinitializer"
    found: str = code.value(f"shufflevector {vector} {one}, {vector} poison, {mask}")
    return found


class RegisterBlock(NamedTuple):
    """A block of sums: rows, and vectors side by side."""

    rows: int
    vectors: int


class _Carried(NamedTuple):
    """A value that a loop carries on, as ``Code.loop`` has them."""

    text: str
    dtype: str
    lanes: int


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
    """Writes loads, stores and arithmetic of vectors of one type into a ``Code``.

    Values and addresses are their names in the code; offsets and strides are in bytes.
    """

    def __init__(self, code: Any, dtype: str, lanes: int) -> None:
        self.code, self.dtype, self.lanes = code, dtype, lanes
        self.element, kind, self.itemsize = _KINDS[dtype]
        self.type, self.suffix = f"<{lanes} x {self.element}>", f"v{lanes}{kind}"
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

    def quotient_and_rest(self, number: str, divisor: int) -> tuple[str, str]:
        """A count divided by a number, and the remainder."""
        return self.number("udiv", number, divisor), self.number("urem", number, divisor)

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

    def _masked(self, count: int, mask: str) -> tuple[str, str]:
        """A mask, or that of the first ``count`` elements, with its type."""
        if not mask:
            bits = ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(self.lanes))
            mask = f"<{bits}>"
        return f"<{self.lanes} x i1>", mask

    def _is_whole(self, count: int, mask: str) -> bool:
        return not mask and (not count or count == self.lanes)

    def load(self, pointer: str, offset: str | int = 0, count: int = 0, mask: str = "") -> str:
        """A vector; of ``count`` elements, or those of a mask, if that is given, and zeros."""
        place = self.at(pointer, offset)
        if self._is_whole(count, mask):
            return self.code.value(f"load {self.type}, ptr {place}, align {self.itemsize}")
        return self.code.call(
            self.type,
            f"llvm.masked.load.{self.suffix}.p0",
            ("ptr", place),
            ("i32", str(self.itemsize)),
            self._masked(count, mask),
            (self.type, self.zero),
        )

    def store(
        self, value: str, pointer: str, offset: str | int = 0, count: int = 0, mask: str = ""
    ) -> None:
        """Write a vector, or its first ``count`` elements, or those of a mask."""
        place = self.at(pointer, offset)
        if self._is_whole(count, mask):
            self.code.line(f"store {self.type} {value}, ptr {place}, align {self.itemsize}")
            return
        self.code.call(
            "void",
            f"llvm.masked.store.{self.suffix}.p0",
            (self.type, value),
            ("ptr", place),
            ("i32", str(self.itemsize)),
            self._masked(count, mask),
        )

    def gather(self, pointer: str, stride: int, mask: str = "") -> str:
        """Elements ``stride`` bytes apart, those of a mask if it is given, and zeros."""
        numbers = ", ".join(f"i64 {i * stride}" for i in range(self.lanes))
        places = self.code.value(
            f"getelementptr i8, ptr {pointer}, <{self.lanes} x i64> <{numbers}>"
        )
        return self.code.call(
            self.type,
            f"llvm.masked.gather.{self.suffix}.v{self.lanes}p0",
            (f"<{self.lanes} x ptr>", places),
            ("i32", str(self.itemsize)),
            self._masked(self.lanes, mask),
            (self.type, self.zero),
        )

    def load_splat(self, pointer: str, offset: str | int = 0) -> str:
        """The element at an address in all lanes."""
        place = self.at(pointer, offset)
        number = self.code.value(f"load {self.element}, ptr {place}, align {self.itemsize}")
        return self.splat(number)

    def splat(self, number: str) -> str:
        """One number in all lanes."""
        return splat(self.code, self.element, self.lanes, number)

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

    def divide(self, a: str, b: str) -> str:
        """A / b."""
        return self.code.value(f"fdiv {self.type} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        """A * b + c, rounded once where the processor has an instruction for it."""
        return self._function("fmuladd", a, b, c)

    def sqrt(self, x: str) -> str:
        """The square root."""
        return self._function("sqrt", x)

    def _function(self, name: str, *operands: str) -> str:
        return self.code.call(
            self.type, f"llvm.{name}.{self.suffix}", *((self.type, x) for x in operands)
        )

    # Loops ---------------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self, hint: str, first: str, end: str | int, step: int = 1, sums: list[str] | None = None
    ) -> Iterator[tuple[str, list[str]]]:
        """``Code.loop`` whose sums are vectors of this type, as their names in the code."""
        carried = [_Carried(x, self.dtype, self.lanes) for x in sums or ()]
        names: list[str] = []
        with self.code.loop(hint, first, str(end), step, carried) as (counter, held):
            names[:] = [x.text for x in held]
            yield counter, names
            held[:] = [x._replace(text=name) for x, name in zip(held, names, strict=True)]
        names[:] = [x.text for x in held]

    def fill(self, pointer: str, vectors: str | int) -> None:
        """Zeros in ``vectors`` vectors."""
        with self.loop("zero", "0", vectors) as (i, _):
            self.store(self.zero, self.step(pointer, i, self.size))

    def accumulate(
        self,
        block: RegisterBlock,
        sums: list[str],
        count: str | int,
        row: Callable[[str, int], tuple[str, int]],
        column: Callable[[str], str],
        masks: list[str] | None = None,
    ) -> list[str]:
        """``sums`` of a block, to which ``count`` steps are added.

        ``row(step, i)`` is the address of a number of row i, as a pointer and an offset,
        ``column(step)`` that of the vectors, of which ``masks`` tell what there is.
        """
        masks = masks or [""] * block.vectors
        with self.loop("k", "0", count, 1, sums) as (k, carried):
            start = column(k)
            columns = [self.load(start, j * self.size, mask=m) for j, m in enumerate(masks)]
            for i in range(block.rows):
                number = self.load_splat(*row(k, i))
                for j in range(block.vectors):
                    at = i * block.vectors + j
                    carried[at] = self.fma(number, columns[j], carried[at])
        return carried

    def no_sums(self, block: RegisterBlock) -> list[str]:
        """The sums of a block before anything is added."""
        return [self.zero] * (block.rows * block.vectors)
