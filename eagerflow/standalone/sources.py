"""The source text of library functions, with the functions that they call."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from typing import Any, NamedTuple

from eagerflow.graph.ir import Node
from eagerflow.standalone.functions import MODULES
from eagerflow.standalone.layout import broken


class _Source(NamedTuple):
    """The location of a function's source."""

    lines: list[str]
    node: ast.FunctionDef
    function: Any


def _sources() -> dict[str, _Source]:
    found = {}
    for module in MODULES:
        text = inspect.getsource(module)
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                function = getattr(module, node.name)
                found[node.name] = _Source(text.splitlines(), node, function)
    return found


_SOURCES = _sources()
FUNCTIONS = frozenset(_SOURCES)
"""Names of library functions; ops of these names become calls of them."""


@cache
def needed_by(name: str) -> tuple[str, ...]:
    """A function and everything that it calls, callees first."""
    found: list[str] = []

    def visit(one: str) -> None:
        for other in sorted((_names(one) & FUNCTIONS) - {one}):
            if other not in found:
                visit(other)
        if one not in found:
            found.append(one)

    visit(name)
    return tuple(found)


def text_of(name: str) -> str:
    """The text of a function."""
    lines, node, _ = _SOURCES[name]
    return "\n".join(
        part for line in lines[node.lineno - 1 : node.end_lineno] for part in broken(line)
    )


def modules_of(name: str) -> set[str]:
    """Modules of the standard library that a function uses."""
    return _names(name) & {"json", "math"}


def _names(name: str) -> set[str]:
    return {n.id for n in ast.walk(_SOURCES[name].node) if isinstance(n, ast.Name)}


@cache
def defaults_of(name: str) -> dict[str, Any]:
    """The parameters of a function, and their defaults."""
    parameters = inspect.signature(_SOURCES[name].function).parameters.values()
    return {p.name: p.default for p in parameters}


def facts_of(node: Node) -> dict[str, Any]:
    """The facts of a node that a function can take: its attributes, and the dtype of the result."""
    return {**node.attributes, "dtype": node.outputs[0].dtype}
