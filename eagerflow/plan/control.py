"""Control flow in plans: branches and loops as Python's own, with their bodies written in place.

    for i in range(100):
        x = sequence[i, ...]
        matmul = _matmul(carry, W, b3)
        ...
        carry = tanh
        ys[i] = tanh

What a body gives is allocated anew in each iteration; what it computes on the way lies in buffers
of the plan, like everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow.devices import Device
from eagerflow.fusion.groups import fuse
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.plan.loops import Loop, Movement, Rings, RowCopy, movements_of, rings_of
from eagerflow.recorder import with_recorder
from eagerflow.tensor import new_tensor


def _same(lowering: Any, node: Node, made: Sequence[str], found: Sequence[str], depth: int) -> None:
    """Let names stand for what others stand for; all at once, as one may be another's."""
    pairs = [(a, b) for a, b in zip(made, found, strict=True) if a != b]
    if pairs:
        left, right = (", ".join(names) for names in zip(*pairs, strict=True))
        lowering.program.write(f"{left} = {right}", node, depth)
    elif not made:
        lowering.program.write("pass", node, depth)


def _branches(
    lowering: Any, node: Node, given: Sequence[str], tests: Sequence[str], graphs: Sequence[Graph]
) -> None:
    """``if`` and ``else``, one branch for each test, and the last one without."""
    program, depth = lowering.program, lowering.depth
    made = [program.local(v) for v in node.outputs]
    for test, graph in zip([*tests, ""], graphs, strict=True):
        word = "else" if not test else "if" if test is tests[0] else "elif"
        program.write(f"{word} {test}".rstrip() + ":", node, depth)
        _same(lowering, node, made, lowering.body(graph, given, depth + 1), depth + 1)


def _cond(lowering: Any, node: Node, given: Sequence[str]) -> None:
    graphs = node.attributes["true_graph"], node.attributes["false_graph"]
    _branches(lowering, node, given[1:], given[:1], graphs)


def _switch(lowering: Any, node: Node, given: Sequence[str]) -> None:
    graphs = node.attributes["branches"]
    program = lowering.program
    index = program.name("index")
    number = f"min(max(int({given[0]}), 0), {len(graphs) - 1})"
    program.write(f"{index} = {number}", node, lowering.depth)
    if len(graphs) == 1:
        found = lowering.body(graphs[0], given[1:], lowering.depth)
        _same(lowering, node, [program.local(v) for v in node.outputs], found, lowering.depth)
        return
    tests = [f"{index} == {i}" for i in range(len(graphs) - 1)]
    _branches(lowering, node, given[1:], tests, graphs)


def _while_loop(lowering: Any, node: Node, given: Sequence[str]) -> None:
    program, depth, more = lowering.program, lowering.depth, node.attributes
    states = more["states"]
    state = [program.local(v) for v in node.outputs]
    _same(lowering, node, state, given[:states], depth)
    most = more["maximum_iterations"]
    step = "while True:"
    if most is not None:
        step = f"for {program.name('i')} in range({lowering.attribute('most', most)}):"
    program.write(step, node, depth)
    (test,) = lowering.body(more["cond"], [*state, *given[states:]], depth + 1)
    program.write(f"if not {test}:", node, depth + 1)
    program.write("break", node, depth + 2)
    found = lowering.body(more["body"], [*state, *given[states:]], depth + 1)
    _same(lowering, node, state, found, depth + 1)


MIN_LOOP_STEPS = 16  # steps of all iterations from which machine code is made for a scan


def _rows(array: Any, first: int, end: int) -> Any:
    return array[first:end]


def _native_scan(lowering: Any, node: Node, given: Sequence[str], count: int) -> bool:
    """Write a scan as one call, if all of its steps have machine code; whether that was done."""
    program, more = lowering.program, node.attributes
    if not program.segments or count < 2:
        return False
    steps = fuse(more["body"], min_steps=1)
    if len(steps) * count < MIN_LOOP_STEPS:
        return False
    rings = rings_of(node, steps)
    if rings is None:
        return False
    writer = _LoopWriter(lowering, node, given, count)
    writer.sequences()
    writer.carries(rings)
    writer.results(rings)
    inner = type(lowering)(program, more["body"], steps, lowering.depth)
    inner.placed, inner.native = writer.placed, {*steps}
    inner.write_steps()
    writer.call(inner)
    writer.ends(rings)
    return True


class _LoopWriter:
    """Writes the arrays of a scan's first iteration, and the call that does all of them."""

    def __init__(self, lowering: Any, node: Node, given: Sequence[str], count: int) -> None:
        self.lowering, self.node, self.given, self.count = lowering, node, given, count
        self.program, self.body = lowering.program, node.attributes["body"]
        self.split = node.attributes["carries"]
        self.reverse = node.attributes["reverse"]
        self.step = -1 if self.reverse else 1
        self.first = count - 1 if self.reverse else 0
        self.movers: list[str] = []
        self.moving: dict[Any, Movement] = {}
        self.placed: dict[Value, str] = {}
        self.copies: list[tuple[RowCopy, str]] = []
        self.rings: list[tuple[str, Movement]] = []

    def _write(self, line: str) -> None:
        self.program.write(line, self.node, self.lowering.depth)

    def _row(self, value: Value, mover: str, movement: Movement) -> str:
        """The row of a mover that a value is in the first iteration."""
        self.moving[value] = movement
        name: str = self.program.local(value)
        self._write(f"{name} = {mover}[{movement.row(0)}, ...]")
        return name

    def _written(self, value: Value, mover: str, movement: Movement, by_step: bool) -> None:
        """Let a row of a mover be what a step writes a value to, or what it is copied to."""
        if by_step:
            self.placed[value] = self._row(value, mover, movement)
            return
        name = self.program.name("row")
        self._write(f"{name} = {mover}[{movement.row(0)}, ...]")
        copy = RowCopy((value,), (name,), self.node.source)
        self.moving[name] = movement
        self.copies.append((copy, name))

    def _along(self, mover: str) -> Movement:
        """The movement from row to row of what has one for each iteration."""
        self.movers.append(mover)
        return Movement(len(self.movers) - 1, self.first, self.step, self.count)

    def sequences(self) -> None:
        """The rows that are read, and what is the same in all iterations."""
        end = self.split + self.node.attributes["sequences"]
        for value, name in zip(  # noqa: B905 (what is the same comes behind)
            self.body.inputs[self.split : end], self.given[self.split : end]
        ):
            self._row(value, name, self._along(name))
        self.program.names.update(zip(self.body.inputs[end:], self.given[end:], strict=True))

    def carries(self, rings: Rings) -> None:
        """The rings of the carries, which begin with the first ones."""
        for i, whole in enumerate(rings.whole):
            value, after = self.body.inputs[i], self.body.outputs[i]
            rows = self.count + 1 if whole else 2
            start = self.count if whole and self.reverse else 0
            ring = self.program.name("ring")
            self._write(f"{ring} = {self.lowering.new(value, rows)}")
            self._write(f"{ring}[{start}] = {self.given[i]}")
            before = Movement(len(self.movers), start, self.step if whole else 1, rows)
            self.movers.append(ring)
            self.rings.append((ring, before))
            self._row(value, ring, before)
            then = before._replace(first=before.row(1))
            self._written(after, ring, then, rings.written[i])

    def results(self, rings: Rings) -> None:
        """The results with a row for each iteration that are no rings."""
        pairs = zip(self.body.outputs[self.split :], self.node.outputs[self.split :], strict=True)
        for (value, whole), row in zip(pairs, rings.rows, strict=True):
            if isinstance(row, bool):
                name = self.program.local(whole)
                self._write(f"{name} = {self.lowering.new(whole)}")
                self._written(value, name, self._along(name), row)

    def call(self, inner: Any) -> None:
        """The call that does all iterations of the steps that ``inner`` has written."""
        for copy, name in self.copies:
            inner.add(copy.step(), "copy", [inner.text(copy.inputs[0])], [name])
        pending = inner.pending
        movements = movements_of(pending.steps, inner.lifetimes, self.moving)
        loop = self.program.known("_loop", Loop(pending.steps, movements, self.count))
        self._write(f"{loop}({_tuple(pending.names)}, {_tuple(self.movers)})")
        rows = [name for _, name in self.copies]
        gone = [*pending.names, *pending.gone, *self.placed.values(), *rows]
        self._write(f"del {', '.join(gone)}")

    def ends(self, rings: Rings) -> None:
        """The last carries, and the results that are rings."""
        for (ring, movement), value in zip(
            self.rings, self.node.outputs[: self.split], strict=True
        ):
            name = self.program.local(value)
            self._write(f"{name} = {ring}[{movement.row(self.count)}, ...]")
            root = self.lowering.lifetimes.root(value)
            self.lowering.loose.setdefault(root, []).append(name)
        rows = self.program.known("_rows", _rows)
        for value, row in zip(self.node.outputs[self.split :], rings.rows, strict=True):
            if not isinstance(row, bool):
                first = int(row[1] != self.reverse)
                name, ring = self.program.local(value), self.rings[row[0]][0]
                self._write(f"{name} = {rows}({ring}, {first}, {first + self.count})")
            root = self.lowering.lifetimes.root(value)
            self.lowering.loose.setdefault(root, []).append(self.program.names[value])
        if self.rings:
            self._write(f"del {', '.join(ring for ring, _ in self.rings)}")


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def _by_kernel(node: Node, device: Device) -> Any:
    """An op that is computed as a whole, as a function of arrays; its results are new ones."""
    kinds = [device.kind(x.dtype) for x in node.values()]

    def call(*arrays: Any) -> tuple[Any, ...]:
        tensors = map(new_tensor, arrays, kinds)
        made = with_recorder(None, node.op.kernel, None, *tensors, **node.attributes)
        found = [y._array for y in made]
        return tuple(
            [y.copy() if any(np.may_share_memory(y, x) for x in arrays) else y for y in found]
        )

    return call


def _scan(lowering: Any, node: Node, given: Sequence[str]) -> None:
    program, depth, more = lowering.program, lowering.depth, node.attributes
    carries, sequences = more["carries"], more["sequences"]
    steps = node.inputs[carries].shape[0] if sequences else more["length"]
    if program.exact and more["compiled"]:
        kernel = program.known("_scan", _by_kernel(node, program.device))
        lowering.assign(node, f"{kernel}({', '.join(given)})")
        return
    if _native_scan(lowering, node, given, steps):
        return
    made = [program.local(v) for v in node.outputs]
    rows = node.outputs[carries:]
    _same(lowering, node, made[:carries], given[:carries], depth) if carries else None
    for value, name in zip(rows, made[carries:], strict=True):
        program.write(f"{name} = {lowering.new(value)}", node, depth)
    i = program.name("i")
    steps, last = lowering.attribute("steps", steps), lowering.attribute("last", steps - 1)
    order = f"range({last}, -1, -1)" if more["reverse"] else f"range({steps})"
    program.write(f"for {i} in {order}:", node, depth)
    parts = []
    body = more["body"]
    for value, name in zip(body.inputs[carries:], given[carries : carries + sequences]):  # noqa: B905
        parts.append(program.local(value))
        program.write(f"{parts[-1]} = {name}[{i}, ...]", node, depth + 1)
    found = lowering.body(body, [*made[:carries], *parts, *given[carries + sequences :]], depth + 1)
    for name, row in zip(made[carries:], found[carries:], strict=True):
        program.write(f"{name}[{i}] = {row}", node, depth + 1)
    _same(lowering, node, made[:carries], found[:carries], depth + 1)


CONTROL = {"cond": _cond, "scan": _scan, "switch": _switch, "while_loop": _while_loop}
"""Ops whose attributes are graphs, with what writes them."""
