"""Types of matrices that are multiplied, and their elements as the operands of multiply-adds.

Sums are float32, float64 or int32. Smaller floats are widened when they are read. Of integers of 8
bits a lane takes several terms at once: four where the processor adds four products of bytes to a
lane (AVX-512 VNNI), else two as 16 bits. What lies in a lane, one term or several, is a *unit*.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eagerflow.primitives.llvm.vectors import VectorWriter

_SIGN_BITS = -0x7F7F7F80  # 0x80808080: the highest bit of each byte


class Terms(NamedTuple):
    """What is multiplied, what sums are made in, what the product is written as."""

    a: str
    b: str
    out: str
    sums: str
    group: int = 1
    """Terms in a unit."""

    @property
    def are_plain(self) -> bool:
        """Whether units are what lies in memory."""
        return self.a == self.b == self.sums

    @property
    def are_rounded(self) -> bool:
        """Whether the product is of a smaller type than its sums."""
        return self.out != self.sums

    @property
    def are_shifted(self) -> bool:
        """Whether the first factor has 128 added, as bytes are multiplied by ones without sign."""
        return self.group == 4 and self.a == "int8"


class UnitReader:
    """Writes how units of two matrices are read, and multiplied and added."""

    def __init__(self, v: VectorWriter, terms: Terms) -> None:
        self.v, self.terms, self.s, self.code = v, terms, v.s, v.code

    # Reading -------------------------------------------------------------------------------------

    def line(self, start: str, dtype: str, apart: str, mask: str = "", left: str = "") -> Any:
        """Units of elements side by side, whose terms are ``apart`` bytes apart.

        ``left`` is how many terms there are, if they may be fewer than a unit has.
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
        """Units whose terms lie one behind the other; ``mask`` is one of ``below``."""
        v, lanes = self.v, self.v.lanes * self.terms.group
        if self.terms.group == 1:
            return v.memory.load(v.span(start, 0, dtype), mask)
        x = v.memory_of(lanes).load(v.span(start, 0, dtype), mask)
        return self._units(self.s.convert(x, "int16") if self.terms.group == 2 else x)

    def below(self, left: str) -> str:
        """The mask, for ``along``, of the first so many terms."""
        return self.v.first(left, self.v.lanes * self.terms.group)

    def _units(self, x: Any) -> Any:
        """A vector of terms as one of units."""
        zero = self.v.zero
        return zero._replace(text=self.code.value(f"bitcast {x.typed} to {zero.type}"))

    def _interleaved(self, lines: list[Any]) -> Any:
        """The lanes of some vectors in turn."""
        while len(lines) > 1:
            half = len(lines) // 2
            lanes = lines[0].lanes
            order = [i for lane in range(lanes) for i in (lane, lanes + lane)]
            pairs = zip(lines[:half], lines[half:], strict=True)
            lines = [self.v.shuffled(x, y, order) for x, y in pairs]
        return lines[0]

    # Multiplying ---------------------------------------------------------------------------------

    def of_first(self, units: Any) -> Any:
        """Units of the first factor as they are multiplied."""
        if not self.terms.are_shifted:
            return units
        return self.s.bitwise_xor(units, _SIGN_BITS)

    def shift(self, units: Any, total: Any) -> Any:
        """A total, and what units of the second factor give with the 128 too much of the first."""
        ones = self.s.splat(self.s.constant(_SIGN_BITS, "int32"), self.v.lanes)
        return self.multiply_add(ones, units, total)

    def multiply_add(self, a: Any, b: Any, total: Any) -> Any:
        """A total, and the products of the terms of units."""
        if self.terms.group == 1:
            return self.s.multiply_add(a, b, total)
        if self.terms.group == 2:
            return self._pairs(a, b, total)
        vector = total.type
        name = f"llvm.x86.avx512.vpdpbusd.{8 * self.v.size}"
        given = ((vector, x.text) for x in (total, a, b))
        return total._replace(text=self.code.call(vector, name, *given))

    def _pairs(self, a: Any, b: Any, total: Any) -> Any:
        """A total, and products of 16 bits in pairs, which processors have one instruction for."""
        lanes, code = 2 * self.v.lanes, self.code
        wide = []
        for x in (a, b):
            words = code.value(f"bitcast {x.typed} to <{lanes} x i16>")
            text = code.value(f"sext <{lanes} x i16> {words} to <{lanes} x i32>")
            wide.append(x._replace(text=text, lanes=lanes))
        products = self.s.multiply(*wide)
        halves = [self.v.shuffled(products, products, [*range(i, lanes, 2)]) for i in (0, 1)]
        return self.s.add(total, self.s.add(*halves))
