"""Cutting: a placed graph as pieces for devices, with Send and Recv on every edge between them.

A piece is a sequence of nodes of one device without waits in between. Groups of nodes are
visited in the order of their start times; one starts a new piece if it needs a value that
another device has not sent by then. A piece only needs values of other devices from groups that
started before its own first group, so pieces cannot deadlock. If waiting for the end
of a piece would delay a reader elsewhere, or keep a link busy for long after it, a piece
publishes a value: others get it as soon as it is computed.

A node that overwrites a part of a Variable, without other readers, is a separate piece after all
others, so that it can wait for the end of the run and write in place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eagerflow.capture.placement.communication import recv, send
from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.capture.placement.executor import ALONE, mode_of
from eagerflow.capture.placement.placement import Placement
from eagerflow.devices import Device
from eagerflow.fusion.groups import fuse
from eagerflow.fusion.kernels import Step
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import all_values, bodies_of, nodes_within
from eagerflow.op import Op
from eagerflow.ops.creation.cast import to_device
from eagerflow.plan.in_place import write_of
from eagerflow.plan.plan import Plan
from eagerflow.runtime.properties import cached_property
from eagerflow.variable import MIN_OWNED_BYTES

MIN_SHARED_SECONDS = 5e-5  # of a node for which other devices may run in parallel
MIN_SLACK_SECONDS = 2e-5  # tolerated lateness of a value without starting a new piece
MIN_PUBLISHED_SECONDS = 1e-5  # transfer time from which a value is sent as soon as it is computed
_SEND, _RECV, _TO_DEVICE = send.op, recv.op, to_device.op  # type: ignore[attr-defined]


class Cut(NamedTuple):
    """A value sent from one device to another: once for all its readers there."""

    value: str
    source: str
    target: str
    bytes: int
    sent: Node
    received: Node

    @property
    def given(self) -> Value:
        """The value on the sending device."""
        value: Value = self.sent.inputs[0]
        return value

    @property
    def arrived(self) -> Value:
        """The value on the receiving device."""
        return self.received.outputs[0]

    def __repr__(self) -> str:
        return f"Cut({self.value!r}, {self.source} to {self.target}, {self.bytes} bytes)"


@dataclass(eq=False)
class Piece:
    """Nodes of one device without waits in between."""

    number: int
    device: Device
    exact: bool
    alone: bool = False
    late: bool = False  # whether its only node's result is solely a Variable's new value
    nodes: list[Node] = field(default_factory=list)
    first: int = 0  # index of its first group by start time
    begin: float = 0.0
    end: float = 0.0
    priority: float = 0.0
    graph: Graph = None  # type: ignore[assignment]
    waits: dict[int, list[Value]] = field(default_factory=dict)
    """The pieces that it waits for, with the values that it reads from each."""
    published: tuple[Value, ...] = ()
    """Values sent before the end of the piece, in the order of computation."""
    memory: Mapping[Value, Callable[..., Any]] | None = None
    """Allocators for results that need special memory."""

    @cached_property
    def steps(self) -> Sequence[Step]:
        """The nodes, some of them fused into regions."""
        return self._steps_of(self.graph)

    @cached_property
    def plan(self) -> Plan:
        """The program of the piece."""
        return Plan(
            self.graph,
            lambda graph: self.steps if graph is self.graph else self._steps_of(graph),
            self.device,
            self.exact,
            self.published,
            self.memory,
        )

    def _steps_of(self, graph: Graph) -> Sequence[Step]:
        return graph.nodes if self.exact else fuse(graph)

    @property
    def mode(self) -> str:
        """The mode of core usage."""
        return ALONE if self.alone else mode_of(self.device)

    @property
    def after(self) -> tuple[int, ...]:
        """The pieces that it waits for."""
        return tuple(self.waits)

    def seconds(self, model: CostModel) -> float:
        """The predicted time of the piece."""
        return sum(self.step_seconds(model))

    def remaining(self, step_seconds: Sequence[float]) -> dict[Value, float]:
        """For each published value, the seconds from its computation to the end of the piece."""
        found: dict[Value, float] = {}
        published, rest = set(self.published), 0.0
        if published:
            for step, seconds in zip(reversed(self.steps), reversed(step_seconds), strict=True):
                found.update((v, rest) for v in step.outputs if v in published)
                rest += seconds
        return found

    def step_seconds(self, model: CostModel) -> list[float]:
        """The predicted times of its steps."""
        name = f"{self.device} alone" if self.alone else str(self.device)
        name = name if name in model.devices else str(self.device)
        return [model.step(step, name) for step in self.steps]

    def __repr__(self) -> str:
        return f"<piece {self.number} on {self.device}: {len(self.nodes)} nodes>"


class Division(NamedTuple):
    """A graph in pieces: the whole with Send and Recv in it, its pieces and its cuts.

    ``output_devices`` are the devices of outputs and assigned values, ``places`` the device
    numbers of all values.
    """

    graph: Graph
    pieces: list[Piece]
    cuts: list[Cut]
    output_devices: list[Device]
    places: dict[Value, int]


# Dependence of bits on the number of threads -----------------------------------------------------


def depends_on_threads(node: Node) -> bool:
    """Whether the bits of a node's results may depend on the number of BLAS threads."""
    threaded = node.op.threaded
    found = threaded(*node.inputs) if callable(threaded) else threaded
    return found or any(depends_on_threads(x) for x in nodes_within(*bodies_of(node.attributes)))


# Variables that may be written in place ----------------------------------------------------------


class LateWrite(NamedTuple):
    """A node that overwrites a part of a Variable, on its device, solely for its new value.

    ``moves`` are transfers of the new value to the Variable's device.
    """

    node: Node
    place: int
    moves: list[Node]


def late_writes(graph: Graph, placement: Placement) -> list[LateWrite]:
    """The writes to parts of Variables that can be postponed to the end of the run."""
    uses = Counter([*(v for node in graph.nodes for v in node.values()), *graph.all_outputs()])
    places = {
        graph.nodes[n]: placement.group_devices[i]
        for i, group in enumerate(placement.groups)
        for n in group.nodes
    }
    found = []
    for cell in graph.cells:
        moves: list[Node] = []
        node = None if cell.assigned is None else cell.assigned.node
        while node is not None and node.op is _TO_DEVICE:
            moves.append(node)
            node = node.inputs[0].node
        k = placement.inputs[cell.value]
        if (
            node is not None
            and _writes_part(node, cell.value)
            and {places[own] for own in (node, *moves)} == {k}
            and placement.devices[k].backend.host
            and all(uses[own.outputs[0]] == 1 for own in (node, *moves))
        ):
            found.append(LateWrite(node, k, moves))
    return found


def _writes_part(node: Node, array: Value) -> bool:
    """Whether a node overwrites a part of a large array at a position known in advance."""
    return (
        node.op.writes is not None
        and node.inputs[0] is array
        and nbytes(array) >= MIN_OWNED_BYTES
        and all(type(x) is Value for x in node.inputs)
        and write_of(node) is not None
    )


# Cutting -----------------------------------------------------------------------------------------


class _Partitioner:
    """Cuts a graph into pieces."""

    def __init__(self, graph: Graph, placement: Placement, model: CostModel, exact: bool) -> None:
        self.before = graph
        self.placement = placement
        self.model = model
        self.exact = exact
        self.devices = placement.devices
        self.nodes: list[Node] = []
        self.order = {node: n for n, node in enumerate(graph.nodes)}
        self.numbers: dict[Node, int] = {}  # indices of the nodes of pieces, in the graph
        self.cuts: list[Cut] = []
        self.pieces: list[Piece] = []
        self.new: dict[Value, Value] = {}  # values of the graph on the devices that made them
        self.made_on = dict(placement.inputs)  # device numbers of all values
        self.copies: dict[tuple[Value, int], Value] = {}  # values received on other devices
        self.places: dict[Value, int] = dict(placement.inputs)
        taken = {v.name for v in all_values(graph)} | {node.name for node in graph.nodes}
        self.free_name = FreeNames(taken).take
        self.late = late_writes(graph, placement)
        self.apart = {node for one in self.late for node in (one.node, *one.moves)}
        self.makers = {v: i for i, group in enumerate(placement.groups) for v in group.made}
        self.made_on |= {v: placement.group_devices[i] for v, i in self.makers.items()}

        self.positions = {i: at for at, i in enumerate(placement.schedule.order)}
        self.slack = max(2 * model.latency, MIN_SLACK_SECONDS)

    # Pieces ----------------------------------------------------------------------------------

    def cut(self) -> Division:
        """Divide all nodes, in the order of their start times."""
        placement = self.placement
        current: list[Piece | None] = [None] * len(self.devices)
        for at, i in enumerate(placement.schedule.order):
            group, k = placement.groups[i], placement.group_devices[i]
            nodes = [self.before.nodes[n] for n in group.nodes]
            nodes = [node for node in nodes if node not in self.apart]
            if not nodes:
                continue
            alone = self._alone(nodes, k)
            new = [x for x in group.given if self.made_on[x] != k and (x, k) not in self.copies]
            piece = current[k]
            if piece is None or self._begins_new(piece, i, new, alone):
                piece = current[k] = Piece(
                    len(self.pieces),
                    self.devices[k],
                    self.exact,
                    alone,
                    first=at,
                    begin=placement.schedule.begins[i],
                )
                self.pieces.append(piece)
            piece.alone = piece.alone or alone
            piece.priority = max(piece.priority, placement.ranks[i])
            piece.end = placement.schedule.ends[i]
            for node in nodes:
                self._copy(node, k, piece)
        for node, k, moves in self.late:
            piece = Piece(len(self.pieces), self.devices[k], self.exact, late=True)
            self.pieces.append(piece)
            self._copy(node, k, piece)
            for move in moves:  # the value is on that device already
                self.new[move.outputs[0]] = piece.nodes[0].outputs[0]
        return self._finish()

    def _alone(self, nodes: Sequence[Node], k: int) -> bool:
        """Whether the bits of some nodes match eager calls only with all cores."""
        if not self.exact or not self.devices[k].backend.host:
            return False
        return any(depends_on_threads(x) for x in nodes)

    def _needed_elsewhere(self) -> dict[Value, float]:
        """For each value with readers on other devices, the time by which it must be sent."""
        by: dict[Value, float] = {}
        placement = self.placement
        for i, group in enumerate(placement.groups):
            target = placement.group_devices[i]
            for x in group.given:
                if self.made_on[x] != target:
                    begin = placement.schedule.begins[i] - self._moved(x, target)
                    own = self.new.get(x, x)
                    by[own] = min(by.get(own, math.inf), begin)
        return by

    def _published(self, maker: dict[Value, Piece]) -> dict[Value, bool]:
        """Values sent before the end of their piece: True if needed by then, False if large."""
        needed = self._needed_elsewhere()
        found = {}
        for cut in self.cuts:
            piece = maker.get(cut.given)
            if piece is not None:
                seconds = self.model.transfer(cut.bytes, cut.source, cut.target)
                is_early = needed.get(cut.given, math.inf) < piece.end - self.slack
                if is_early or seconds - self.model.latency > MIN_PUBLISHED_SECONDS:
                    found[cut.given] = is_early
        return found

    def _moved(self, value: Value, target: int) -> float:
        """Seconds of a transfer."""
        names = str(self.devices[self.made_on[value]]), str(self.devices[target])
        return self.model.transfer(nbytes(value), *names)

    def _begins_new(self, piece: Piece, i: int, new: list[Value], alone: bool) -> bool:
        """Whether a group cannot join a piece, or should not."""
        placement = self.placement
        schedule, k = placement.schedule, placement.group_devices[i]
        if alone != piece.alone and placement.groups[i].costs[k] > MIN_SHARED_SECONDS:
            return True
        for x in new:
            maker = self.makers.get(x)
            if maker is None:
                continue
            arrival = schedule.ends[maker] + self._moved(x, k)
            if self.positions[maker] >= piece.first or arrival > piece.begin + self.slack:
                return True
        return False

    # Nodes -----------------------------------------------------------------------------------

    def _copy(self, node: Node, k: int, piece: Piece) -> None:
        """The node on its device, with values from other devices received."""
        inputs = tuple([self.at(x, k) if type(x) is Value else x for x in node.inputs])
        made = node.like(inputs)
        made.device = str(self.devices[k])
        self.new.update(zip(node.outputs, made.outputs, strict=True))
        self.places.update(dict.fromkeys(made.outputs, k))
        self.nodes.append(made)
        self.numbers[made] = self.order[node]
        piece.nodes.append(made)

    def at(self, value: Value, k: int) -> Value:
        """The value on a device: sent and received once if made on another."""
        if value.constant is not None:
            return self._constant(value, k)
        source = self.made_on[value]
        if source == k:
            return self.new.get(value, value)
        found = self.copies.get((value, k))
        if found is None:
            found = self.copies[value, k] = self._sent(self.new.get(value, value), source, k)
        return found

    def _constant(self, value: Value, k: int) -> Value:
        """A constant, stored in advance on each device that uses it."""
        tensor, place = value.constant, self.devices[k]
        if tensor.device is place:
            return value
        found = self.copies.get((value, k))
        if found is None:
            name = self.free_name(f"{value.name}_on_{_plain(str(place))}")
            found = Value(name, value.shape, value.dtype, constant=tensor.to(str(place)))
            self.copies[value, k] = found
        return found

    def _sent(self, own: Value, source: int, k: int) -> Value:
        start, end = str(self.devices[source]), str(self.devices[k])
        base, suffix = own.name.replace(":", "_"), _plain(end)
        sent = self._end(own, _SEND, {"target": end}, f"{base}_to_{suffix}", source)
        attributes = {"source": start, "device": end}
        received = self._end(sent.outputs[0], _RECV, attributes, f"{base}_on_{suffix}", k)
        self.cuts.append(Cut(own.name, start, end, nbytes(own), sent, received))
        return received.outputs[0]

    def _end(self, given: Value, op: Op, attributes: dict[str, Any], name: str, k: int) -> Node:
        """One of the two nodes of an edge between devices."""
        origin = None if given.node is None else given.node.origin
        made = Node(op, (given,), attributes, self.free_name(name), origin, str(self.devices[k]))
        made.outputs = (Value(made.name, given.shape, given.dtype, None, made),)
        self.nodes.append(made)
        self.places[made.outputs[0]] = k
        return made

    # The resulting graph ---------------------------------------------------------------------

    def _finish(self) -> Division:
        before, placement = self.before, self.placement
        numbers: dict[str | None, int] = {str(d): k for k, d in enumerate(self.devices)}
        targets = [numbers.get(v.device, placement.default) for v in before.outputs]
        outputs = Values(
            [self.at(v, k) for v, k in zip(before.outputs, targets, strict=True)],
            before.outputs.names,
        )
        cells = []
        for cell in before.cells:
            if cell.assigned is not None:
                target = placement.inputs[cell.value]
                cell = cell.replaced({cell.assigned: self.at(cell.assigned, target)})
                targets.append(target)
            cells.append(cell)
        # Results other than Values are unchanged; the same Value may occur twice.
        moved = dict(zip(before.outputs, outputs, strict=True))
        results = tuple([moved.get(x, x) if type(x) is Value else x for x in before.results])
        graph = Graph(
            before.name,
            before.inputs,
            self.nodes,
            outputs,
            cells,
            before.argument_structure,
            before.structure,
            results,
        )
        self._link(graph)
        output_devices = [self.devices[k] for k in targets]
        return Division(graph, self.pieces, self.cuts, output_devices, self.places)

    def _link(self, graph: Graph) -> None:
        """Make each piece a graph of its own, and determine which pieces it waits for."""
        maker = {v: p for p in self.pieces for node in p.nodes for v in node.outputs}
        used = {*graph.all_outputs(), *(cut.given for cut in self.cuts)}
        sources = {cut.arrived: cut.given for cut in self.cuts}
        published = self._published(maker)
        hurried = {maker[v] for v, is_early in published.items() if is_early}
        given: dict[Piece, dict[Value, None]] = {}
        for piece in self.pieces:
            if piece not in hurried:  # graph order keeps recently read data in the cache
                piece.nodes.sort(key=self.numbers.__getitem__)
            read = (x for node in piece.nodes for x in node.values())
            given[piece] = dict.fromkeys(
                x for x in read if x.constant is None and maker.get(x) is not piece
            )
            used.update(given[piece])
        for piece in self.pieces:
            made = [v for node in piece.nodes for v in node.outputs if v in used]
            name = f"{graph.name} piece {piece.number} on {piece.device}"
            piece.graph = Graph(name, Values(given[piece]), piece.nodes, Values(made))
            piece.published = tuple([v for v in made if v in published])
            for x in given[piece]:
                before = maker.get(sources.get(x, x))
                if before is not None:
                    piece.waits.setdefault(before.number, []).append(sources.get(x, x))


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def divide(graph: Graph, placement: Placement, model: CostModel, exact: bool) -> Division:
    """A placed graph in pieces; with ``exact``, the bits match the unpartitioned graph."""
    return _Partitioner(graph, placement, model, exact).cut()
