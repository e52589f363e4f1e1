"""Program text of loops in machine code: a scan, or a while_loop, with all of its steps compiled.

    ring = empty((2, 3, 6), float32)
    h_0 = ring[0, ...]
    h_0[...] = h
    row = ring[1, ...]
    matmul = h_0, W, b0              # one iteration, with the arrays of the first one
    tanh = b0, row
    loop = *matmul, *tanh, ring
    h_next = ring[0, ...]
    _segment((loop,))

The movement of arrays between iterations is in ``loops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.dtypes import as_dtype
from eagerflow.fusion.kernels import Step
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import tuple_of
from eagerflow.plan.loop_buffers import (
    Rings,
    RowCopy,
    made_by,
    movements_of,
    rings_of,
    scan_length,
    scan_rings,
    steps_of,
)
from eagerflow.plan.loops import Loop, Movement, Test
from eagerflow.plan.while_loops import WhileLoop

ITERATIONS = 16  # of a while_loop in one call shared by threads; an even number


class _LoopWriter:
    """Writes the arrays of a loop's first iteration, and the call that runs all iterations.

    ``carries`` is the number of values of the ``body`` carried from iteration to iteration.
    """

    def __init__(
        self, lowering: Any, node: Node, given: Sequence[str], body: Graph, carries: int
    ) -> None:
        self.lowering, self.node, self.given = lowering, node, given
        self.program, self.body, self.split = lowering.program, body, carries
        self.movers: list[str] = []
        self.moving: dict[Any, Movement] = {}
        self.placed: dict[Value, str] = {}
        self.extra: list[tuple[RowCopy | Test, str, list[str], list[str]]] = []
        self.rings: list[tuple[str, Movement]] = []
        self.names: list[str] = []  # of the tuples of all steps' arrays
        self.gone: list[str] = []
        self.steps: list[Any] = []
        self.movements: list[list[Movement | None]] = []

    def write(self, line: str) -> None:
        """Append a line of the program."""
        self.program.write(line, self.node, self.lowering.depth)

    def row(self, value: Value, mover: str, movement: Movement) -> str:
        """The row of a mover that holds a value in the first iteration."""
        self.moving[value] = movement
        name: str = self.program.local(value)
        self.write(f"{name} = {mover}[{movement.row(0)}, ...]")
        return name

    def written(self, value: Value, mover: str, movement: Movement, by_step: bool) -> str:
        """Make a row of a mover the output of a step, or the target of a copy of it."""
        if by_step:
            name = self.placed[value] = self.row(value, mover, movement)
            return name
        name = self.program.name("row")
        self.write(f"{name} = {mover}[{movement.row(0)}, ...]")
        self.moving[name] = movement
        copy = RowCopy((value,), (name,), self.node.source)
        self.extra.append((copy, "copy", [], [name]))
        self.gone.append(name)
        return name

    def ring(self, i: int, rows: int, before: Movement, by_step: bool) -> None:
        """A ring of this many rows for a carry, starting with the first one."""
        value, after = self.body.inputs[i], self.body.outputs[i]
        ring = self.program.name("ring")
        self.write(f"{ring} = {self.lowering.new(value, rows)}")
        self.movers.append(ring)
        self.rings.append((ring, before))
        self.begin(self.node.inputs[i], self.given[i], self.row(value, ring, before))
        self.written(after, ring, before._replace(first=before.row(1)), by_step)

    def begin(self, value: Any, given: str, row: str) -> None:
        """Initialize a carry with a value, which a step may still have to compute."""
        if not self.lowering.waits(value):
            self.write(f"{row}[...] = {given}")
            return
        copy = RowCopy((value,), (row,), self.node.source)
        self.lowering.add(copy.as_step(), "copy", [given], [row])

    def add(self, graph: Graph, steps: Sequence[Step]) -> None:
        """Write the steps of a graph, and the copies after them."""
        inner = type(self.lowering)(self.program, graph, steps, self.lowering.depth)
        inner.placed, inner.native = self.placed, {*steps}
        inner.write_steps()
        for step, name, given, made in self.extra:
            given = given or [inner.text(x) for x in step.inputs]
            inner.add(step.as_step(), name, given, made)
        self.extra = []
        pending = inner.pending
        self.movements += movements_of(pending.steps, inner.lifetimes, self.moving)
        self.steps += pending.steps
        self.names += pending.names
        self.gone += [*pending.names, *pending.gone]

    def arrays(self) -> list[str]:
        """The arrays of all steps, and the movers."""
        return [*(f"*{name}" for name in self.names), *self.movers]

    def end(self) -> None:
        """Delete the names of the first iteration's arrays."""
        self.write(f"del {', '.join([*self.gone, *self.placed.values()])}")

    def last_carry(self, i: int, row: str) -> None:
        """Assign a carry's name to a row of its ring."""
        value = self.node.outputs[i]
        name = self.program.local(value)
        self.write(f"{name} = {self.rings[i][0]}[{row}, ...]")
        self.keep(value, name)

    def keep(self, value: Value, name: str) -> None:
        """Delete an array after its last use, unless it is the plan's."""
        self.lowering.layouts.add(value)
        if name in self.program.arrays:
            return
        root = self.lowering.lifetimes.root(value)
        self.lowering.loose.setdefault(root, []).append(name)


# Scans -------------------------------------------------------------------------------------------


def native_scan(lowering: Any, node: Node, given: Sequence[str]) -> bool:
    """Write a scan as a step of a segment, if it has machine code; False if not."""
    rings = scan_rings(node) if lowering.program.segments else None
    if rings is None:
        return False
    writer = _ScanWriter(lowering, node, given, scan_length(node))
    writer.sequences()
    writer.carries(rings)
    writer.results(rings)
    writer.add(writer.body, steps_of(writer.body))
    writer.call()
    writer.ends(rings)
    return True


def _rows(array: Any, first: int, end: int) -> Any:
    return array[first:end]


class _ScanWriter(_LoopWriter):
    """Writes a scan."""

    def __init__(self, lowering: Any, node: Node, given: Sequence[str], count: int) -> None:
        more = node.attributes
        super().__init__(lowering, node, given, more["body"], more["carries"])
        self.count, self.reverse = count, more["reverse"]
        self.step = -1 if self.reverse else 1
        self.first = count - 1 if self.reverse else 0

    def _along(self, mover: str) -> Movement:
        """The movement of an array with a row for each iteration."""
        self.movers.append(mover)
        return Movement(len(self.movers) - 1, self.first, self.step, self.count)

    def sequences(self) -> None:
        """Add the rows to read, and loop invariants."""
        end = self.split + self.node.attributes["sequences"]
        for value, name in zip(  # noqa: B905 (invariants come after)
            self.body.inputs[self.split : end], self.given[self.split : end]
        ):
            self.row(value, name, self._along(name))
        self.program.names.update(zip(self.body.inputs[end:], self.given[end:], strict=True))

    def carries(self, rings: Rings) -> None:
        """The rings of the carries."""
        for i, whole in enumerate(rings.whole):
            rows = self.count + 1 if whole else 2
            start, step = (self.count, -1) if whole and self.reverse else (0, 1)
            self.ring(i, rows, Movement(len(self.movers), start, step, rows), rings.written[i])

    def results(self, rings: Rings) -> None:
        """Add the results with a row for each iteration that are no rings."""
        pairs = zip(self.body.outputs[self.split :], self.node.outputs[self.split :], strict=True)
        for (value, whole), row in zip(pairs, rings.rows, strict=True):
            if isinstance(row, bool):
                name = self.lowering.place(whole, self.node, 0)
                self.written(value, name, self._along(name), row)

    def call(self) -> None:
        """Add the step that runs all iterations."""
        loop = Loop(self.steps, self.movements, self.count)
        self.lowering.add(loop.as_step(self.node), "loop", self.arrays(), [])
        self.end()

    def ends(self, rings: Rings) -> None:
        """Write the last carries, and the results that are rings."""
        for i, (_, movement) in enumerate(self.rings):
            self.last_carry(i, str(movement.row(self.count)))
        rows = self.program.known("_rows", _rows)
        for value, row in zip(self.node.outputs[self.split :], rings.rows, strict=True):
            if not isinstance(row, bool):
                first = int(row[1] != self.reverse)
                name, ring = self.program.local(value), self.rings[row[0]][0]
                self.write(f"{name} = {rows}({ring}, {first}, {first + self.count})")
            self.keep(value, self.program.names[value])
        if self.rings:
            self.write(f"del {', '.join(ring for ring, _ in self.rings)}")


# while_loop --------------------------------------------------------------------------------------


def native_while_loop(lowering: Any, node: Node, given: Sequence[str]) -> bool:
    """Write a while_loop as a call, if its steps have machine code; False if not."""
    program, more = lowering.program, node.attributes
    if not program.segments:
        return False
    test, body, states = more["cond"], more["body"], more["states"]
    asking, doing = steps_of(test), steps_of(body)
    made, rings = made_by(asking), rings_of(body, states, doing)
    if made is None or rings is None:
        return False
    writer = _LoopWriter(lowering, node, given, body, states)
    for i, by_step in enumerate(rings.written):
        writer.ring(i, 2, Movement(i, 0, 1, 2), by_step)
    after, writer.extra = writer.extra, []
    program.names.update(zip(body.inputs[states:], given[states:], strict=True))
    for value, own in zip(test.inputs, body.inputs, strict=True):
        program.names[value] = program.names[own]
        if own in writer.moving:
            writer.moving[value] = writer.moving[own]
    flags = program.name("going")
    kind = program.known("bool", as_dtype(bool), ("dtype", as_dtype(bool)))
    writer.write(f"{flags} = empty(({ITERATIONS},), {kind})")
    writer.movers.append(flags)
    (goes,) = test.outputs
    movement = Movement(states, 0, 1, ITERATIONS)
    row = writer.written(goes, flags, movement, goes in made)
    writer.moving[row] = movement
    writer.extra.append((Test((row,), (), node.source), "test", [row], []))
    writer.add(test, asking)
    writer.extra = after
    writer.add(body, doing)
    loop = WhileLoop(writer.steps, writer.movements, ITERATIONS, [states])
    name = program.known("_loop", loop)
    last, most = program.name("last"), lowering.attribute("most", more["maximum_iterations"])
    writer.write(f"{last} = {name}({tuple_of(writer.arrays())}, {most})")
    writer.end()
    for i in range(states):
        writer.last_carry(i, last)
    writer.write(f"del {', '.join([flags, *(ring for ring, _ in writer.rings)])}")
    return True
