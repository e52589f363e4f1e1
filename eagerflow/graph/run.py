"""Running a graph op by op: the plainest way, which any recorder can watch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from eagerflow.convert import as_tensor
from eagerflow.devices import device
from eagerflow.errors import EagerflowError
from eagerflow.graph.devices import said
from eagerflow.graph.ir import Graph, Node, Value
from eagerflow.guard import ScopeGuard
from eagerflow.recorder import Recorder, recorder_state
from eagerflow.tensor import Tensor

__all__ = ["call_node", "evaluate"]


def evaluate(graph: Graph, entries: Sequence[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """The outputs of a graph, and what its assigned Variables are to have.

    ``entries`` are Tensors for the inputs and then for the Variables' values, in the order of
    ``graph.all_inputs()``. Each node is an op call like any other, so tapes, traces and vmap see
    it. Nothing is assigned. Errors name the user's file and line of the node that failed.
    """
    known: dict[Value, Any] = dict(zip(graph.all_inputs(), entries, strict=True))
    recorder = recorder_state()[1]
    with nullcontext() if recorder is None else _Following(recorder):
        for node in graph.nodes:
            if recorder is not None:
                recorder.follow(node.origin)
            out = call_node(node, known)
            results = out if isinstance(out, tuple) else (out,)
            known.update(zip(node.outputs, results, strict=True))
    outputs = [find(known, v) for v in graph.outputs]
    assigned = [find(known, c.assigned) for c in graph.cells if c.assigned is not None]
    return outputs, assigned


class _Following(ScopeGuard):
    """A context in which a recorder is told to which lines the op calls belong."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def release(self) -> None:
        """Let calls belong to their own lines again."""
        self._recorder.follow(None)


def call_node(node: Node, known: dict[Value, Any]) -> Any:
    """The result of a node, from the Tensors of the values before it."""
    args = [find(known, x) if type(x) is Value else x for x in node.inputs]
    try:
        place = said(node)
        if place is None or place == node.attributes.get("device"):
            return node.op.call(*args, **node.attributes)
        with device(place):
            return node.op.call(*args, **node.attributes)
    except EagerflowError as error:
        error.at = error.at or node.place or None
        raise


def find(known: dict[Value, Any], value: Any) -> Tensor:
    """The Tensor of a value: computed before, or a constant."""
    found = known.get(value)
    if found is None:
        found = known[value] = as_tensor(value.constant)
    return found
