"""Shards: a step's graph with large tables stored as contiguous shards of their rows.

Rows are read from each shard, and written to each; indices outside of it refer to a row after
its own rows, so that shapes do not depend on indices. Updates from old rows to new ones are copied
for each shard, so that they can run on its device. Nodes that read or change the whole table
get all shards joined, or assign each its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.capture.passes.rewriting import Sweep
from eagerflow.cluster.row_access import lowest_row, row_updates, rows_read, written_tables
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value
from eagerflow.ops.elementwise.comparison import less
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.indexing.indexing import getitem
from eagerflow.ops.indexing.shards import shard_rows
from eagerflow.ops.indexing.updating import index_set
from eagerflow.ops.shapes.joining import concat
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.variable import Variable

__all__ = ["Shard", "in_shards"]

_ROWS = ("array",)


class Shard(NamedTuple):
    """Rows of a table from ``begin`` to before ``end``, in a Variable with one additional row."""

    begin: int
    end: int
    variable: Variable

    def of(self, whole: Any) -> Any:
        """The shard's rows of the whole table's values."""
        own = whole[self.begin : self.end]
        return np.concatenate([own, np.zeros_like(own[:1])])


def in_shards(graph: Graph, shards: Mapping[Variable, Sequence[Shard]]) -> Graph:
    """The graph of a step with ``shards`` in place of the tables that have them."""
    tables = {cell.value: cell for cell in graph.cells if cell.variable in shards}
    return _Sharded(graph, tables, shards).made() if tables else graph


class _Sharded(Sweep):
    """A sweep that replaces tables by shards, by the tables' values in the graph."""

    def __init__(
        self,
        graph: Graph,
        tables: Mapping[Value, Cell],
        shards: Mapping[Variable, Sequence[Shard]],
    ) -> None:
        super().__init__("shards", graph, {}, {})
        self._tables = tables
        self._sharded = {cell.variable for cell in tables.values()}
        self._shards = {v: shards[cell.variable] for v, cell in tables.items()}
        self._cells = {
            v: [
                Cell(f"{cell.name}/shard_{i}", shard.variable, self._entry(cell, i, shard))
                for i, shard in enumerate(self._shards[v])
            ]
            for v, cell in tables.items()
        }
        first = next(iter(tables))
        self.root = Node(getitem.op, (first,), {}, first.name)  # for nodes without an original
        self.root.outputs = (first,)
        self._rows: dict[tuple[Any, ...], Value] = {}
        """The positions of rows in a shard, by indices and the start of the shard."""
        count = max(map(len, self._shards.values()))
        self._own: list[dict[Value, Value]] = [{} for _ in range(count)]
        """Replacements of values in each shard, for values between old rows and new ones."""

    def _entry(self, cell: Cell, i: int, shard: Shard) -> Value:
        shape = shard.end - shard.begin + 1, *cell.value.shape[1:]
        return cell.value.like(None, f"{cell.name}/shard_{i}", shape)

    def made(self) -> Graph:
        """The graph."""
        written: dict[Node, Value] = {}
        updates: set[Node] = set()
        for ids, cells in written_tables(self.graph).items():
            own = {write: c.value for c, write in cells.items() if c.value in self._tables}
            written.update(own)
            if len(own) == len(cells) and len({self._ends(v) for v in own.values()}) == 1:
                updates |= row_updates(self.graph, ids, own)
        for node in self.graph.nodes:
            self.root = node
            by_rows = node in written or self._reads(node)
            self._join(node.inputs[1:] if by_rows else node.inputs)
            if node in written:
                self._write(node, written[node])
            elif node in updates:
                self._update(node)
            elif by_rows:
                self._read(node)
            else:
                self.nodes.append(self.current(node))
        self._join(self.graph.all_outputs())
        for value, cell in self._tables.items():
            if cell.assigned is not None and cell.assigned.node not in written:
                self._split(value, cell.assigned)
        made = self.graph.like(self.nodes, self.new)
        kept = [cell for cell in made.cells if cell.variable not in self._sharded]
        made.cells = (*kept, *(cell for own in self._cells.values() for cell in own))
        return made

    def _reads(self, node: Node) -> bool:
        """Whether a node takes rows of a sharded table."""
        return rows_read(node) and node.inputs[0] in self._tables

    def _ends(self, table: Value) -> tuple[int, ...]:
        return tuple(shard.end for shard in self._shards[table])

    def _each(self, table: Value) -> Iterable[tuple[Shard, Cell]]:
        return zip(self._shards[table], self._cells[table], strict=True)

    def _place(self, ids: Any, shard: Shard, table: Value) -> Value:
        """The positions in a shard of table rows that the root reads or writes."""
        ids = self.new.get(ids, ids)
        rows, low = table.shape[0], lowest_row(self.root)
        key = ids, shard.begin, rows, low
        found = self._rows.get(key)
        if found is None:
            ends = {"begin": shard.begin, "end": shard.end, "rows": rows, "low": low}
            found = self._rows[key] = self.make(shard_rows, ids, **ends)
        return found

    def _read(self, node: Node) -> None:
        """Read rows of each shard, and select those that belong to it."""
        table, ids = node.inputs
        found = None
        for shard, cell in self._each(table):
            places = self._place(ids, shard, table)
            part = self.make(take, cell.value, places, axis=0)
            if found is not None:
                own = self.make(less, places, shard.end - shard.begin)
                shape = *own.shape, *(1 for _ in table.shape[1:])
                part = self.make(where, self.make(reshape, own, shape=shape), part, found)
            found = part
        assert found is not None
        self.replace(node.outputs[0], found)

    def _update(self, node: Node) -> None:
        """Copy a step of the update from old rows to new ones for each shard."""
        if self._reads(node):
            table, ids = node.inputs
            for own, (shard, cell) in zip(self._own, self._each(table), strict=False):
                places = self._place(ids, shard, table)
                own[node.outputs[0]] = self.make(take, cell.value, places, axis=0)
            return
        of_shard = [own for own in self._own if not own.keys().isdisjoint(node.values())]
        for i, own in enumerate(of_shard):
            inputs = tuple(own.get(x, self.new.get(x, x)) for x in node.inputs)
            made = node.like(inputs, None, self.free_name(f"shard_{i}"))
            self.nodes.append(made)
            own.update(zip(node.outputs, made.outputs, strict=True))

    def _write(self, node: Node, table: Value) -> None:
        """Write new rows of each shard."""
        _, rows, ids = node.inputs
        for own, (shard, cell) in zip(self._own, self._each(table), strict=False):
            new = own.get(rows, self.new.get(rows, rows))
            places = self._place(ids, shard, table)
            cell.assigned = self.make(index_set, cell.value, new, places, index=_ROWS)

    def _join(self, values: Iterable[Any]) -> None:
        """Join the shards of tables among these values."""
        for table in [v for v in values if v in self._tables and v not in self.new]:
            parts = [
                self.make(getitem, cell.value, index=slice(0, shard.end - shard.begin))
                for shard, cell in self._each(table)
            ]
            self.replace(table, self.make(concat, *parts, axis=0))

    def _split(self, table: Value, new: Value) -> None:
        """Split a whole new table into shards."""
        new = self.new.get(new, new)
        for shard, cell in self._each(table):
            rows = shard.end - shard.begin
            own = self.make(getitem, new, index=slice(shard.begin, shard.end))
            spare = self.make(getitem, cell.value, index=slice(rows, rows + 1))
            cell.assigned = self.make(concat, own, spare, axis=0)
