"""Loops for short rows: a group of rows is processed together in each pass.

Per-row numbers, such as the logarithm of a sum, are computed for the whole group at once, a lane
for each row; and the independent passes of neighboring rows hide the latencies of a single short
row.
"""

from __future__ import annotations

from collections.abc import Callable

from eagerflow.codegen.instructions import value_type
from eagerflow.codegen.llvm.instructions import Operand, llvm_type
from eagerflow.codegen.llvm.memory import Span, held_type
from eagerflow.codegen.llvm.nest import Nest, Place, combine
from eagerflow.codegen.region import REDUCTIONS, Constant, Statement
from eagerflow.codegen.schedule import Pass


class GroupNest(Nest):
    """Writes a kernel that processes as many rows at a time as a vector has lanes."""

    def kernel(self, single: bool) -> str:
        """The module of one function, ``kernel``; ``single``: a row fits into one vector."""
        with self._function("kernel"):
            self.sums: dict[str, str] = {}  # where columns are summed, in full vectors
            if single:
                self.homes = {}  # vectors of neighboring rows overlap in an output
            if single and self.region.columns:
                self._each_block_of_rows()
            else:
                self._groups("%r0", "%r1", single)
        return self.code.text()

    def _groups(self, first: str, end: str, single: bool) -> None:
        self.end = end
        with self.code.loop("group", first, self.end, self.lanes) as (self.group, _):
            self._whole_group(single)

    def _whole_group(self, single: bool) -> None:
        left = self.code.value(f"sub i64 {self.end}, {self.group}")
        full = self.code.value(f"icmp ugt i64 {left}, {self.lanes}")
        self.members = self.code.value(f"select i1 {full}, i64 {self.lanes}, i64 {left}")
        self.stacks: dict[str, str] = {}
        self.vectors = dict(self.fixed)
        self._read_inputs()

        def walk(own: Pass) -> None:
            self._each_row(lambda: self._pass_of_row(own, single))
            for part in own.reductions:
                self.vectors[part.name] = self._gather(part.name, part.dtype)

        self._all_passes(walk)
        if self.schedule.has_row_results():
            self._each_row(self._row_results)

    def _pass_of_row(self, own: Pass, single: bool) -> None:
        if single:
            self._single_vector(own)
        else:
            self._sweep(own, "0", "%width")
        for part in own.reductions:
            self._put(part.name, part.dtype, self.row[part.name])

    def _only_vector(self) -> Place:
        """The position of a row that is one vector."""
        return Place("0", self.emit.less(self.memory.iota, self.width).text)

    def _single_vector(self, own: Pass) -> None:
        """A pass over a row that is one vector."""
        self._comment(own)
        place = self._only_vector()
        sums = [self._identity(part, self.lanes) for part in own.reductions]
        self._elements(own, place, sums, 0, 1)
        for part, total in zip(own.reductions, sums, strict=True):
            self.row[part.name] = self._across(part.instruction, total)

    # Columns of rows that are one vector ---------------------------------------------------------

    def _each_block_of_rows(self) -> None:
        """The rows of each line of column reductions, the same for all of them."""
        shift = f"%shift_{next(iter(self.region.columns))}"
        rows = self.code.value(f"shl i64 1, {shift}")
        with self.code.loop("block", "%r0", "%r1", rows) as (first, _):
            after = Operand(self.code.value(f"add i64 {first}, {rows}"), "uint64", 0)
            end = self.emit.minimum(after, Operand("%r1", "uint64", 0))
            self._open_columns()
            self._groups(first, end.text, True)
            self._close_columns(self.code.value(f"lshr i64 {first}, {shift}"))

    def _open_columns(self) -> None:
        """Sums of columns in full vectors: masked stores are not forwarded to the next loads."""
        for part in self.region.columns.values():
            if self.schedule.varies(str(part.operands[0])):
                room = self.sums[part.name] = self._room(part.dtype)
                self.memory.store(Span(room, part.dtype), self._identity(part, self.lanes))

    def _add_to_column(self, part: Statement, value: Operand, place: Place) -> None:
        if part.name not in self.sums:
            super()._add_to_column(part, value, place)
            return
        span = Span(self.sums[part.name], part.dtype)
        known = self.memory.load(span)
        counted = self.emit.select(
            Operand(place.mask, "bool", self.lanes), value, self._identity(part, self.lanes)
        )
        total = combine(self.emit, part.instruction, known, counted)
        self.memory.store(span, total)

    def _close_columns(self, block: str) -> None:
        """Add the sums to the line of this block of rows."""
        place = self._only_vector()
        sums, self.sums = self.sums, {}
        for name, room in sums.items():
            part = self.region.columns[name]
            start = self.code.value(f"mul i64 {block}, %width")
            line = self.memory.offset(f"%columns_{name}", start, part.dtype)
            self.lines = {name: line}
            value = self.memory.load(Span(room, part.dtype))
            super()._add_to_column(part, value, place)

    # One row after the other -----------------------------------------------------------------

    def _each_row(self, body: Callable[[], None]) -> None:
        """Write the processing of each row of the group."""
        with self.code.loop("member", "0", self.members) as (self.member, _):
            self.r = self.code.value(f"add i64 {self.group}, {self.member}")
            self.start = self.code.value(f"mul i64 {self.r}, %width")
            self.row = dict(self.fixed)
            self._addresses()
            for name in self.vectors:
                if name not in self.fixed and name in self.stacks:
                    self.row[name] = self._get(name)
            body()

    def _kept_row(self) -> str:
        return self.member

    # All rows at once ------------------------------------------------------------------------

    def _read_inputs(self) -> None:
        parts = [
            p
            for p in self.region.inputs
            if p.axes and not self.schedule.varies(p.name) and self._feeds_rows(p.name)
        ]
        if not parts:
            return

        def read() -> None:
            for part in parts:
                self._put(part.name, self._type(part.name), self.row[part.name])

        self._each_row(read)
        for part in parts:
            self.vectors[part.name] = self._gather(part.name, self._type(part.name))

    def _feeds_rows(self, name: str) -> bool:
        """Whether another value of the row is computed from it."""
        return any(
            name in s.operands and not self.schedule.varies(s.name)
            for s in self.region.body
            if s.instruction not in REDUCTIONS
        )

    def _row_statements(self, number: int) -> None:
        for part in self.schedule.row_values(number):
            if part.name in self.fixed:
                continue
            operands = [
                self._row_operand(o) if isinstance(o, Constant) else self.vectors[o]
                for o in part.operands
            ]
            found = self.emit.splat(self._for_all(part, operands), self.lanes)
            self.vectors[part.name] = found
            place = self._stack(part.name, part.dtype)
            self.memory.store(Span(place, part.dtype), found)

    def _for_all(self, part: Statement, operands: list[Operand]) -> Operand:
        if part.instruction != "position":
            return self._compute(part, operands)
        rows = self.emit.add(self.memory.iota, Operand(self.group, "int64", 0))
        return self._along(part, self.emit.multiply(rows, self.width))

    # Between the two -------------------------------------------------------------------------

    def _type(self, name: str) -> str:
        return value_type(self.region.statement(name).dtype)

    def _stack(self, name: str, dtype: str) -> str:
        """Memory for a value of each row of the group."""
        if name not in self.stacks:
            room = self._room(dtype)
            zero = llvm_type(held_type(dtype), self.lanes)
            self.code.entry_line(f"store {zero} zeroinitializer, ptr {room}, align 64")
            self.stacks[name] = room
        return self.stacks[name]

    def _room(self, dtype: str) -> str:
        """Memory for a number in each lane."""
        kind = llvm_type(held_type(dtype))
        room: str = self.code.entry(f"alloca [{self.lanes} x {kind}], align 64")
        return room

    def _put(self, name: str, dtype: str, value: Operand) -> None:
        place = self.memory.offset(self._stack(name, dtype), self.member, dtype)
        self.memory.store_one(place, value, dtype)

    def _get(self, name: str) -> Operand:
        dtype = self._type(name)
        place = self.memory.offset(self._stack(name, dtype), self.member, dtype)
        return self.memory.load_one(place, dtype)

    def _gather(self, name: str, dtype: str) -> Operand:
        return self.memory.load(Span(self._stack(name, dtype), dtype))
