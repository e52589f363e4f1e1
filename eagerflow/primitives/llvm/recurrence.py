"""The steps of recurrent networks, and of their gradients, as LLVM's code."""

from __future__ import annotations

from typing import Any

from eagerflow.primitives.llvm.recurrence_writer import (
    NUMBERS,
    STATES,
    Place,
    RecurrenceWriter,
)
from eagerflow.primitives.recurrent_cells import Values


class ForwardWriter(RecurrenceWriter):
    """Writes ``weights``, which packs the kernels, and ``steps``, which gives the states."""

    slots = (
        *("x", "kernel", "recurrent_kernel", "bias", "gates", "mask", *STATES),
        *("weights", "handed", "cells", *NUMBERS),
    )
    """``bias`` has an element for each value of the gates. ``gates`` are, without ``width``, the
    products of the inputs, and get the values; ``handed`` and ``cells`` hold the states."""
    onward = True
    planes = 1

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sums = self.cell.values if self.config.width else self.cell.gates

    @property
    def line(self) -> int:
        """Those of all gates."""
        return self.cell.gates * self.block_bytes

    @property
    def depth(self) -> int:
        """Inputs, if they come, and the output before."""
        return self.config.width + self.config.units

    def _weights(self) -> None:
        self._pack("kernel", self.config.width, 0)
        self._pack("recurrent_kernel", self.config.units, self.config.width)

    def _pack(self, name: str, size: int, before: int) -> None:
        """Each piece packs its share of a kernel's rows."""
        v, code = self.v, self.code
        _, _, first, last = self.share(size)
        kernel, to = self.pointer(name), v.at(self.pointer("weights"), before * self.line)
        with code.loop("k", first, last) as (k, _), code.loop("b", 0, self.blocks) as (block, _):
            row = v.step(kernel, k, self.cell.gates * self.unit_bytes)
            row = v.step(row, block, self.block_bytes)
            line = v.step(v.step(to, k, self.line), block, self.depth * self.line)
            masks = self.masks(block, self.config.vectors, self.config.units)
            for gate in range(self.cell.gates):
                for j, mask in enumerate(masks):
                    value = v.load(row, gate * self.unit_bytes + j * v.size, mask=mask)
                    v.store(value, line, gate * self.block_bytes + j * v.size)

    def _product(self, height: int, sums: Values) -> Values:
        v, width = self.v, self.config.width
        gates, lines = list(range(self.cell.gates)), "%weights"
        if width:
            inputs = [v.step("%x", str(r), "%x_row") for r in range(height)]
            self._accumulate(sums, gates, inputs, width, lines)
            lines = v.at(lines, width * self.line)
        rows = [v.at("%rows", r * self.handed) for r in range(height)]
        self._accumulate(sums, self.cell.of_output if width else gates, rows, "%count", lines)
        return sums

    def _vector(self, place: Place, step: str, sums: Values, planes: list[str]) -> None:
        v, s, cell, config = self.v, self.s, self.cell, self.config
        own = [self._in_plane(planes[0], place)]
        if cell.states > 1:
            own.append(self._in_plane(self.pointers["cells"], place))
        before = [v.load(at) for at in own]
        columns = cell.values if config.kept else cell.gates
        values, after = cell.step(s, self._values(place, sums, columns), before)
        if config.masked:
            seen = self._seen(place)
            after = [s.select(seen, x, y) for x, y in zip(after, before, strict=True)]
        if config.kept:
            self._store_values(values, "gates", place)
        own[0] = self._in_plane(planes[1], place)
        for name, value, at in zip(STATES, after, own, strict=False):
            v.store(value, at)
            v.store(value, self._at(name, place.time, place), mask=place.mask)

    def _values(self, place: Place, sums: Values, columns: int) -> Values:
        """The values of the gates before their activations."""
        v, s, cell = self.v, self.s, self.cell
        found = [
            v.load(self._at("bias", "0", place, k), mask=place.mask) for k in range(cell.values)
        ]
        if self.config.width:
            return [s.add(a, b) for a, b in zip(found, sums, strict=True)]
        for k in range(cell.gates):
            brought = v.load(self._at("gates", place.time, place, k, columns), mask=place.mask)
            found[k] = s.add(found[k], brought)
        for k, total in zip(cell.of_output, sums, strict=True):
            found[k] = s.add(found[k], total)
        return found


class GradientWriter(RecurrenceWriter):
    """Writes ``weights``, which packs the recurrent kernel, and ``steps``, back in time."""

    slots = (
        *("recurrent_kernel", "gates", "mask", "state", "state_start", "g_h", "g_c"),
        *("of_gates", "of_bias", "of_h", "of_c", "weights", "handed", *NUMBERS),
    )
    """``state`` is the last one of the states; ``g_h`` and ``g_c`` are gradients by all states,
    ``of_gates`` those by the values of gates, ``of_bias`` their sums over time; ``of_h`` and
    ``of_c``, those by the states before the first step, begin with zeros."""
    onward = False
    sums = 1

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.planes = self.cell.gates

    @property
    def line(self) -> int:
        """Those of one gate and unit."""
        return self.block_bytes

    @property
    def depth(self) -> int:
        """All gates of all units."""
        return self.cell.gates * self.config.units

    def _weights(self) -> None:
        """Each piece turns its share of the kernel's columns."""
        v, code, lanes = self.v, self.code, self.lanes
        self.kernel, self.to = self.pointer("recurrent_kernel"), self.pointer("weights")
        whole, rest = divmod(self.depth, lanes)
        for size, many in ((whole, lanes), (rest, 1)):
            _, _, first, last = self.share(size)
            with (
                code.loop("block", 0, self.blocks) as (block, _),
                code.loop("k", first, last) as (k, _),
            ):
                column = (
                    v.number("mul", k, lanes) if many > 1 else v.number("add", k, whole * lanes)
                )
                self._turn(block, column, many)

    def _turn(self, block: str, column: str, many: int) -> None:
        """Pack columns of a block of the kernel's rows, so many as a vector has, or one."""
        v, lanes, last = self.v, self.lanes, self.config.units - 1
        line = v.step(v.step(self.to, column, self.line), block, self.depth * self.line)
        start = v.step(self.kernel, column, v.itemsize)
        row_bytes = self.cell.gates * self.unit_bytes
        for j in range(self.config.vectors):
            unit = v.number("mul", block, self.config.vectors * lanes)
            rows = []
            for i in range(lanes):
                # Lanes without a unit have the weights of the last one, which nobody reads.
                row = self.least(v.number("add", unit, j * lanes + i), str(last))
                rows.append(v.step(start, row, row_bytes))
            if many > 1:
                found = v.transposed([v.load(row) for row in rows])
            else:
                found = [v.together([v.memory.load_one(row, v.dtype) for row in rows])]
            for i, value in enumerate(found):
                v.store(value, line, i * self.line + j * v.size)

    def _product(self, height: int, sums: Values) -> Values:
        v = self.v
        with self.code.loop("gate", 0, self.cell.gates, 1, sums) as (gate, held):
            start = v.step("%rows", gate, self.plane_bytes)
            rows = [v.at(start, r * self.handed) for r in range(height)]
            lines = v.step("%weights", gate, self.config.units * self.line)
            self._accumulate(held, [0], rows, "%count", lines)
        return held

    def _vector(self, place: Place, step: str, sums: Values, planes: list[str]) -> None:
        v, s, cell, config = self.v, self.s, self.cell, self.config
        names, columns = STATES[: cell.states], cell.values
        starts = [self._at(f"of_{name}", place.row, place) for name in names]
        after = v.load(self._at("state", place.time, place), mask=place.mask)
        values = []
        if config.kept:
            for k in range(columns):
                here = self._at("gates", place.time, place, k, columns)
                values.append(v.load(here, mask=place.mask))
        g = self._gradients(place, sums[0], starts)
        found, states = cell.back(s, values, self._before(place, step), after, g)
        if config.masked:
            seen = self._seen(place)
            found = [s.select(seen, x, v.zero) for x in found]
            states = [
                s.select(seen, v.zero if x is None else x, held)
                for x, held in zip(states, g, strict=True)
            ]
        self._store_values(found, "of_gates", place)
        for k, value in enumerate(found):
            total = self._at("of_bias", place.row, place, k, columns)
            v.store(s.add(v.load(total, mask=place.mask), value), total, mask=place.mask)
        for k, at in enumerate(cell.of_output):
            v.store(found[at], self._in_plane(planes[1], place, k))
        for start, value in zip(starts, states, strict=True):
            if value is not None:
                v.store(value, start, mask=place.mask)

    def _gradients(self, place: Place, total: Any, starts: list[str]) -> Values:
        """The gradients by the states of a step: what is given, and what later steps hand back."""
        v, s, cell, config = self.v, self.s, self.cell, self.config
        h = s.add(v.load(self._at("g_h", place.time, place), mask=place.mask), total)
        if cell.apart or config.masked:  # else the output is seen by gates alone
            h = s.add(h, v.load(starts[0], mask=place.mask))
        if cell.states == 1:
            return [h]
        c = v.load(starts[1], mask=place.mask)
        if config.by_cells:
            c = s.add(c, v.load(self._at("g_c", place.time, place), mask=place.mask))
        return [h, c]

    def _before(self, place: Place, step: str) -> Any:
        """The state before a step; before the first one it is that given."""
        v, after = self.v, self.v.number("add", step, 1)
        first = self.code.value(f"icmp eq i64 {after}, {self.numbers['steps']}")
        start, there = (
            self._at("state_start", place.row, place),
            self._at("state", place.before, place),
        )
        here = self.code.value(f"select i1 {first}, ptr {start}, ptr {there}")
        return v.load(here, mask=place.mask)
