"""Forms that rules look for: 1 + x, x - 1, squares, quotients, and what they are made of."""

from __future__ import annotations

from typing import Any

from eagerflow.capture.passes.rewriting import Sweep, is_float
from eagerflow.graph.ir import Node, Value

__all__ = [
    "chain",
    "exponential_sum",
    "is_complement",
    "less_one",
    "lines_up",
    "one_minus",
    "over",
    "plus_one",
    "single_axis",
    "square_of",
]


def plus_one(sweep: Sweep, x: Any) -> Any:
    """The y of x = 1 + y, else None."""
    node = sweep.maker(x, "add")
    if node is not None and is_float(x):
        for y, one in (node.inputs, node.inputs[::-1]):
            if type(y) is Value and y.shape == x.shape and sweep.is_one(one):
                return y
    return None


def one_minus(sweep: Sweep, x: Any) -> Any:
    """The y of x = 1 - y, else None."""
    node = sweep.maker(x, "subtract")
    if node is not None and is_float(x):
        one, y = node.inputs
        if type(y) is Value and y.shape == x.shape and sweep.is_one(one):
            return y
    return None


def less_one(sweep: Sweep, x: Any) -> Any:
    """The y of x = y - 1, else None."""
    node = sweep.maker(x, "subtract", "add")
    if node is None or not is_float(x):
        return None
    wanted = 1 if node.op.name == "subtract" else -1
    pairs = (node.inputs,) if wanted == 1 else (node.inputs, node.inputs[::-1])
    for y, one in pairs:
        if type(y) is Value and y.shape == x.shape and sweep.uniform(one) == wanted:
            return y
    return None


def square_of(sweep: Sweep, x: Any) -> Any:
    """The y of x = y², else None."""
    node = sweep.maker(x, "square", "multiply", "power")
    if node is None or not is_float(x):
        return None
    y = node.inputs[0]
    if node.op.name == "multiply":
        return y if node.inputs[1] is y else None
    if node.op.name == "power" and (sweep.uniform(node.inputs[1]) != 2 or y.__class__ is not Value):
        return None
    return y if y.shape == x.shape else None


def is_complement(sweep: Sweep, y: Any, other: Any) -> bool:
    """Whether ``other`` is 1 - y, where y is a sigmoid."""
    if one_minus(sweep, other) is y:
        return True
    x = sweep.argument(y, "sigmoid")
    back = sweep.argument(other, "sigmoid")
    return x is not None and back is not None and sweep.argument(back, "negative") is x


def over(sweep: Sweep, x: Any) -> Any:
    """The (g, y) of x = g / y in any of its forms, g perhaps the number 1; else None."""
    node = sweep.maker(x, "reciprocal", "divide", "multiply", "multiply_no_nan")
    if node is None or not is_float(x):
        return None
    if node.op.name == "reciprocal":
        return 1, node.inputs[0]
    if node.op.name == "divide":
        g, y = node.inputs
        return (g, y) if type(y) is Value else None
    for g, part in (node.inputs, node.inputs[::-1]):
        y = sweep.argument(part, "reciprocal")
        if y is not None:
            return g, y
    return None


def single_axis(axis: Any, rank: int) -> int | None:
    """The one axis that a reduction is over, else None."""
    if axis is None:
        return 0 if rank == 1 else None
    if type(axis) is tuple:
        axis = axis[0] if len(axis) == 1 else None
    return axis if axis is None else int(axis) % rank


def exponential_sum(sweep: Sweep, x: Any) -> tuple[Value, Node] | None:
    """The z of x = sum(exp(z)), and the node of the sum; else None."""
    node = sweep.maker(x, "sum")
    if node is None or node.attributes["dtype"] is not None:
        return None
    z = sweep.argument(node.inputs[0], "exp")
    return None if z is None or not is_float(z) else (z, node)


def chain(sweep: Sweep, x: Any) -> tuple[Any, list[Node]]:
    """What ``x`` shows, through reshapes and repetition, and the nodes of these from the end."""
    views: list[Node] = []
    while (node := sweep.maker(x, "reshape", "broadcast_to", "expand_dims", "squeeze")) is not None:
        views.append(node)
        x = node.inputs[0]
    return x, views


def lines_up(x: Value, axes: tuple[int, ...], views: list[Node], total: Value) -> bool:
    """Whether ``total``, a reduction of ``x`` over ``axes`` seen through views, lines up with x.

    It does where its shape is that of x with 1 for the axes, before it is repeated.
    """
    spread = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
    shapes = [*(view.outputs[0].shape for view in views), total.shape]
    if shapes[0] == spread or len(axes) == len(x.shape):
        return True
    return shapes[0] == x.shape and len(shapes) > 1 and shapes[1] == spread
