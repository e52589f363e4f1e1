"""Graphs that are called while a tape records: one recorded call, with a captured gradient.

The forward graph also returns residuals; the gradient is a graph of its own, made by
``graph.gradient``, and called in the same way, so that tapes may nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from eagerflow.capture.control.silence import silent
from eagerflow.capture.gradient import Extension, rereads
from eagerflow.customs import custom_call
from eagerflow.devices import current_device
from eagerflow.dtypes import is_inexact
from eagerflow.graph.cache import Slot, kept
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.graph.run import evaluate
from eagerflow.graph.walk import as_inputs, renewed, substituted
from eagerflow.plan.replay import Replay, replay_of
from eagerflow.recorder import recorder_state
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor
from eagerflow.variable import assign_together

_READS: Slot[dict[Value, list[Value]]] = Slot()
"""For a derived graph: repeated reads of Variables in the original; see ``rereads``."""


class Backward(NamedTuple):
    """The gradient of some results of a graph, as a graph of inputs only."""

    graph: Graph
    sources: tuple[int, ...]  # the entries that have a gradient
    residuals: tuple[tuple[bool, int], ...]  # operands: an entry, or a result


def only_tapes() -> bool:
    """Whether the only recorders of this thread are tapes."""
    recorder = recorder_state()[1]
    while recorder is not None:
        if type(recorder) is not GradientTape:
            return False
        recorder = recorder.outer
    return True


def call_recorded(graph: Graph, numerics: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a graph, recorded by the active tapes; assigned Variables are updated."""
    constants = [v for v in graph.constants if _watched(v)]
    entries = [*inputs, *(c.variable.value for c in graph.cells), *(v.constant for v in constants)]
    here = all(x.device is current_device() for x in entries)
    found = _call(_pure(graph, tuple(constants), here), numerics, entries)
    count = len(graph.outputs)
    cells = [c.variable for c in graph.cells if c.assigned is not None]
    assign_together(dict(zip(cells, found[count:], strict=True)))
    return found[:count]


def _watched(value: Value) -> bool:
    return value.constant._key is not None and is_inexact(value.dtype)


@kept
def _pure(graph: Graph, constants: tuple[Value, ...], here: bool) -> Graph:
    """The graph with Variables and constants as plain inputs and outputs.

    Scans are as a tape records them, if everything is ``here``, on the current device.
    """
    lifted = {v: Value(v.name, v.shape, v.dtype) for v in constants}
    entries = Values([*graph.all_inputs(), *lifted.values()])
    nodes = [renewed(node, lifted, _recorded(node, here)) for node in graph.nodes]
    results = [lifted.get(v, v) for v in graph.all_outputs()]
    found = Graph(graph.name, entries, nodes, Values(results, _numbered(results)))
    reads = {v: [lifted.get(x, x) for x in again] for v, again in rereads(graph).items()}
    _READS.set(found, reads)
    return found


def _recorded(node: Node, here: bool) -> dict[str, Any]:
    """The attributes of a node as recorded by a tape."""
    if here and node.attributes.get("compiled") is False:
        return node.attributes | {"compiled": True}
    return node.attributes


def _numbered(values: Sequence[Value]) -> list[str]:
    return [f"result_{i}" for i in range(len(values))]


def _call(graph: Graph, numerics: str, entries: Sequence[Tensor]) -> list[Tensor]:
    """Outputs of a graph without Variables, as one recorded call."""
    if not only_tapes():  # other recorders, as for vmap, need the ops themselves
        return evaluate(graph, entries)[0]
    replay = _differentiable(graph, numerics)
    if replay is None:
        return replay_of(graph, numerics).run(entries)
    forward, count = replay.graph, len(graph.outputs)
    seen: list[Any] = []  # entries and results as known to the tapes

    def call(*values: Tensor) -> Any:
        made = tuple(replay.run(values))
        backward.kept = made[count:]  # type: ignore[attr-defined]  # for the memory report
        return made, backward

    def backward(gradients: Any) -> tuple[Any, ...]:
        own, results = seen
        parts: list[Any] = [None] * len(own)
        targets = tuple(
            i for i, g in enumerate(gradients) if g is not None and is_inexact(results[i].dtype)
        )
        # A gradient of a gradient needs values beyond the results: all is recomputed.
        again = any(g is not None for g in gradients[count:])
        found = _backward(forward, targets, again)
        if found is not None:
            given = [own[i] if from_entry else results[i] for from_entry, i in found.residuals]
            weights = [gradients[i] for i in targets]
            grads = _call(found.graph, numerics, [*given, *weights])
            for i, gradient in zip(found.sources, grads, strict=True):
                parts[i] = gradient
        return tuple(parts)

    call.__name__ = graph.name
    backward.takes_none = True  # type: ignore[attr-defined]
    found = custom_call(call, tuple(entries))
    seen += [list(entries), list(found)]
    return list(found[:count])


@kept
def _differentiable(graph: Graph, numerics: str) -> Replay | None:
    """A graph that also returns the residuals of its gradient; None if it has none."""
    entries, finals = list(graph.inputs), list(graph.outputs)
    made = _pulled_back(graph, [i for i, v in enumerate(finals) if is_inexact(v.dtype)])
    if made is None:
        return None
    new, weights, _, values = made
    needed = _needed(new, values, weights)
    results = [*finals, *(v for v in needed if v not in entries and v not in finals)]
    outputs = Values(results, _numbered(results))
    forward = Graph(graph.name, graph.inputs, graph.nodes, outputs)
    _READS.set(forward, _READS.of(graph) or {})
    return replay_of(forward, numerics)


@kept
def _backward(graph: Graph, targets: tuple[int, ...], alone: bool) -> Backward | None:
    """The gradient of these results; other results do not contribute, not even as zeros.

    It takes residuals from the graph's results; with ``alone`` it takes entries only.
    """
    made = _pulled_back(graph, targets)
    if made is None:
        return None
    new, weights, sources, values = made
    entries, results = list(graph.inputs), list(graph.outputs)
    needed = entries if alone else _needed(new, values, weights)
    own: dict[Value, Value] = {}
    nodes = silent([*graph.nodes, *new] if alone else new, own)
    values = [own.get(v, v) for v in values]
    places = [
        (True, entries.index(v)) if v in entries else (False, results.index(v)) for v in needed
    ]
    replaced = {} if alone else as_inputs(needed)
    backward = Graph(
        f"gradient_of_{graph.name}",
        Values([*needed, *weights]).replaced(replaced),
        substituted(nodes, replaced),
        Values(values, _numbered(values)).replaced(replaced),
    )
    return Backward(backward, tuple(sources), tuple(places))


def _pulled_back(graph: Graph, targets: Sequence[int]) -> Any:
    """Nodes of the gradient, the weights of the targets, sources, and their gradients."""
    entries, finals = list(graph.inputs), list(graph.outputs)
    sources = [i for i, v in enumerate(entries) if is_inexact(v.dtype)]
    if not sources or not targets:
        return None
    reads = _READS.of(graph) or {}
    groups = [[entries[i], *reads.get(entries[i], ())] for i in sources]
    extension = Extension(graph)
    weights = [extension.input(finals[i].spec, f"{finals[i].name}_gradient") for i in targets]
    grads = extension.summed_gradients([finals[i] for i in targets], groups, weights)
    reached = [
        (i, extension.value_of(g)) for i, g in zip(sources, grads, strict=True) if g is not None
    ]
    if not reached:
        return None
    new = extension.nodes[len(graph.nodes) :]
    return new, [w._array for w in weights], [i for i, _ in reached], [g for _, g in reached]


def _needed(nodes: Sequence[Any], values: Sequence[Value], given: Sequence[Value]) -> list[Value]:
    """The forward values that the gradient's nodes and results use, in order of use."""
    own = {*given, *(v for node in nodes for v in node.outputs)}
    used = [v for node in nodes for v in node.values()] + list(values)
    return list(dict.fromkeys(v for v in used if v not in own and v.constant is None))
