"""Lifetimes: which values share memory, when each is used last, and which buffers are reused.

A plan owns the memory of what it computes on the way. A value can lie in such a buffer if its
step writes into memory it is given; the buffer is free again after the last use of the value and
of all that may be views of it. What leaves the plan, as a result or as a Variable's value, never
lies in one.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eagerflow.backends.numpy import owner_of
from eagerflow.fusion.groups import IsLoop, into_of
from eagerflow.fusion.kernels import Step
from eagerflow.graph.ir import Node, Value

ALIGNMENT_BYTES = 64  # of buffers: a line of the cache, and a vector


MAX_SPARE_BYTES = 4096
"""Of memory around a result that is a view, beyond four times its own size; else it is copied."""


def own_result(array: Any, constants: frozenset[int]) -> Any:
    """A result of a plan, or a copy of it where its memory is not to leave the plan.

    A view keeps all of the array that it is a part of: the last row of 100,000 that of all rows.
    And ``constants``, by the identities of their arrays, are the results of all calls: what
    writes to one of these, as PyTorch may through DLPack, must not change another.
    """
    whole = owner_of(array)
    large = whole.nbytes > 4 * array.nbytes + MAX_SPARE_BYTES
    return array.copy() if large or id(whole) in constants else array


@dataclass(eq=False)
class Buffer:
    """Where memory of a plan begins, in bytes, that is used again and again."""

    start: int
    number: int
    arrays: dict[Any, str] = field(default_factory=dict)
    """Names of the arrays that begin there, by shape and dtype."""


class Lifetimes:
    """What follows from the order of steps: groups of values that share memory, last uses.

    ``steps`` have ``inputs`` and ``outputs``; ``finals`` leave the plan; ``entries`` come from
    outside. What ``is_loop`` tells makes results that share memory with nothing else.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        entries: Iterable[Value],
        finals: Iterable[Value],
        is_loop: IsLoop | None = None,
    ) -> None:
        self._group: dict[Value, Value] = {}
        self._is_loop = is_loop
        for step in steps:
            if isinstance(step, Node):
                self._join_views(step)
        self.leaving = {self.root(v) for v in finals}
        self.kept = self.leaving.union([self.root(x) for x in entries])
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
        if into_of(node) is not None or (self._is_loop and self._is_loop(node)):
            return
        for given in node.values():
            for made in node.outputs:
                if node.op.may_share(given, made):
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
    """The memory of a plan: one block, of which what is free is taken again.

    A buffer is taken from the smallest free part that is large enough; parts that are free side by
    side are one. So the block is hardly larger than what is needed at once at the worst moment.
    """

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # where parts begin and end, in their order
        self._ends: dict[Buffer, int] = {}  # of those that are taken
        self._known: dict[int, Buffer] = {}

    def take(self, size: int) -> Buffer:
        """A buffer of so many bytes."""
        size = -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        fitting = [(end - start, start) for start, end in self._free if end - start >= size]
        if fitting:
            length, start = min(fitting)
            self._free.remove((start, start + length))
            if length > size:
                insort(self._free, (start + size, start + length))
        else:
            at_end = self._free and self._free[-1][1] == self.size
            start = self._free.pop()[0] if at_end else self.size
            self.size = start + size
        found = self._known.setdefault(start, Buffer(start, len(self._known)))
        self._ends[found] = start + size
        return found

    def own(self, size: int) -> Buffer:
        """A buffer of so many bytes that nothing else lies in, before or after."""
        found = self._known[self.size] = Buffer(self.size, len(self._known))
        self.size += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return found

    def give(self, buffer: Buffer) -> None:
        """Let a buffer be taken again."""
        start, end = buffer.start, self._ends.pop(buffer)
        at = bisect(self._free, (start, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == start:
            start = self._free.pop(at - 1)[0]
        insort(self._free, (start, end))
