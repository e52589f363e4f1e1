"""Homes: the device that each result of a graph is on, as eager calls would have it.

A result is where the first tensor is that it is computed from. What an op makes or moves that
takes a device is where the call, or the context around it, says, or where the run is.
"""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.devices import Device, as_device
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value


def said(node: Node) -> str | None:
    """The device that a call names, itself or by the context around it; None if it does not.

    A context says nothing about ops that take no device: they compute where their arguments are.
    """
    if "device" not in node.op.attributes:
        return None
    return node.attributes.get("device") or node.device


def places(graph: Graph, device: Device) -> dict[Value, Device]:
    """The devices of the values of a graph in a run on ``device``, but for those in bodies."""
    entries = graph.all_inputs()
    found = {v: as_device(v.device) if v.device is not None else device for v in entries}
    for value in graph.constants:
        found[value] = value.constant.device
    for node in graph.nodes:
        place = said(node)
        home = device if place is None else as_device(place)
        if "device" not in node.op.attributes:
            # Numbers that became constants, such as the bounds of a loop, say nothing.
            given = sorted(node.values(), key=lambda v: v.constant is not None and not v.shape)
            home = found[given[0]] if given else home
        found.update(dict.fromkeys(node.outputs, home))
    return found


def homes(graph: Graph, device: Device) -> Sequence[Device]:
    """The devices of the graph's finals in a run on ``device``."""
    found = places(graph, device)
    return [found[v] for v in graph.all_outputs()]
