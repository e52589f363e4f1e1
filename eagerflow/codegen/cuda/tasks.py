"""Tasks: the launches of a region, in a valid order.

A launch cannot synchronize all of its blocks, so values that depend on all rows need a separate
launch. There are four kinds: ``elements`` (no reductions), ``rows`` (each row by the threads of a
warp or block, with everything that depends on its reductions), ``chunks`` (a piece of a long row by
each block, one number for each piece) and ``columns`` (a piece of the columns by each block).
Values for later tasks are kept in buffers, which are named like the value, with ``%`` before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eagerflow.codegen.region import (
    REDUCTIONS,
    Input,
    LoopNest,
    Output,
    Region,
    Statement,
    dependencies,
)
from eagerflow.codegen.schedule import Schedule
from eagerflow.runtime.properties import cached_property

CHUNK = "chunk of it"
"""The axis of partial results; its name contains blanks, so no region's axis has it."""


def identifier(name: str) -> str:
    """A name as an identifier in the code."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


@dataclass(frozen=True)
class Task(LoopNest):
    """One launch: its inputs, statements and outputs, and the axes that it traverses.

    ``inner`` are the axes of a row (of the columns, in a task of columns); names of inputs and
    outputs that begin with ``%`` are buffers.
    """

    kind: str
    outer: tuple[str, ...]
    inner: tuple[str, ...]
    inputs: tuple[Input, ...]
    body: tuple[Statement, ...]
    outputs: tuple[Output, ...]

    @property
    def space(self) -> tuple[str, ...]:
        """All axes."""
        return (*self.outer, *self.inner)

    @property
    def row_axes(self) -> tuple[str, ...]:
        """The axes of a row."""
        return self.inner

    @cached_property
    def schedule(self) -> Schedule:
        """The passes over a row."""
        return Schedule(self)

    @cached_property
    def reductions(self) -> list[Statement]:
        """The statements that reduce."""
        return [s for s in self.body if s.instruction in REDUCTIONS]

    @cached_property
    def extents(self) -> list[Statement]:
        """The statements that return the size of an axis."""
        return [s for s in self.body if s.instruction == "extent"]

    @property
    def inplace(self) -> frozenset[str]:
        """Names of the inputs that are overwritten."""
        return frozenset(o.inplace for o in self.outputs if o.inplace)


def plan(region: Region, split: bool, direct: bool) -> tuple[Task, ...]:
    """The tasks of a region, in order.

    ``split`` cuts rows into chunks, ``direct`` means that columns need no second stage; if an input
    is overwritten they have one nevertheless, so that all reads come before it.
    """
    return tuple(_Planner(region, split, direct).tasks())


_Groups = dict[tuple[str, ...], list[Output]]  # by the axes of a task


class _Planner:
    def __init__(self, region: Region, split: bool, direct: bool) -> None:
        self.region, self.split = region, split
        self.columns = [*region.columns.values()]
        self.outputs = [o for o in region.outputs if o.value not in region.columns]
        inplace = any(o.inplace for o in region.outputs)
        self.direct = direct and not inplace
        self.merge = not inplace  # rows may write outputs before the columns have been read
        self.saved: set[str] = set()  # values of rows in buffers

    def tasks(self) -> Iterable[Task]:
        self.wanted = self._to_save()
        if self.split:
            yield from self._levels()
        rows, elements = self._groups()
        if not self.split:
            yield from self._rows(rows if self.merge else {}, self.wanted)
            self.saved |= self.wanted
        finishing = []
        for group in self._column_groups():
            task, finish = self._column_tasks(group)
            yield task
            finishing += finish
        if not self.merge:
            yield from self._rows(rows, set())
        for space, outs in sorted(elements.items(), key=lambda pair: -len(pair[0])):
            yield self._task("elements", space[:-1], space[-1:], outs)
        yield from finishing

    # What depends on what ------------------------------------------------------------------------

    def _needs(self, names: Iterable[str], known: set[str]) -> set[str]:
        """The values that these are computed from, including themselves, down to known ones."""
        return dependencies(
            names, lambda n: () if n in known else self.region.statement(n).operands
        )

    def _reductions(self, names: Iterable[str], known: set[str]) -> list[str]:
        """The row reductions that these values need, except known ones."""
        return [
            s.name
            for s in self.region.body
            if s.name in self._needs(names, known) - known and self.region.is_row_reduction(s)
        ]

    def _frontier(self, names: Iterable[str]) -> set[str]:
        """The per-row numbers, made from reductions, that these values use directly."""
        row = set(self.region.row_axes)
        every = {
            s.name
            for s in self.region.body
            if not row & set(s.axes) and self._reductions([s.name], set())
        }
        return self._needs(names, every) & every

    def _to_save(self) -> set[str]:
        """Per-row numbers that go through buffers: used by columns, or by outputs of other axes."""
        found = self._frontier(str(c.operands[0]) for c in self.columns)
        row = set(self.region.row_axes)
        for out in self.outputs:
            if self._reductions([out.value], set()) and 0 < len(row & set(out.axes)) < len(row):
                found |= self._frontier([out.value])
        return found

    # Rows ----------------------------------------------------------------------------------------

    def _groups(self) -> tuple[_Groups, _Groups]:
        """Outputs of tasks of rows, and of elements, by the axes of the writing task."""
        row = set(self.region.row_axes)
        rows: _Groups = {}
        elements: _Groups = {}
        known = self.wanted if self.split or not self.merge else set()
        odd = [o for o in self.outputs if 0 < len(row & set(o.axes)) < len(row)]
        for out in self.outputs:
            if out not in odd and self._reductions([out.value], known):
                rows[self._ordered({*out.axes, *row})] = []
        for out in self.outputs:
            whole = self._ordered({*out.axes, *row})
            if out not in odd and whole in rows:
                rows[whole].append(out)
            else:
                elements.setdefault(out.axes, []).append(out)
        return rows, elements

    def _ordered(self, axes: Iterable[str]) -> tuple[str, ...]:
        given = set(axes)
        return tuple(a for a in self.region.axes if a in given)

    def _rows(self, groups: _Groups, saved: set[str]) -> Iterable[Task]:
        """Tasks of rows: the outputs of these groups, and the reductions to be kept."""
        row = self.region.row_axes
        spaces = {space: list(outs) for space, outs in groups.items()}
        for name in sorted(saved):
            part = self.region.statement(name)
            kept = Output(f"%{name}", name, part.dtype, part.axes)
            spaces.setdefault(self._ordered({*part.axes, *row}), []).append(kept)
        for space, outs in sorted(spaces.items(), key=lambda pair: -len(pair[0])):
            outer = tuple(a for a in space if a not in row)
            yield self._task("rows", outer, row, outs)

    def _levels(self) -> Iterable[Task]:
        """Long rows: for each level of reductions partial results, then their totals."""
        values = [o.value for o in self.outputs]
        todo = self._reductions([*values, *(str(c.operands[0]) for c in self.columns)], set())
        row = self.region.row_axes
        while todo:
            ready = [
                name for name in todo if not self._reductions(self._operands(name), self.saved)
            ]
            spaces: dict[tuple[str, ...], list[str]] = {}
            for name in ready:
                spaces.setdefault(self.region.statement(name).axes, []).append(name)
            for outer, names in spaces.items():
                parts = [self._partial(name, (*outer, CHUNK)) for name in names]
                yield self._task("chunks", outer, row, parts)
                yield self._total("rows", outer, (CHUNK,), names)
            self.saved |= set(ready)
            todo = [name for name in todo if name not in ready]
        self.wanted = set(self.saved)

    def _operands(self, name: str) -> list[str]:
        return [o for o in self.region.statement(name).operands if isinstance(o, str)]

    def _partial(self, name: str, axes: tuple[str, ...]) -> Output:
        return Output(f"%{name} in parts", name, self.region.statement(name).dtype, axes)

    def _total(
        self,
        kind: str,
        outer: tuple[str, ...],
        inner: tuple[str, ...],
        names: list[str],
        outputs: Iterable[Output] | None = None,
    ) -> Task:
        """The task that reduces partial results to totals."""
        inputs, body = [], []
        for name in names:
            part = self.region.statement(name)
            assert isinstance(part, Statement)
            parts = Input(f"%{name} in parts", part.dtype, (*outer, *inner))
            inputs.append(parts)
            body.append(
                Statement(name, part.instruction, (parts.name,), part.dtype, part.axes, (CHUNK,))
            )
        if outputs is None:
            outputs = [Output(f"%{s.name}", s.name, s.dtype, s.axes) for s in body]
        return Task(kind, outer, inner, tuple(inputs), tuple(body), tuple(outputs))

    # Columns -------------------------------------------------------------------------------------

    def _column_groups(self) -> list[list[Statement]]:
        """Column reductions over the same axes."""
        groups: dict[object, list[Statement]] = {}
        for c in self.columns:
            groups.setdefault((c.over, c.axes), []).append(c)
        return list(groups.values())

    def _column_tasks(self, group: list[Statement]) -> tuple[Task, list[Task]]:
        over, axes = group[0].over, group[0].axes
        outputs: list[Output] = []
        later: list[Output] = []
        for out in self.region.outputs:
            if out.value in {c.name for c in group}:
                (outputs if out.axes == axes else later).append(out)
        kept = [
            Output(f"%{n}", n, self.region.statement(n).dtype, axes)
            for n in dict.fromkeys(o.value for o in later)
        ]
        finish: list[Task] = []
        if self.direct:
            first = self._task("columns", over, axes, [*outputs, *kept])
        else:
            names = [c.name for c in group]
            parts = [self._partial(name, (CHUNK, *axes)) for name in names]
            first = self._task("columns", over, axes, parts)
            finish.append(self._total("columns", (CHUNK,), axes, names, [*outputs, *kept]))
        for out in later:  # a total broadcast along axes that it does not have
            part = Input(f"%{out.value}", self.region.statement(out.value).dtype, axes)
            given = Output(out.name, part.name, out.dtype, out.axes, out.inplace)
            finish.append(Task("elements", out.axes[:-1], out.axes[-1:], (part,), (), (given,)))
        return first, finish

    # One task ------------------------------------------------------------------------------------

    def _task(
        self, kind: str, outer: tuple[str, ...], inner: tuple[str, ...], outputs: Iterable[Output]
    ) -> Task:
        outputs = tuple(outputs)
        needed = self._needs([o.value for o in outputs], self.saved)
        inputs = [p for p in self.region.inputs if p.name in needed]
        body = []
        for part in self.region.body:
            if part.name not in needed:
                continue
            if part.name in self.saved:
                inputs.append(Input(part.name, part.dtype, part.axes))
            else:
                body.append(part)
        return Task(kind, outer, inner, tuple(inputs), tuple(body), outputs)
