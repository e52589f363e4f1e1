"""What the user's own lines say: comments, and names of variables."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from eagerflow.graph.ir import Node, Value
from eagerflow.standalone.expressions import identifier


def code_of(node: Node) -> str:
    """The user's line of a node that was traced here; of loaded graphs, files are not read."""
    if node.origin is None or isinstance(node.origin[0], str):
        return ""
    file, line, _ = node.source or ("", 0, "")
    return linecache.getline(file, line).strip()


def users_name(code: str) -> str | None:
    """The variable that a line of code assigns, where it is one."""
    try:
        (found,) = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    targets = found.targets if isinstance(found, ast.Assign) else []
    if any(isinstance(x, ast.Lambda) for x in ast.walk(found)):  # whose values are others
        return None
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return None
    return targets[0].id


def users_names(nodes: Sequence[Node]) -> dict[Value, str]:
    """The names that values have in the user's code: of those that lines of it end with."""
    found: dict[Value, str] = {}
    done: set[Any] = set()
    for place, run in groupby(nodes, key=lambda node: node.place):
        own = list(run)
        name = None if place in done else users_name(code_of(own[0]))
        done.add(place)
        if name is not None:
            inside = {v for node in own for v in node.values()}
            ends = [v for node in own for v in node.outputs if v not in inside]
            found |= {v: identifier(name) for v in ends[:1]}
    return found
