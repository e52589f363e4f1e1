"""The steps of recurrent networks, and of their gradients, in LLVM IR."""

from __future__ import annotations

from typing import Any

from eagerflow.primitives.llvm.recurrence_writer import NUMBERS, STATES, Place, RecurrenceWriter
from eagerflow.primitives.llvm.vectors import RegisterBlock
from eagerflow.primitives.recurrent_cells import Values


class ForwardWriter(RecurrenceWriter):
    """Writes ``weights``, which packs the kernels, and ``steps``, which computes the states.

    Each step also computes the products of its inputs.
    """

    slots = (
        *("x", "kernel", "recurrent_kernel", "bias", "gates", "mask", *STATES),
        *("h_start", "c_start", "weights", "handed", "cells", *NUMBERS),
    )
    """``gates`` receive their values, if kept; ``h_start`` and ``c_start`` are the initial states;
    ``handed`` and ``cells`` hold the states."""
    onward = True
    planes = 1

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sums = self.cell.values
        self.begun = self.config.given[0]

    @property
    def columns(self) -> int:
        """Stored gate values per unit."""
        return self.cell.values if self.config.kept else self.cell.gates

    @property
    def line(self) -> int:
        """The size of all gates."""
        return self.cell.gates * self.block_bytes

    @property
    def depth(self) -> int:
        """The inputs, and the previous output."""
        return self.config.width + self.config.units

    def _weights(self) -> None:
        self._pack("kernel", self.config.width, 0)
        self._pack("recurrent_kernel", self.config.units, self.config.width)
        for name, plane, given in zip(STATES, ("handed", "cells"), self.config.given, strict=False):
            self._begin(f"{name}_start", plane, given)

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

    def _begin(self, name: str, plane: str, given: bool) -> None:
        """Each piece stores its share of the initial states where steps read them."""
        v, code, config = self.v, self.code, self.config
        _, _, first, last = self.share(self.argument("rows"))
        start, to = self.pointer(name), self.pointer(plane)
        with code.loop("row", first, last) as (row, _), code.loop("b", 0, self.blocks) as (b, _):
            here = v.step(v.step(start, row, self.unit_bytes), b, self.block_bytes)
            there = v.step(v.step(to, row, self.handed), b, self.block_bytes)
            for j, mask in enumerate(self.masks(b, config.vectors, config.units)):
                value = v.load(here, j * v.size, mask=mask) if given else v.zero
                v.store(value, there, j * v.size)

    def _product(self, height: int, sums: Values) -> Values:
        v, width = self.v, self.config.width
        inputs = [v.step("%x", str(r), "%x_row") for r in range(height)]
        self._accumulate(sums, list(range(self.cell.gates)), inputs, width, "%weights")
        return self._product_of_output(height, sums, self.cell.of_output)

    def _product_of_output(self, height: int, sums: Values, which: list[int]) -> Values:
        """The contribution of the previous output to some of the sums."""
        v = self.v
        rows = [v.at("%rows", r * self.handed) for r in range(height)]
        lines = v.at("%weights", self.config.width * self.line)
        self._accumulate(sums, which, rows, "%count", lines)
        return sums

    def _vector(self, place: Place, step: str, sums: Values, planes: list[str]) -> None:
        v, s, cell, config = self.v, self.s, self.cell, self.config
        own = [self._in_plane(planes[0], place)]
        if cell.states > 1:
            own.append(self._in_plane(self.pointers["cells"], place))
        before = [v.load(at) for at in own]
        values, after = cell.step(s, self._values(place, sums), before)
        if config.masked:
            seen = self._seen(place)
            after = [s.select(seen, x, y) for x, y in zip(after, before, strict=True)]
        if config.kept:
            self._store_values(values, "gates", place)
        own[0] = self._in_plane(planes[1], place)
        for name, value, at in zip(STATES, after, own, strict=False):
            v.store(value, at)
            v.store(value, self._at(name, place.time, place), mask=place.mask)

    def _values(self, place: Place, sums: Values) -> Values:
        """The pre-activation values of the gates."""
        return self._added(self._biases(place), sums)

    def _added(self, one: Values, other: Values) -> Values:
        """Sums of two lists, the first of which may contain None."""
        return [b if a is None else self.s.add(a, b) for a, b in zip(one, other, strict=True)]

    def _biases(self, place: Place) -> Values:
        """The bias of each gate value, or None.

        If gates are apart, each product has its own bias.
        """
        v, cell = self.v, self.cell
        if not self.config.biased:
            return [None] * cell.values
        both, lines = cell.gates - cell.apart, [*range(cell.gates)]
        lines += range(cell.gates + both, 2 * cell.gates) if cell.apart else []
        found = [v.load(self._at("bias", "0", place, k), mask=place.mask) for k in lines]
        for k in range(both if cell.apart else 0):
            more = v.load(self._at("bias", "0", place, cell.gates + k), mask=place.mask)
            found[k] = self.s.add(found[k], more)
        return found


class InputsFirstWriter(ForwardWriter):
    """Writes also ``inputs``, which computes the products of all inputs before the first step.

    They are stored in ``gates`` until their step.
    """

    stages = ("weights", "inputs", "steps")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sums = self.cell.gates
        assert self.config.ahead is not None, "it is for such products"
        self.ahead: RegisterBlock = self.config.ahead

    @property
    def scratch(self) -> int:
        """The base class's memory, and the sums of some inputs."""
        return max(super().scratch, self.ahead.rows * self.line)

    def module(self) -> str:
        """The base class's functions, and products of inputs for each number of rows."""
        for height in range(1, self.ahead.rows + 1):
            with self.code.function(f"ahead{height}(ptr %x, ptr %weights, ptr %sums)"):
                self._rows_ahead(self.ahead._replace(rows=height))
        return super().module()

    def _rows_ahead(self, block: RegisterBlock) -> None:
        """Add the products of a few inputs with a part of the line to the sums."""
        v = self.v
        rows = [v.at("%x", r * self.config.width * v.itemsize) for r in range(block.rows)]
        found = v.accumulate(
            block,
            v.no_sums(block),
            self.config.width,
            lambda k, r: (v.step(rows[r], k, v.itemsize), 0),
            lambda k: v.step("%weights", k, self.line),
        )
        self.store_block(block, found, "%sums", self.line)

    def _inputs(self) -> None:
        """Each piece computes the units of its blocks, for all steps of its examples."""
        v, code, config = self.v, self.code, self.config
        x, weights, gates, steps = (
            *(self.pointer(name) for name in ("x", "weights", "gates")),
            self.argument("steps"),
        )
        first, last = (v.number("mul", at, steps) for at in ("%r0", "%r1"))
        with code.loop("block", "%c0", "%c1") as (block, _):
            lines = v.step(weights, block, self.depth * self.line)
            masks = self.masks(block, config.vectors, config.units)
            with self._even_parts(first, last, self.ahead.rows) as (begin, end):
                rows = v.step(x, begin, config.width * v.itemsize)
                self._sum_up(rows, v.number("sub", end, begin), lines)
                with code.loop("row", begin, end) as (row, _):
                    sums = v.step("%scratch", v.number("sub", row, begin), self.line)
                    to = v.step(gates, row, self.columns * self.unit_bytes)
                    to = v.step(to, block, self.block_bytes)
                    for k in range(self.cell.gates):
                        for j, mask in enumerate(masks):
                            value = v.load(sums, k * self.block_bytes + j * v.size)
                            v.store(value, to, k * self.unit_bytes + j * v.size, mask=mask)

    def _sum_up(self, rows: str, height: str, lines: str) -> None:
        """Store the sums of some rows in the thread's memory, part by part of the line."""
        v, many = self.v, self.ahead.vectors
        with self.code.loop("at", 0, self.line, many * v.size) as (at, _):
            own, sums = v.at(lines, at), v.at("%scratch", at)
            self._call_for(height, self.ahead.rows, "ahead", f"ptr {rows}, ptr {own}, ptr {sums}")

    def _product(self, height: int, sums: Values) -> Values:
        return self._product_of_output(height, sums, list(range(self.cell.gates)))

    def _values(self, place: Place, sums: Values) -> Values:
        v, cell = self.v, self.cell
        found = self._biases(place)
        brought = [
            v.load(self._at("gates", place.time, place, k, self.columns), mask=place.mask)
            for k in range(cell.gates)
        ]
        found[: cell.gates] = self._added(found[: cell.gates], brought)
        own = self._added([found[k] for k in cell.of_output], sums)
        for k, value in zip(cell.of_output, own, strict=True):
            found[k] = value
        return found


class GradientWriter(RecurrenceWriter):
    """Writes ``weights``, which packs the recurrent kernel, and ``steps``, backwards in time."""

    slots = (
        *("recurrent_kernel", "gates", "mask", "state", "state_start", "g_h", "g_c"),
        *("of_gates", "of_bias", "of_h", "of_c", "weights", "handed", *NUMBERS),
    )
    """``state`` is the last kind of state; ``g_h`` and ``g_c`` are gradients of all states,
    ``of_gates`` those of gate values, ``of_bias`` their sums over time; ``of_h`` and ``of_c`` are
    those of the initial states."""
    onward = False
    sums = 1

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.planes = self.cell.gates
        self._states = STATES[: self.cell.states]

    @property
    def line(self) -> int:
        """The sums of one gate and unit."""
        return self.block_bytes

    @property
    def depth(self) -> int:
        """All gates of all units."""
        return self.cell.gates * self.config.units

    def _weights(self) -> None:
        """Each piece transposes its share of the kernel's columns, and zeroes sums."""
        for name, columns in (("bias", self.cell.values), *((s, 1) for s in self._states)):
            self._clear(f"of_{name}", columns * self.config.units)
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

    def _clear(self, name: str, size: int) -> None:
        """Each piece zeroes its share of an array with a number of elements per example."""
        v = self.v
        _, _, first, last = self.share(self.argument("rows"))
        start = self.pointer(name)
        with self.code.loop("row", first, last) as (row, _):
            to = v.step(start, row, size * v.itemsize)
            self.parts(size, lambda at, count: v.store(v.zero, to, at, count))

    def _turn(self, block: str, column: str, many: int) -> None:
        """Pack columns of a block of the kernel's rows: one vector of them, or one."""
        v, lanes, last = self.v, self.lanes, self.config.units - 1
        line = v.step(v.step(self.to, column, self.line), block, self.depth * self.line)
        start = v.step(self.kernel, column, v.itemsize)
        row_bytes = self.cell.gates * self.unit_bytes
        for j in range(self.config.vectors):
            unit = v.number("mul", block, self.config.vectors * lanes)
            rows = []
            for i in range(lanes):
                # Lanes without a unit have the weights of the last one, which are unused.
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
        columns = cell.values
        starts = [self._at(f"of_{name}", place.row, place) for name in self._states]
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
        """The gradients of a step's states: the given ones, plus those from later steps."""
        v, s, cell, config = self.v, self.s, self.cell, self.config
        h = s.add(v.load(self._at("g_h", place.time, place), mask=place.mask), total)
        if cell.apart or config.masked:  # otherwise only gates depend on the output
            h = s.add(h, v.load(starts[0], mask=place.mask))
        if cell.states == 1:
            return [h]
        c = v.load(starts[1], mask=place.mask)
        if config.by_cells:
            c = s.add(c, v.load(self._at("g_c", place.time, place), mask=place.mask))
        return [h, c]

    def _before(self, place: Place, step: str) -> Any:
        """The state before a step; for the first one, the given one or zeros."""
        v, s = self.v, self.s
        first = s.equal(v.count(v.number("add", step, 1)), v.count(self.numbers["steps"]))
        started = any(self.config.given)
        name, number = ("state_start", place.row) if started else ("state", place.time)
        instead, there = self._at(name, number, place), self._at("state", place.before, place)
        here = self.code.value(f"select {first.typed}, ptr {instead}, ptr {there}")
        value = v.load(here, mask=place.mask)
        return value if started else s.select(first, v.zero, value)
