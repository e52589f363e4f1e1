"""Loops for interleaved rows: each lane of a vector processes a row of its own.

In a reduction of an axis other than the last, such as softmax over the channels of images, the
elements of a row are far apart and those of neighboring rows adjacent. Vectors then go along the
last outer axis, the *side*; there are no sums across lanes.
"""

from __future__ import annotations

from eagerflow.codegen.llvm.instructions import Operand
from eagerflow.codegen.llvm.memory import Span
from eagerflow.codegen.llvm.nest import Nest, Place
from eagerflow.codegen.reductions import ROWS_OF_A_LINE
from eagerflow.codegen.region import Input, Output, Statement
from eagerflow.codegen.schedule import Pass


class SideNest(Nest):
    """Writes a kernel whose columns are interleaved rows of the region."""

    turn = ROWS_OF_A_LINE

    def kernel(self) -> str:
        """The module of one function, ``kernel``; its columns are positions along the side."""
        with (
            self._function("kernel"),
            self._each_row_of_range(),
            self.code.loop("side", "%c0", "%c1", self.lanes) as (self.c, _),
        ):
            left = Operand(self.code.value(f"sub i64 %c1, {self.c}"), "int64", 0)
            self.mask = self.emit.less(self.memory.iota, left).text
            self._begin_lanes()
            self._all_passes(self._walk)
            self._lane_results()
        return self.code.text()

    def _load_row(self, part: Input | Output, base: str) -> None:
        pass  # rows begin further in, at each vector

    def _begin_lanes(self) -> None:
        """The addresses of these rows in each operand; per-row numbers are loaded."""
        code = self.code
        self.row = dict(self.fixed)
        row = code.value(f"mul i64 {self.r}, %side")
        row = code.value(f"add i64 {row}, {self.c}")
        place = Operand(row, "int64", 0)
        self.rows_of_lanes = self.emit.add(self.memory.iota, place)
        self.front: dict[Input | Output, str] = {}
        for part in self.parts:
            self.front[part] = code.step(self.base[part], self.c, f"%s{self.index[part]}")
            if isinstance(part, Input) and part.axes and not self.schedule.varies(part.name):
                self.row[part.name] = self.memory.load(
                    self._side(part, self.front[part]), self.mask
                )

    def _side(self, part: Input | Output, pointer: str) -> Span:
        """The elements of the rows of all lanes, the first one at an address."""
        i = self.index[part]
        return Span(pointer, part.dtype, "0", self.layout.inner[i], f"%s{i}")

    def _walk(self, own: Pass) -> None:
        """One traversal of the rows of all lanes."""
        self._comment(own)
        sums = self._in_turns(
            own,
            ("0", "%width", 1),
            self._identities(own, 1),
            lambda j, sums: self._elements(own, Place(j, self.mask), sums, 0, 1),
        )
        for part, total in zip(own.reductions, sums, strict=True):
            self.row[part.name] = total

    def _counted(self, part: Statement, place: Place) -> Operand:
        # Lanes outside of the mask reduce rows that are ignored.
        value: Operand = self.emit.splat(self._element(str(part.operands[0]), place), self.lanes)
        return value

    def _span(self, part: Input | Output, place: Place) -> Span:
        step = f"%i{self.index[part]}"
        return self._side(part, self.code.step(self.front[part], place.position, step))

    def _lane_results(self) -> None:
        for out in self.schedule.row_outputs():
            span = self._side(out, self.front[out])
            self.memory.store(span, self._row_operand(out.value), self.mask)

    def _kept_row(self) -> str:
        return "0"

    def _homes(self) -> dict[str, Output]:
        return {}  # the elements of one row are not adjacent

    def _kept_span(self, name: str, place: Place) -> Span:
        position = self.code.value(f"mul i64 {place.position}, {self.lanes}")
        return super()._kept_span(name, Place(position))

    def _generated(self, part: Statement, place: Place) -> Operand:
        at = Operand(place.position, "int64", 0)
        if self.region.row_axes == part.over:
            return at
        flat = self.emit.multiply(self.rows_of_lanes, self.width)
        return self._along(part, self.emit.add(flat, at))

    def _compute(self, part: Statement, operands: list[Operand]) -> Operand:
        if part.instruction == "position":
            return self._along(part, self.emit.multiply(self.rows_of_lanes, self.width))
        return super()._compute(part, operands)
