"""Reads the project's own source for the structure tests.

A *source map* is a dict from a path relative to the repository to the file's text, so that every
check runs on the real tree and on small planted ones alike.
"""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "eagerflow"


def read_sources(*folders, root=ROOT):
    """The source map of all Python files under the given folders that exist."""
    paths = sorted(p for folder in folders for p in (root / folder).rglob("*.py"))
    return {p.relative_to(root).as_posix(): p.read_text(encoding="utf-8") for p in paths}


@functools.cache
def parsed(text, path="<planted>"):
    """The syntax tree of a file, which several checks walk."""
    return ast.parse(text, path)


def package_sources():
    """The source map of the package; a tree without it is an error, never an empty pass."""
    sources = read_sources(PACKAGE)
    assert sources, f"no Python file under {ROOT / PACKAGE}"
    return sources


def module_name(path):
    """The dotted module name of a path: eagerflow/nn/__init__.py is eagerflow.nn."""
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def readme_block(text, mark):
    """The fenced block after the line `<!-- mark -->`, or None; `.ci/run` reads it the same way."""
    pattern = rf"^<!-- {re.escape(mark)} -->\n(?:(?!```).*\n)*?```.*\n((?:(?!```).*\n)*)```"
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None


def statements(tree):
    """All statements of a tree in any depth: far fewer nodes than ``ast.walk`` goes through."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, part, ())
            yield from found
            waiting += found


def docstring_lines(node):
    """How many lines the docstring of a module, class or function fills."""
    first = node.body[0] if node.body else None
    if ast.get_docstring(node, clean=False) is None:
        return 0
    return first.end_lineno - first.lineno + 1
