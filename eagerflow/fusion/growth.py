"""A region in the making: whether a node fits into it, and whether two of them are one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from eagerflow.fusion.kernels import CLASSES, Member
from eagerflow.fusion.lowering import Axes, Walk, narrow
from eagerflow.graph.ir import Node, Value
from eagerflow.ops.family import Rows

__all__ = ["SHARED", "STATEMENTS", "STREAMS", "Growing"]

STATEMENTS = 120  # at most, in one region: beyond, compiling takes long
STREAMS = 24  # arrays at most that one region reads
SHARED = 1 << 16  # elements from which threads share a region's work
SEVERAL, MANY = 4, 12  # calls of NumPy from which one of a kernel costs less on small arrays
TINY = 16  # elements of arrays for which only the steps of optimizers become regions
STEPS = {"adam_update": 14, "momentum_update": 6}
"""Calls of NumPy of which one step of an optimizer consists."""
BY_ADDRESS = {"random_keep": 0, **dict.fromkeys(CLASSES, 1)}
"""Ops with an argument that has to be in memory before a region begins, and its position."""


class Growing:
    """A region in the making: its members, and where each of their values lies."""

    __slots__ = (
        "addressed",
        "along",
        "columns",
        "complete",
        "crossed",
        "device",
        "draws",
        "escapes",
        "last",
        "maps",
        "members",
        "number",
        "read",
        "rows",
        "sizes",
        "statements",
    )

    def __init__(self, number: int, sizes: tuple[int, ...], device: str | None) -> None:
        self.number = number
        self.sizes = sizes
        self.device = device
        self.members: list[Member] = []
        self.maps: dict[Value, Axes] = {}  # of each value that it makes
        self.along: dict[Value, frozenset[int]] = {}  # the axes along which they really vary
        self.complete: set[Value] = set()  # values that can be read at the end alone
        self.read: dict[Value, Axes] = {}  # values from outside, as they were read last
        self.crossed: set[Value] = set()  # those of them that are read along several axes
        self.addressed: set[Value] = set()  # those that have to be in memory
        self.escapes: set[Any] = set()  # who reads what it makes: regions, None for single nodes
        self.rows: Axes = ()
        self.columns: list[frozenset[int]] = []
        self.draws = False  # random numbers, counted along all axes
        self.statements = 0
        self.last = 0

    # Whether a node fits -------------------------------------------------------------------------

    def member(
        self, node: Node, place: Walk, numbers: Any, sibling: bool, at: int
    ) -> Member | None:
        """The node as a member of this region, None where it cannot be one."""
        if node.op.name in BY_ADDRESS and node.inputs[BY_ADDRESS[node.op.name]] in self.maps:
            return None
        axes = self._axes(node, place)
        if axes is None:
            return None
        if sibling and tuple(n for n in place.sizes if n != 1) != self.sizes:
            return None
        new = {x for x in node.values() if x not in self.maps and x not in numbers}
        if len(self.read.keys() | new) > STREAMS:
            return None
        kind = ""
        if place.reduced is not None:
            found = self._kind(node, place, axes)
            if found is None:
                return None
            kind = found
        elif node.op.name == "random_keep" and (
            not self.sizes
            or self.rows != self._last(len(self.rows))
            or tuple([a for a in axes if a >= 0]) != tuple(self._all())
        ):
            return None  # its numbers are counted along all axes, in their order in memory
        return Member(node, place, axes, kind, at)

    def _all(self) -> range:
        return range(len(self.sizes))

    def _last(self, count: int) -> Axes:
        return tuple(self._all())[len(self.sizes) - count :]

    def _axes(self, node: Node, place: Walk) -> Axes | None:
        """The region's axis for each of a walk, -1 for those of size 1."""
        found: list[int | None] = [None if n != 1 else -1 for n in place.sizes]
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            if type(x) is not Value or x not in self.maps:
                continue
            if x in self.complete:
                return None
            for own, axis in zip(self.maps[x], lies, strict=True):
                if axis >= 0:
                    if found[axis] is None:
                        found[axis] = own
                    elif found[axis] != own:
                        return None
        hinted = found[:]
        if self._hint(node, place, hinted):
            filled = self._fill(hinted, place.sizes)
            if filled is not None:
                return filled
        return self._fill(found, place.sizes)

    def _hint(self, node: Node, place: Walk, found: list[int | None]) -> bool:
        """Where arrays from outside lie as they did before; whether that is possible."""
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            own = self.read.get(x) if type(x) is Value else None
            if own is not None and len(own) == len(lies):
                for axis, old in zip(lies, own, strict=True):
                    if axis >= 0:
                        if found[axis] is None:
                            found[axis] = old
                        elif found[axis] != old:
                            return False
        return True

    def _fill(self, found: list[int | None], sizes: tuple[int, ...]) -> Axes | None:
        """The axes that nothing tells yet, from the last one on; all in the region's order."""
        result = list(found)
        before = len(self.sizes)
        for i in range(len(sizes) - 1, -1, -1):
            axis = result[i]
            if axis == -1:
                continue
            if axis is None:
                axis = before - 1
                while axis >= 0 and self.sizes[axis] != sizes[i]:
                    axis -= 1
                if axis < 0:
                    return None
                result[i] = axis
            if axis >= before:
                return None
            before = axis
        return tuple([a for a in result if a is not None])

    def _kind(self, node: Node, place: Walk, axes: Axes) -> str | None:
        """How a node of rows works here: by "row", by "column", by "both", or not at all."""
        own = tuple([axes[a] for a in place.reduced or ()])
        whole = frozenset(a for a in axes if a >= 0)
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            # Only what varies along an axis can be reduced along it.
            inside = type(x) is Value and x in self.maps and len(lies) == len(place.sizes)
            if inside and not self.along[x] >= frozenset(own):
                return None
        rule = node.op.scalar
        columns: list[frozenset[int]] = []
        if isinstance(rule, Rows) and "n" in rule.gives:
            columns.append(whole - frozenset(own))
        if not own or own == self.rows:
            return "row" if self._fits(self.rows, [*self.columns, *columns], self.draws) else None
        reducible = isinstance(rule, Rows) and rule.columns
        rest = frozenset(own) - frozenset(self.rows)
        if (
            reducible
            and self.rows
            and rest
            and self._fits(self.rows, [*self.columns, rest], self.draws)
        ):
            if len(rest) == len(own):
                return "column"
            return "both" if len(rest) + len(self.rows) == len(own) else None
        if self.rows:
            return None
        first = own == tuple(range(len(own))) and len(own) < len(self.sizes)
        if reducible and first:
            return "column"
        return "row" if self._fits(own, [*self.columns, *columns], self.draws) else None

    def _fits(self, rows: Axes, columns: list[frozenset[int]], draws: bool) -> bool:
        """Whether rows along some axes go together with all column reductions, and with draws."""
        if rows and rows != tuple(range(rows[0], rows[0] + len(rows))):
            return False
        if draws and rows != self._last(len(rows)):
            return False
        order = [a for a in self._all() if a not in rows] or [*self._all()]
        last = frozenset(rows or order[-1:])
        return all(not c & last and c == frozenset(order[: len(c)]) for c in columns)

    def effect(self, member: Member) -> tuple[Axes, list[frozenset[int]]]:
        """The axes of the rows that a member works along, and those of its column reductions."""
        if member.walk.reduced is None:
            return (), []
        reduced = frozenset(member.axes[a] for a in member.walk.reduced)
        if member.kind in ("column", "both"):
            return (), [reduced - frozenset(self.rows)]
        rule = member.node.op.scalar
        sums = isinstance(rule, Rows) and not rule.columns and "n" in rule.gives
        around = frozenset(a for a in member.axes if a >= 0) - reduced
        return tuple(sorted(reduced)), [around] if sums and reduced and around else []

    # Taking it in --------------------------------------------------------------------------------

    def add(self, member: Member, statements: int, numbers: Any) -> None:
        """Take a member in."""
        node, place, axes, kind, at = member
        self.members.append(member)
        self.statements += statements
        self.last = at
        rows, columns = self.effect(member)
        self.rows = self.rows or rows
        self.columns += columns
        varies: frozenset[int] = frozenset()
        for x, lies in zip(node.inputs, place.inputs, strict=True):
            if type(x) is not Value or x in numbers:
                continue
            if x in self.maps:
                varies |= self.along[x]
            else:
                own = tuple([axes[a] if a >= 0 else -1 for a in lies])
                if self.read.setdefault(x, own) != own:
                    self.crossed.add(x)
                    self.read[x] = own
                varies |= frozenset(a for a in own if a >= 0)
        if node.op.name in BY_ADDRESS:
            self.addressed.add(node.inputs[BY_ADDRESS[node.op.name]])
        rule = node.op.scalar
        for value, lies in zip(node.outputs, place.outputs, strict=True):
            own = self.maps[value] = tuple([axes[a] if a >= 0 else -1 for a in lies])
            along = frozenset(a for a in own if a >= 0)
            if node.op.name == "random_keep":
                self.draws, varies = True, along
            self.along[value] = varies & along
            late = kind in ("column", "both") or (node.op.name == "astype" and narrow(value.dtype))
            if isinstance(rule, Rows) and not rule.columns and "n" in rule.gives:
                late = late or rule.gives[value.index] == "n"
            if late:
                self.complete.add(value)

    def varies(self, value: Value) -> bool:
        """Whether a value of this region differs along all of its axes."""
        return self.along[value] == frozenset(a for a in self.maps[value] if a >= 0)

    # Two that become one -------------------------------------------------------------------------

    def table(self, other: Growing, member: Member) -> Axes | None:
        """The axis here for each of another region's, whose values a new member reads.

        None where they do not tell all, or in another order.
        """
        found: list[int] = [-1] * len(other.sizes)
        at = BY_ADDRESS.get(member.node.op.name)
        if at is not None and member.node.inputs[at] in other.maps:
            return None
        for x, lies in zip(member.node.inputs, member.walk.inputs, strict=True):
            if type(x) is not Value or x not in other.maps:
                continue
            if x in other.complete or x in self.addressed:
                return None
            if member.walk.reduced is not None and not other.varies(x):
                return None
            for old, axis in zip(other.maps[x], lies, strict=True):
                if old >= 0:
                    if found[old] not in (-1, member.axes[axis]):
                        return None
                    found[old] = member.axes[axis]
        return None if -1 in found or found != sorted(set(found)) else tuple(found)

    def joinable(
        self, others: Sequence[Growing], member: Member, statements: int
    ) -> dict[Growing, Axes]:
        """Those of the other regions that can become one with this one, each with its table.

        ``statements`` are those of the new member.
        """
        found: dict[Growing, Axes] = {self: tuple(self._all())}
        rows, columns = self.effect(member)
        rows, columns = self.rows or rows, [*self.columns, *columns]
        statements += self.statements
        draws, read = self.draws, set(self.read)
        for other in others:
            table = self.table(other, member)
            if table is None or other.device != self.device:
                continue
            rows_now = rows or tuple([table[a] for a in other.rows])
            columns_now = [*columns, *(frozenset(table[a] for a in c) for c in other.columns)]
            read_now = read | other.read.keys()
            draws_now = draws or other.draws
            if (
                statements + other.statements <= STATEMENTS
                and len(read_now) <= STREAMS
                and (not other.rows or tuple([table[a] for a in other.rows]) == rows_now)
                and (len(table) == len(self.sizes) or self._of_rows(other, table, rows_now))
                and self._fits(rows_now, columns_now, draws_now)
                and all(
                    _agree(other, table, r, t) and _agree(r, t, other, table)
                    for r, t in found.items()
                )
            ):
                found[other] = table
                statements += other.statements
                rows, columns, read, draws = rows_now, columns_now, read_now, draws_now
        del found[self]
        return found

    def _of_rows(self, other: Growing, table: Axes, rows: Axes) -> bool:
        """Whether another region's values are the same for all elements of a row.

        They are computed once for each row then, and not for each element.
        """
        if other.rows or other.columns or other.draws or not table:
            return False
        last = rows or self._last(1)
        return table == tuple(range(len(table))) and set(table).isdisjoint(last)

    def join(self, other: Growing, table: Axes) -> None:
        """Take all of another region in."""
        moved = [m._replace(axes=_turned(m.axes, table)) for m in other.members]
        self.members = sorted([*self.members, *moved], key=lambda m: m.at)
        self.maps.update((x, _turned(own, table)) for x, own in other.maps.items())
        self.along.update((x, frozenset(table[a] for a in own)) for x, own in other.along.items())
        self.complete |= other.complete
        both = {
            x
            for x in other.read
            if x in self.read and self.read[x] != _turned(other.read[x], table)
        }
        self.crossed |= other.crossed | both
        self.read.update((x, _turned(own, table)) for x, own in other.read.items())
        self.read = {x: own for x, own in self.read.items() if x not in self.maps}
        self.addressed |= other.addressed
        self.rows = self.rows or _turned(other.rows, table)
        self.columns += [frozenset(table[a] for a in c) for c in other.columns]
        self.draws = self.draws or other.draws
        self.statements += other.statements
        self.last = max(self.last, other.last)
        self.escapes = (self.escapes | other.escapes) - {self, other}
        other.members = []

    # Whether it pays -----------------------------------------------------------------------------

    def pays(self, border: int) -> bool:
        """Whether one call of a kernel costs less than those of the nodes."""
        size = prod(self.sizes)
        real = [m.node for m in self.members if m.node.op.views != "all"]
        if not size or not real:
            return False
        calls = sum(map(_calls, real))
        if size < border:
            least = SEVERAL if size * 8 >= border else MANY
            return calls >= least and (size >= TINY or real[0].op.name in STEPS)
        # What is one call of NumPy stays one; what is several becomes one.
        return calls > 1 or size >= SHARED


def _calls(node: Node) -> int:
    """About how many calls of NumPy a node costs where it is no region."""
    op = node.op
    if op.name in STEPS:
        return STEPS[op.name]
    if isinstance(op.scalar, Rows):
        return 1 if op.scalar.columns else 6
    if op.family == "rows":
        return 5
    return 3 if callable(op.scalar) and op.ufunc is None else 1


def _agree(one: Growing, table: Axes, other: Growing, own: Axes) -> bool:
    """Whether a region reads what another one makes along the very axes that it is made along."""
    for x, axes in one.read.items():
        made = other.maps.get(x)
        if made is None:
            continue
        if x in other.complete or x in one.crossed or x in one.addressed:
            return False
        if not other.varies(x):
            return False  # it may be reduced along axes along which it is the same
        if _turned(axes, table) != _turned(made, own):
            return False
    return True


def _turned(axes: Axes, table: Axes) -> Axes:
    return tuple([table[a] if a >= 0 else -1 for a in axes])
