"""Cutting: a placed graph as pieces for devices, with Send and Recv on every edge between them.

A piece is a run of nodes of one device that waits for nothing in between. Groups of nodes are
looked at in the order of their begins; one begins a new piece where it needs a value that
another device has not sent by then, and where waiting for the end of the piece would hold up a
reader elsewhere. A piece needs from other devices only what was begun before its own first
group, so pieces cannot wait for each other in a circle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from eagerflow.capture.placement.communication import recv, send
from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.capture.placement.executor import ALONE, mode_of
from eagerflow.capture.placement.placement import Placement
from eagerflow.devices import Device
from eagerflow.fusion.groups import grow
from eagerflow.graph.ir import Cell, Graph, Node, Value, Values
from eagerflow.graph.text import nested
from eagerflow.ops.linear_algebra.contraction import MIN_SHARED_MULTIPLICATIONS
from eagerflow.plan.plan import Plan

__all__ = ["Cut", "Division", "Piece", "divide"]

LONG = 5e-5  # seconds from which it pays to let other devices run beside a node
_POOLS = frozenset(
    {"max_pool", "max_pool_gradient", "max_pool_gather", "avg_pool", "avg_pool_gradient"}
)
_SEND, _RECV = send.op, recv.op  # type: ignore[attr-defined]


class Cut(NamedTuple):
    """A value that goes from one device to another: once, whoever reads it there."""

    value: str
    source: str
    target: str
    bytes: int
    sent: Node
    received: Node

    def __repr__(self) -> str:
        return f"Cut({self.value!r}, {self.source} to {self.target}, {self.bytes} bytes)"


@dataclass(eq=False)
class Piece:
    """Nodes of one device that wait for nothing in between."""

    number: int
    device: Device
    exact: bool
    alone: bool = False
    nodes: list[Node] = field(default_factory=list)
    first: int = 0  # where its first group stands in the order of all begins
    begin: float = 0.0
    deadline: float = math.inf  # when somebody else begins to wait for a value of it
    priority: float = 0.0
    graph: Graph = None  # type: ignore[assignment]
    after: tuple[int, ...] = ()

    @cached_property
    def steps(self) -> Sequence[Any]:
        """The nodes, some of them grown into regions."""
        return self.graph.nodes if self.exact else grow(self.graph)

    @cached_property
    def plan(self) -> Plan:
        """The program of the piece."""
        return Plan(self.graph, self._order, self.device, self.exact)

    def _order(self, graph: Graph) -> Sequence[Any]:
        if graph is self.graph:
            return self.steps
        return graph.nodes if self.exact else grow(graph)

    @property
    def mode(self) -> str:
        """How it uses cores."""
        return ALONE if self.alone else mode_of(self.device)

    def seconds(self, model: CostModel) -> float:
        """What the piece takes, by a model."""
        name = f"{self.device} alone" if self.alone else str(self.device)
        name = name if name in model.devices else str(self.device)
        return sum(model.step(step, name) for step in self.steps)

    def __repr__(self) -> str:
        return f"<piece {self.number} on {self.device}: {len(self.nodes)} nodes>"


class Division(NamedTuple):
    """A graph in pieces: the whole with Send and Recv in it, its pieces and its cuts.

    ``homes`` are the devices of the graph's finals, ``places`` of the values, by number.
    """

    graph: Graph
    pieces: list[Piece]
    cuts: list[Cut]
    homes: list[Device]
    places: dict[Value, int]


# Which bits depend on the number of threads ------------------------------------------------------


def depends_on_threads(node: Node) -> bool:
    """Whether the bits of a node's results may depend on the number of BLAS's threads."""
    family, name = node.op.family, node.op.name
    if family == "contraction":
        if name in _POOLS:
            return False
        if name == "matmul":
            one, other = node.inputs
            if (
                type(one) is Value
                and type(other) is Value
                and len(one.shape) == 2 == len(other.shape)
            ):
                # Small ones are made with one thread, see the op.
                return bool(one.size * other.shape[1] >= MIN_SHARED_MULTIPLICATIONS)
        return True
    if family == "control" and any(True for _ in nested(node)):
        return any(depends_on_threads(n) for _, body in nested(node) for n in body.nodes)
    return family == "custom" or name == "vector_norm"


# Cutting -----------------------------------------------------------------------------------------


class _Knife:
    """A graph that is being cut."""

    def __init__(self, graph: Graph, placement: Placement, model: CostModel, exact: bool) -> None:
        self.before = graph
        self.placement = placement
        self.model = model
        self.exact = exact
        self.devices = placement.devices
        self.nodes: list[Node] = []
        self.cuts: list[Cut] = []
        self.pieces: list[Piece] = []
        self.new: dict[Value, Value] = {}  # a value of the graph as it is where it was made
        self.home: dict[Value, int] = dict(placement.entries)
        self.here: dict[tuple[Value, int], Value] = {}  # as it is on another device
        self.places: dict[Value, int] = dict(placement.entries)
        self.names = {v.name for v in (*graph.all_inputs(), *graph.constants)}
        self.names |= {v.name for node in graph.nodes for v in node.outputs}
        self.names |= {node.name for node in graph.nodes}
        self.makers = {v: i for i, group in enumerate(placement.groups) for v in group.made}
        self.piece_of: dict[Node, Piece] = {}

    # Pieces ----------------------------------------------------------------------------------

    def cut(self) -> Division:
        """All nodes, in the order of their begins."""
        placement = self.placement
        order = placement.schedule.order
        position = {i: at for at, i in enumerate(order)}
        needed = self._needed_elsewhere()
        current: list[Piece | None] = [None] * len(self.devices)
        have: list[set[Value]] = [set() for _ in self.devices]
        slack = max(2 * self.model.latency, 2e-5)
        for at, i in enumerate(order):
            group, k = placement.groups[i], placement.where[i]
            nodes = [self.before.nodes[n] for n in group.nodes]
            alone = self._alone(nodes, k)
            new = [x for x in group.given if self.home[x] != k and x not in have[k]]
            piece = current[k]
            if piece is None or self._begins_new(piece, i, new, position, slack, alone):
                piece = current[k] = Piece(
                    len(self.pieces),
                    self.devices[k],
                    self.exact,
                    alone,
                    [],
                    at,
                    placement.schedule.begins[i],
                )
                self.pieces.append(piece)
            piece.alone = piece.alone or alone
            piece.priority = max(piece.priority, placement.ranks[i])
            have[k].update(new)
            for node in nodes:
                self._copy(node, k, piece)
            if i in needed:
                end = placement.schedule.ends[i]
                piece.deadline = min(piece.deadline, max(end + slack, needed[i]))
        return self._finish()

    def _alone(self, nodes: Sequence[Node], k: int) -> bool:
        """Whether the bits of some nodes are those of eager calls only with all cores."""
        if not self.exact or not self.devices[k].backend.host:
            return False
        return any(map(depends_on_threads, nodes))

    def _needed_elsewhere(self) -> dict[int, float]:
        """For each group with readers on other devices, by when its results have to leave."""
        found: dict[int, float] = {}
        placement = self.placement
        for i, group in enumerate(placement.groups):
            target = placement.where[i]
            for x in group.given:
                maker = self.makers.get(x)
                if maker is not None and placement.where[maker] != target:
                    moved = self._moved(x, placement.where[maker], target)
                    by = placement.schedule.begins[i] - moved
                    found[maker] = min(found.get(maker, math.inf), by)
        return found

    def _moved(self, value: Value, source: int, target: int) -> float:
        """Seconds of a transfer."""
        size = value.size * value.dtype.itemsize
        return self.model.transfer(size, str(self.devices[source]), str(self.devices[target]))

    def _begins_new(
        self,
        piece: Piece,
        i: int,
        new: list[Value],
        position: dict[int, int],
        slack: float,
        alone: bool,
    ) -> bool:
        """Whether a group cannot go on with a piece, or should not."""
        placement = self.placement
        schedule, k = placement.schedule, placement.where[i]
        if schedule.ends[i] > piece.deadline:
            return True
        if alone != piece.alone and placement.groups[i].costs[k] > LONG:
            return True
        for x in new:
            maker = self.makers.get(x)
            if maker is None:
                continue
            if position[maker] >= piece.first:
                return True
            arrival = schedule.ends[maker] + self._moved(x, placement.where[maker], k)
            if arrival > piece.begin + slack:
                return True
        return False

    # Nodes -----------------------------------------------------------------------------------

    def _copy(self, node: Node, k: int, piece: Piece) -> None:
        """The node on its device, with what it reads from elsewhere received."""
        inputs = tuple([self.at(x, k) if type(x) is Value else x for x in node.inputs])
        made = Node(node.op, inputs, node.attributes, node.name, node.origin, str(self.devices[k]))
        made.outputs = tuple(
            Value(v.name, v.shape, v.dtype, None, made, v.index, None, v.device)
            for v in node.outputs
        )
        for old, value in zip(node.outputs, made.outputs, strict=True):
            self.new[old] = value
            self.home[old] = self.places[value] = k
        self.nodes.append(made)
        piece.nodes.append(made)
        self.piece_of[made] = piece

    def at(self, value: Value, k: int) -> Value:
        """What stands for a value on a device: sent and received once, where that is another."""
        if value.constant is not None:
            return self._constant(value, k)
        own = self.new.get(value, value)
        home = self.home[value]
        if home == k:
            return own
        found = self.here.get((value, k))
        if found is None:
            found = self.here[value, k] = self._sent(own, home, k)
        return found

    def _constant(self, value: Value, k: int) -> Value:
        """A constant, which each device that uses it has from the start."""
        tensor, place = value.constant, self.devices[k]
        if tensor.device is place:
            return value
        found = self.here.get((value, k))
        if found is None:
            moved = tensor.to(str(place))
            name = self._unique(f"{value.name}_on_{_plain(str(place))}")
            found = Value(name, value.shape, value.dtype, constant=moved)
            self.here[value, k] = found
        return found

    def _sent(self, own: Value, home: int, k: int) -> Value:
        source, target = str(self.devices[home]), str(self.devices[k])
        origin = None if own.node is None else own.node.origin
        base = own.name.replace(":", "_")
        sent = Node(
            _SEND,
            (own,),
            {"target": target},
            self._unique(f"{base}_to_{_plain(target)}"),
            origin,
            source,
        )
        sent.outputs = (Value(sent.name, own.shape, own.dtype, None, sent),)
        received = Node(
            _RECV,
            sent.outputs,
            {"source": source, "device": target},
            self._unique(f"{base}_on_{_plain(target)}"),
            origin,
            target,
        )
        value = Value(received.name, own.shape, own.dtype, None, received)
        received.outputs = (value,)
        self.nodes += (sent, received)
        self.places[sent.outputs[0]] = home
        self.places[value] = k
        size = own.size * own.dtype.itemsize
        self.cuts.append(Cut(own.name, source, target, size, sent, received))
        return value

    def _unique(self, name: str) -> str:
        found, number = name, 0
        while found in self.names:
            number += 1
            found = f"{name}_{number}"
        self.names.add(found)
        return found

    # The whole -------------------------------------------------------------------------------

    def _finish(self) -> Division:
        before, placement = self.before, self.placement
        numbers = {str(d): k for k, d in enumerate(self.devices)}
        targets = [
            placement.home if v.device is None else numbers.get(v.device, placement.home)
            for v in before.outputs
        ]
        outputs = Values(
            [self.at(v, k) for v, k in zip(before.outputs, targets, strict=True)],
            before.outputs.names,
        )
        cells = []
        for cell in before.cells:
            made = Cell(cell.name, cell.variable, cell.value)
            if cell.assigned is not None:
                home = placement.entries[cell.value]
                made.assigned = self.at(cell.assigned, home)
                targets.append(home)
            cells.append(made)
        # What a node returned besides Values is as it was; the same Value may stand twice.
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
        homes = [self.devices[k] for k in targets]
        return Division(graph, self.pieces, self.cuts, homes, self.places)

    def _link(self, graph: Graph) -> None:
        """Each piece as a graph of its own, and which pieces it waits for."""
        used: dict[Value, None] = dict.fromkeys(graph.all_outputs())
        for node in graph.nodes:
            own = self.piece_of.get(node)
            for x in node.values():
                if own is None or x.node is None or self.piece_of.get(x.node) is not own:
                    used[x] = None
        for piece in self.pieces:
            given: dict[Value, None] = {}
            after: dict[int, None] = {}
            for node in piece.nodes:
                for x in node.values():
                    if x.constant is None and (
                        x.node is None or self.piece_of.get(x.node) is not piece
                    ):
                        given[x] = None
            for x in given:
                maker = _original(x).node
                if maker is not None:
                    after[self.piece_of[maker].number] = None
            made = [v for node in piece.nodes for v in node.outputs if v in used]
            name = f"{graph.name} piece {piece.number} on {piece.device}"
            piece.graph = Graph(name, Values(given), piece.nodes, Values(made))
            piece.after = tuple(after)


def _original(value: Value) -> Value:
    """The value that was sent, for one that was received."""
    while value.node is not None and value.node.op is _RECV:
        (sent,) = value.node.values()
        value = next(sent.node.values()) if sent.node is not None else sent
    return value


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def divide(graph: Graph, placement: Placement, model: CostModel, exact: bool) -> Division:
    """A placed graph in pieces; ``exact``: with the bits of the unpartitioned graph."""
    return _Knife(graph, placement, model, exact).cut()


def sends_of(division: Division) -> Iterator[tuple[Cut, Value, Value]]:
    """Each cut with the value that is sent and the one that is received."""
    for one in division.cuts:
        yield one, next(one.sent.values()), one.received.outputs[0]
