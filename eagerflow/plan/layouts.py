"""Layouts: known memory layouts of a plan's values."""

from __future__ import annotations

from eagerflow.fusion.groups import is_part
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.shapes.reshaping import permute_dims

Order = tuple[int, ...]
"""The axes of an array, the one with the largest stride first."""


class Layouts:
    """The order of the axes of values in memory, and which values are contiguous."""

    def __init__(self) -> None:
        self._whole: set[Value] = set()
        self._orders: dict[Value, Order] = {}  # for values that are not in row-major order

    def add(self, value: Value, order: Order = ()) -> None:
        """Add a contiguous value, in row-major order or another one."""
        self._whole.add(value)
        if order and list(order) != sorted(order):
            self._orders[value] = order

    def order(self, value: Value) -> Order:
        """The order of a value's axes; row-major if not known."""
        return self._orders.get(value) or tuple(range(len(value.shape)))

    def shows(self, node: Node) -> bool:
        """Whether a node returns a view, without reading elements."""
        op = node.op
        if is_part(node):
            return True
        if op.family != "shape":
            return False
        if op.views == "all" and _same_axes(node.inputs[0], node.outputs[0]):
            return True
        return op.views == "some" or (op.views == "all" and self._in_rows(node.inputs[0]))

    def note(self, node: Node) -> None:
        """Track a node that may be a view."""
        given = node.inputs[0] if node.inputs else None
        if type(given) is not Value:
            return
        if node.op.call is permute_dims:
            (made,), axes = node.outputs, node.attributes["axes"]
            axes = range(len(made.shape))[::-1] if axes is None else axes
            places = [axis % len(made.shape) for axis in axes]
            order = tuple(places.index(axis) for axis in self.order(given))
            if given in self._whole:
                self.add(made, order)
            elif list(order) != sorted(order):
                self._orders[made] = order
        elif node.op.views == "all" and self._in_rows(given):
            # Broadcast values (stride 0) are not contiguous: reshaping them copies.
            self._whole.update(v for v in node.outputs if v.size == given.size)

    def _in_rows(self, value: Value) -> bool:
        return value in self._whole and value not in self._orders


def _same_axes(one: Value, other: Value) -> bool:
    """Whether shapes only differ in axes of size 1, so that any array can be viewed as both."""
    return [n for n in one.shape if n != 1] == [n for n in other.shape if n != 1]
