"""Row access: reads and writes of tables by nodes of a step's graph, by rows or as a whole."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from eagerflow.graph.costs import nbytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value
from eagerflow.ops.indexing.gathering import gather, take
from eagerflow.ops.indexing.updating import index_set

__all__ = [
    "accesses_rows",
    "led_to",
    "looked_up",
    "lowest_row",
    "row_updates",
    "rows_read",
    "rows_written",
    "written_tables",
]

_TAKE = take.op  # type: ignore[attr-defined]
_GATHER = gather.op  # type: ignore[attr-defined]
_SET = index_set.op  # type: ignore[attr-defined]


def rows_read(node: Node) -> bool:
    """Whether a node takes rows of its first input."""
    if node.op is _TAKE:
        axis = node.attributes["axis"]
    elif node.op is _GATHER and not node.attributes["batch_dims"]:
        axis = node.attributes["axis"] or 0
    else:
        return False
    table = node.inputs[0]
    return type(table) is Value and axis in (0, -len(table.shape))


def lowest_row(node: Node) -> int | None:
    """The lowest index of a row look-up; None if negative ones count from the end."""
    return 0 if node.op is _GATHER else None


def rows_written(node: Node | None) -> bool:
    """Whether a node writes rows over those of its first input."""
    return node is not None and node.op is _SET and node.attributes["index"] == ("array",)


def accesses_rows(node: Node, tables: Container[Any]) -> bool:
    """Whether a node reads or writes rows of one of some tables."""
    return (
        node.inputs[:1] != ()
        and node.inputs[0] in tables
        and (rows_read(node) or rows_written(node))
    )


def looked_up(graph: Graph) -> dict[Cell, int]:
    """The Variables that a step changes and looks up rows of, with the bytes of these rows."""
    cells = {cell.value: cell for cell in graph.cells if cell.assigned is not None}
    found: dict[Cell, int] = {}
    for node in graph.nodes:
        if rows_read(node) and node.inputs[0] in cells:
            cell = cells[node.inputs[0]]
            found[cell] = found.get(cell, 0) + nbytes(node.outputs[0])
    return found


def written_tables(graph: Graph) -> dict[Value, dict[Cell, Node]]:
    """The Variables that are only read and changed by rows, with their writing nodes.

    They are grouped by the written indices, as a table and its optimizer's state have the
    same ones.
    """
    uses: dict[Value, int] = {}
    reads: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.values():
            uses[v] = uses.get(v, 0) + 1
        if rows_read(node):
            reads[node.inputs[0]] = reads.get(node.inputs[0], 0) + 1
    for v in graph.all_outputs():
        uses[v] = uses.get(v, 0) + 1
    found: dict[Value, dict[Cell, Node]] = {}
    for cell in graph.cells:
        new = cell.assigned
        write = None if new is None else new.node
        if new is None or write is None or not rows_written(write):
            continue
        value, _, indices = write.inputs
        once = value is cell.value and uses[new] == 1
        if once and uses[value] == reads.get(value, 0) + 1 and type(indices) is Value:
            found.setdefault(indices, {})[cell] = write
    return found


def row_updates(graph: Graph, ids: Value, writes: Mapping[Node, Value]) -> set[Node]:
    """The nodes that compute new rows from a table's old ones, for these indices and writes only.

    Empty if any other node needs a part of it.
    """
    tables = set(writes.values())
    found: set[Node] = set()
    made: set[Value] = set()
    for node in graph.nodes:
        begins = rows_read(node) and node.inputs[0] in tables and node.inputs[1] is ids
        if begins or (node not in writes and not made.isdisjoint(node.values())):
            found.add(node)
            made.update(node.outputs)
    indices = {v for node in writes for v in node.inputs[2:]}
    return found if made.isdisjoint({*graph.all_outputs(), *indices}) else set()


def led_to(graph: Graph, tables: Mapping[Value, int]) -> dict[Value, int]:
    """For each value, the device index of the table whose new rows depend on it."""
    found: dict[Value, int] = {}
    for node in reversed(graph.nodes):
        if rows_written(node) and node.inputs[0] in tables:
            place: int | None = tables[node.inputs[0]]
        else:
            place = next((found[v] for v in node.outputs if v in found), None)
        if place is not None:
            for v in node.values():
                found.setdefault(v, place)
    return found
