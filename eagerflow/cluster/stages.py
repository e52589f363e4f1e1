"""Stages: the pipeline device of each node of a step.

The forward nodes have positions, by their order or the devices that they are pinned to. All
other nodes get one of these: a gradient goes with the forward node whose values and weights it
reads, never after the gradient that it depends on; an update goes with its weight. Without
pins, the positions are divided, so that the stages take about the same time by a
cost model, and little is sent between them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.cluster.replication import MEAN
from eagerflow.errors import ArgumentError, CaptureError, PlacementError
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.creation.cast import to_device

__all__ = ["Positions", "Stages", "cuts_by_costs", "pins_of"]

_TO_DEVICE = to_device.op  # type: ignore[attr-defined]
SENT_WEIGHT = 0.05  # weight of sent data against the square of a stage's time


class Stages(NamedTuple):
    """The stage of each node of a step, and of each of its inputs and Variables."""

    nodes: Mapping[Node, int]
    entries: Mapping[Value, int]


class Positions:
    """The positions of a step's nodes in the order of its forward nodes.

    ``varying`` are the values that differ between micro-batches; ``pins`` the given positions of
    nodes. If there are some, forward nodes without a pin follow their operands;
    otherwise each has a position of its own. Raises CaptureError if the step continues from a
    mean over micro-batches.
    """

    def __init__(self, graph: Graph, varying: Container[Value], pins: Mapping[Node, int]) -> None:
        self.graph, self.varying = graph, varying
        self.of: dict[Node, int] = dict(pins)
        self.near: dict[Value, frozenset[int]] = {}
        """For values other than gradients: the positions of forward nodes that make or read it."""
        self.readers: dict[Value, list[Node]] = {}
        self.last = 0
        for node in graph.nodes:
            for x in node.values():
                self.readers.setdefault(x, []).append(node)
        self.backward = {n for n in graph.nodes if self.varies(n) and _is_gradient(n)}
        self._late = _following_means(graph)
        self._check()
        self._forward(bool(pins))
        self._weights()
        self._gradients()
        self._updates()
        self.entries = self._entries()

    def varies(self, node: Node) -> bool:
        """Whether each micro-batch has a separate copy of a node."""
        return any(v in self.varying for v in node.outputs)

    def stages(self, cuts: Sequence[int]) -> Stages:
        """The stages; all but the first begin at these positions."""
        return Stages(
            {node: bisect_right(cuts, at) for node, at in self.of.items()},
            {v: bisect_right(cuts, at) for v, at in self.entries.items()},
        )

    def _check(self) -> None:
        for node in self.graph.nodes:
            if self.varies(node) and any(x in self._late for x in node.values()):
                raise CaptureError(
                    "the step continues from a mean over all micro-batches, available only "
                    "when all of them have passed",
                    op=node.op.name,
                    at=node.place or None,
                    hint="layers with synchronized=False; or a step for each pass over the batch",
                )

    # Nodes -------------------------------------------------------------------------------------

    def _forward(self, pinned: bool) -> None:
        for node in self.graph.nodes:
            if not self.varies(node) or node in self.backward:
                continue
            if node not in self.of:
                given = [self.of[x.node] for x in node.values() if x.node in self.of]
                self.of[node] = max(given, default=0) if pinned else len(self.of)
        self.last = max(self.of.values(), default=0)
        for v in self._values():
            maker = [self.of[v.node]] if v.node in self.of else []
            self.near[v] = frozenset([*maker, *self._forward_readers(v)])

    def _values(self) -> Iterable[Value]:
        yield from self.graph.all_inputs()
        for node in self.graph.nodes:
            if not self.varies(node) or node not in self.backward:
                yield from node.outputs

    def _forward_readers(self, v: Value) -> list[int]:
        found = self.readers.get(v, ())
        return [self.of[n] for n in found if n in self.of and n not in self.backward]

    def _weights(self) -> None:
        """Place weights, and values computed only from them, near their readers."""
        fixed = [n for n in self.graph.nodes if not self.varies(n) and not self.is_late(n)]
        for node in reversed(fixed):
            found = frozenset[int]().union(*(self.near[v] for v in node.outputs))
            for x in node.values():
                self.near[x] = self.near.get(x, frozenset()) | found
        for node in fixed:
            sets = [self.near[x] for x in node.values() if self.near.get(x)]
            if sets and not any(self.near[v] for v in node.outputs):
                self.near.update(dict.fromkeys(node.outputs, frozenset.union(*sets)))
            found = frozenset[int]().union(*(self.near[v] for v in node.outputs))
            if found:
                self.of.setdefault(node, min(found))

    def is_late(self, node: Node) -> bool:
        """Whether a node depends on means over all micro-batches."""
        return any(v in self._late for v in node.outputs)

    def _gradients(self) -> None:
        made: set[Value] = set()  # gradients that have a position
        own = [node for node in self.graph.nodes if node in self.backward]
        weights = self._weights_of(own)
        for node in own:
            given = [*node.values(), *([weights[node]] if node in weights else ())]
            sets = [self.near[x] for x in given if self.near.get(x)]
            common = frozenset.intersection(*sets) if sets else frozenset[int]()
            before = [self.of[x.node] for x in node.values() if x in made and x.node is not None]
            if node in self.of:
                pass
            elif before:
                options = common or {max(map(min, sets), default=min(before))}
                below = [at for at in options if at <= min(before)]
                self.of[node] = max(below, default=min(options))
            elif node.op.fills:  # the gradient of a loss
                self.of[node] = max(map(max, sets), default=self.last)
            elif common:  # of forward values only: its reader decides
                self.near.update(dict.fromkeys(node.outputs, common))
                if len(common) == 1:
                    self.of[node] = min(common)
                continue
            else:
                self.of[node] = max(map(min, sets), default=self.last)
            made.update(node.outputs)
        self._beside_readers(own)

    def _weights_of(self, own: Sequence[Node]) -> dict[Node, Value]:
        """Nodes that only contribute to the gradient of one weight, with that weight."""
        carried: dict[Value, Node] = {}  # values computed from a mean, of its shape
        for node in self.graph.nodes:
            if node.op is MEAN:
                carried[node.outputs[0]] = node
            for x in node.values():
                if x in carried:
                    same = [v for v in node.outputs if v.shape == x.shape]
                    carried.update(dict.fromkeys(same, carried[x]))
        found: dict[Node, Value] = {}
        for cell in self.graph.cells:
            if cell.assigned in carried and self.near.get(cell.value):
                found[carried[cell.assigned]] = cell.value
        for node in reversed(own):
            readers = [n for v in node.outputs for n in self.readers.get(v, ())]
            led = {found.get(n) for n in readers}
            weight = led.pop() if len(led) == 1 else None
            if weight is not None:
                found[node] = weight
        return found

    def _updates(self) -> None:
        """Place nodes that depend on means: beside their largest operand."""
        for node in self.graph.nodes:
            if node in self.of or not self.is_late(node):
                continue
            known = [x for x in node.values() if self._place(x) is not None]
            if known:
                place = self._place(max(known, key=nbytes))
                assert place is not None
                self.of[node] = place
        self._beside_readers(self.graph.nodes)

    def _place(self, x: Value) -> int | None:
        if x.node is not None:
            return self.of.get(x.node)
        return min(self.near.get(x, ()), default=None)

    def _beside_readers(self, nodes: Sequence[Node]) -> None:
        """Give nodes without a position that of their first reader."""
        for node in reversed(nodes):
            if node not in self.of:
                near = max(self.near.get(node.outputs[0], ()), default=0)
                self.of[node] = self._first_reader(node.outputs, near)

    def _first_reader(self, values: Iterable[Value], otherwise: int) -> int:
        readers = [n for v in values for n in self.readers.get(v, ()) if n in self.of]
        return self.of[readers[0]] if readers else otherwise

    def _entries(self) -> dict[Value, int]:
        found = {}
        for v in self.graph.all_inputs():
            near = self.near.get(v)
            found[v] = min(near) if near else self._first_reader([v], 0)
        for cell in self.graph.cells:
            new = cell.assigned
            stays = cell.value in self.varying or not self.near.get(cell.value)
            if stays and new is not None and new.node in self.of:
                found[cell.value] = self.of[new.node]
        return found


def _is_gradient(node: Node) -> bool:
    return "gradient" in node.scope.split("/")  # the scope of nodes made by tapes


def _following_means(graph: Graph) -> set[Value]:
    found: set[Value] = set()
    for node in graph.nodes:
        if node.op is MEAN or any(x in found for x in node.values()):
            found.update(node.outputs)
    return found


# By hand ------------------------------------------------------------------------------------------


def pins_of(graph: Graph, devices: Sequence[str]) -> dict[Node, int]:
    """The stages of pinned nodes; PlacementError for devices without a stage."""
    numbers = {name: i for i, name in enumerate(devices)}
    found = {}
    for node in graph.nodes:
        name = node.attributes["device"] if node.op is _TO_DEVICE else node.device
        if name is None:
            continue
        if name not in numbers:
            raise PlacementError(
                f"{node.name} is pinned to {name}, which has no stage",
                op=node.op.name,
                at=node.place or None,
                expected="one of " + ", ".join(devices),
            )
        found[node] = numbers[name]
    return found


# By costs -----------------------------------------------------------------------------------------


def cuts_by_costs(
    found: Positions, devices: Sequence[str], model: CostModel, count: int
) -> list[int]:
    """The start of each stage after the first, if ``count`` micro-batches pass.

    Raises ArgumentError for steps with fewer forward nodes than there are stages.
    """
    total = found.last + 1
    if len(devices) == 1:
        return []
    if total < len(devices):
        raise ArgumentError(
            f"{total} nodes cannot be cut into {len(devices)} stages",
            op="Pipeline",
            argument="devices",
            received=", ".join(devices),
            expected=f"at most {total} devices",
        )
    seconds = np.zeros((len(devices), total))
    for node, at in found.of.items():
        times = count if found.varies(node) else 1
        for k, name in enumerate(devices):
            seconds[k, at] += times * model.node(node, name, True)
    sent = _sent(found, total)
    links = [count * (model.transfer(x, *devices[:2]) - model.latency) for x in sent[:total]]
    return _divided(seconds, np.array(sent), np.array(links))


def _sent(found: Positions, total: int) -> list[float]:
    """Bytes of a micro-batch sent from nodes before a position to later ones."""
    steps = [0.0] * (total + 1)
    for v in [*found.graph.all_inputs(), *(v for n in found.graph.nodes for v in n.outputs)]:
        if v in found.varying:
            maker = found.entries[v] if v.node is None else found.of[v.node]
            ends = [maker, *(found.of[n] for n in found.readers.get(v, ()))]
            steps[min(ends) + 1] += nbytes(v)
            steps[max(ends) + 1] -= nbytes(v)
    return list(accumulate(steps))


def _divided(seconds: np.ndarray, sent: np.ndarray, links: np.ndarray) -> list[int]:
    """The starts of all stages but the first.

    A stage takes as long as its nodes, or as the transfer to it if that is longer. Minimized is
    the sum of the squares of these times, with a small weight for sent bytes.
    """
    count, total = seconds.shape
    ends = np.concatenate([np.zeros((count, 1)), seconds.cumsum(axis=1)], axis=1)
    mean = ends[:, -1].mean() / count
    weights = SENT_WEIGHT * sent / max(sent[1:total].mean(), 1.0)
    least = np.full((count, total + 1), np.inf)
    begins = np.zeros((count, total + 1), int)
    for end in range(1, total + 1):
        least[0, end] = (ends[0, end] / mean) ** 2
        for k in range(1, count):
            times = np.maximum(ends[k, end] - ends[k, :end], links[:end]) / mean
            found = least[k - 1, :end] + times**2 + weights[:end]
            begins[k, end] = found.argmin()
            least[k, end] = found[begins[k, end]]
    cuts = [total]
    for k in range(count - 1, 0, -1):
        cuts.append(int(begins[k, cuts[-1]]))
    return cuts[:0:-1]
