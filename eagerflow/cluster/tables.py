"""Tables: Variables with few rows read and written in a step, and their devices.

A table is on one device, where its rows are read for all replicas; only indices
and rows cross devices. A large one is kept in shards of rows, each on a separate device. A shard is
a Variable for a part of the user's, which gets the whole with ``merge``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from eagerflow.cluster.replication import first_of, varying_in
from eagerflow.cluster.row_access import written_tables
from eagerflow.cluster.shadows import Whole
from eagerflow.cluster.shards import Shard, in_shards
from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together

__all__ = ["Tables"]


class Tables:
    """The tables of all steps of a strategy.

    A table is divided over the devices as long as each shard has ``min_shard_bytes``. The first
    step that uses a Variable decides whether it is a table; later steps that use it as a whole
    are correct, and send the whole. ``places`` has the device index of each table or its shards.
    """

    def __init__(self, min_shard_bytes: int) -> None:
        self.places: dict[Variable, int] = {}
        self._min_shard_bytes = min_shard_bytes
        self._shards: dict[Variable, list[Shard]] = {}
        self._seen: dict[Variable, None] = {}
        self._load: dict[int, int] = {}
        self._known: dict[Variable, Tensor] = {}
        """The values of the users' Variables when their shards were last updated."""

    def arranged(self, graphs: Sequence[Graph | None], places: Sequence[int]) -> list[Graph | None]:
        """The graphs of a step with shards in place of large tables; new tables get devices."""
        self._find(first_of(graphs), places)
        if not self._shards:
            return list(graphs)
        return [None if graph is None else in_shards(graph, self._shards) for graph in graphs]

    def _find(self, graph: Graph, places: Sequence[int]) -> None:
        _, local = varying_in(graph)
        groups = [
            [cell for cell in group if cell.variable not in self._seen and cell not in local]
            for group in written_tables(graph).values()
        ]
        self._seen.update((cell.variable, None) for cell in graph.cells)
        for group in sorted(groups, key=lambda own: -sum(nbytes(c.value) for c in own)):
            spread = sorted(places, key=lambda p: self._load.get(p, 0))
            for cell in group:
                for place, part in zip(spread, self._parts(cell, len(places)), strict=False):
                    self.places[part] = place
                    self._load[place] = self._load.get(place, 0) + part.current.nbytes

    def _parts(self, cell: Cell, count: int) -> list[Variable]:
        """A table's shards, or itself."""
        variable = cell.variable
        rows = variable.shape[0]
        count = min(count, rows, nbytes(cell.value) // self._min_shard_bytes)
        if count < 2:
            return [variable]
        ends = accumulate((rows // count + (i < rows % count) for i in range(count)), initial=0)
        made = self._shards[variable] = [
            Shard(begin, end, _empty(variable, i, end - begin))
            for i, (begin, end) in enumerate(pairwise(ends))
        ]
        return [shard.variable for shard in made]

    def push(self) -> None:
        """Update the shards of tables that the program has changed itself."""
        changed = {
            table: current
            for table in self._shards
            if self._known.get(table) is not (current := table.current)
        }
        new = {
            shard.variable: shard.of(np.asarray(current))
            for table, current in changed.items()
            for shard in self._shards[table]
        }
        assign_together(new)
        self._known.update(changed)

    def unmerged(self) -> dict[Variable, Whole]:
        """The tables with shards that may have newer values, as wholes."""
        return {
            table: Whole([shard.variable for shard in shards], _joined)
            for table, shards in self._shards.items()
            if self._known.get(table) is table.current
        }

    def merge(self) -> None:
        """Join shards into whole tables, unless the program has changed these since."""
        whole = {
            table: own.join([np.asarray(v.current) for v in own.parts])
            for table, own in self.unmerged().items()
        }
        assign_together(whole)
        self._known.update((table, table.current) for table in whole)

    def part_of(self, variable: Variable) -> tuple[Variable, Callable[[Any], Any]]:
        """The table of a shard, and the function that extracts the shard; itself for others."""
        for table, shards in self._shards.items():
            for shard in shards:
                if shard.variable is variable:
                    return table, shard.of
        return variable, lambda whole: whole


def _joined(parts: Sequence[Any]) -> Any:
    """A whole table joined from its shards, which have a spare row each."""
    return np.concatenate([part[:-1] for part in parts])


def _empty(table: Variable, number: int, rows: int) -> Variable:
    """The Variable of a shard; ``push`` sets its values."""
    nothing = np.zeros((rows + 1, *table.shape[1:]), table.dtype)
    return Variable(nothing, f"{table.name}/shard_{number}", False)
