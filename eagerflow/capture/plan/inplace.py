"""Variables updated in place: which steps of a plan may write over a Variable's old value.

A step may if nothing reads the old value after it, and no step that can fail comes after it: an
error must leave every Variable as it was. So such steps are moved back that far, and no farther:
what they read has just been computed. Whether an old
value is really free, because no Tensor or view of it is held elsewhere, shows at each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from eagerflow.capture.plan.lifetimes import Lifetimes
from eagerflow.graph import Cell, Graph, Node, Value

__all__ = ["Replaced", "Update", "arrange"]

_SURE = frozenset({"communication", "creation", "elementwise", "random", "reduction", "shape"})
_MIXED = frozenset({"contraction", "control", "rows"})
_SURE_OPS = frozenset(
    {
        "adam_update", "batch_norm_gradient", "batch_norm_training", "conv", "conv_filter_gradient",
        "conv_input_gradient", "dot_product_attention", "einsum", "layer_norm", "log_softmax",
        "log_softmax_gradient", "matmul", "momentum_update", "norm_gradient", "rms_norm", "softmax",
        "softmax_cross_entropy", "softmax_cross_entropy_gradient", "softmax_gradient", "vecdot",
    }
)  # fmt: skip
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
    """The steps, with updates in place where they may stand, and what these replace."""
    candidates = {
        step: found
        for step in steps
        if not isinstance(step, Node) and (found := _pairs(graph, step))
    }
    if not candidates:
        return list(steps), {}
    used = {v for step in steps for v in step.inputs if type(v) is Value}
    late = {s: r for s, r in candidates.items() if used.isdisjoint(s.outputs)}
    order = _placed(graph, steps, late)
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


def _placed(graph: Graph, steps: Sequence[Any], late: dict[Any, Any]) -> list[Any]:
    """The steps with each of ``late`` as early as it may come, while its arguments are at hand.

    That is when they are computed, when nobody reads the old values any more, and when what
    comes after it cannot fail.
    """
    others = [s for s in steps if s not in late]
    lifetimes = Lifetimes(others, graph.entries(), graph.finals())
    made = {v: i for i, s in enumerate(others) for v in s.outputs}
    sure = 1 + max((i for i, s in enumerate(others) if _can_fail(s)), default=-1)
    after: list[list[Any]] = [[] for _ in range(len(others) + 1)]
    for step, replaced in late.items():
        ready = [1 + made[v] for v in step.inputs if v in made]
        read = [1 + lifetimes.last.get(lifetimes.root(r.cell.value), -1) for r in replaced]
        after[max([sure, *ready, *read])].append(step)
    return after[0] + [s for i, o in enumerate(others) for s in (o, *after[i + 1])]


def _can_fail(step: Any) -> bool:
    """Whether a step may raise an error by the values that it gets, not by shapes alone."""
    if not isinstance(step, Node):
        return bool(step.checks)
    op = step.op
    if op.family == "indexing":
        return len(list(step.values())) > 1
    return op.name not in _SURE_OPS if op.family in _MIXED else op.family not in _SURE


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
