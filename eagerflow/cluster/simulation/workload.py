"""Workloads: the cost of one training step on one device, and the data it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eagerflow.capture.function import Function
from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.cluster.simulation.machines import Machines, require_number
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.fusion.groups import fuse
from eagerflow.graph.costs import nbytes, peak_bytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.sizes import concrete
from eagerflow.nn.compiled_layer import CompiledLayer

BACKWARD = "gradient"  # the scope of nodes that a tape adds to a graph


class Cut(NamedTuple):
    """A position where the forward pass can be cut into stages.

    ``share`` of its time and ``weights`` bytes come before; ``size`` bytes cross.
    """

    share: float
    size: float
    weights: float


@dataclass(frozen=True)
class Workload:
    """A training step on one device: its seconds, and the bytes that it makes.

    ``compute_seconds`` is the time of the passes forward and backward for ``batch`` examples;
    ``overhead`` is the part that does not shrink with the batch. ``gradients`` are bytes in the
    order of the backward pass, each ready at a fraction of that pass: ``ready``, by
    default evenly. ``forward`` is the part of the time before the backward pass (by default a
    third: a product has two in its gradient). ``update`` is the time of the optimizer in seconds,
    ``state`` the bytes of weights and of the optimizer's state (by default those of the gradients),
    ``activations`` those needed by the backward pass. A pipeline is cut at ``cuts``; without
    any, anywhere, with ``boundary`` bytes between two stages.

    Raises ArgumentError for invalid numbers.

    >>> work = ef.cluster.Workload(compute_seconds=0.3, gradients=[4e6, 8e6], batch=32)
    >>> work.seconds(16), work.size
    (0.15, 12000000.0)
    """

    compute_seconds: float
    gradients: Sequence[float]
    batch: float = 1
    ready: Sequence[float] | None = None
    forward: float = 1 / 3
    update: float = 0.0
    overhead: float = 0.0
    state: float | None = None
    activations: float = 0.0
    cuts: Sequence[Cut] = ()
    boundary: float = 0.0
    name: str = "step"

    def __post_init__(self) -> None:
        for name in ("compute_seconds", "batch"):
            require_number("Workload", name, getattr(self, name), beyond=True)
        for name in ("forward", "update", "overhead", "activations", "boundary"):
            require_number("Workload", name, getattr(self, name))
        for size in self.gradients:
            require_number("Workload", "gradients", size)
        given = {"forward": self.forward, "overhead": self.overhead / self.compute_seconds}
        wrong = [name for name, share in given.items() if share > 1]
        if self.ready is not None and (
            len(self.ready) != len(self.gradients)
            or any(not 0 <= a <= 1 for a in self.ready)
            or list(self.ready) != sorted(self.ready)
        ):
            wrong.append("ready")
        if wrong:
            raise ArgumentError(
                "it is no part of the time",
                op="Workload",
                argument=wrong[0],
                received=short_repr(getattr(self, wrong[0])),
                expected="a part of the backward pass for each gradient, from 0 to 1, rising"
                if wrong[0] == "ready"
                else "at most the whole",
            )

    @classmethod
    def of(
        cls, step_or_model: Any, machines: Machines, sizes: Mapping[str, int] | None = None
    ) -> Workload:
        """The costs of a captured step, or that of a Model, on a device of these machines.

        Its examples are the first dimension of its first input; of several batches it is the
        largest. ``sizes`` are numbers for named dimensions. Raises ArgumentError if there is
        no step, or if it makes no gradients.

        >>> @ef.function
        ... def step(x, w):
        ...     with ef.GradientTape() as tape:
        ...         tape.watch(w)
        ...         loss = ef.sum((x @ w) ** 2)
        ...     return tape.gradient(loss, w)
        >>> step(ef.ones((8, 4)), ef.ones((4, 2))).shape
        (4, 2)
        >>> work = ef.cluster.Workload.of(step, ef.cluster.Machines(2))
        >>> work.batch, work.gradients
        (8.0, (32.0,))
        """
        if not isinstance(machines, Machines):
            raise ArgumentError(
                f"{short_repr(machines)} are none",
                op="Workload",
                argument="machines",
                expected="ef.cluster.Machines",
            )
        if isinstance(step_or_model, Workload):
            return step_or_model
        graph = step_or_model
        if isinstance(graph, CompiledLayer):
            graph = max(graph.step_graphs("train"), key=_rows, default=None)
        elif isinstance(graph, Function):
            graph = max(graph.graphs, key=_rows, default=None)
        if isinstance(graph, Graph):
            return _of_graph(concrete(graph, sizes or {}), machines.costs())
        raise ArgumentError(
            "there is no captured step"
            if graph is None
            else f"{short_repr(step_or_model)} is no step",
            op="Workload",
            argument="step_or_model",
            expected="a step that ef.function captured, its graph, a trained Model, or a Workload",
            hint="call it once, as model.train_on_batch(x, y), or give function.graph(specs)"
            if graph is None
            else None,
        )

    @property
    def size(self) -> float:
        """The bytes of all gradients, equal to those of the weights."""
        return float(sum(self.gradients))

    @property
    def kept(self) -> float:
        """The bytes of weights and of the optimizer's state."""
        return self.size if self.state is None else self.state

    def seconds(self, batch: float | None = None) -> float:
        """Seconds of both passes for ``batch`` examples."""
        part = 1.0 if batch is None else batch / self.batch
        return self.overhead + (self.compute_seconds - self.overhead) * part

    def made(self) -> list[tuple[float, float]]:
        """The gradients: the fraction of both passes after which each is ready, and its bytes."""
        count = len(self.gradients)
        shares = self.ready or [(k + 1) / count for k in range(count)]
        pairs = zip(shares, self.gradients, strict=True)
        return [(self.forward + (1 - self.forward) * share, size) for share, size in pairs]


# Graphs ------------------------------------------------------------------------------------------


def _of_graph(graph: Graph, model: CostModel) -> Workload:
    """The costs of a captured training step, from the facts of its ops."""
    backward = {n for n in graph.nodes if BACKWARD in n.scope.split("/")}
    last = max((i for i, n in enumerate(graph.nodes) if n in backward), default=-1)
    made = _gradients(graph, backward)
    if not made:
        raise ArgumentError(
            f"{graph.name} makes no gradients",
            op="Workload",
            argument="step_or_model",
            expected="a training step that assigns or returns its gradients",
        )
    forward = [n for n in graph.nodes[: last + 1] if n not in backward]
    each = {n: model.node(n, "*", fused=True) for n in graph.nodes}
    parts = [sum(map(each.__getitem__, nodes)) for nodes in (forward, backward)]
    after = sum(each[n] for n in graph.nodes[last + 1 :])
    steps = fuse(graph.optimized(final=True))
    total = sum(model.step(s, "*") for s in steps)
    compute = total * sum(parts) / (sum(parts) + after)
    ready: list[float] = []
    spent = 0.0
    for node in graph.nodes:
        if node in backward:
            spent += each[node]
            ready += [spent / parts[1] for v in node.outputs if v in made]
    cells = {c.value: nbytes(c.value) for c in graph.cells}
    return Workload(
        compute,
        tuple(float(nbytes(v)) for v in made),
        batch=_rows(graph),
        ready=tuple(min(x, 1.0) for x in ready),
        forward=parts[0] / sum(parts),
        update=total - compute,
        overhead=min(model.rates("*").call * len(steps), compute),
        state=float(sum(cells.values())),
        activations=float(_activations(graph)),
        cuts=_cuts(forward, each, cells),
        name=graph.name,
    )


def _gradients(graph: Graph, backward: set[Node]) -> list[Value]:
    """Values that leave the backward pass towards Variables or results, in order."""
    leads = set(graph.outputs) | {c.assigned for c in graph.cells if c.assigned is not None}
    found = {v for v in leads if v.node in backward}
    for node in reversed(graph.nodes):
        if node in backward or leads.isdisjoint(node.outputs):
            continue
        leads.update(node.values())
        found.update(v for v in node.values() if v.node in backward)
    floats = (v for n in graph.nodes if n in backward for v in n.outputs if v in found)
    return [v for v in floats if v.dtype.kind not in "biu"]


def _rows(graph: Graph) -> float:
    """The examples of a step; 0 if not known yet, as graphs with known sizes come first."""
    shapes = [v.shape for v in graph.inputs if v.shape]
    rows = shapes[0][0] if shapes else 1
    return float(rows) if isinstance(rows, int) else 0.0


def _activations(graph: Graph) -> int:
    """The peak bytes of results of the nodes."""
    uses = [
        [x for x in (*n.values(), *n.outputs) if x.node is not None and x.constant is None]
        for n in graph.nodes
    ]
    return int(peak_bytes(uses, set(graph.all_outputs())))


def _cuts(
    forward: Sequence[Node], each: Mapping[Node, float], cells: Mapping[Value, int]
) -> tuple[Cut, ...]:
    """The possible cuts of the forward pass, and the bytes that cross them."""
    last = {v: i for i, n in enumerate(forward) for v in n.values()}
    ends: dict[int, int] = {}
    total = sum(each[n] for n in forward) or 1.0
    spent = crossing = weights = 0.0
    seen: set[Value] = set()
    found = []
    for i, node in enumerate(forward):
        spent += each[node]
        for v in node.values():
            if v in cells and v not in seen:
                seen.add(v)
                weights += cells[v]
        for v in node.outputs:
            if last.get(v, i) > i:
                crossing += nbytes(v)
                ends[last[v]] = ends.get(last[v], 0) + nbytes(v)
        crossing -= ends.pop(i, 0)
        if i + 1 < len(forward):
            found.append(Cut(min(spent / total, 1.0), crossing, weights))
    return tuple(found)
