"""Programs of plans: all of a graph's steps as one text, with planned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eagerflow.devices import Device
from eagerflow.fusion.kernels import Step
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.graph.names import tuple_of
from eagerflow.plan.device_lowering import DeviceLowering, starters
from eagerflow.plan.epilogues import with_epilogues
from eagerflow.plan.in_place import Update, arrange
from eagerflow.plan.lowering import Lowering, Program


def lower(
    graph: Graph,
    order: Callable[[Graph], Sequence[Step]],
    device: Device,
    exact: bool = False,
    published: Sequence[Value] = (),
    memory: Mapping[Value, Callable[..., Any]] | None = None,
) -> Program:
    """The program of a concrete graph; ``order`` gives the steps of it and of its bodies."""
    program = Program(device, order, exact)
    program.published = {v: i for i, v in enumerate(published)}
    program.memory = memory or {}
    steps: Sequence[Step] = order(graph)
    updates: dict[Step, Update] = {}
    if device.backend.host:
        steps, updates = arrange(graph, steps)
    names = [program.local(v) for v in graph.all_inputs()]
    lowering = lowering_of(program, graph, steps, updates)
    lowering.run()
    lifetimes = lowering.lifetimes
    program.shared = tuple(
        i for i, v in enumerate(graph.all_inputs()) if lifetimes.root(v) in lifetimes.leaving
    )
    results = lowering.results()
    program.write(f"return {tuple_of(results) if results else '()'}")
    first = ["buffers"] + ["commit"] * bool(program.updates) + ["publish"] * bool(published)
    program.lines.insert(0, f"def replay({', '.join([*first, *names])}):")
    program.places.insert(0, None)
    _join(program)
    return program


def lowering_of(
    program: Program, graph: Graph, steps: Sequence[Step], updates: dict[Step, Update]
) -> Lowering:
    """The writer for the steps of a whole graph."""
    device = program.device
    if program.module is not None:
        more = device.backend.products(device.index) is not None
        own = with_epilogues(graph, steps) if more else steps
        started = starters(program, graph, own)
        if started:
            return DeviceLowering(program, graph, own, started)
    return Lowering(program, graph, steps, updates=updates)


def _join(program: Program) -> None:
    """Join all functions of the program in one text, each with access to the buffers' arrays."""
    parts = [*program.parts, (program.lines, program.places)]
    program.lines, program.places = [], []
    for lines, places in parts:
        own = [*program.arrays, *program.renewals]
        if own:
            lines.insert(1, f"    {tuple_of(own)[1:-1]} = buffers")
            places.insert(1, None)
        program.lines += lines
        program.places += places
