"""Lifetimes: values that share memory, last uses, and reused buffers.

A plan owns the memory of its intermediate values. A value can be in such a buffer if its
step writes into given memory; the buffer is free again after the last use of the value and
of all possible views of it. Values that leave the plan, as results or as Variables' values, are
never in one.
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
"""Bytes that a result that is a view may keep alive, beyond four times its size; else copied."""


def own_result(array: Any, constants: frozenset[int]) -> Any:
    """A result of a plan, or a copy if its memory must not leave the plan.

    A view keeps its whole base array alive: the last row of 100,000 all rows.
    And ``constants``, by the ids of their arrays, are results of all calls: a
    write to one of them, as PyTorch may make through DLPack, must not change the others.
    """
    whole = owner_of(array)
    large = whole.nbytes > 4 * array.nbytes + MAX_SPARE_BYTES
    return array.copy() if large or id(whole) in constants else array


@dataclass(eq=False)
class Buffer:
    """The offset of reusable memory of a plan, in bytes."""

    start: int
    number: int
    arrays: dict[Any, str] = field(default_factory=dict)
    """Names of the arrays at this offset, by shape and dtype."""


class Lifetimes:
    """Facts that follow from the order of steps: groups of values that share memory, last uses.

    ``steps`` have ``inputs`` and ``outputs``; ``finals`` leave the plan; ``entries`` come from
    outside. Nodes accepted by ``is_loop`` make results that share memory with nothing else.
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
        # A function with an output argument writes there, even if it could return a view.
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
        """The representative of all values that may share memory with this one."""
        group = self._group
        while (above := group.get(value)) is not None:
            value = above
        return value


class Pool:
    """The memory of a plan: one block, with reused parts.

    A buffer takes the smallest free part that is large enough; adjacent free parts are
    merged. The block is therefore hardly larger than the peak memory in use.
    """

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # begin and end of free parts, sorted
        self._ends: dict[Buffer, int] = {}  # of buffers in use
        self._known: dict[int, Buffer] = {}

    def take(self, size: int) -> Buffer:
        """A buffer of this many bytes."""
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
        """A buffer of this many bytes that is never shared."""
        found = self._known[self.size] = Buffer(self.size, len(self._known))
        self.size += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return found

    def give(self, buffer: Buffer) -> None:
        """Return a buffer for reuse."""
        start, end = buffer.start, self._ends.pop(buffer)
        at = bisect(self._free, (start, end))
        if at < len(self._free) and self._free[at][0] == end:
            end = self._free.pop(at)[1]
        if at and self._free[at - 1][1] == start:
            start = self._free.pop(at - 1)[0]
        insort(self._free, (start, end))
