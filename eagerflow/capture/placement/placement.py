"""Placement: the device of every node of a graph, and why.

First come pins: nodes inside ``with ef.device(...)``, device arguments, the devices of inputs
and Variables. Then locality: a Variable's new value is computed on its device,
and cheap nodes follow their largest argument. All other nodes go where they finish earliest,
in the order of their longest path to the end (Topcuoglu, Hariri and Wu, "HEFT",
IEEE Transactions on Parallel and Distributed Systems 13, 2002). If that is no faster,
all free nodes stay on one device. The running time is that of sorting the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.capture.placement.grouping import Group, groups_of
from eagerflow.capture.placement.schedule import Schedule, list_schedule
from eagerflow.devices import Device, as_device, current_device
from eagerflow.devices import devices as all_devices
from eagerflow.errors import DeviceError, PlacementError
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.text import bytes_text, line_name, seconds_text
from eagerflow.graph.walk import bodies_of, nodes_within
from eagerflow.handlers import raised_here
from eagerflow.ops.creation.cast import to_device

_TO_DEVICE = to_device.op  # type: ignore[attr-defined]
_MAX_SINGLE_DEVICES = 4  # tried as the only device for free nodes
_MAX_NAMED_DEVICES = 6  # listed in an error


class Placement(NamedTuple):
    """The device of each node of a graph, and of each input and Variable, by its number.

    ``groups`` are nodes that were placed together, in a valid order of execution, and
    ``group_devices`` their devices; ``ranks`` are seconds from a group's start to the end of the
    longest path from it. Results return to the device ``default``.
    """

    devices: tuple[Device, ...]
    nodes: list[int]
    reasons: list[str]
    inputs: dict[Value, int]
    default: int
    groups: list[Group]
    group_devices: list[int]
    ranks: list[float]
    schedule: Schedule


def as_devices(names: Iterable[Any]) -> tuple[Device, ...]:
    """The devices for a graph; PlacementError if one does not exist."""
    listed = [names] if isinstance(names, str | Device) else list(names)
    words = "a graph cannot be placed there"
    found = [_existing(name, words, op="partition", argument="devices") for name in listed]
    if not found or len(set(found)) < len(found):
        raise PlacementError(
            "a graph is placed on at least one device, and each is named once",
            op="partition",
            argument="devices",
            received=", ".join(map(str, listed)) or "none",
            hint='partition(graph, ["cpu:0", "cpu:1"])',
        )
    return tuple(found)


def _existing(name: Any, words: str, **more: str | None) -> Device:
    """The device of a name; PlacementError, introduced by ``words``, if it does not exist."""
    try:
        return as_device(name)
    except raised_here(DeviceError) as error:
        raise PlacementError(
            f"{words}: {error.problem}", expected=error.expected, hint=error.hint, **more
        ) from None


# Pins --------------------------------------------------------------------------------------------


class _Pins:
    """The pins of a graph."""

    def __init__(self, graph: Graph, devices: Sequence[Device]) -> None:
        self.graph = graph
        self.devices = devices
        self._numbers = {str(d): i for i, d in enumerate(devices)}
        self.default_name = str(_default_device(graph))
        self.default = self._numbers.get(self.default_name, 0)
        if all(d.task for d in devices):
            # If all devices are tasks of a cluster, a value being on this machine is no constraint.
            self._numbers |= dict.fromkeys(map(str, all_devices()), self.default)
        self.inputs = {
            v: self.default
            if v.device is None
            else self.number(v.device, v.name, "", "it is there")
            for v in graph.all_inputs()
        }

    def number(self, name: str, what: str, at: str, how: str) -> int:
        """The device number of a pin; PlacementError with its location if it is not listed."""
        found = self._numbers.get(name)
        if found is not None:
            return found
        words = f"{what} is pinned to a device that does not exist"
        full = str(_existing(name, words, op=self.graph.name, at=at or None))
        found = self._numbers.get(full)
        if found is None:
            listed = [str(d) for d in self.devices]
            raise PlacementError(
                f"{what} is pinned to {full} ({how}), which is not among the devices",
                op=self.graph.name,
                at=at or None,
                expected="one of " + ", ".join(listed[:_MAX_NAMED_DEVICES]),
                hint=f"partition(graph, {[*listed[:_MAX_NAMED_DEVICES], full]}), or another pin",
            )
        self._numbers[name] = found
        return found

    def node(self, node: Node) -> tuple[int, str] | None:
        """The device number that a node is pinned to, and the reason."""
        own = self._own(node)
        found = {} if own is None else {own[0]: own[1]}
        if node.op.family == "control":
            found = self._inside(node) | found
        if len(found) > 1:
            pins = "; ".join(f"{self.devices[k]}, {reason}" for k, reason in found.items())
            raise PlacementError(
                f"{node.name} is pinned to several devices, and runs whole on one: {pins}",
                op=self.graph.name,
                at=node.place or None,
                hint="one ef.device around the whole call, and none in its bodies",
            )
        return next(iter(found.items()), None)

    def _own(self, node: Node) -> tuple[int, str] | None:
        named = node.attributes.get("device")
        if isinstance(named, str) and node.op is _TO_DEVICE:
            device, how = named, "pinned by .to"
        elif isinstance(named, str) and named != self.default_name:
            # The default device carries no information.
            device, how = named, "pinned by its device argument"
        elif node.device is not None:
            device, how = node.device, "pinned by ef.device"
        else:
            return None
        source = node.source
        ends = "" if source is None else f" at {line_name(source)}"
        return self.number(device, node.name, node.place, how), how + ends

    def _inside(self, node: Node) -> dict[int, str]:
        """Pins of the nodes in a node's bodies."""
        found: dict[int, str] = {}
        for inner in nodes_within(*bodies_of(node.attributes)):
            own = self._own(inner)
            if own is not None:
                found.setdefault(*own)
        return found


def _default_device(graph: Graph) -> Device:
    """The assumed device of values while the graph was traced."""
    for value in (*graph.all_inputs(), *(v for n in graph.nodes[:8] for v in n.outputs)):
        device = getattr(value.owner, "device", None)
        if isinstance(device, Device):
            return device
    return current_device()


# Placing -----------------------------------------------------------------------------------------


class _Placing:
    """A placement in progress: positions of makers and readers, costs, decisions."""

    def __init__(
        self, graph: Graph, devices: tuple[Device, ...], model: CostModel, fused: bool
    ) -> None:
        self.graph, self.devices, self.model = graph, devices, model
        self.names = [str(d) for d in devices]
        self.pins = _Pins(graph, devices)
        self.groups = groups_of(graph, model, self.names, fused)
        self.makers = {v: i for i, group in enumerate(self.groups) for v in group.made}
        self.readers: list[list[int]] = [[] for _ in self.groups]
        for i, group in enumerate(self.groups):
            for maker in {self.makers[x] for x in group.given if x in self.makers}:
                self.readers[maker].append(i)
        self.bytes = {v: float(nbytes(v)) for v in (*self.makers, *self.pins.inputs)}
        self.where: list[int | None] = [None] * len(self.groups)
        self.reasons: list[str | None] = [None] * len(self.groups)
        self.ranks = self._ranks()

    def move(self, value: Value, source: int, target: int) -> float:
        """Seconds of a transfer."""
        if source == target:
            return 0.0
        return self.model.transfer(self.bytes[value], self.names[source], self.names[target])

    def _ranks(self) -> list[float]:
        """Seconds from each group's start to the end of the longest path from it."""
        count = len(self.devices)
        ranks = [0.0] * len(self.groups)
        for i in range(len(ranks) - 1, -1, -1):
            after = max([ranks[k] for k in self.readers[i]], default=0.0)
            ranks[i] = sum(self.groups[i].costs) / count + after
        # A view is nearly free, and another device may wait for it: it is made as early as
        # possible, not after products with a longer path to the end.
        for i, group in enumerate(self.groups):
            if all(self.graph.nodes[number].op.views for number in group.nodes):
                makers = [ranks[self.makers[x]] for x in group.given if x in self.makers]
                ranks[i] = min(makers, default=max(ranks))
        return ranks

    # Pins and locality -------------------------------------------------------------------------

    def fix(self) -> None:
        """Apply pins and locality."""
        for i, group in enumerate(self.groups):
            found = self.pins.node(self.graph.nodes[group.nodes[0]])  # the pins of a group agree
            if found is not None:
                self.where[i], self.reasons[i] = found
        for cell in self.graph.cells:
            maker = self._maker(cell.assigned)
            if maker is not None and self.where[maker] is None:
                number = self.pins.inputs[cell.value]
                self.where[maker] = number
                self.reasons[maker] = (
                    f"beside {cell.name}, which is on {self.names[number]} and is "
                    "assigned the result"
                )

    def _maker(self, value: Value | None) -> int | None:
        """The node that computes an assigned value, before any move to its Variable's device."""
        while value is not None:
            node = value.node
            if node is None or node.op is not _TO_DEVICE:
                return self.makers.get(value)
            value = next(node.values(), None)
        return None

    def follow(self, i: int, device_of: dict[Value, int]) -> tuple[int, str] | None:
        """Beside the largest argument, if that is cheaper than moving it."""
        given = self.groups[i].given
        if not given:
            return None
        largest = max(given, key=self.bytes.__getitem__)
        size = self.bytes[largest]
        if len(given) > 1 and sum(self.bytes[x] for x in given) > 1.1 * size:
            return None
        device = device_of[largest]
        costs = self.groups[i].costs
        others = [k for k in range(len(self.devices)) if k != device]
        if not others or costs[device] > min(self.move(largest, device, k) for k in others):
            return None
        return device, f"beside {largest.name}, whose {bytes_text(size, '.4g')} it reads"

    # Free nodes --------------------------------------------------------------------------------

    def earliest(self) -> None:
        """Place all other nodes, each where it finishes earliest."""
        count = len(self.devices)
        free_at = [0.0] * count
        ends = [0.0] * len(self.groups)
        device_of: dict[Value, int] = dict(self.pins.inputs)
        late: list[int] = []
        for i in sorted(range(len(self.groups)), key=lambda i: (-self.ranks[i], i)):
            group = self.groups[i]
            if self.where[i] is None and not group.given:
                late.append(i)  # beside its first reader
                device_of |= dict.fromkeys(group.made, -1)
                continue
            begins = self._arrivals(i, device_of, ends)
            found = [max(begins[k], free_at[k]) + group.costs[k] for k in range(count)]
            target = self.where[i]
            if target is None:
                known = all(device_of[x] >= 0 for x in group.given)
                beside = self.follow(i, device_of) if known else None
                if beside is not None:
                    target, self.reasons[i] = beside
                else:
                    target = min(range(count), key=found.__getitem__)
                    self.reasons[i] = self._earliest_reason(found, target)
                self.where[i] = target
            free_at[target] = found[target]
            ends[i] = found[target]
            device_of |= dict.fromkeys(group.made, target)
            for x in group.given:
                if device_of[x] < 0:
                    device_of[x] = target
        self._place_late(late)

    def _arrivals(self, i: int, device_of: dict[Value, int], ends: list[float]) -> list[float]:
        """The earliest arrival of all inputs of a group, for each device."""
        found = []
        for k in range(len(self.devices)):
            latest = 0.0
            for x in self.groups[i].given:
                maker = self.makers.get(x)
                end = 0.0 if maker is None else ends[maker]
                source = device_of[x]
                latest = max(latest, end + (self.move(x, source, k) if source >= 0 else 0.0))
            found.append(latest)
        return found

    def _earliest_reason(self, found: list[float], target: int) -> str:
        others = sorted(k for k in range(len(found)) if k != target)
        told = " and ".join(
            f"{seconds_text(found[k])} on {self.names[k]}" for k in others[:_MAX_NAMED_DEVICES]
        )
        against = f" against {told}" if told else ""
        return f"earliest finish: {seconds_text(found[target])}{against}"

    def _place_late(self, late: list[int]) -> None:
        """Place nodes without arguments beside their first reader."""
        for i in late:
            reader = next((k for k in self.readers[i] if self.where[k] is not None), None)
            if reader is None:
                self.where[i] = self.pins.default
                self.reasons[i] = "nothing needs it elsewhere"
            else:
                self.where[i] = self.where[reader]
                name = self.graph.nodes[self.groups[reader].nodes[0]].name
                self.reasons[i] = f"beside {name}, which reads it"

    def schedule(self, where: Sequence[int]) -> Schedule:
        """The schedule of all groups, with the longest paths to the end first."""
        arrivals = [0.0] * len(self.groups)
        follows: list[dict[int, float]] = [{} for _ in self.groups]
        for i, group in enumerate(self.groups):
            for x in group.given:
                maker = self.makers.get(x)
                if maker is None:
                    arrivals[i] = max(arrivals[i], self.move(x, self.pins.inputs[x], where[i]))
                else:
                    moved = self.move(x, where[maker], where[i])
                    follows[maker][i] = max(follows[maker].get(i, 0.0), moved)
        seconds = [group.costs[k] for group, k in zip(self.groups, where, strict=True)]
        return list_schedule(where, seconds, self.ranks, follows, arrivals)

    def result(self) -> Placement:
        """The placement by earliest finish, or on one device if that is as fast."""
        self.fix()
        fixed, fixed_reasons = list(self.where), list(self.reasons)
        self.earliest()
        where = [k or 0 for k in self.where]
        reasons = [reason or "" for reason in self.reasons]
        best = self.schedule(where)
        split = best.seconds
        free = [i for i, k in enumerate(fixed) if k is None]
        if len({where[i] for i in free}) > 1:
            for number in range(min(len(self.devices), _MAX_SINGLE_DEVICES)):
                whole = [number if k is None else k for k in fixed]
                found = self.schedule(whole)
                if found.seconds <= best.seconds * (1 - 1e-9):
                    best, where = found, whole
                    words = (
                        f"with all free nodes: the whole takes {seconds_text(found.seconds)}, "
                        f"and {seconds_text(split)} if each node goes to its earliest finish"
                    )
                    reasons = [reason or words for reason in fixed_reasons]
        node_devices = [0] * len(self.graph.nodes)
        node_reasons = reasons[:1] * len(node_devices)
        for group, k, reason in zip(self.groups, where, reasons, strict=True):
            for i in group.nodes:
                node_devices[i], node_reasons[i] = k, reason
        return Placement(
            self.devices,
            node_devices,
            node_reasons,
            self.pins.inputs,
            self.pins.default,
            self.groups,
            where,
            self.ranks,
            best,
        )


def placed(graph: Graph, devices: Iterable[Any], model: CostModel, fused: bool = True) -> Placement:
    """The device of every node of a graph of known sizes, with reasons.

    ``devices`` are devices or names, ``model`` predicts costs; with ``fused``,
    neighbours become one kernel if possible. Raises PlacementError for a pin to a device that
    is not listed or does not exist, and for pins that contradict each other.
    """
    return _Placing(graph, as_devices(devices), model, fused).result()


def moved(placement: Placement, graph: Graph, other: Graph) -> Placement:
    """The placement of a graph, transferred to one that differs in sizes only."""
    values = dict(zip(graph.all_inputs(), other.all_inputs(), strict=True))
    for one, two in zip(graph.nodes, other.nodes, strict=True):
        values.update(zip(one.outputs, two.outputs, strict=True))
    groups = [
        group._replace(given=[values[x] for x in group.given], made=[values[x] for x in group.made])
        for group in placement.groups
    ]
    inputs = {values[v]: k for v, k in placement.inputs.items()}
    return placement._replace(groups=groups, inputs=inputs)
