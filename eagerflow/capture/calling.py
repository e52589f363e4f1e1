"""Graphs that are called while a tape records: one recorded call, with a captured gradient.

The forward graph also gives what the gradient needs; the gradient is a graph of its own, made by
``graph.gradient``, and called in the same way, so that tapes may nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from eagerflow.capture.gradient import Extension, replay_nodes
from eagerflow.capture.replay import Replay, replay_of
from eagerflow.dtypes import is_inexact
from eagerflow.graph import Graph, Node, Value, Values
from eagerflow.ops.creation import zeros
from eagerflow.recorder import custom_call, scope
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor

__all__ = ["call_recorded"]


class Differentiable(NamedTuple):
    """A graph and its gradient, as two graphs of inputs alone."""

    forward: Replay
    backward: Replay | None
    sources: tuple[int, ...]  # the entries that have a gradient
    targets: tuple[int, ...]  # the results that have one
    residuals: tuple[tuple[bool, int], ...]  # what passes from one to the other: an entry, a result


def call_recorded(graph: Graph, numerics: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph, recorded by the tapes that are on; Variables get their values."""
    constants = [v for v in graph.constants if _watched(v)]
    pure = _pure(graph, constants)
    entries = [*inputs, *(c.variable.value for c in graph.cells), *(v.constant for v in constants)]
    found = _call(pure, numerics, entries)
    count = len(graph.outputs)
    for cell, tensor in zip(
        (c for c in graph.cells if c.assigned is not None), found[count:], strict=True
    ):
        cell.variable.assign(tensor)
    return found[:count]


def _watched(value: Value) -> bool:
    return value.constant._key is not None and is_inexact(value.dtype)


def _pure(graph: Graph, constants: Sequence[Value]) -> Graph:
    """The graph with everything that comes and goes as plain inputs and outputs."""
    key = ("pure", tuple(constants))
    found: Graph | None = graph.learned.get(key)
    if found is None:
        lifted = {v: Value(v.name, v.shape, v.dtype) for v in constants}
        nodes = graph.nodes if not lifted else _with_inputs(graph, lifted)
        entries = Values([*graph.entries(), *lifted.values()])
        finals = [lifted.get(v, v) for v in graph.finals()]
        found = Graph(graph.name, entries, nodes, Values(finals, _numbered(finals)))
        graph.learned[key] = found
    return found


def _with_inputs(graph: Graph, lifted: dict[Value, Value]) -> list[Any]:
    """The graph's nodes, reading other values in place of some."""
    nodes = []
    for node in graph.nodes:
        if not any(v in lifted for v in node.values()):
            nodes.append(node)
            continue
        inputs = tuple(lifted.get(x, x) if type(x) is Value else x for x in node.inputs)
        made = Node(node.op, inputs, node.attributes, node.name, node.origin, node.device)
        made.outputs = node.outputs
        nodes.append(made)
    return nodes


def _numbered(values: Sequence[Value]) -> list[str]:
    return [f"result_{i}" for i in range(len(values))]


def _call(graph: Graph, numerics: str, entries: Sequence[Tensor]) -> list[Tensor]:
    """Outputs of a graph without Variables, as one recorded call."""
    pair = _differentiable(graph, numerics)
    count = len(graph.outputs)
    if pair.backward is None:
        return pair.forward.run(entries)
    seen: list[Any] = []  # entries and results as the tapes know them

    def call(*values: Tensor) -> Any:
        made = tuple(pair.forward.run(values))
        backward.kept = made[count:]  # type: ignore[attr-defined]  # for the memory report
        return made, backward

    def backward(gradients: Any) -> tuple[Any, ...]:
        own, results = seen
        if any(g is not None for g in gradients[count:]):  # a gradient of a gradient
            pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if is_inexact(r.dtype)]
            found = iter(_call(_joint(pair.forward.graph), numerics,
                               [*own, *(_dense(g, r) for r, g in pairs)]))  # fmt: skip
            places = _joint_sources(pair.forward.graph)
        else:
            weights = [_dense(gradients[i], results[i]) for i in pair.targets]
            given = [own[i] if from_entry else results[i] for from_entry, i in pair.residuals]
            found = iter(_call(pair.backward.graph, numerics, [*given, *weights]))
            places = pair.sources
        parts: list[Any] = [None] * len(own)
        for i in places:
            parts[i] = next(found)
        return tuple(parts)

    call.__name__ = graph.name
    backward.takes_none = True  # type: ignore[attr-defined]
    found = custom_call(call, tuple(entries))
    seen += [list(entries), list(found)]
    return list(found[:count])


def _dense(gradient: Any, like: Tensor) -> Tensor:
    if gradient is None:
        made: Tensor = zeros(like.shape, like.dtype, device=str(like.device))
        return made
    return gradient  # type: ignore[no-any-return]


def _differentiable(graph: Graph, numerics: str) -> Differentiable:
    key = ("differentiable", numerics)
    found: Differentiable | None = graph.learned.get(key)
    if found is None:
        found = graph.learned[key] = _make(graph, numerics)
    return found


def _make(graph: Graph, numerics: str) -> Differentiable:
    plain = Differentiable(replay_of(graph, numerics), None, (), (), ())
    entries, finals = list(graph.inputs), list(graph.outputs)
    targets = [i for i, v in enumerate(finals) if is_inexact(v.dtype)]
    made = _pulled_back(graph, targets)
    if made is None:
        return plain
    new, weights, sources, values = made
    needed = _needed(new, values, weights)
    extra = [v for v in needed if v not in entries and v not in finals]
    results = [*finals, *extra]
    outputs = Values(results, _numbered(results))
    forward = Graph(graph.name, graph.inputs, graph.nodes, outputs)
    backward = Graph(
        f"gradient_of_{graph.name}", Values([*needed, *weights]), new,
        Values(values, _numbered(values)),
    )  # fmt: skip
    places = [(True, entries.index(v)) if v in entries else (False, results.index(v)) for v in needed]
    return Differentiable(
        replay_of(forward, numerics), replay_of(backward, numerics), tuple(sources),
        tuple(targets), tuple(places),
    )  # fmt: skip


def _pulled_back(graph: Graph, targets: Sequence[int]) -> Any:
    """Nodes of the gradient, the values that weigh the targets, sources, and their gradients."""
    entries, finals = list(graph.inputs), list(graph.outputs)
    sources = [i for i, v in enumerate(entries) if is_inexact(v.dtype)]
    if not sources or not targets:
        return None
    extension = Extension(graph)
    tape = GradientTape(persistent=True)
    with extension, scope("gradient"):
        with tape:
            replay_nodes(extension, tape, graph, {entries[i] for i in sources})
        weights = [extension.input(finals[i].spec, f"{finals[i].name}_gradient") for i in targets]
        grads = tape.gradient(
            [extension.tensors[finals[i]] for i in targets],
            [extension.tensors[entries[i]] for i in sources], weights, unconnected="none",
        )  # fmt: skip
        tape.reset()
    reached = [(i, extension.value_of(g)) for i, g in zip(sources, grads, strict=True) if g is not None]
    if not reached:
        return None
    new = extension.nodes[len(graph.nodes) :]
    return new, [w._array for w in weights], [i for i, _ in reached], [g for _, g in reached]


def _joint(graph: Graph) -> Graph:
    """The gradient of all results as a graph of the entries, which computes what it needs again."""
    found: Any = graph.learned.get("joint")
    if found is None:
        targets = [i for i, v in enumerate(graph.outputs) if is_inexact(v.dtype)]
        new, weights, sources, values = _pulled_back(graph, targets)
        joint = Graph(
            f"gradient_of_{graph.name}", Values([*graph.inputs, *weights]), [*graph.nodes, *new],
            Values(values, _numbered(values)),
        )  # fmt: skip
        found = graph.learned["joint"] = joint, tuple(sources)
    return found[0]  # type: ignore[no-any-return]


def _joint_sources(graph: Graph) -> tuple[int, ...]:
    sources: tuple[int, ...] = graph.learned["joint"][1]
    return sources


def _needed(nodes: Sequence[Any], values: Sequence[Value], given: Sequence[Value]) -> list[Value]:
    """What the gradient's nodes and results take from the forward graph, in order of use."""
    own = {*given, *(v for node in nodes for v in node.outputs)}
    used = [v for node in nodes for v in node.values()] + list(values)
    return list(dict.fromkeys(v for v in used if v not in own and v.constant is None))
