"""Buffers for carries of loops in machine code, and movements of their steps' arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from eagerflow.fusion.groups import MIN_SEGMENT_STEPS, fuse, into_of, is_worth_code, native_rows
from eagerflow.fusion.kernels import Step
from eagerflow.graph.cache import kept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.plan.layouts import Layouts
from eagerflow.plan.lifetimes import Lifetimes
from eagerflow.plan.loops import Movement
from eagerflow.plan.products import is_large
from eagerflow.plan.segments import Arrays, SegmentStep
from eagerflow.primitives.copies import copied

MIN_LOOP_STEPS = 16  # total steps over all iterations from which a scan is compiled


class RowCopy(NamedTuple):
    """A step that copies a value of a body to a row: of a result, or of a carry's ring."""

    inputs: tuple[Value, ...]
    outputs: tuple[Any, ...]
    """The value for the row."""
    source: Any
    """The user's line."""

    @property
    def name(self) -> str:
        """The name of the step."""
        return "copy"

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Empty: it is no node of the graph."""
        return ()

    def as_step(self) -> SegmentStep:
        """The step as part of a segment."""

        def call(inputs: Arrays, outputs: Arrays) -> None:
            outputs[0][...] = inputs[0]

        def native(inputs: Arrays, outputs: Arrays) -> Any:
            return copied(inputs[0], outputs[0])

        return SegmentStep(self, 1, call, native)


class Rings(NamedTuple):
    """Buffers for the carries of a scan, and results that are such rings; see ``rings_of``."""

    whole: list[bool]
    """For each carry, whether its ring has a row for each iteration."""
    written: list[bool]
    """For each carry, whether a step writes its ring directly; else it is copied there."""
    rows: list[tuple[int, bool] | bool]
    """For each result with a row for each iteration: the index of an equal carry, and whether its
    value is after the iteration; for others, whether a step writes it directly; else copied."""


def rings_of(body: Graph, carries: int, steps: Sequence[Step]) -> Rings | None:
    """The buffers for the carries of a body; None if it cannot be a loop of this kind.

    All of its steps must have machine code, or be mere views.
    """
    made = made_by(steps)
    if made is None:
        return None
    befores, afters = body.inputs[:carries], body.outputs[:carries]
    free = set(made)  # values without a buffer so far
    written = []
    for value in afters:
        written.append(value in free)
        free.discard(value)
    rows: list[tuple[int, bool] | bool] = []
    for value in body.outputs[carries:]:
        if value in befores:
            rows.append((befores.index(value), False))
        elif value in afters and written[afters.index(value)]:
            rows.append((afters.index(value), True))
        else:
            rows.append(value in free)
            free.discard(value)
    asked = {row[0] for row in rows if isinstance(row, tuple)}
    return Rings([i in asked for i in range(carries)], written, rows)


@kept
def steps_of(body: Graph) -> list[Step]:
    """The steps of a body, with every possible region as a kernel."""
    return fuse(body, min_steps=1)


def scan_rings(node: Node) -> Rings | None:
    """The buffers for the carries of a scan in machine code; None for other nodes."""
    more = node.attributes
    if node.op.name != "scan" or scan_length(node) < 2:
        return None
    steps = steps_of(more["body"])
    if len(steps) * scan_length(node) < MIN_LOOP_STEPS:
        return None
    return rings_of(more["body"], more["carries"], steps)


def scan_length(node: Node) -> int:
    """The number of iterations of a scan."""
    more = node.attributes
    found: int = node.inputs[more["carries"]].shape[0] if more["sequences"] else more["length"]
    return found


def is_loop(node: Node) -> bool:
    """Whether a node is a scan in machine code, as a step of a segment."""
    return scan_rings(node) is not None


def order_of_segments(graph: Graph) -> list[Step]:
    """The steps of a graph; small regions are fused too if a segment calls them."""
    return fuse(graph, min_steps=MIN_SEGMENT_STEPS, is_loop=is_loop)


def native_steps(steps: Sequence[Step]) -> set[Step]:
    """Nodes compiled to machine code: in long runs of such steps, and if large."""
    rows = native_rows(steps, is_loop)
    found = {s for row in rows if is_worth_code(row, MIN_SEGMENT_STEPS, is_loop) for s in row}
    return found.union(
        step for row in rows for step in row if isinstance(step, Node) and is_large(step)
    )


def made_by(steps: Sequence[Step]) -> set[Value] | None:
    """The results of kernels and products of a body; None if it has other steps."""
    made: set[Value] = set()
    layouts = Layouts()
    for step in steps:
        if not isinstance(step, Node):
            if step.checks:
                return None
        elif (into := into_of(step)) is None or into.call is None:
            if not layouts.shows(step):
                return None
            layouts.note(step)
            continue
        made.update(step.outputs)
        for value in step.outputs:
            layouts.add(value)
    return made


def movements_of(
    steps: Sequence[SegmentStep], lifetimes: Lifetimes, moving: dict[Any, Movement]
) -> list[list[Movement | None]]:
    """The movements of steps' arrays, by the roots of their values."""
    found = []
    for own in steps:
        values: list[Any] = [*own.step.inputs, *own.step.outputs]
        found.append([moving.get(lifetimes.root(x)) for x in values])
    return found
