"""Access maps: the loop axes of a node, and those of its operands and results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eagerflow.codegen.numpy.philox import WORDS
from eagerflow.codegen.region import MEMORY_TYPES
from eagerflow.dtypes import as_dtype
from eagerflow.errors import EagerflowError
from eagerflow.graph.ir import Node, Value
from eagerflow.handlers import raised_here
from eagerflow.op import Missing, Op
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.draws import random_keep
from eagerflow.ops.family import Rows
from eagerflow.spec import normalize_axes

_DTYPES = frozenset(as_dtype(name) for name in MEMORY_TYPES)

Number = bool | int | float | complex
Axes = tuple[int, ...]
"""For each axis of an array its loop axis, -1 if its size is 1."""


class AccessMap(NamedTuple):
    """The loop axes of a node, and those of its operands and results.

    ``reduced`` are the axes of an op that works along rows; None for an elementwise node.
    """

    sizes: tuple[int, ...]
    inputs: tuple[Axes, ...]  # empty for a Python number, and for None
    outputs: tuple[Axes, ...]
    reduced: Axes | None = None

    @property
    def space(self) -> tuple[int, ...]:
        """The sizes of the axes that are longer than 1."""
        return _without_ones(self.sizes)


def composed(axes: Iterable[int], outer: Axes) -> Axes:
    """Axes composed with another map: that of ``outer`` for each, and -1 for -1."""
    return tuple([outer[a] if a >= 0 else -1 for a in axes])


def real_axes(axes: Iterable[int]) -> Axes:
    """The axes without those of size 1."""
    return tuple([a for a in axes if a >= 0])


def space_axes(shape: tuple[int, ...]) -> Axes:
    """The axes of an array of a shape, in an index space without its axes of size 1."""
    at, found = 0, []
    for size in shape:
        found.append(at if size != 1 else -1)
        at += size != 1
    return tuple(found)


def row_rule(op: Op) -> Rows | None:
    """The rule of an op that works along rows; None for all others."""
    if op.family == "rows" and callable(op.scalar):
        return Rows(op.scalar, ("mn",) * len(op.data), ("mn",))
    return op.scalar if isinstance(op.scalar, Rows) else None


def access_map(node: Node) -> AccessMap | None:
    """The operand accesses of a node; None for a node that no fused kernel computes."""
    op = node.op
    first = node.inputs[0] if node.inputs else None
    values = [x for x in node.inputs if type(x) is Value]
    if not node.outputs:
        return None
    for value in (*values, *node.outputs):
        if value.dtype not in _DTYPES:
            return None
    sizes = node.outputs[0].shape
    repeats = False
    if op.views == "all" and type(first) is Value:
        repeats = first.size != node.outputs[0].size
        if not repeats:
            return _of_reshape(first.shape, sizes)
    rule = row_rule(op)
    if rule is not None:
        return _of_rows(node, rule)
    if op.call is random_keep:
        return _of_draw(node)
    if isinstance(op.scalar, Missing) and op.call is not astype and not repeats:
        return None
    if not values or any(v.shape != sizes for v in node.outputs):
        return None
    if not all(v.shape == sizes or _broadcasts(v.shape, sizes) for v in values):
        return None
    inputs = tuple(from_right(x.shape, sizes) if type(x) is Value else () for x in node.inputs)
    return AccessMap(sizes, inputs, (from_right(sizes, sizes),) * len(node.outputs))


def _broadcasts(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether an array of a shape can be broadcast to some sizes."""
    missing = len(sizes) - len(shape)
    return missing >= 0 and all(n in (1, sizes[missing + i]) for i, n in enumerate(shape))


def from_right(shape: tuple[int, ...], sizes: tuple[int, ...]) -> Axes:
    """The axes of an array that is broadcast."""
    missing = len(sizes) - len(shape)
    return tuple([missing + i if size != 1 else -1 for i, size in enumerate(shape)])


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size for size in shape if size != 1])


def _of_reshape(before: tuple[int, ...], after: tuple[int, ...]) -> AccessMap | None:
    """The map of a view that adds or removes axes of size 1; None for other reshapes."""
    sizes = _without_ones(before)
    if sizes != _without_ones(after):
        return None
    return AccessMap(sizes, (space_axes(before),), (space_axes(after),))


def _of_rows(node: Node, rule: Rows) -> AccessMap | None:
    first = node.inputs[0]
    if type(first) is not Value or len(rule.along) < len(node.inputs):
        return None
    shape = first.shape
    try:
        axes = normalize_axes(node.attributes.get("axis"), len(shape))
    except raised_here(EagerflowError):
        return None
    if list(axes) != sorted(axes):
        return None  # parameters would have their axes in another order
    own = set(axes)
    kept = [i for i in range(len(shape)) if i not in own]
    lying = {"mn": range(len(shape)), "m": kept, "n": axes}
    inputs: list[Axes] = []
    for x, along in zip(node.inputs, rule.along, strict=False):
        if type(x) is not Value:
            inputs.append(())
            continue
        if x.shape != tuple([shape[i] for i in lying[along]]):
            return None
        inputs.append(tuple([i if shape[i] != 1 else -1 for i in lying[along]]))
    outputs = []
    for value, along in zip(node.outputs, rule.gives, strict=True):
        wide = along == "m" and node.attributes.get("keepdims")
        places = range(len(shape)) if wide else lying[along]
        if len(value.shape) != len(places):
            return None
        outputs.append(
            tuple([i if shape[i] != 1 and not (wide and i in own) else -1 for i in places])
        )
    reduced = tuple([i for i in axes if shape[i] != 1])
    return AccessMap(shape, tuple(inputs), tuple(outputs), reduced)


def _of_draw(node: Node) -> AccessMap | None:
    """The map of a generator's numbers; each word of the state is a 0-d operand."""
    state, result = node.inputs[0], node.outputs[0]
    if type(state) is not Value or state.shape != (WORDS,):
        return None
    return AccessMap(result.shape, ((),), (from_right(result.shape, result.shape),))
