"""Products of floats with quantized weights: small integers times scales of groups of rows.

Panels are packed as floats: each number is widened and scaled once, by the piece that multiplies
it, so that memory traffic is 8 or 4 bits per weight. The rest is as in ``matrix_product``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from eagerflow.codegen.instructions import item_size
from eagerflow.primitives.llvm.matrix_product import ProductWriter

_HALF_BITS = 4


class WeightProductWriter(ProductWriter):
    """Writes ``multiply`` for 8-bit weights.

    ``b`` is the address of their bytes, ``b_row`` the stride of rows. ``scales`` is the address of
    the first group's scales, ``scale_row`` the stride of groups, which have ``group_rows`` rows.
    """

    slots: ClassVar[tuple[str, ...]] = (
        *ProductWriter.slots,
        *("b_row", "scale_row", "group_rows", "scales"),
    )
    rows_of_byte: ClassVar[int] = 1

    def _panel(self, b: str, part: str, column: str, left: str, whole: str) -> str:
        """The address of the packed panel, which is packed first."""
        v, code, given = self.v, self.code, self.given
        masks = [self._below(left, j * self.lanes) for j in range(self.block.vectors)]
        partial = code.value(f"xor i1 {whole}, true")
        size = given["group_rows"]
        end = v.number("add", part, self.count)
        last = v.number("udiv", v.number("sub", end, 1), size)
        for condition, own in ((whole, [""] * len(masks)), (partial, masks)):
            with code.where(condition):
                groups = v.number("udiv", part, size), v.number("add", last, 1)
                with code.loop("group", *groups) as (group, _):
                    begin = v.number("mul", group, size)
                    stop = self.least(v.number("add", begin, size), end)
                    start = self.most(begin, part)
                    scales = self._scales(group, column, own)
                    with code.loop("row", start, stop, self.rows_of_byte) as (row, _):
                        self._pack_rows_of_byte(row, part, column, scales, own)
        return self.own_panel

    def _scales(self, group: str, column: str, masks: list[str]) -> list[Any]:
        """The scales of a panel's columns."""
        v = self.v
        start = v.step(self.pointer("scales"), group, self.given["scale_row"])
        start = v.step(start, column, v.itemsize)
        return [v.load(start, j * v.size, mask=mask) for j, mask in enumerate(masks)]

    def _pack_rows_of_byte(
        self, row: str, part: str, column: str, scales: list[Any], masks: list[str]
    ) -> None:
        """Pack the rows stored in a row of bytes."""
        v = self.v
        line = v.number("udiv", row, self.rows_of_byte)
        here = v.step(v.step(self.pointer("b"), line, self.given["b_row"]), column, 1)
        there = v.step(self.own_panel, v.number("sub", row, part), self.line)
        for j, (scale, mask) in enumerate(zip(scales, masks, strict=True)):
            at = v.at(here, j * self.lanes * item_size("int8"))
            loaded = v.memory.load(v.span(at, 0, "int8"), mask)
            for i, number in enumerate(self._numbers(loaded)):
                value = self.s.multiply(self.s.convert(number, self.v.dtype), scale)
                v.store(value, there, i * self.line + j * v.size)

    def _numbers(self, loaded: Any) -> list[Any]:
        """The numbers in bytes, row by row."""
        return [loaded]


class HalfByteProductWriter(WeightProductWriter):
    """Writes ``multiply`` for 4-bit weights, two rows in each byte."""

    rows_of_byte = 2

    def _numbers(self, loaded: Any) -> list[Any]:
        wide = self.s.convert(loaded, "int32")
        keep = 32 - _HALF_BITS
        found = []
        for above in (keep, keep - _HALF_BITS):
            shifted = self.s.bitwise_left_shift(wide, self._shift(above))
            found.append(self.s.bitwise_right_shift(shifted, self._shift(keep)))
        return found

    def _shift(self, bits: int) -> Any:
        return self.s.splat(self.s.constant(bits, "int32"), self.lanes)


WRITERS: dict[str, type[WeightProductWriter]] = {
    "int8": WeightProductWriter,
    "uint8": HalfByteProductWriter,
}
"""By the dtype of the bytes."""
