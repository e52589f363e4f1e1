"""Element types of matrix products, and their elements as operands of multiply-adds.

Sums are float32, float64 or int32. Smaller floats are widened on reads. A lane holds several 8-bit
integers: four if the processor accumulates four byte products per lane (AVX-512 VNNI), otherwise
two as 16 bits. The contents of a lane, one term or several, are a *unit*.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eagerflow.primitives.llvm.vectors import VectorWriter

_SIGN_BITS = -0x7F7F7F80  # 0x80808080: the highest bit of each byte


class Terms(NamedTuple):
    """The types of factors, sums and result."""

    a: str
    b: str
    out: str
    sums: str
    group: int = 1
    """Terms in a unit."""

    @property
    def are_plain(self) -> bool:
        """Whether elements in memory are units."""
        return self.a == self.b == self.sums

    @property
    def are_rounded(self) -> bool:
        """Whether the result has a smaller type than its sums."""
        return self.out != self.sums

    @property
    def are_shifted(self) -> bool:
        """Whether 128 is added to the first factor, as the instruction takes unsigned bytes."""
        return self.group == 4 and self.a == "int8"


class UnitReader:
    """Writes the reading of units of two matrices, and their multiplication and addition."""

    def __init__(self, v: VectorWriter, terms: Terms) -> None:
        self.v, self.terms, self.s, self.code = v, terms, v.s, v.code

    # Reading -------------------------------------------------------------------------------------

    def line(self, start: str, dtype: str, apart: str, mask: str = "", left: str = "") -> Any:
        """Units of adjacent elements, with terms ``apart`` bytes apart.

        ``left`` is the number of terms, if it may be less than that of a unit.
        """
        v, group = self.v, self.terms.group
        if group == 1:
            return v.memory.load(v.span(start, 0, dtype), mask)
        lines = []
        for term in range(group):
            own = mask
            if left:
                there = self.code.value(f"icmp ult i64 {term}, {left}")
                own = v.where(there, mask or v.memory.everything)
            lines.append(v.memory.load(v.span(v.step(start, str(term), apart), 0, dtype), own))
        if group == 2:
            lines = [self.s.convert(x, "int16") for x in lines]
        return self._units(self._interleaved(lines))

    def along(self, start: str, dtype: str, mask: str = "") -> Any:
        """Units of contiguous terms; ``mask`` is one of ``below``."""
        v, lanes = self.v, self.v.lanes * self.terms.group
        if self.terms.group == 1:
            return v.memory.load(v.span(start, 0, dtype), mask)
        x = v.memory_of(lanes).load(v.span(start, 0, dtype), mask)
        return self._units(self.s.convert(x, "int16") if self.terms.group == 2 else x)

    def below(self, left: str) -> str:
        """The mask, for ``along``, of a number of first terms."""
        return self.v.first(left, self.v.lanes * self.terms.group)

    def _units(self, x: Any) -> Any:
        """A vector of terms, converted to units."""
        zero = self.v.zero
        return zero._replace(text=self.code.value(f"bitcast {x.typed} to {zero.type}"))

    def _interleaved(self, lines: list[Any]) -> Any:
        """The interleaved lanes of some vectors."""
        while len(lines) > 1:
            half = len(lines) // 2
            lanes = lines[0].lanes
            order = [i for lane in range(lanes) for i in (lane, lanes + lane)]
            pairs = zip(lines[:half], lines[half:], strict=True)
            lines = [self.v.shuffled(x, y, order) for x, y in pairs]
        return lines[0]

    # Multiplying ---------------------------------------------------------------------------------

    def of_first(self, units: Any) -> Any:
        """Units of the first factor in the form for multiplication."""
        if not self.terms.are_shifted:
            return units
        return self.s.bitwise_xor(units, _SIGN_BITS)

    def shift(self, units: Any, total: Any) -> Any:
        """A total, plus the contribution of the 128 that is added to the first factor."""
        ones = self.s.splat(self.s.constant(_SIGN_BITS, "int32"), self.v.lanes)
        return self.multiply_add(ones, units, total)

    def multiply_add(self, a: Any, b: Any, total: Any) -> Any:
        """A total plus the products of the terms of units."""
        if self.terms.group == 1:
            return self.s.multiply_add(a, b, total)
        if self.terms.group == 2:
            return self._pairs(a, b, total)
        vector = total.type
        name = f"llvm.x86.avx512.vpdpbusd.{8 * self.v.size}"
        given = ((vector, x.text) for x in (total, a, b))
        return total._replace(text=self.code.call(vector, name, *given))

    def _pairs(self, a: Any, b: Any, total: Any) -> Any:
        """A total plus pairs of 16-bit products, for which processors have one instruction."""
        lanes, code = 2 * self.v.lanes, self.code
        wide = []
        for x in (a, b):
            words = code.value(f"bitcast {x.typed} to <{lanes} x i16>")
            text = code.value(f"sext <{lanes} x i16> {words} to <{lanes} x i32>")
            wide.append(x._replace(text=text, lanes=lanes))
        products = self.s.multiply(*wide)
        halves = [self.v.shuffled(products, products, [*range(i, lanes, 2)]) for i in (0, 1)]
        return self.s.add(total, self.s.add(*halves))
