"""Loops around a region's body, in LLVM IR.

A kernel is a function of a range of rows and a range of columns, so that threads can share the
work. Its operands' addresses, strides and extents come in a *frame*, an array of 64-bit
integers. The variants are chosen by shape and strides only:

* ``rows``: each row is traversed once per pass, vector by vector; the last one is masked;
* ``stages``: rows are so long that threads share one row: a function per pass, which leaves partial
results of each block of columns for the next one;
* ``group`` and ``short``, in ``groups.py``: short rows are processed together in each pass;
* ``side``, in ``lanes.py``: rows are interleaved, and each lane of a vector is one.

The division of pieces among threads is in ``driver.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eagerflow.codegen.instructions import is_float
from eagerflow.codegen.layout import UNIT, Layout, operands_of
from eagerflow.codegen.llvm.driver import SLOTS
from eagerflow.codegen.llvm.instructions import Code, Emitter, Operand, literal
from eagerflow.codegen.llvm.memory import Memory, Span
from eagerflow.codegen.llvm.random import random_lanes
from eagerflow.codegen.reductions import ADDED_IN_TURN, JOINS, identity, rounds
from eagerflow.codegen.region import REDUCTIONS, Constant, Input, Output, Region, Statement
from eagerflow.codegen.schedule import Pass, schedule
from eagerflow.runtime.machine_code import Target

ARGUMENTS = "(i64 %r0, i64 %r1, i64 %c0, i64 %c1, ptr noalias %frame, ptr noalias %scratch)"
"""The arguments of every generated function."""

_NAME = re.compile(r"%(\w+)")
# Instructions per element of a pass up to which four, or two, accumulators pay.
_MAX_COST_OF_FOUR, _MAX_COST_OF_TWO = 6, 14


def frame_slots(region: Region, layout: Layout) -> list[str]:
    """The meaning of each 64-bit integer of a frame, in order."""
    slots = ["width", "side", *(f"extent{k}" for k in range(layout.outer))]
    for i, part in enumerate(operands_of(region)):
        slots += [f"p{i}", f"i{i}", f"s{i}", *(f"o{i}_{k}" for k in range(layout.outer))]
        if isinstance(part, Input) and part.gather:
            slots.append(f"g{i}")
    slots += [f"size_{axis}" for axis in region.axes]
    slots += [f"{word}_{name}" for name in region.columns for word in ("shift", "middle")]
    slots += [
        f"{'columns' if s.name in region.columns else 'partial'}_{s.name}"
        for s in region.body
        if s.instruction in REDUCTIONS
    ]
    return [*slots, *SLOTS, "block_width", "keep_slot", "keep_row"]


def homes(region: Region, layout: Layout) -> dict[str, Output]:
    """Values that need no buffer between passes: they are stored in outputs that are written last.

    Such an output is a contiguous array of their type, with one element for each index, that
    replaces no input.
    """
    plan, parts = schedule(region), operands_of(region)
    free = [
        o
        for o in (plan.passes[-1].outputs if plan.passes else ())
        if o.axes == region.axes and o.inplace is None
    ]
    found: dict[str, Output] = {}
    for name in plan.kept:
        dtype = region.statement(name).dtype
        home = next((o for o in free if o.dtype == dtype), None)
        if home is not None:
            free.remove(home)
            if layout.inner[parts.index(home)] == UNIT:
                found[name] = home
    return found


def reduces_outer_axes(region: Region, part: Statement) -> bool:
    """Whether a column reduction is over all axes except those of the row."""
    return set(region.axes[: -len(region.row_axes)]) <= set(part.over)


def combine(s: Any, reduction: str, a: Operand, b: Operand) -> Operand:
    """The combination of two partial results of a reduction."""
    name = JOINS.get(reduction, reduction)
    if a.dtype == "bool" and name in ("maximum", "minimum"):
        name = "logical_or" if name == "maximum" else "logical_and"
    found: Operand = getattr(s, name)(a, b)
    return found


@dataclass
class Place:
    """The position of a vector in its row, its mask, and the values known there."""

    position: str
    mask: str = ""
    values: dict[str, Operand] = field(default_factory=dict)


class Nest:
    """Writes the functions of a region's kernel."""

    turn = ADDED_IN_TURN

    def __init__(self, region: Region, layout: Layout, lanes: int, target: Target) -> None:
        self.region, self.layout, self.lanes = region, layout, lanes
        self.schedule = schedule(region)
        self.parts = operands_of(region)
        # By the part: an output may have the name of an input.
        self.index: dict[Input | Output, int] = {part: i for i, part in enumerate(self.parts)}
        self.code = Code()
        self.emit: Any = Emitter(self.code, target.has_avx512)
        self.memory = Memory(self.code, self.emit, lanes, target.has_halves)
        self.width = Operand("%width", "int64", 0)
        self.row: dict[str, Operand] = {}
        self.passing = 0  # the index of the current pass
        self.homes = self._homes()

    def _homes(self) -> dict[str, Output]:
        """Kept values that are stored in an output, if its elements are contiguous."""
        return homes(self.region, self.layout)

    # Functions -----------------------------------------------------------------------------------

    def rows(self) -> str:
        """The module of one function, ``kernel``, for whole rows."""
        with self._function("kernel"), self._each_row_of_range():
            self._all_passes(lambda own: self._sweep(own, "0", "%width"))
            self._row_results()
        return self.code.text()

    def _all_passes(self, walk: Callable[[Pass], None]) -> None:
        """The values of all passes, in order, each written by ``walk(own)``."""
        self._row_statements(0)
        for number, own in enumerate(self.schedule.passes):
            self.passing = number
            walk(own)
            self._row_statements(number + 1)

    def stages(self) -> str:
        """The module of one function for each pass, and one for the rest after them."""
        rest = [None] if self.schedule.has_row_results() else []
        for number, own in enumerate([*self.schedule.passes, *rest]):
            self.passing = number
            with self._function(f"stage{number}"), self._each_row_of_range():
                self._row_statements(0)
                for earlier in range(number):
                    for part in self.schedule.passes[earlier].reductions:
                        self.row[part.name] = self._sum_of_blocks(part)
                    self._row_statements(earlier + 1)
                if own is None:
                    self._row_results()
                else:
                    self._sweep(own, "%c0", "%c1")
                    for part in own.reductions:
                        self._leave_block(part)
        return self.code.text()

    @contextmanager
    def _function(self, name: str) -> Iterator[None]:
        """Context manager: the code within is a function of a range of rows and columns."""
        code = self.code
        code.lines += [f"; {line}" for line in str(self.region).splitlines()]
        with code.function(name + ARGUMENTS):
            self._head = len(code.lines)
            self.fixed: dict[str, Operand] = {}
            self.row = self.fixed
            for part in self.region.inputs:
                if not part.axes:
                    base = f"%p{self.index[part]}"
                    self.fixed[part.name] = self.memory.load_one(base, part.dtype)
            for statement in self.schedule.row_values(0):
                if not statement.axes:
                    self._row_statement(statement)
            yield
        self._end()

    def _end(self) -> None:
        """Load the entries of the frame that the function uses, which are known now."""
        code = self.code
        used = set(_NAME.findall("\n".join(code.lines[self._head :])))
        lines: list[str] = []
        for i, slot in enumerate(frame_slots(self.region, self.layout)):
            if slot in used:
                kind = "ptr" if slot.startswith(("p", "columns_")) else "i64"
                lines.insert(0, f"  %{slot} = load {kind}, ptr %at_{slot}, align 8")
                lines.insert(0, f"  %at_{slot} = getelementptr i64, ptr %frame, i64 {i}")
        code.lines[self._head - 1] += "\n" + "\n".join(lines) if lines else ""

    # Rows ----------------------------------------------------------------------------------------

    @contextmanager
    def _each_row_of_range(self) -> Iterator[None]:
        """Write the processing of each row."""
        with self.code.loop("row", "%r0", "%r1") as (self.r, _):
            self.row = dict(self.fixed)
            self.start = self.code.value(f"mul i64 {self.r}, %width")
            self._addresses()
            yield

    def _addresses(self) -> None:
        """The address of the row in each operand; per-row numbers are loaded."""
        code = self.code
        counts: list[str] = []
        rest = self.r
        for k in range(self.layout.outer - 1, 0, -1):
            counts.insert(0, code.value(f"urem i64 {rest}, %extent{k}"))
            rest = code.value(f"udiv i64 {rest}, %extent{k}")
        self.counts = [rest, *counts]
        self.base: dict[Input | Output, str] = {}
        gathered = [p for p in self.parts if isinstance(p, Input) and p.gather]
        for part in [p for p in self.parts if p not in gathered] + gathered:
            i = self.index[part]
            base = f"%p{i}"
            for k, count in enumerate(self.counts):
                base = code.step(base, count, f"%o{i}_{k}")
            if isinstance(part, Input) and part.gather:
                which = self.emit.convert(self.row[part.gather], "int64")
                base = code.step(base, which.text, f"%g{i}")
            self.base[part] = base
            self._load_row(part, base)
        # Invariants of a row are computed here: no pass of LLVM hoists them.
        self.lines = {name: self._column(s) for name, s in self.region.columns.items()}
        self.buffers = {
            name: self.base[self.homes[name]] if name in self.homes else self._buffer_start(name)
            for name in self.schedule.kept
        }

    def _load_row(self, part: Input | Output, base: str) -> None:
        if isinstance(part, Input) and part.axes and not self.schedule.varies(part.name):
            self.row[part.name] = self.memory.load_one(base, part.dtype)

    def _row_statements(self, number: int) -> None:
        for part in self.schedule.row_values(number):
            if part.name not in self.fixed:
                self._row_statement(part)

    def _row_statement(self, part: Statement) -> None:
        self.row[part.name] = self._compute(part, [self._row_operand(o) for o in part.operands])

    def _row_operand(self, operand: str | Constant) -> Operand:
        if isinstance(operand, Constant):
            return literal(operand.value, operand.dtype)
        return self.row[operand]

    def _row_results(self) -> None:
        for out in self.schedule.row_outputs():
            self.memory.store_one(self.base[out], self.row[out.value], out.dtype)
        for part in self.schedule.row_columns():
            place = self.lines[part.name]
            known = self.memory.load_one(place, part.dtype)
            value = self._row_operand(part.operands[0])
            total = combine(self.emit, part.instruction, known, value)
            self.memory.store_one(place, total, part.dtype)

    # Elements ------------------------------------------------------------------------------------

    def _sweep(self, own: Pass, start: str, end: str) -> None:
        """One traversal of the columns from ``start`` to ``end``."""
        self._comment(own)
        unroll = 1
        if own.reductions:
            two = 2 if own.cost <= _MAX_COST_OF_TWO else 1
            unroll = 4 if own.cost <= _MAX_COST_OF_FOUR else two
        sums = self._identities(own, unroll)
        if unroll > 1:
            start, sums = self._loop(own, start, end, unroll, sums)
            sums = self._merged(own, sums, unroll)
        start, sums = self._loop(own, start, end, 1, sums)
        sums = self._rest(own, start, end, sums)
        for part, total in zip(own.reductions, sums, strict=True):
            self.row[part.name] = self._across(part.instruction, total)

    def _comment(self, own: Pass) -> None:
        made = ", ".join(f"%{s.name}" for s in (*own.reductions, *own.columns))
        written = ", ".join(o.name for o in own.outputs)
        words = [f"for {made}" if made else "", f"writes {written}" if written else ""]
        self.code.line(f"; pass {self.passing} {' and '.join(w for w in words if w)}")

    def _loop(
        self, own: Pass, start: str, end: str, unroll: int, sums: list[Operand]
    ) -> tuple[str, list[Operand]]:
        """Whole vectors, ``unroll`` of them at a time; returns the end, and the sums."""
        code, step = self.code, self.lanes * unroll
        count = code.value(f"sub i64 {end}, {start}")
        whole = code.value(f"sub i64 {count}, " + code.value(f"urem i64 {count}, {step}"))
        last = code.value(f"add i64 {start}, {whole}")

        def vectors(c: str, found: list[Operand]) -> None:
            for u in range(unroll):
                place = Place(c if u == 0 else code.value(f"add i64 {c}, {u * self.lanes}"))
                self._elements(own, place, found, u, unroll)

        return last, self._in_turns(own, (start, last, step), sums, vectors)

    def _in_turns(
        self,
        own: Pass,
        counted: tuple[str, str, int],
        sums: list[Operand],
        each: Callable[[str, list[Operand]], None],
    ) -> list[Operand]:
        """The sums after a loop from a first position to an end by a step, written by ``each``.

        In long rows, at most the numbers of a ``turn`` are added sequentially; their sums are added
        in an outer loop.
        """
        code, (first, end, step) = self.code, counted
        if not self.layout.long or not any(rounds(p.instruction, p.dtype) for p in own.reductions):
            with code.loop("vector", first, end, step, sums) as (c, found):
                each(c, found)
            return found
        unroll, turn = len(sums) // len(own.reductions), step * self.turn
        with code.loop("turn", first, end, turn, sums) as (start, totals):
            after = Operand(code.value(f"add i64 {start}, {turn}"), "uint64", 0)
            until = self.emit.minimum(after, Operand(end, "uint64", 0)).text
            none = self._identities(own, unroll)
            with code.loop("vector", start, until, step, none) as (c, found):
                each(c, found)
            for i, (total, new) in enumerate(zip(totals, found, strict=True)):
                reduction = own.reductions[i // unroll].instruction
                totals[i] = combine(self.emit, reduction, total, new)
        return totals

    def _rest(self, own: Pass, start: str, end: str, sums: list[Operand]) -> list[Operand]:
        """The elements that do not fill a vector, with a mask."""
        code = self.code
        tail, done = code.name("tail_"), code.name("after_")
        before = code.current
        some = code.value(f"icmp ult i64 {start}, {end}")
        code.line(f"br i1 {some}, label %{tail}, label %{done}")
        code.label(tail)
        left = Operand(code.value(f"sub i64 {end}, {start}"), "int64", 0)
        mask = self.emit.less(self.memory.iota, left).text
        found = list(sums)
        self._elements(own, Place(start, mask), found, 0, 1)
        inside = code.current
        code.line(f"br label %{done}")
        code.label(done)
        merged = []
        for old, new in zip(sums, found, strict=True):
            text = f"phi {old.type} [{old.text}, %{before}], [{new.text}, %{inside}]"
            merged.append(self.emit.value(text, old))
        return merged

    def _elements(
        self, own: Pass, place: Place, sums: list[Operand], which: int, unroll: int
    ) -> None:
        """One vector of a pass; updates ``sums``."""
        s, memory = self.emit, self.memory
        for i, part in enumerate(own.reductions):
            value = self._counted(part, place)
            number = i * unroll + which
            sums[number] = combine(s, part.instruction, sums[number], value)
        written = [(out, self._element(out.value, place)) for out in own.outputs]
        kept = [(name, self._element(name, place)) for name in own.kept]
        for part in own.columns:
            value = s.splat(self._element(str(part.operands[0]), place), self.lanes)
            self._add_to_column(part, value, place)
        for name, value in kept:
            memory.store(self._kept_span(name, place), value, place.mask)
        for out, value in written:
            memory.store(self._span(out, place), value, place.mask)

    def _add_to_column(self, part: Statement, value: Operand, place: Place) -> None:
        span = Span(self.lines[part.name], part.dtype, place.position)
        known = self.memory.load(span, place.mask)
        total = combine(self.emit, part.instruction, known, value)
        self.memory.store(span, total, place.mask)

    def _span(self, part: Input | Output, place: Place) -> Span:
        """The elements of an operand at a position."""
        i = self.index[part]
        kind = self.layout.inner[i]
        return Span(self.base[part], part.dtype, place.position, kind, f"%i{i}")

    def _counted(self, part: Statement, place: Place) -> Operand:
        value = self.emit.splat(self._element(str(part.operands[0]), place), self.lanes)
        if not place.mask:
            return value
        neutral = self._identity(part, self.lanes)
        found: Operand = self.emit.select(Operand(place.mask, "bool", self.lanes), value, neutral)
        return found

    def _element(self, name: str, place: Place) -> Operand:
        """The value of a vector at a position; per-row values are broadcast."""
        if not self.schedule.varies(name):
            return self.row[name]
        if name in place.values:
            return place.values[name]
        part = self.region.statement(name)
        if isinstance(part, Input):
            found = self.memory.load(self._span(part, place), place.mask)
        elif name in self.schedule.kept and name not in self.schedule.passes[self.passing].kept:
            found = self.memory.load(self._kept_span(name, place), place.mask)
        elif not part.operands or part.instruction == "random_bits":
            found = self._generated(part, place)
        else:
            operands = [
                literal(o.value, o.dtype) if isinstance(o, Constant) else self._element(o, place)
                for o in part.operands
            ]
            found = self._compute(part, operands)
        place.values[name] = found
        return found

    def _compute(self, part: Statement, operands: list[Operand]) -> Operand:
        if part.instruction == "extent":
            count = Operand(f"%size_{part.over[0]}", "int64", 0)
            found = self.emit.convert(count, part.dtype)
        elif part.instruction == "position":
            found = self._along(part, Operand(self.start, "int64", 0))
        elif part.instruction in ("convert", "bitcast"):
            found = getattr(self.emit, part.instruction)(operands[0], part.dtype)
        else:
            found = getattr(self.emit, part.instruction)(*operands)
        result: Operand = found
        return result

    def _generated(self, part: Statement, place: Place) -> Operand:
        if part.instruction == "random_bits":
            first = self.code.value(f"add i64 {self.start}, {place.position}")
            state = [self._row_operand(o) for o in part.operands]
            return random_lanes(self.code, first, state, part.dtype, self.lanes)
        at = self.emit.add(self.memory.iota, Operand(place.position, "int64", 0))
        if self.region.reduces and self.region.row_axes == part.over:
            found: Operand = at
            return found
        return self._along(part, self.emit.add(at, Operand(self.start, "int64", 0)))

    def _along(self, part: Statement, flat: Operand) -> Operand:
        """The index along one axis, from the row-major index."""
        axes = self.region.axes
        at = axes.index(part.over[0])
        for axis in reversed(axes[at + 1 :]):
            size = self.emit.splat(Operand(f"%size_{axis}", "int64", 0), flat.lanes)
            flat = self.emit.value(f"udiv {flat.typed}, {size.text}", flat)
        if at == 0:
            return flat
        size = self.emit.splat(Operand(f"%size_{axes[at]}", "int64", 0), flat.lanes)
        found: Operand = self.emit.value(f"urem {flat.typed}, {size.text}", flat)
        return found

    # Buffers and partial results -----------------------------------------------------------------

    def _buffer_start(self, name: str) -> str:
        """The address of this row of a value that is kept between passes."""
        slot = self.code.step("%scratch", str(self.schedule.kept[name]), "%keep_slot")
        return self.code.step(slot, self._kept_row(), "%keep_row")

    def _kept_row(self) -> str:
        """The index of this row among those with values kept at the same time."""
        return self.r

    def _kept_span(self, name: str, place: Place) -> Span:
        """The elements of a value that is kept between passes, at a position."""
        return Span(self.buffers[name], self.region.statement(name).dtype, place.position)

    def _column(self, part: Statement) -> str:
        """The address of a row's line of a column reduction: there is one for each block of rows,
        and in it one for each index along the outer axes that are not reduced.
        """
        code, middle = self.code, f"%middle_{part.name}"
        line = code.value(f"lshr i64 {self.r}, %shift_{part.name}")
        if not reduces_outer_axes(self.region, part):
            first = code.value(f"mul i64 {line}, {middle}")
            line = code.value(f"add i64 {first}, " + code.value(f"urem i64 {self.r}, {middle}"))
        if self.schedule.varies(str(part.operands[0])):
            line = code.value(f"mul i64 {line}, %width")
        return self.memory.offset(f"%columns_{part.name}", line, part.dtype)

    def _identities(self, own: Pass, unroll: int) -> list[Operand]:
        """The initial values of a pass's reductions, ``unroll`` vectors of each."""
        return [self._identity(part, self.lanes) for part in own.reductions for _ in range(unroll)]

    def _identity(self, part: Statement, lanes: int) -> Operand:
        return literal(identity(part.instruction, part.dtype), part.dtype, lanes)

    def _merged(self, own: Pass, sums: list[Operand], unroll: int) -> list[Operand]:
        merged = []
        for i, part in enumerate(own.reductions):
            group = sums[i * unroll : (i + 1) * unroll]
            while len(group) > 1:
                half = len(group) // 2
                group = [
                    combine(self.emit, part.instruction, a, b)
                    for a, b in zip(group[:half], group[half:], strict=True)
                ]
            merged += group
        return merged

    def _across(self, reduction: str, x: Operand) -> Operand:
        """All lanes of a vector combined into one number, by halving."""
        s = self.emit
        if reduction in ("max", "min") and is_float(x.dtype):
            # Tested once for all lanes, NaN costs less than in each step.
            wrong = s.any_lane(s.isnan(x))
            top = self._halved("larger" if reduction == "max" else "smaller", x)
            found: Operand = s.select(wrong, float("nan"), top)
        elif x.dtype != "bool":
            found = self._halved(reduction, x)
        elif reduction in ("any", "max"):
            found = s.any_lane(x)
        else:
            found = s.logical_not(s.any_lane(s.logical_not(x)))
        return found

    def _halved(self, reduction: str, x: Operand) -> Operand:
        while x.lanes > 1:
            half = x.lanes // 2
            parts = []
            for first in (0, half):
                numbers = ", ".join(f"i32 {i}" for i in range(first, first + half))
                mask = f"<{half} x i32> <{numbers}>"
                text = self.code.value(f"shufflevector {x.typed}, {x.type} poison, {mask}")
                parts.append(Operand(text, x.dtype, half))
            x = combine(self.emit, reduction, *parts)
        return Operand(self.code.value(f"extractelement {x.typed}, i64 0"), x.dtype, 0)

    def _partial(self, part: Statement, block: str) -> str:
        row = self.code.value(f"mul i64 {self.r}, %blocks")
        at = self.code.value(f"add i64 {row}, {block}")
        return self.memory.offset(f"%partial_{part.name}", at, part.dtype)

    def _leave_block(self, part: Statement) -> None:
        block = self.code.value("udiv i64 %c0, %block_width")
        self.memory.store_one(self._partial(part, block), self.row[part.name], part.dtype)

    def _sum_of_blocks(self, part: Statement) -> Operand:
        """The results of a row, from the partial results of its blocks, in order."""
        none = [self._identity(part, 0)]
        with self.code.loop("block", "0", "%blocks", 1, none) as (i, total):
            value = self.memory.load_one(self._partial(part, i), part.dtype)
            total[0] = combine(self.emit, part.instruction, total[0], value)
        return total[0]
