"""Size budgets: files, functions and the core stay small enough to read."""

import ast
import textwrap
import warnings

from tests.structure.sources import (
    docstring_lines,
    module_name,
    package_sources,
    parsed,
    read_sources,
    statements,
)
from tests.structure.test_levels import LEVELS

FILE_LINES = 800  # from here on, look for two concepts
FUNCTION_LINES = 60  # one screen
CORE_LINES = 3_730
# What a call of an op goes through, without what computes: see DESIGN in docs/architecture.md.
WHAT_COMPUTES = {"runtime", "codegen", "primitives", "backends"}
BESIDE = {
    "cells",
    "columns",
    "customs",
    "dlpack",
    "fields",
    "handlers",
    "masks",
    "unsupported",
    "visitors",
}  # no op goes through them
CORE = {n for n, level in LEVELS.items() if level <= LEVELS["dispatch"]}
CORE = CORE - WHAT_COMPUTES - BESIDE | {"tape"}
FOLDERS = ("eagerflow", "tests", "benchmarks", "docs", "tutorials")


class LongFileWarning(UserWarning):
    """A file may hold more than one concept; pytest's summary shows it."""


def count_lines(text):
    return len(text.splitlines())


def count_code_lines(text):
    """Lines that hold code: no blank ones, comments or docstrings."""
    documented = {
        line
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in documented
        for number, line in enumerate(text.splitlines(), 1)
    )


def function_sizes(sources):
    """(lines without the docstring, path:line, name) of every function, largest first."""
    sizes = [
        (
            node.end_lineno - node.lineno + 1 - docstring_lines(node),
            f"{path}:{node.lineno}",
            node.name,
        )
        for path, text in sources.items()
        for node in statements(parsed(text, path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(sizes, reverse=True)


def core_sizes(sources):
    """Lines of code of each core module that exists, also where one has become a package."""
    sizes = {}
    for path, text in sources.items():
        parts = module_name(path).split(".")
        for name in {".".join(parts[1:2]), ".".join(parts[1:3])} & CORE:
            sizes[name] = sizes.get(name, 0) + count_code_lines(text)
    return sizes


def long_files(sources):
    return [
        f"{path}: {count_lines(text)} lines: look for two concepts from {FILE_LINES} on"
        for path, text in sources.items()
        if count_lines(text) > FILE_LINES
    ]


def long_functions(sources):
    return [
        f"{place}: {name} has {lines} lines without its docstring, at most {FUNCTION_LINES}"
        for lines, place, name in function_sizes(sources)
        if lines > FUNCTION_LINES
    ]


def test_long_files_cause_a_warning():
    for told in long_files(read_sources(*FOLDERS)):
        warnings.warn(told, LongFileWarning, stacklevel=1)


def test_functions_fit_one_screen():
    sources = read_sources(*FOLDERS)
    print("\n".join(f"{n:5} {place} {name}" for n, place, name in function_sizes(sources)[:10]))
    assert long_functions(sources) == []


def test_core_is_small():
    sizes = core_sizes(package_sources())
    print("\n".join(f"{lines:5} {name}" for name, lines in sorted(sizes.items())))
    print(f"{sum(sizes.values()):5} in all, at most {CORE_LINES}")
    assert sum(sizes.values()) <= CORE_LINES


def test_code_lines_are_counted_without_words():
    text = '"""Module."""\n\n# why\nx = 1\n\n\ndef f():\n    """Long\n    words."""\n    return x\n'
    assert count_code_lines(text) == 3


def test_planted_long_file_is_found():
    planted = {"a.py": "x = 1\n" * FILE_LINES, "b.py": "x = 1\n" * (FILE_LINES + 1)}
    assert long_files(planted) == ["b.py: 801 lines: look for two concepts from 800 on"]


def test_planted_long_function_is_found():
    docstring = '    """' + "words\n" * 50 + '    """\n'
    deep = "try:\n    pass\nfinally:\n    with a:\n        pass\n    match a:\n        case 1:\n"
    fits = "def f():\n" + docstring + "    x = 1\n" * (FUNCTION_LINES - 1)
    late = "class A:\n    async def g(self):\n" + "        x = 1\n" * FUNCTION_LINES
    assert long_functions({"a.py": fits}) == []
    (problem,) = long_functions({"a.py": fits + "    x = 1\n"})
    assert problem.startswith("a.py:1: f has 61 lines")
    (problem,) = long_functions({"a.py": late})
    assert problem.startswith("a.py:2: g has 61 lines")
    (problem,) = long_functions({"a.py": deep + textwrap.indent(late, " " * 12)})
    assert problem.startswith("a.py:9: g has 61 lines")


def test_core_counts_its_modules_and_no_others():
    planted = {
        "eagerflow/op.py": "x\n" * 3,
        "eagerflow/op/a.py": "x\n",
        "eagerflow/nn/op.py": "x\n",
    }
    assert core_sizes(planted) == {"op": 4}
