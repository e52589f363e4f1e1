"""Names of variables: from the user's own lines, or from the ops."""

from __future__ import annotations

import ast
import linecache
from itertools import groupby
from operator import itemgetter

from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.handlers import raised_here
from eagerflow.standalone.expressions import identifier


def code_of(node: Node) -> str:
    """The user's line of a node traced in this process; for loaded graphs, files are not read."""
    if node.origin is None or isinstance(node.origin[0], str):
        return ""
    file, line, _ = node.source or ("", 0, "")
    return linecache.getline(file, line).strip()


def users_name(code: str) -> str | None:
    """The variable that a line of code assigns, if it assigns one."""
    try:
        (found,) = ast.parse(code).body
    except raised_here(SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    targets = found.targets if isinstance(found, ast.Assign) else []
    if any(isinstance(x, ast.Lambda) for x in ast.walk(found)):  # a lambda computes other values
        return None
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return None
    return targets[0].id


def users_names(graph: Graph) -> dict[Value, str]:
    """The names of values in the user's code: for the last value of each line.

    Names that occur only in the tracer's line are not used.
    """
    found: dict[Value, str] = {}
    done: set[str] = set()
    outputs, assigned = set(graph.outputs), {cell.assigned for cell in graph.cells}
    if len({node.place for node in graph.nodes}) < 2:
        return {}
    at = [(node.place, node) for node in graph.nodes]
    for place, run in groupby(at, key=itemgetter(0)):
        own = [node for _, node in run]
        name = None if place in done else users_name(code_of(own[0]))
        done.add(place)
        inside = {v for node in own for v in node.values()}
        ends = [v for node in own for v in node.outputs if v not in inside and v not in assigned]
        ends = [v for v in ends if v in outputs] or ends
        if name is not None and len(ends) == 1:
            found[ends[0]] = identifier(name)
    return found


# Names of other values ---------------------------------------------------------------------------

NEUTRAL = "h"  # the default name of results

NOUNS = {
    "add": "total",
    "astype": "cast",
    "concat": "joined",
    "divide": "quotient",
    "expand_dims": "expanded",
    "getitem": "part",
    "matmul": "product",
    "multiply": "product",
    "multiply_no_nan": "product",
    "negative": "negated",
    "permute_dims": "turned",
    "reshape": "shaped",
    "subtract": "difference",
    "take": "rows",
    "take_along_axis": "picked",
    "sum": "total",
    "max": "largest",
    "min": "smallest",
    "equal": "same",
    "greater": "above",
    "greater_equal": "above",
    "less": "below",
    "less_equal": "below",
    "logical_and": "both",
    "logical_or": "either",
    "where": "chosen",
    "broadcast_to": "repeated",
    "all": "every",
    "any": "some",
    "abs": "size",
}
"""The names of results, where the name of the op is a verb or reserved."""


def own_name(value: Value) -> str:
    """The name of a value if nothing else is known."""
    own = value.name.rpartition("/")[2].partition(":")[0]
    node = value.node
    if node is None:
        return identifier(own)
    if len(node.outputs) > 1:
        return NEUTRAL if value.index == 0 else "part"
    return identifier(NOUNS.get(node.op.name, own) if own.startswith(node.op.name) else own)
