"""Copying: nodes of a step's graph, copied into a graph for several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import FreeNames

__all__ = ["Copying"]


class Copying:
    """Makes nodes on ``devices``, which are given by their index in that list."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = devices
        self.names = FreeNames()
        self.nodes: list[Node] = []

    def copy(self, node: Node, inputs: Sequence[Any], place: int, name: str) -> Node:
        """A copy of a node, with other inputs, on the device with index ``place``."""
        made = node.like(tuple(inputs), None, self.names.take(name))
        made.device = self.devices[place]
        self.nodes.append(made)
        return made

    def call(
        self, like: Value, op: Any, inputs: tuple[Any, ...], place: int, name: str, **more: Any
    ) -> Value:
        """The value of a new node, with the facts of an existing value."""
        origin = None if like.node is None else like.node.origin
        name = self.names.take(name)
        node = Node(op.op, inputs, more, name, origin, self.devices[place])
        value = like.like(node, name)
        value.index = 0
        node.outputs = (value,)
        self.nodes.append(node)
        return value
