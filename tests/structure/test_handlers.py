"""Except clauses around calls let errors of signal handlers pass: see eagerflow/handlers.py."""

import ast
import builtins

from tests.structure.sources import package_sources

# Programs of their own, with their own handlers, and threads, in which no handler runs.
OTHERS = tuple(f"eagerflow/{name}" for name in ("cli", "notebook", "serving"))
OTHERS += ("eagerflow/standalone/functions", "eagerflow/handlers.py")
GENERAL = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == "builtins"
} - {"ImportError", "ModuleNotFoundError"}
RUNNING = (
    *(ast.AsyncFor, ast.AsyncWith, ast.Await, ast.BinOp, ast.Call, ast.Compare, ast.For),
    *(ast.GeneratorExp, ast.ListComp, ast.While, ast.With, ast.Yield, ast.YieldFrom),
)


def kinds(handler):
    kind = handler.type
    parts = kind.elts if isinstance(kind, ast.Tuple) else [kind] if kind else []
    return {part.id for part in parts if isinstance(part, ast.Name)}


def careless(path, text):
    """Clauses that would take an error of a handler for one of the code in the block."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Try) and any(
            isinstance(part, RUNNING) for line in node.body for part in ast.walk(line)
        ):
            found += [f"{path}:{h.lineno}" for h in node.handlers if kinds(h) & GENERAL]
        if isinstance(node, ast.ImportFrom) and node.module == "contextlib":
            found += [f"{path}:{node.lineno}" for name in node.names if name.name == "suppress"]
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "contextlib.suppress":
            found.append(f"{path}:{node.lineno}")
    return found


def test_except_clauses_around_calls_let_errors_of_handlers_pass():
    """They say ``except raised_here(KeyError)``, or ``with suppress(...)`` of that module."""
    sources = package_sources().items()
    assert not [
        place
        for path, text in sources
        if not path.startswith(OTHERS) and ("except" in text or "suppress" in text)
        for place in careless(path, text)
    ]


def test_careless_clauses_are_found():
    lines = "try:\n  f()\nexcept {}:\n  pass\n"
    assert careless("", lines.format("KeyError"))
    assert careless("", lines.format("(OSError, own.Error) as error"))
    assert careless("", "from contextlib import suppress")
    assert not careless("", lines.format("raised_here(KeyError)"))
    assert not careless("", "try:\n  table[key]\nexcept KeyError:\n  pass\n")
