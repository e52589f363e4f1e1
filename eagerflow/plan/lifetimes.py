"""Lifetimes: which values share memory, when each is used last, and which buffers are reused.

A plan owns the memory of what it computes on the way. A value can lie in such a buffer if its
step writes into memory it is given; the buffer is free again after the last use of the value and
of all that may be views of it. What leaves the plan, as a result or as a Variable's value, never
lies in one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from eagerflow.fusion.kernels import Step
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Into, Op


def _may_share(op: Op, given: Value, made: Value) -> bool:
    """Whether a result of an op that aliases may share memory with this one of its arguments."""
    if op.family == "reduction" and made.size < given.size:
        return False
    if op.family == "elementwise" and made.shape != given.shape:
        return False
    return made.dtype == given.dtype or given.dtype.kind == "c"  # parts of complex numbers


def into_of(node: Node) -> Into | None:
    """What writes the result of a node into memory that it is given, if there is anything."""
    if node.op.into is None or not all(type(x) is Value for x in node.inputs):
        return None
    found: Into | None = node.op.into(*node.inputs, **node.attributes)
    if found is None or not all(x.dtype.char in found.types for x in node.values()):
        return None
    return found


def shows(node: Node, contiguous: Set[Value]) -> bool:
    """Whether a node shows an array in another way, and reads nothing of it."""
    op = node.op
    if op.name == "getitem":  # without arrays in the index; one element is copied
        return len(node.inputs) == 1 and bool(node.outputs[0].shape)
    if op.family != "shape":
        return False
    return op.views == "some" or (op.views == "all" and node.inputs[0] in contiguous)


@dataclass(eq=False)
class Buffer:
    """Memory that a plan uses again and again; ``size`` is in bytes."""

    size: int
    number: int
    arrays: dict[Any, str] = field(default_factory=dict)
    """Names of the arrays made of it, by shape and dtype."""


class Lifetimes:
    """What follows from the order of steps: groups of values that share memory, last uses.

    ``steps`` have ``inputs`` and ``outputs``; ``finals`` leave the plan; ``entries`` come from
    outside.
    """

    def __init__(
        self, steps: Sequence[Step], entries: Iterable[Value], finals: Iterable[Value]
    ) -> None:
        self._group: dict[Value, Value] = {}
        for step in steps:
            if isinstance(step, Node):
                self._join_views(step)
        self.leaving = {self.root(v) for v in finals}
        self.kept = self.leaving.union(map(self.root, entries))
        self.last: dict[Value, int] = {}
        for number, step in enumerate(steps):
            for value in (*step.outputs, *step.inputs):
                if type(value) is Value:
                    self.last[self.root(value)] = number
        self.ending: defaultdict[int, list[Value]] = defaultdict(list)
        for value, number in self.last.items():
            self.ending[number].append(value)

    def _join_views(self, node: Node) -> None:
        # A function that is told where to write does so, also where it could give a view.
        if not node.op.aliases or (node.op.ufunc is not None and node.op.family == "elementwise"):
            return
        if into_of(node) is not None:
            return
        for given in node.values():
            for made in node.outputs:
                if _may_share(node.op, given, made):
                    one, other = self.root(made), self.root(given)
                    if one is not other:
                        self._group[one] = other

    def root(self, value: Value) -> Value:
        """The value that stands for all those that may share memory with this one."""
        group = self._group
        while (above := group.get(value)) is not None:
            value = above
        return value


class Pool:
    """Buffers of a plan: free ones are taken again, the smallest that is large enough."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._free: list[Buffer] = []

    def take(self, size: int) -> Buffer:
        """A buffer of at least so many bytes; a free one may grow."""
        fitting = [b for b in self._free if size <= b.size <= 4 * size + 4096]
        if fitting:
            found = min(fitting, key=lambda b: b.size)
        elif large := [b for b in self._free if 4 * b.size >= size]:
            found = max(large, key=lambda b: b.size)
            found.size = max(found.size, size)
        else:
            found = Buffer(size, len(self.buffers))
            self.buffers.append(found)
            return found
        self._free.remove(found)
        return found

    def give(self, buffer: Buffer) -> None:
        """Let a buffer be taken again."""
        self._free.append(buffer)
