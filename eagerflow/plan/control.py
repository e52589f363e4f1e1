"""Control flow in plans: branches and loops as Python's own, with their bodies inlined.

    for i in range(100):
        x = sequence[i, ...]
        matmul = _matmul(carry, W, b3)
        ...
        carry = tanh
        ys[i] = tanh

Results of a body are newly allocated in each iteration; its intermediate values are in buffers
of the plan, like everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eagerflow.devices import Device
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node
from eagerflow.plan.loop_buffers import scan_length
from eagerflow.plan.native_loops import native_scan, native_while_loop
from eagerflow.recorder import with_recorder
from eagerflow.tensor import new_tensor


def _same(lowering: Any, node: Node, made: Sequence[str], found: Sequence[str], depth: int) -> None:
    """Assign values to names, all at once, as one may be another's."""
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
    lowering.flush()
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
    lowering.flush()
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
    lowering.flush()
    program, depth, more = lowering.program, lowering.depth, node.attributes
    if native_while_loop(lowering, node, given):
        return
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


def _by_kernel(node: Node, device: Device) -> Any:
    """An op that is computed as a whole, as a function of arrays with new results."""
    kinds = [device.kind(x.dtype) for x in node.values()]

    def call(*arrays: Any) -> tuple[Any, ...]:
        tensors = [new_tensor(x, kind) for x, kind in zip(arrays, kinds, strict=True)]
        made = with_recorder(None, node.op.kernel, None, *tensors, **node.attributes)
        found = [y._array for y in made]
        return tuple(
            [y.copy() if any(np.may_share_memory(y, x) for x in arrays) else y for y in found]
        )

    return call


def _scan(lowering: Any, node: Node, given: Sequence[str]) -> None:
    program, depth, more = lowering.program, lowering.depth, node.attributes
    carries, sequences = more["carries"], more["sequences"]
    steps = scan_length(node)
    if program.exact and more["compiled"]:
        kernel = program.known("_scan", _by_kernel(node, program.device))
        lowering.assign(node, f"{kernel}({', '.join(given)})")
        return
    if native_scan(lowering, node, given):
        return
    lowering.flush()
    made = [program.local(v) for v in node.outputs]
    rows = node.outputs[carries:]
    _same(lowering, node, made[:carries], given[:carries], depth) if carries else None
    for value, name in zip(rows, made[carries:], strict=True):
        program.write(f"{name} = {lowering.new(value)}", node, depth)
    i = program.name("i")
    steps, last = lowering.attribute("steps", steps), lowering.attribute("last", steps - 1)
    order = f"range({last}, -1, -1)" if more["reverse"] else f"range({steps})"
    program.write(f"for {i} in {order}:", node, depth)
    begin = len(program.lines)
    parts = []
    body = more["body"]
    for value, name in zip(body.inputs[carries:], given[carries : carries + sequences]):  # noqa: B905
        parts.append(program.local(value))
        program.write(f"{parts[-1]} = {name}[{i}, ...]", node, depth + 1)
    found = lowering.body(body, [*made[:carries], *parts, *given[carries + sequences :]], depth + 1)
    for name, row in zip(made[carries:], found[carries:], strict=True):
        program.write(f"{name}[{i}] = {row}", node, depth + 1)
    _same(lowering, node, made[:carries], found[:carries], depth + 1)
    if len(program.lines) == begin:  # the carries do not change
        program.write("pass", node, depth + 1)


CONTROL = {"cond": _cond, "scan": _scan, "switch": _switch, "while_loop": _while_loop}
"""Ops with graphs as attributes, and the functions that write them."""
