"""Homes: the device of each result of a graph, as in eager calls.

A result is on the device of the first tensor operand. Results of ops with a ``device``
attribute are on the device given by the call or its context, or on that of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from eagerflow.devices import Device, as_device
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value


def said(node: Node) -> str | None:
    """The device given by a call or its context; None if there is none.

    A context does not affect ops without a device attribute: they follow their arguments.
    """
    if "device" not in node.op.attributes:
        return None
    return node.attributes.get("device") or node.device


def places(graph: Graph, device: Device) -> dict[Value, Device]:
    """The devices of the values of a graph in a run on ``device``, except those in bodies."""
    entries = graph.all_inputs()
    found = {v: as_device(v.device) if v.device is not None else device for v in entries}
    for value in graph.constants:
        found[value] = value.constant.device
    for node in graph.nodes:
        place = said(node)
        home = device if place is None else as_device(place)
        if "device" not in node.op.attributes:
            # Numbers that became constants, such as the bounds of a loop, do not count.
            given = sorted(node.values(), key=lambda v: v.constant is not None and not v.shape)
            home = found[given[0]] if given else home
        found.update(dict.fromkeys(node.outputs, home))
    return found


def homes(graph: Graph, device: Device) -> Sequence[Device]:
    """The devices of the graph's finals in a run on ``device``."""
    found = places(graph, device)
    return [found[v] for v in graph.all_outputs()]
