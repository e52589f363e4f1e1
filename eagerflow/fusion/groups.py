"""Fusion groups: sets of a graph's nodes, each computed by one generated kernel.

Nodes are visited once, in order. A node that a kernel can compute joins the group that
makes its operands, or one that reads the same arrays, or else starts a new one. Groups
are numbered as they start, and every value has a *level*: the highest number of a group that
it depends on. A node may join a group only if all its operands from outside have a lower
level. So groups only depend on ones with lower numbers, and no cycle can arise.

All values of a group lie along axes of one index space, that of its first node.
Results along its last axes, or along some that are adjacent, are reduced row by row
and may be used again in the row; those along its first axes are complete only when the kernel
ends, as are values that are to be rounded to a small float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from eagerflow.fusion.access import AccessMap, Axes, Number, access_map, composed, real_axes
from eagerflow.fusion.kernels import CLASS_OPS, FusedKernel, Member, Step, statement_count
from eagerflow.fusion.lowering import fill_value, is_storage_only, without_inputs
from eagerflow.graph.costs import stated_cost
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.op import Into, Op
from eagerflow.ops.creation.cast import astype
from eagerflow.ops.creation.draws import random_keep
from eagerflow.ops.family import Rows

MAX_STATEMENTS = 120  # of one kernel: beyond, compilation is slow
MAX_INPUTS = 24  # arrays that one kernel reads
MAX_SHORT_COLUMN = 16  # elements; shorter columns are added up in registers, side by side
MAX_DISTANCE_NODES = 128  # maximum distance of fused nodes that are independent of each other

MIN_FUSED_ELEMENTS = 1 << 12
"""Elements from which one call of a kernel is faster than the calls of its nodes."""
MIN_SEGMENT_STEPS = 6
"""Consecutive steps from which compiling small ones too is worthwhile, in one call."""
MIN_SHARED_ELEMENTS = 1 << 16  # from which a kernel is run by several threads
MIN_ELEMENTS = 16  # of arrays for which more than the steps of optimizers are fused
MIN_CALLS, MIN_CALLS_OF_FEW = 4, 12
"""NumPy calls from which one kernel call is faster: below MIN_FUSED_ELEMENTS, and far below."""

_MEMORY_INPUTS = {random_keep: 0, **dict.fromkeys(CLASS_OPS, 1)}
"""Ops with an argument that must be in memory before the kernel starts, and its position."""


IsLoop = Callable[[Node], bool]
"""A predicate for loops in machine code, each as a step of a segment."""


class _Candidate(NamedTuple):
    """A node that a group may add.

    ``uniform`` are values that it can read as numbers; it has about ``statements`` statements.
    """

    node: Node
    access: AccessMap
    position: int
    uniform: dict[Value, Number]
    statements: int


@dataclass(eq=False, slots=True)
class FusionGroup:
    """Nodes that will become one kernel: the members, and the axes of each of their values."""

    number: int
    sizes: tuple[int, ...]
    device: str | None
    host: bool  # whether kernels run on the CPU
    members: list[Member] = field(default_factory=list)
    made: dict[Value, Axes] = field(default_factory=dict)
    """The axes of each value computed in the group."""
    varying: dict[Value, frozenset[int]] = field(default_factory=dict)
    """The axes along which it actually varies."""
    complete: set[Value] = field(default_factory=set)  # values that are only complete at the end
    read: dict[Value, Axes] = field(default_factory=dict)
    """Values from outside, with the axes of the last read."""
    read_across: set[Value] = field(default_factory=set)
    """Outside values that are read along several axes."""
    in_memory: set[Value] = field(default_factory=set)  # values that must be in memory
    consumers: set[FusionGroup | None] = field(default_factory=set)
    """Readers of its values; None stands for a single node."""
    row_axes: Axes = ()
    column_axes: list[frozenset[int]] = field(default_factory=list)
    draws: bool = False  # random numbers, counted along all axes
    statements: int = 0
    position: int = 0  # of the last member

    # Whether a node fits -------------------------------------------------------------------------

    def member(self, candidate: _Candidate, sibling: bool) -> Member | None:
        """The node as a member of this group, None if it cannot be one.

        A ``sibling`` reads the same arrays as the group, and has all of its axes.
        """
        node, access, position, uniform, _ = candidate
        if _memory_input(node) in self.made:
            return None
        axes = self._axes(node, access)
        if axes is None or (sibling and access.space != self.sizes):
            return None
        new = {x for x in node.values() if x not in self.made and x not in uniform}
        if len(self.read.keys() | new) > MAX_INPUTS:
            return None
        kind: str | None = ""
        if access.reduced is not None:
            kind = self._kind(node, access, axes)
        elif node.op.call is random_keep and (
            not self.sizes
            or self.row_axes != self._last(len(self.row_axes))
            or real_axes(axes) != self._all()
        ):
            return None  # its numbers are counted along all axes, in their order in memory
        return None if kind is None else Member(node, access, axes, kind, position)

    def _all(self) -> Axes:
        return tuple(range(len(self.sizes)))

    def _last(self, count: int) -> Axes:
        return self._all()[len(self.sizes) - count :]

    def _axes(self, node: Node, access: AccessMap) -> Axes | None:
        """The group's axis for each axis of a node, -1 for those of size 1."""
        found: list[int | None] = [None if n != 1 else -1 for n in access.sizes]
        for x, axes in zip(node.inputs, access.inputs, strict=True):
            if type(x) is not Value or x not in self.made:
                continue
            if x in self.complete or not _unify(found, axes, self.made[x]):
                return None
        hinted = found[:]
        if self._hint(node, access, hinted):
            filled = self._fill(hinted, access.sizes)
            if filled is not None:
                return filled
        return self._fill(found, access.sizes)

    def _hint(self, node: Node, access: AccessMap, found: list[int | None]) -> bool:
        """Reuse the axes of earlier reads of outside arrays; False if they conflict."""
        for x, axes in zip(node.inputs, access.inputs, strict=True):
            before = self.read.get(x) if type(x) is Value else None
            if before is not None and len(before) == len(axes) and not _unify(found, axes, before):
                return False
        return True

    def _fill(self, found: list[int | None], sizes: tuple[int, ...]) -> Axes | None:
        """Fill the undetermined axes, from the last one on; all in the group's order."""
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

    def _kind(self, node: Node, access: AccessMap, axes: Axes) -> str | None:
        """The kind of reduction of a row op here: "row", "column", "both"; None if impossible."""
        reduced = composed(access.reduced or (), axes)
        for x, own in zip(node.inputs, access.inputs, strict=True):
            # Only a value that varies along an axis can be reduced along it.
            inside = type(x) is Value and x in self.made and len(own) == len(access.sizes)
            if inside and not self.varying[x] >= frozenset(reduced):
                return None
        sums = [frozenset(real_axes(axes)) - set(reduced)] if _sums_over_rows(node.op) else []
        columns = [*self.column_axes, *sums]
        if not reduced or reduced == self.row_axes:
            return "row" if self._fits(self.row_axes, columns, self.draws) else None
        rule = node.op.scalar
        reducible = isinstance(rule, Rows) and rule.columns
        if not self.row_axes:
            first = reduced == self._all()[: len(reduced)] and len(reduced) < len(self.sizes)
            short = self.host and prod(self.sizes[a] for a in reduced) <= MAX_SHORT_COLUMN
            if reducible and first and not short:
                return "column"
            if reducible and len(reduced) > 1 and self._reads_parts(node):
                return (
                    "both" if self._fits(reduced[-1:], [frozenset(reduced[:-1])], False) else None
                )
            return "row" if self._fits(reduced, columns, self.draws) else None
        rest = frozenset(reduced) - frozenset(self.row_axes)
        columns = [*self.column_axes, rest]
        if not reducible or not rest or not self._fits(self.row_axes, columns, self.draws):
            return None
        if len(rest) == len(reduced):
            return "column"
        return "both" if len(rest) + len(self.row_axes) == len(reduced) else None

    def _reads_parts(self, node: Node) -> bool:
        """Whether an outside operand may have rows with gaps, so that they are no single row."""
        outside = [x for x in (*self.read, *node.values()) if x not in self.made]
        return self.host and any(_has_gaps(x) for x in outside)

    def _fits(self, rows: Axes, columns: list[frozenset[int]], draws: bool) -> bool:
        """Whether rows along some axes are compatible with all column reductions, and draws."""
        if rows and rows != tuple(range(rows[0], rows[0] + len(rows))):
            return False
        if draws and rows != self._last(len(rows)):
            return False
        order = [a for a in self._all() if a not in rows] or [*self._all()]
        last = frozenset(rows or order[-1:])
        return all(not c & last and c == frozenset(order[: len(c)]) for c in columns)

    def _reductions(self, member: Member) -> tuple[Axes, list[frozenset[int]]]:
        """The axes of a member's rows, and those of its column reductions."""
        if member.access.reduced is None:
            return (), []
        reduced = frozenset(composed(member.access.reduced, member.axes))
        if member.kind in ("column", "both"):
            rows = self.row_axes or (tuple(sorted(reduced))[-1:] if member.kind == "both" else ())
            return rows, [reduced - frozenset(rows)]
        around = frozenset(real_axes(member.axes)) - reduced
        sums = [around] if _sums_over_rows(member.node.op) and reduced and around else []
        return tuple(sorted(reduced)), sums

    # Adding a node -------------------------------------------------------------------------------

    def add(self, member: Member, candidate: _Candidate) -> None:
        """Add a node, as a possible member."""
        node, access, axes, kind, position = member
        self.members.append(member)
        self.statements += candidate.statements
        self.position = position
        rows, columns = self._reductions(member)
        self.row_axes = self.row_axes or rows
        self.column_axes += columns
        varying: frozenset[int] = frozenset()
        for x, lies in zip(node.inputs, access.inputs, strict=True):
            if type(x) is not Value or x in candidate.uniform:
                continue
            if x in self.made:
                varying |= self.varying[x]
                continue
            own = composed(lies, axes)
            if self.read.setdefault(x, own) != own:
                self.read_across.add(x)
                self.read[x] = own
            varying |= frozenset(real_axes(own))
        memory_input = _memory_input(node)
        if memory_input is not None:
            self.in_memory.add(memory_input)
        rule = node.op.scalar
        for value, lies in zip(node.outputs, access.outputs, strict=True):
            own = self.made[value] = composed(lies, axes)
            along = frozenset(real_axes(own))
            if node.op.call is random_keep:
                self.draws, varying = True, along
            self.varying[value] = varying & along
            rounded = node.op.call is astype and is_storage_only(value.dtype)
            summed = isinstance(rule, Rows) and rule.gives[value.index] == "n"
            if kind in ("column", "both") or rounded or summed:
                self.complete.add(value)

    def varies(self, value: Value) -> bool:
        """Whether a value of this group differs along all of its axes."""
        return self.varying[value] == frozenset(real_axes(self.made[value]))

    # Merging groups ------------------------------------------------------------------------------

    def _axis_map(self, other: FusionGroup, member: Member) -> Axes | None:
        """The axes here for those of another group whose values a new member reads.

        None if they are not all determined, or in another order.
        """
        found: list[int | None] = [None] * len(other.sizes)
        if _memory_input(member.node) in other.made:
            return None
        for x, lies in zip(member.node.inputs, member.access.inputs, strict=True):
            if type(x) is not Value or x not in other.made:
                continue
            if x in other.complete or x in self.in_memory:
                return None
            if member.access.reduced is not None and not other.varies(x):
                return None
            if not _unify(found, other.made[x], composed(lies, member.axes)):
                return None
        known = [a for a in found if a is not None]
        return tuple(known) if len(known) == len(found) and known == sorted({*known}) else None

    def mergeable(
        self, others: Sequence[FusionGroup], member: Member, statements: int
    ) -> dict[FusionGroup, Axes]:
        """The groups that can be merged with this one, each with its axis map.

        ``statements`` are those of the new member.
        """
        found: dict[FusionGroup, Axes] = {self: self._all()}
        rows, columns = self._reductions(member)
        rows, columns = self.row_axes or rows, [*self.column_axes, *columns]
        statements += self.statements
        draws, read = self.draws, set(self.read)
        for other in others:
            axes = self._axis_map(other, member)
            if axes is None or other.device != self.device:
                continue
            rows_now = rows or composed(other.row_axes, axes)
            columns_now = [*columns, *(frozenset(composed(c, axes)) for c in other.column_axes)]
            read_now = read | other.read.keys()
            draws_now = draws or other.draws
            if (
                statements + other.statements <= MAX_STATEMENTS
                and len(read_now) <= MAX_INPUTS
                and (not other.row_axes or composed(other.row_axes, axes) == rows_now)
                and (len(axes) == len(self.sizes) or self._is_per_row(other, axes, rows_now))
                and self._fits(rows_now, columns_now, draws_now)
                and all(
                    _agree(other, axes, g, own) and _agree(g, own, other, axes)
                    for g, own in found.items()
                )
            ):
                found[other] = axes
                statements += other.statements
                rows, columns, read, draws = rows_now, columns_now, read_now, draws_now
        del found[self]
        return found

    def _is_per_row(self, other: FusionGroup, axes: Axes, rows: Axes) -> bool:
        """Whether another group's values are the same for all elements of a row.

        They are computed once for each row then, and not for each element.
        """
        if other.row_axes or other.column_axes or other.draws or not axes:
            return False
        last = rows or self._last(1)
        return axes == tuple(range(len(axes))) and set(axes).isdisjoint(last)

    def merge(self, other: FusionGroup, axes: Axes) -> None:
        """Merge another group into this one; ``axes`` are its axes here."""
        moved = [m._replace(axes=composed(m.axes, axes)) for m in other.members]
        self.members = sorted([*self.members, *moved], key=lambda m: m.position)
        self.made.update((x, composed(own, axes)) for x, own in other.made.items())
        self.varying.update((x, frozenset(composed(a, axes))) for x, a in other.varying.items())
        self.complete |= other.complete
        read = {x: composed(own, axes) for x, own in other.read.items()}
        across = {x for x, own in read.items() if self.read.get(x, own) != own}
        self.read_across |= other.read_across | across
        self.read = {x: own for x, own in (self.read | read).items() if x not in self.made}
        self.in_memory |= other.in_memory
        self.row_axes = self.row_axes or composed(other.row_axes, axes)
        self.column_axes += [frozenset(composed(c, axes)) for c in other.column_axes]
        self.draws = self.draws or other.draws
        self.statements += other.statements
        self.position = max(self.position, other.position)
        self.consumers = (self.consumers | other.consumers) - {self, other}
        other.members = []

    # Whether it pays -----------------------------------------------------------------------------

    def computes(self) -> bool:
        """Whether there is anything to compute."""
        return prod(self.sizes) > 0 and any(m.node.op.views != "all" for m in self.members)

    def pays(self, min_elements: int) -> bool:
        """Whether one call of a kernel is faster than those of the nodes."""
        if not self.computes():
            return False
        size = prod(self.sizes)
        real = [m.node for m in self.members if m.node.op.views != "all"]
        calls = sum(_numpy_calls(x) for x in real)
        if size < min_elements:
            least = MIN_CALLS if size * 8 >= min_elements else MIN_CALLS_OF_FEW
            return calls >= least and (size >= MIN_ELEMENTS or real[0].op.family == "update")
        # A single NumPy call is kept; several are merged into one.
        return calls > 1 or size >= MIN_SHARED_ELEMENTS


def _memory_input(node: Node) -> Value | None:
    """The input of a node that must be in memory before its kernel starts, else None."""
    position = _MEMORY_INPUTS.get(node.op.call)
    return None if position is None else node.inputs[position]


def _has_gaps(x: object) -> bool:
    """Whether a value may be a part of another one, with gaps between its rows."""
    if not isinstance(x, Value) or x.node is None or len(x.shape) < 2 or len(x.node.inputs) > 1:
        return False
    op = x.node.op
    views = op.aliases and op.views != "all" and op.family in ("shape", "indexing")
    return views and x.shape[1:] != x.node.inputs[0].shape[1:]


def _sums_over_rows(op: Op) -> bool:
    """Whether the body of a row op also returns sums over all rows."""
    return isinstance(op.scalar, Rows) and "n" in op.scalar.gives


def _numpy_calls(node: Node) -> int:
    """The approximate number of NumPy calls of a node that is not fused."""
    op = node.op
    if op.family == "update":
        return int(stated_cost(node).flops) // node.outputs[0].size
    if isinstance(op.scalar, Rows):
        return 1 if op.scalar.columns else 6
    if op.family == "rows":
        return 5
    return 3 if callable(op.scalar) and op.ufunc is None else 1


def _unify(found: list[int | None], axes: Axes, others: Axes) -> bool:
    """Map axes to axes of another space; False if that is inconsistent."""
    for axis, other in zip(axes, others, strict=True):
        if axis >= 0:
            if found[axis] is None:
                found[axis] = other
            elif found[axis] != other:
                return False
    return True


def _agree(one: FusionGroup, axes: Axes, other: FusionGroup, other_axes: Axes) -> bool:
    """Whether a group reads another one's values along the same axes as they are computed."""
    for x, read in one.read.items():
        made = other.made.get(x)
        if made is None:
            continue
        if x in other.complete or x in one.read_across or x in one.in_memory:
            return False
        if not other.varies(x):
            return False  # it may be reduced along axes where it is constant
        if composed(read, axes) != composed(made, other_axes):
            return False
    return True


class Grouping:
    """The groups of a graph under construction."""

    def __init__(self, graph: Graph, host: bool = True) -> None:
        self.graph = graph
        self.host = host
        self.groups: list[FusionGroup] = []
        self.makers: dict[Value, FusionGroup] = {}
        self.readers: dict[Value, FusionGroup] = {}  # the last group that reads a value
        self.levels: dict[Value, int] = {}
        self.uniform: dict[Value, Number] = {}  # values with equal elements
        self.highest = 0  # number of a group

    def run(self) -> None:
        """Assign each node that a kernel can compute to a group."""
        for position, node in enumerate(self.graph.nodes):
            if node.op.fills:
                # It reads nothing: see without_inputs.
                self.uniform[node.outputs[0]] = fill_value(node)
            elif node.op.views == "all" and node.inputs[0] in self.uniform:
                self.uniform[node.outputs[0]] = self.uniform[node.inputs[0]]
            elif not self._assign(node, position):
                level = max([self.level(x) for x in node.values()], default=0)
                for value in node.outputs:
                    self.levels[value] = level
                for x in node.values():
                    if x in self.makers:
                        self.makers[x].consumers.add(None)

    def level(self, value: Value) -> int:
        """The highest number of a group that a value depends on."""
        maker = self.makers.get(value)
        return self.levels.get(value, 0) if maker is None else maker.number

    def _assign(self, node: Node, position: int) -> bool:
        """Find or start a group for a node; False if there is none."""
        access = access_map(node)
        if access is None:
            return False
        uniform = {} if access.reduced is not None else self.uniform
        if uniform and all(x in uniform for x in node.values()):
            return False
        statements = statement_count(node, access, uniform)
        if statements is None:
            return False
        candidate = _Candidate(node, access, position, uniform, statements)
        parents = {self.makers[x]: None for x in node.values() if x in self.makers}
        for group in sorted(parents, key=lambda g: (-prod(g.sizes), -g.number)):
            if self._join(group, parents, False, candidate):
                return True
        if node.op.views == "all":
            return False
        readers = {self.readers[x]: None for x in node.values() if x.shape and x in self.readers}
        for group in readers:
            near = group not in parents and position - group.position <= MAX_DISTANCE_NODES
            if near and self._join(group, parents, True, candidate):
                return True
        group = FusionGroup(self.highest + 1, access.space, node.device, self.host)
        if self._join(group, parents, False, candidate):
            self.groups.append(group)
            return True
        return False

    def _join(
        self,
        group: FusionGroup,
        parents: Iterable[FusionGroup],
        sibling: bool,
        candidate: _Candidate,
    ) -> bool:
        """Add a node to a group, merging the groups of its operands."""
        node, _, position, uniform, statements = candidate
        if group.statements + statements > MAX_STATEMENTS or group.device != node.device:
            return False
        member = group.member(candidate, sibling)
        if member is None:
            return False
        others = [
            g for g in parents if g is not group and position - g.position <= MAX_DISTANCE_NODES
        ]
        merged = group.mergeable(others, member, statements) if others else {}
        while (number := self._number({group, *merged}, node, sibling)) is None:
            if not merged:
                return False
            merged.popitem()
        for other, axes in merged.items():
            self._merge(group, other, axes)
        group.number = number
        self.highest = max(self.highest, number)
        group.add(member, candidate)
        for value in node.outputs:
            self.makers[value] = group
        for x in node.values():
            maker = self.makers.get(x)
            if maker is not group and x not in uniform:
                if maker is not None:
                    maker.consumers.add(group)
                if x.shape:
                    self.readers[x] = group
        return True

    def _number(self, merged: set[FusionGroup], node: Node, sibling: bool) -> int | None:
        """The number of the merged groups with a node; None if that makes a cycle.

        A group's number can rise as long as nothing else depends on it: a dependent group may be
        an operand of the others.
        """
        outside = [self.level(x) for x in node.values() if self.makers.get(x) not in merged]
        number = max(g.number for g in merged)
        if max(outside, default=0) >= number:
            number = self.highest + 1
        for group in merged:
            if group.number < number and (sibling or not group.consumers <= merged):
                return None
        return number

    def _merge(self, group: FusionGroup, other: FusionGroup, axes: Axes) -> None:
        group.merge(other, axes)
        for value in other.made:
            self.makers[value] = group
        for x in other.read:
            if self.readers.get(x) is other:
                self.readers[x] = group
            maker = self.makers.get(x)
            if maker is not None:
                maker.consumers.discard(other)
                if maker is not group:
                    maker.consumers.add(group)


def fuse(
    graph: Graph,
    min_elements: int = MIN_FUSED_ELEMENTS,
    min_steps: int | None = None,
    is_loop: IsLoop | None = None,
) -> list[Step]:
    """The nodes of a graph of known sizes, some fused to kernels, in execution order.

    ``min_elements`` is the number of elements from which separately called kernels
    pay, ``min_steps`` the number of consecutive steps with machine code, called
    together by a segment, from which smaller ones pay too; None without segments. Next to a loop
    in machine code, selected by ``is_loop``, they always do. Views of kernel results and
    numbers that only kernels read become nodes if something outside reads them. Time and memory
    are linear in the number of nodes.
    """
    grouping = Grouping(graph)
    grouping.run()
    large = [g for g in grouping.groups if g.pays(min_elements)]
    if min_steps is None:
        return _steps(grouping, large)
    inside = {m.node for g in large for m in g.members}
    kept = [g for g in grouping.groups if g.computes()]
    found = _steps(grouping, kept)
    brief = {
        node
        for row in native_rows(found, is_loop)
        if not is_worth_code(row, min_steps, is_loop)
        for step in row
        if isinstance(step, FusedKernel)
        for node in step.nodes
    }
    brief -= inside
    if not brief:
        return found
    return _steps(grouping, [g for g in kept if brief.isdisjoint(m.node for m in g.members)])


def fuse_for_device(graph: Graph) -> list[Step]:
    """The same for kernels launched on a device, where the cost is independent of the size.

    Everything that a region supports becomes one, even a single node: our kernels can be recorded.
    """
    grouping = Grouping(graph, host=False)
    grouping.run()
    return _steps(grouping, [group for group in grouping.groups if group.computes()])


def into_of(node: Node) -> Into | None:
    """A function that writes the results of a node into given memory."""
    if node.op.into is None or not all(x is None or type(x) is Value for x in node.inputs):
        return None
    found: Into | None = node.op.into(*node.inputs, **node.attributes)
    if found is None or not all(x.dtype.char in found.types for x in node.values()):
        return None
    return found


def native_rows(steps: Sequence[Step], is_loop: IsLoop | None = None) -> list[list[Step]]:
    """Consecutive steps with machine code; views and fills do not separate them."""
    found: list[list[Step]] = [[]]
    for step in steps:
        if not isinstance(step, Node) or into_of(step) is not None or (is_loop and is_loop(step)):
            found[-1].append(step)
        elif step.op.family != "shape" and not is_part(step) and not waits_for_nothing(step):
            found.append([])
    return found


def waits_for_nothing(node: Node) -> bool:
    """Whether a node fills an array with one number, and reads none."""
    return bool(node.op.fills) and not any(True for _ in node.values())


def is_part(node: Node) -> bool:
    """Whether a node returns a view of a part of an array.

    No index is an array, and the result has axes, as a single element would be copied.
    """
    return node.op.name == "getitem" and len(node.inputs) == 1 and bool(node.outputs[0].shape)


def is_worth_code(row: Sequence[Step], min_steps: int, is_loop: IsLoop | None) -> bool:
    """Whether consecutive steps are compiled, however small they are."""
    loops = is_loop and any(isinstance(step, Node) and is_loop(step) for step in row)
    return bool(len(row) >= min_steps or loops)


def _steps(grouping: Grouping, kept: Sequence[FusionGroup]) -> list[Step]:
    """The steps after these groups become kernels."""
    graph = grouping.graph
    inside = {m.node for g in kept for m in g.members}
    uniform = grouping.uniform
    needed = set(graph.all_outputs())
    for node in graph.nodes:
        if node not in inside and not (node.outputs and node.outputs[0] in uniform):
            needed.update(node.values())
    for group in kept:
        needed.update(group.read)
    outside = []
    for node in reversed(graph.nodes):
        if node.op.fills:
            if node.outputs[0] in needed:
                outside.append(without_inputs(node))
        elif node.op.views == "all" and (node in inside or node.outputs[0] in uniform):
            if node.outputs[0] in needed:
                outside.append(node)
                needed.update(node.values())
        elif node not in inside:
            outside.append(node)
    kernels = []
    for group in kept:
        nodes = [m.node for m in group.members if m.node.op.views != "all"]
        values = [v for node in nodes for v in node.outputs if v in needed]
        if values:
            kernels.append(FusedKernel(group.sizes, group.row_axes, group.members, values, uniform))
    return ordered(graph, outside, kernels)


def ordered(graph: Graph, nodes: list[Node], kernels: list[FusedKernel]) -> list[Step]:
    """Steps in a valid order of execution, each at the position of its last node."""
    makers: dict[Value, Step] = {v: k for k in kernels for v in k.outputs}
    makers |= {v: n for n in nodes for v in n.outputs}
    ends: dict[Value, Step] = {k.nodes[-1].outputs[0]: k for k in kernels}
    ends |= {n.outputs[0]: n for n in nodes if n.outputs}
    found: list[Step] = []
    done: set[Step] = set()
    steps = [ends.get(n.outputs[0]) if n.outputs else n for n in graph.nodes]
    for step in (*steps, *kernels):
        todo: list[Step] = [] if step is None or step in done else [step]
        while todo:
            own = todo[-1]
            given = own.values() if isinstance(own, Node) else own.inputs
            waiting = [makers[x] for x in given if x in makers and makers[x] not in done]
            if waiting and own not in done:
                todo += waiting
                continue
            todo.pop()
            if own not in done:
                done.add(own)
                found.append(own)
    return found
