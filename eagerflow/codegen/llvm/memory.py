"""Loads and stores in LLVM IR: types in memory, strides, and masks."""

from __future__ import annotations

from typing import Any, NamedTuple

from eagerflow.codegen.instructions import item_size, value_type
from eagerflow.codegen.layout import BROADCAST, STRIDED, UNIT
from eagerflow.codegen.llvm.instructions import (
    Code,
    Emitter,
    Operand,
    literal,
    llvm_type,
    type_suffix,
)
from eagerflow.codegen.small_floats import NARROWED, WIDENED

_HELD = {"float16": "uint16", "bfloat16": "uint16", "bool": "uint8"}


def held_type(dtype: str) -> str:
    """The type of loads and stores for a type in memory."""
    return _HELD.get(dtype, dtype)


class Span(NamedTuple):
    """The elements of a vector in memory: an address, the type, the index of the first.

    ``kind`` is their spacing, as in ``Layout``: ``stride`` bytes apart if STRIDED.
    """

    pointer: str
    dtype: str
    position: str = "0"
    kind: int = UNIT
    stride: str = ""


class Memory:
    """Moves vectors of ``lanes`` elements between memory and registers."""

    def __init__(self, code: Code, emit: Emitter, lanes: int, half_hardware: bool) -> None:
        self.code, self.emit, self.lanes = code, emit, lanes
        self._half_hardware = half_hardware
        numbers = ", ".join(f"i64 {i}" for i in range(lanes))
        self.iota = Operand(f"<{numbers}>", "int64", lanes)

    # Addresses -----------------------------------------------------------------------------------

    def offset(self, pointer: str, count: str, dtype: str) -> str:
        """The address advanced by ``count`` elements."""
        return self.code.at(pointer, count, f"i{8 * item_size(dtype)}")

    def _addresses(self, span: Span) -> tuple[str, str]:
        """A vector of addresses, with its type."""
        base = self.code.step(span.pointer, span.position, span.stride)
        by = self.emit.multiply(self.iota, Operand(span.stride, "int64", 0))
        places = self.code.value(f"getelementptr i8, ptr {base}, {by.typed}")
        return f"<{self.lanes} x ptr>", places

    # One element ---------------------------------------------------------------------------------

    def load_one(self, pointer: str, dtype: str) -> Operand:
        """The element at an address."""
        held = held_type(dtype)
        text = self.code.value(f"load {llvm_type(held)}, ptr {pointer}, align {item_size(dtype)}")
        return self._widen(Operand(text, held, 0), dtype)

    def store_one(self, pointer: str, value: Operand, dtype: str) -> None:
        """Store the element at an address."""
        x = self._narrow(value, dtype)
        self.code.line(f"store {x.typed}, ptr {pointer}, align {item_size(dtype)}")

    # Vectors -------------------------------------------------------------------------------------

    def load(self, span: Span, mask: str = "") -> Operand:
        """Load a vector of elements; lanes outside the mask are 0, and are not read."""
        pointer, dtype = span.pointer, span.dtype
        if span.kind == BROADCAST:
            return self.emit.splat(self.load_one(pointer, dtype), self.lanes)
        held = held_type(dtype)
        if span.kind == STRIDED:
            text = self._masked("gather", held, self._addresses(span), mask or self.everything)
        else:
            place = self.offset(pointer, span.position, dtype)
            if mask:
                text = self._masked("load", held, ("ptr", place), mask)
            else:
                vector = llvm_type(held, self.lanes)
                text = self.code.value(f"load {vector}, ptr {place}, align {item_size(dtype)}")
        return self._widen(Operand(text, held, self.lanes), dtype)

    def store(self, span: Span, value: Operand, mask: str = "") -> None:
        """Store a vector of elements; lanes outside the mask are not written."""
        x = self._narrow(self.emit.splat(value, self.lanes), span.dtype)
        if span.kind == UNIT:
            place = self.offset(span.pointer, span.position, span.dtype)
            if mask:
                self._masked("store", x.dtype, ("ptr", place), mask, x.text)
            else:
                size = item_size(span.dtype)
                self.code.line(f"store {x.typed}, ptr {place}, align {size}")
        else:
            where = self._addresses(span)
            self._masked("scatter", x.dtype, where, mask or self.everything, x.text)

    @property
    def everything(self) -> str:
        """The mask of all lanes."""
        return literal(True, "bool", self.lanes).text

    def _masked(
        self, name: str, dtype: str, where: tuple[str, str], mask: str, value: str = ""
    ) -> str:
        """A masked load or gather, with 0 outside of the mask; or a store or scatter of a value."""
        vector, bits = llvm_type(dtype, self.lanes), (llvm_type("bool", self.lanes), mask)
        pointers = f".v{self.lanes}p0" if name in ("gather", "scatter") else ".p0"
        full = f"llvm.masked.{name}.{type_suffix(dtype, self.lanes)}{pointers}"
        size = "i32", str(item_size(dtype))
        if value:
            return self.code.call("void", full, (vector, value), where, size, bits)
        return self.code.call(vector, full, where, size, bits, (vector, "zeroinitializer"))

    # Types in memory -----------------------------------------------------------------------------

    def _widen(self, x: Operand, dtype: str) -> Operand:
        s: Any = self.emit
        if dtype == "bool":
            return s.not_equal(x, 0)
        if dtype == "float16" and self._half_hardware:
            return s.convert(s.bitcast(x, "float16"), "float32")
        found: Operand = WIDENED[dtype](s, x) if dtype in WIDENED else x
        return found

    def _narrow(self, x: Operand, dtype: str) -> Operand:
        s: Any = self.emit
        if dtype == "bool":
            return s.convert(x, "uint8")
        if x.dtype != value_type(dtype):
            raise TypeError(f"{x.dtype} is stored as {dtype}")
        if dtype == "float16" and self._half_hardware:
            return s.bitcast(s.convert(x, "float16"), "uint16")
        found: Operand = NARROWED[dtype](s, x) if dtype in NARROWED else x
        return found
