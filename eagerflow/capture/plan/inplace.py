"""Variables updated in place: which steps of a plan may write over a Variable's old value.

A step may if nothing reads the old value after it, and no step that can fail comes after it: an
error must leave every Variable as it was. So such steps are moved to the end. Whether an old
value is really free, because no Tensor or view of it is held elsewhere, shows at each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from eagerflow.capture.plan.lifetimes import Lifetimes
from eagerflow.graph import Cell, Graph, Node, Value

__all__ = ["Replaced", "Update", "arrange"]

SMALL = 1 << 14  # bytes up to which new memory costs less than the question who holds the old


class Replaced(NamedTuple):
    """A Variable that a step may update in place, as numbers of the step's output and input."""

    cell: Cell
    output: int
    input: int


class Update:
    """A region's call in two forms: in place where outputs are inputs, and into other memory."""

    __slots__ = ("_cluster", "_inputs", "_outputs", "_plain", "inplace")

    def __init__(self, cluster: Any, replaced: Sequence[Replaced]) -> None:
        pairs = [(r.output, r.input) for r in replaced]
        self._cluster = cluster
        self._plain: Any = None
        self.inplace = cluster.prepare(inplace=pairs)
        self._outputs, self._inputs = zip(*pairs, strict=True)

    def get_ready(self) -> Any:
        """The form for other memory, compiled when it is needed first, before anything runs."""
        if self._plain is None:
            self._plain = self._cluster.prepare()
        return self._plain

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Fill ``outputs``; all of the Variables' arrays are inputs too, or none is."""
        if outputs[self._outputs[0]] is inputs[self._inputs[0]]:
            self.inplace(inputs, outputs)
        else:
            self.get_ready()(inputs, outputs)

    def source(self) -> str:
        """The region as text."""
        return str(self.inplace.source())


def arrange(
    graph: Graph, steps: Sequence[Any]
) -> tuple[list[Any], dict[Any, tuple[Replaced, ...]]]:
    """The steps with those that update Variables in place at the end, and what these replace."""
    candidates = {
        step: found
        for step in steps
        if not isinstance(step, Node) and (found := _pairs(graph, step))
    }
    if not candidates:
        return list(steps), {}
    used = {v for step in steps for v in step.inputs if type(v) is Value}
    late = {s: r for s, r in candidates.items() if used.isdisjoint(s.outputs)}
    order = [s for s in steps if s not in late] + [s for s in steps if s in late]
    lifetimes = Lifetimes(order, graph.entries(), graph.finals())
    leaving = {lifetimes.root(v) for v in graph.finals()}
    number = {step: i for i, step in enumerate(order) if step in late}
    replaced = {}
    for step, found in late.items():
        free = tuple(
            r for r in found
            if (root := lifetimes.root(r.cell.value)) not in leaving
            and lifetimes.last[root] == number[step]
            and sum(lifetimes.root(v) is root for v in step.inputs) == 1  # no view of it besides
        )  # fmt: skip
        if free:
            replaced[step] = free
    return order, replaced


def _pairs(graph: Graph, cluster: Any) -> list[Replaced]:
    """The Variables whose new values a cluster computes from the old ones, place by place."""
    made = {v: k for k, v in enumerate(cluster.outputs)}
    found = []
    for cell in graph.cells:
        k = None if cell.assigned is None else made.get(cell.assigned)
        if k is None or cell.value not in cluster.inputs:
            continue
        i = cluster.inputs.index(cell.value)
        size = cell.value.size * cell.value.dtype.itemsize
        if (k, i) in cluster.inplace and size >= SMALL:
            found.append(Replaced(cell, k, i))
    return found
