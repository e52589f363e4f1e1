"""The plan of the tiles way for a region: nests of tiles, and a program for the tiles of each.

A nest computes outputs with the same axes. Its program is a list of calls on numbered registers,
which hold arrays: pieces of inputs and outputs, constants, and buffers, which are reused as soon as
their values are dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from eagerflow.codegen.instructions import value_type
from eagerflow.codegen.numpy.tile_steps import (
    BOX,
    CONTIGUOUS,
    FIRST,
    SPARE,
    Step,
    accumulate,
    copy,
    needed_steps,
    steps_of,
)
from eagerflow.codegen.region import Constant, Output, Region, reduction_depths

Axes = tuple[str, ...]

LOADED = ".copy"  # suffix of an input: the copy that steps read


@dataclass
class TileProgram:
    """Calls on registers, and the contents of the registers.

    ``fixed`` sources and ``start`` calls are evaluated once, ``moving`` ones for each tile.
    """

    count: int = 0
    constants: list[tuple[int, Any]] = field(default_factory=list)
    filled: list[tuple[int, Any, Axes, str]] = field(default_factory=list)  # constant tiles
    fixed: list[tuple[int, str, Axes]] = field(default_factory=list)
    moving: list[tuple[int, str, Axes]] = field(default_factory=list)
    start: list[tuple[Any, tuple[int, ...], int, Axes, str]] = field(default_factory=list)
    slots: list[tuple[Axes, int]] = field(default_factory=list)  # axes and bytes of an element
    buffers: list[tuple[int, int, str]] = field(default_factory=list)  # register, slot, type
    outputs: list[tuple[int, int, Axes]] = field(default_factory=list)
    sums: list[tuple[int, Step]] = field(default_factory=list)
    calls: list[tuple[Any, tuple[int, ...], int]] = field(default_factory=list)


@dataclass
class TileNest:
    """Tiles of some axes, ``cut``; the axes of ``row`` are whole in each tile.

    ``sums`` are reductions along ``over``, some of the cut axes. ``known`` are results of earlier
    nests.
    """

    region: Region
    cut: Axes
    over: Axes
    row: Axes
    sums: list[Step]
    outputs: list[Output]
    known: frozenset[str]
    steps: list[Step] = field(default_factory=list)
    reduces_rows: bool = False
    programs: dict[Any, TileProgram] = field(default_factory=dict)

    def program(self, pieces: frozenset[str], turned: bool, strided: frozenset[str]) -> TileProgram:
        """The program if the axes ``pieces`` are in several pieces.

        ``turned`` tiles have the row's axes first in memory; inputs in ``strided`` have gaps
        between elements.
        """
        key = pieces, turned, strided
        found = self.programs.get(key)
        if found is None:
            found = self.programs[key] = TileProgramWriter(self, pieces, turned, strided).write()
        return found


# Nests -------------------------------------------------------------------------------------------


@lru_cache(2048)
def plan(region: Region, long: bool) -> list[TileNest]:
    """The nests of a region, in order; ``long`` rows are cut as well.

    Those with more axes come first: an input that is replaced by an output has the same axes, and
    is read only by nests with at least these.
    """
    found = _TilePlanner(region, long)
    if long:
        found.add_rows()
    found.add_columns()
    found.add_outputs()
    return found.nests


class _TilePlanner:
    def __init__(self, region: Region, long: bool) -> None:
        self.region = region
        self.steps = steps_of(region)
        rows = [s for s in self.steps.values() if s.over and s.name not in region.columns]
        self.row_reductions = rows
        self.row = () if long or not rows else rows[0].over
        self.known: frozenset[str] = frozenset()
        self.nests: list[TileNest] = []

    def _axes(self, name: str) -> Axes:
        return self.region.statement(name).axes

    def _nest(self, cut: Iterable[str], over: Axes) -> TileNest:
        axes = tuple(a for a in cut if a not in self.row)
        return TileNest(self.region, axes, over, (), [], [], self.known)

    def _complete(self, nest: TileNest) -> None:
        """Find the steps that the results of a nest need."""
        own = {s.name: s for s in nest.sums}
        names = [*own, *(o.value for o in nest.outputs)]
        nest.steps = needed_steps(self.steps | own, names, nest.known)
        used = {a for s in nest.steps for a in s.axes}
        used.update(a for o in nest.outputs for a in o.axes)
        used.update(a for s in nest.steps if not s.sums for a in s.over)
        used.update(a for s in nest.sums for a in self._axes(str(s.operands[1])))
        nest.row = tuple(a for a in self.row if a in used)
        nest.reduces_rows = any(s.over and not s.sums for s in nest.steps)
        self.nests.append(nest)

    def add_rows(self) -> None:
        """A nest for each level of dependent row reductions."""
        rows = {s.name for s in self.row_reductions}
        depths = reduction_depths(self.steps.values(), lambda step: step.name in rows)
        groups: dict[tuple[int, Axes], list[Step]] = {}
        for step in self.row_reductions:
            key = depths[step.name] - 1, self._axes(str(step.operands[0]))
            groups.setdefault(key, []).append(step)
        for (depth, axes), steps in sorted(groups.items()):
            self.known = frozenset(n for n in rows if depths[n] <= depth)
            nest = self._nest(axes, steps[0].over)
            nest.sums = [accumulate(self.region, s) for s in steps]
            self._complete(nest)
        self.known = frozenset(rows)

    def add_columns(self) -> None:
        """A nest for the column reductions of values with the same axes along the same axes."""
        self.groups: dict[Axes, dict[Axes, TileNest]] = {}
        for step in self.steps.values():
            if step.name in self.region.columns:
                axes = tuple(a for a in self._axes(str(step.operands[0])) if a not in self.row)
                nests = self.groups.setdefault(axes, {})
                over = tuple(a for a in step.over if a not in self.row)
                if over not in nests:
                    nests[over] = self._nest(axes, over)
                nest = nests[over]
                nest.sums.append(accumulate(self.region, step))

    def add_outputs(self) -> None:
        """Add outputs to the last nest of their axes, so that no input is replaced too early."""
        for out in self.region.outputs:
            if out.value not in self.region.columns:
                axes = tuple(a for a in out.axes if a not in self.row)
                nests = self.groups.setdefault(axes, {})
                if not nests:
                    nests[()] = self._nest(axes, ())
                list(nests.values())[-1].outputs.append(out)
        for axes in sorted(self.groups, key=len, reverse=True):
            for nest in self.groups[axes].values():
                self._complete(nest)


# Programs ----------------------------------------------------------------------------------------


class TileProgramWriter:
    """Writes the program of a nest."""

    def __init__(
        self, nest: TileNest, pieces: frozenset[str], turned: bool, strided: frozenset[str]
    ) -> None:
        self.nest, self.pieces, self.turned, self.strided = nest, pieces, turned, strided
        self.inputs = {p.name: p for p in nest.region.inputs}
        self.program = TileProgram()
        self.registers: dict[Any, int] = {}
        self.places: dict[str, int] = {}  # values to slots
        self.free: dict[tuple[Axes, int], list[int]] = {}

    def write(self) -> TileProgram:
        """The program of all steps."""
        for name in (BOX, FIRST):
            self._register(name)
        steps = self._with_stores(self._with_loads(self.nest.steps))
        fixed = [s for s in steps if self._is_fixed(s)]
        moving = [s for s in steps if not self._is_fixed(s)]
        for step in fixed:
            ins = tuple(self._operand(o) for o in step.operands)
            out = self._register(step.name)
            self.program.start.append((step.call, ins, out, step.axes, step.dtype))
        direct = self._direct(moving)
        last = {o: i for i, s in enumerate(moving) for o in s.operands if isinstance(o, str)}
        for number, step in enumerate(moving):
            if step.output is None or direct.get(step.operands[0]) != step.output:
                self._write_step(number, step, last, direct)
        return self.program

    # Reads and writes ----------------------------------------------------------------------------

    def _with_loads(self, steps: list[Step]) -> list[Step]:
        """The steps, with copies of inputs that cannot be used directly."""
        loaded = {n for n in self.inputs if self._is_loaded(n, steps)}
        found: list[Step] = []
        outputs = [o.value for o in self.nest.outputs]
        names: dict[str, str] = {}
        for step in [*steps, *(Step("", copy, (o,), "", ()) for o in outputs)]:
            for o in step.operands:
                if o in loaded and o not in names:
                    names[str(o)] = f"{o}{LOADED}"
                    part = self.inputs[str(o)]
                    held = value_type(part.dtype)
                    found.append(Step(names[str(o)], copy, (o,), held, part.axes, False))
            if step.name:
                given = tuple(names.get(o, o) if isinstance(o, str) else o for o in step.operands)
                found.append(replace(step, operands=given))
        self.names = names
        return found

    def _is_loaded(self, name: str, steps: list[Step]) -> bool:
        part = self.inputs[name]
        if part.gather:
            return False
        if value_type(part.dtype) != part.dtype or self._is_turned(part.axes):
            return True
        if any(o.value == name for o in self.nest.outputs) and any(
            o.inplace == name for o in self.nest.outputs
        ):
            return True
        uses = [s for s in steps if name in s.operands]
        return name in self.strided and (len(uses) > 1 or any(s.over for s in uses))

    def _is_turned(self, axes: Axes) -> bool:
        return (
            self.turned
            and not set(axes).isdisjoint(self.nest.row)
            and not set(axes).isdisjoint(self.nest.cut)
        )

    def _with_stores(self, steps: list[Step]) -> list[Step]:
        stores = []
        for out in self.nest.outputs:
            value = (self.names.get(out.value, out.value),)
            store = Step(f"{out.name}.out", copy, value, out.dtype, out.axes, output=out.name)
            place = self.nest.region.outputs.index(out)
            self.program.outputs.append((self._register(store.name), place, out.axes))
            stores.append(store)
        return [*steps, *stores]

    def _is_fixed(self, step: Step) -> bool:
        """Whether a value is the same for all tiles, so that it is computed once."""
        return (
            bool(self.pieces)
            and self.pieces.isdisjoint(step.axes)
            and not step.sums
            and step.output is None
        )

    def _direct(self, moving: list[Step]) -> dict[Any, str]:
        """Values that are computed in the memory of an output, and that output."""
        makers = {s.name: (i, s) for i, s in enumerate(moving)}
        found: dict[Any, str] = {}
        for out in self.nest.outputs:
            number, step = makers.get(self.names.get(out.value, out.value), (0, None))
            if step is None or step.name in found or step.output or step.name.endswith(LOADED):
                continue
            if (step.dtype, step.axes) != (out.dtype, out.axes) or self._is_turned(out.axes):
                continue
            if step.call in CONTIGUOUS:
                continue
            if out.inplace:
                read = [i for i, s in enumerate(moving) if out.inplace in s.operands]
                if any(i > number for i in read) or (number in read and not step.in_place):
                    continue
            found[step.name] = out.name
        return found

    # Registers -----------------------------------------------------------------------------------

    def _register(self, key: Any) -> int:
        register = self.registers.get(key)
        if register is None:
            register = self.registers[key] = self.program.count
            self.program.count += 1
        return register

    def _operand(self, operand: str | Constant) -> int:
        """The register of an operand; sources are registered when they are first read."""
        if isinstance(operand, Constant):
            key = (repr(operand.value), operand.dtype)
            if key not in self.registers:
                value = np.array(operand.value, operand.dtype)
                self.program.constants.append((self._register(key), value))
            return self.registers[key]
        if operand not in self.registers:
            axes = self._source_axes(operand)
            moves = not self.pieces or not self.pieces.isdisjoint(axes)
            sources = self.program.moving if moves else self.program.fixed
            sources.append((self._register(operand), operand, axes))
        return self.registers[operand]

    def _source_axes(self, name: str) -> Axes:
        if name in self.inputs or name in self.nest.known:
            return self.nest.region.statement(name).axes
        return ()  # sizes, and arrays in which rows are looked up

    def _filled(self, operand: Constant, axes: Axes) -> int:
        """A constant tile: with these, maximum and minimum take a third of the time."""
        key = (repr(operand.value), operand.dtype, axes)
        if key not in self.registers:
            self.program.filled.append((self._register(key), operand.value, axes, operand.dtype))
        return self.registers[key]

    def _slot(self, axes: Axes, dtype: str) -> int:
        kind = axes, np.dtype(dtype).itemsize
        free = self.free.setdefault(kind, [])
        if free:
            return free.pop()
        self.program.slots.append(kind)
        return len(self.program.slots) - 1

    def _buffer(self, slot: int, dtype: str) -> int:
        key = slot, dtype
        if key not in self.registers:
            self.program.buffers.append((self._register(key), slot, dtype))
        return self.registers[key]

    def _release(self, slot: int) -> None:
        self.free[self.program.slots[slot]].append(slot)

    def _write_step(
        self, number: int, step: Step, last: dict[str, int], direct: dict[Any, str]
    ) -> None:
        ins = [self._operand(o) for o in step.operands if o != SPARE]
        if step.call in (np.maximum, np.minimum):
            ins = [
                self._filled(o, step.axes) if isinstance(o, Constant) else i
                for i, o in zip(ins, step.operands, strict=True)
            ]
        dead = [
            self.places.pop(o)
            for o in dict.fromkeys(step.operands)
            if isinstance(o, str) and last[o] == number and o in self.places
        ]
        if step.in_place:
            for slot in dead:
                self._release(slot)
        if step.sums:
            out = self._register(step.name)
            self.program.sums.append((out, step))
            spare = self._slot(step.axes, step.dtype)
            ins.append(self._buffer(spare, step.dtype))
            self._release(spare)
        elif step.output is not None:
            out = self._register(step.name)
        elif step.name in direct:
            out = self.registers[step.name] = self._register(f"{direct[step.name]}.out")
        else:
            slot = self.places[step.name] = self._slot(step.axes, step.dtype)
            out = self.registers[step.name] = self._buffer(slot, step.dtype)
        if not step.in_place:
            for slot in dead:
                self._release(slot)
        self.program.calls.append((step.call, tuple(ins), out))
