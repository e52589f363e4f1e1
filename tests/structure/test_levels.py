"""Imports go down: a module imports only from its own level or below, at module level."""

import ast
import functools
import graphlib
import itertools

import pytest

from tests.structure.sources import PACKAGE, module_name, package_sources, parsed

LEVELS = {
    name: level
    for level, names in enumerate(
        [
            [
                "cells",
                "errors",
                "extras",
                "fields",
                "guard",
                "handlers",
                "locks",
                "records",
                "settings",
                "tree",
            ],
            ["dims", "dtypes", "spec", "devices"],
            ["op", "graph.ir", "graph.graph"],
            ["runtime"],
            ["codegen"],
            ["primitives", "backends"],
            [
                "columns",
                "convert",
                "customs",
                "display",
                "dlpack",
                "masks",
                "number",
                "recorder",
                "tensor",
                "tensor_methods",
                "unsupported",
                "variable",
                "visitors",
                "dispatch",
            ],
            ["kernels", "ops"],
            [
                "batching",
                "debugging",
                "files",
                "forward",
                "global_norms",
                "layer_losses",
                "printing",
                "provenance",
                "products",
                "pulls",
                "scopes",
                "sources",
                "tape",
                "tracebacks",
                "transforms",
            ],
            [
                "files",
                "graph",
                "notebook.bar",
                "notebook.markup",
                "notebook.plots",
                "notebook.shell",
            ],
            ["fusion", "profiling"],
            ["plan"],
            ["capture"],
            ["nn", "data", "onnx", "standalone", "summary"],
            ["cluster", "einops", "notebook", "serving", "testing"],
        ]
    )
    for name in names
}
TOP = len(LEVELS)  # eagerflow/__init__.py stands above all that it offers
LEVELS["cli"] = TOP + 1  # the command is written as a user would write it
LEVELS["keras"] = TOP + 1  # likewise
LEVELS["notebook.extension"] = TOP + 1  # likewise
DOORS = {  # functions behind which modules are loaded when they are first used
    f"{PACKAGE}/__init__.py": {"__getattr__", "_traceback", "_view"},
    f"{PACKAGE}/backends/cupy.py": {"kernel_module", "region_call", "store"},
    f"{PACKAGE}/codegen/generated.py": {"_machinery", "_programs", "text_of"},
    f"{PACKAGE}/nn/__init__.py": {"__getattr__"},
    f"{PACKAGE}/notebook/views.py": {"html"},
    f"{PACKAGE}/ops/late.py": {"load"},
    f"{PACKAGE}/ops/linear_algebra/contraction.py": {"_kernels"},
    f"{PACKAGE}/ops/shapes/reshaping.py": {"copy_kernels"},
    f"{PACKAGE}/nn/layers/recurrent.py": {"scan"},
    f"{PACKAGE}/nn/model.py": {"_with_tools"},
    f"{PACKAGE}/nn/callbacks/tensorboard.py": {"_new_writer"},
    f"{PACKAGE}/nn/saving.py": {"export", "prediction_graph"},
    f"{PACKAGE}/nn/compiled_layer.py": {"captured_step"},
}


def level_of(module):
    """The level of a dotted module name, None if its top-level name is not in the table."""
    parts = module.split(".")
    if len(parts) == 1:
        return TOP
    return LEVELS.get(".".join(parts[1:3]), LEVELS.get(parts[1]))


class ImportFinder(ast.NodeVisitor):
    """Collects (line, target module, enclosing functions) of every import of our own package."""

    def __init__(self, path, modules):
        self.module = module_name(path)
        self.is_package = path.endswith("__init__.py")
        self.modules = modules
        self.functions = []
        self.found = []

    def visit_FunctionDef(self, node):
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.functions.append("<lambda>")
        self.generic_visit(node)
        self.functions.pop()

    def visit_Import(self, node):
        for alias in node.names:
            self.add(node.lineno, alias.name)

    def visit_ImportFrom(self, node):
        base = self.absolute("." * node.level + (node.module or ""))
        for alias in node.names:
            child = f"{base}.{alias.name}"
            self.add(node.lineno, child if child in self.modules else base)

    def visit_Call(self, node):
        # importlib.import_module("eagerflow.x") is an import too, also as an f-string.
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        if name in ("import_module", "__import__") and node.args:
            text = node.args[0]
            if isinstance(text, ast.JoinedStr) and text.values:
                text = text.values[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                self.add(node.lineno, self.absolute(text.value).rstrip("."))
        self.generic_visit(node)

    def absolute(self, name):
        dots = len(name) - len(name.lstrip("."))
        if not dots:
            return name
        up = dots - 1 if self.is_package else dots
        parts = self.module.split(".")
        base = ".".join(parts[: len(parts) - up])
        return f"{base}.{name[dots:]}" if name[dots:] else base

    def add(self, line, target):
        if target == PACKAGE or target.startswith(PACKAGE + "."):
            self.found.append((line, target, tuple(self.functions)))


def find_imports(sources):
    """Path to its imports of our own package, for every file of a source map."""
    modules = frozenset(map(module_name, sources))
    return {path: imports_of(path, text, modules) for path, text in sources.items()}


@functools.cache
def imports_of(path, text, modules):
    """The imports of one file; three tests ask for those of the whole package."""
    finder = ImportFinder(path, modules)
    finder.visit(parsed(text, path))
    return finder.found


def level_violations(sources):
    """Imports that go up, and modules that no level is stated for."""
    problems = [
        f"{path}: unknown top-level module {module_name(path)!r}: add it to the level table"
        for path in sources
        if level_of(module_name(path)) is None
    ]
    for path, imports in find_imports(sources).items():
        own = level_of(module_name(path))
        for line, target, _ in imports:
            level = level_of(target)
            if level is None:
                problems.append(f"{path}:{line}: imports {target!r}: add it to the level table")
            elif own is not None and level > own:
                problems.append(f"{path}:{line}: level {own} imports {target!r} of level {level}")
    return problems


def late_imports(sources):
    """Imports of our own package inside functions, outside of ``DOORS``."""
    return [
        f"{path}:{line}: imports {target!r} inside {'.'.join(functions)}()"
        for path, imports in find_imports(sources).items()
        for line, target, functions in imports
        if functions and not DOORS.get(path, set()).issuperset(functions)
    ]


def find_cycle(sources):
    """Modules that import each other in a circle, first and last the same; else None."""
    edges = {
        module_name(path): {target for _, target, _ in imports}
        for path, imports in find_imports(sources).items()
    }
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        # In graphlib's cycle each module is imported by the next; reversed, each imports the next.
        return list(reversed(error.args[1]))
    return None


def test_imports_go_down():
    assert level_violations(package_sources()) == []


def test_no_import_inside_a_function():
    assert late_imports(package_sources()) == []


def test_no_import_cycle():
    assert find_cycle(package_sources()) is None


@pytest.mark.parametrize(
    "line",
    [
        "from eagerflow.tensor import Tensor",
        "from eagerflow import tensor",
        "from .tensor import Tensor",
        "from . import tensor",
        "import eagerflow.tensor as t",
        "import eagerflow",
        "from eagerflow import Tensor",
        "import importlib; importlib.import_module('eagerflow.tensor')",
        "import importlib; importlib.import_module('.tensor', __package__)",
        "import importlib; importlib.import_module(f'eagerflow.{name}')",
    ],
)
def test_planted_import_upwards_is_found(line):
    planted = {"eagerflow/tensor.py": "", "eagerflow/spec.py": f"import numpy\n{line}\n"}
    (problem,) = level_violations(planted)
    assert problem.startswith("eagerflow/spec.py:2: level 1 imports 'eagerflow")


def test_planted_relative_import_in_a_package_is_found():
    planted = {
        "eagerflow/nn/__init__.py": "",
        "eagerflow/ops/__init__.py": "from .. import nn\nfrom . import fft\n",
        "eagerflow/ops/fft.py": "from ..nn import Layer\n",
    }
    assert level_violations(planted) == [
        "eagerflow/ops/__init__.py:1: level 7 imports 'eagerflow.nn' of level 13",
        "eagerflow/ops/fft.py:1: level 7 imports 'eagerflow.nn' of level 13",
    ]


def test_planted_unknown_module_is_found():
    (problem,) = level_violations({"eagerflow/helpers.py": ""})
    assert "add it to the level table" in problem


def test_imports_down_and_sideways_pass():
    planted = {
        "eagerflow/__init__.py": "from eagerflow.nn import Dense\n",
        "eagerflow/errors.py": "import numpy\n",
        "eagerflow/tree.py": "from eagerflow.errors import ShapeError\n",
        "eagerflow/cli/__init__.py": "from eagerflow.tree import flatten\n",
    }
    assert level_violations(planted) == []
    assert find_cycle(planted) is None


def test_planted_late_import_is_found():
    planted = {
        "eagerflow/tape.py": "class T:\n    def f(self):\n        from eagerflow.tree import g\n",
        "eagerflow/nn/compiled_layer.py": "def captured_step():\n    from eagerflow import nn\n",
        "eagerflow/__init__.py": (
            "def __getattr__(name):\n    import eagerflow.nn\n\ndef f():\n    import eagerflow.nn\n"
        ),
    }
    assert late_imports(planted) == [
        "eagerflow/tape.py:3: imports 'eagerflow.tree' inside f()",
        "eagerflow/__init__.py:5: imports 'eagerflow.nn' inside f()",
    ]


def test_planted_cycle_is_found():
    planted = {
        "eagerflow/tensor.py": "from eagerflow.dispatch import call\n",
        "eagerflow/dispatch.py": "from eagerflow import variable\n",
        "eagerflow/variable.py": "from eagerflow.tensor import Tensor\n",
    }
    cycle = find_cycle(planted)
    assert cycle[0] == cycle[-1]
    assert len(cycle) == 4
    follows = {"tensor": "dispatch", "dispatch": "variable", "variable": "tensor"}
    names = [module.removeprefix("eagerflow.") for module in cycle]
    assert all(follows[a] == b for a, b in itertools.pairwise(names))
