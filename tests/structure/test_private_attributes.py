"""Tests check what users and other modules can observe: they take few private names from elsewhere.

What several tests look at inside the package has one function each in tests/internals.py.
"""

import ast

from tests.structure.sources import parsed, read_sources

LIMIT = 99  # in all tests; it only goes down
OF_OTHERS = {  # of NamedTuples, ctypes, os, sys, argparse, IPython, NumPy and TensorBoard
    *("_replace", "_asdict", "_fields", "_make", "_field_defaults"),
    *("_fields_", "_type_", "_length_", "_exit", "_getframe", "_current_frames"),
    *("_repr_html_", "_repr_png_", "_repr_svg_", "_repr_mimebundle_", "_ipython_display_"),
    *("_actions", "_arr", "_implementation", "_read_tensor_tsv_file"),
}
BY_NAME = ("getattr", "hasattr", "setattr", "delattr", "replace_method")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in OF_OTHERS


def private_names(path, text):
    """The private names that a file takes from objects and modules which it does not define."""
    nodes = list(ast.walk(parsed(text, path)))
    own = {n.name for n in nodes if isinstance(n, FUNCTIONS)}
    for node in nodes:
        match node:
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                own.add(name)
    for node in nodes:
        match node:
            case ast.Attribute(ast.Name("self" | "cls")):
                names = []
            case ast.Attribute(_, name):
                names = [] if name in own else [name]
            case ast.ImportFrom(module) if module and "eagerflow" in module:
                names = [alias.name for alias in node.names]
            case ast.Call(ast.Attribute(_, f) | ast.Name(f), arguments) if f in BY_NAME:
                names = [a.value for a in arguments if isinstance(a, ast.Constant)]
                names = [name for name in names if isinstance(name, str)]
            case _:
                names = []
        yield from (f"{path}:{node.lineno}: {name}" for name in names if is_private(name))


def test_tests_take_few_private_names():
    found = [
        row for path, text in read_sources("tests").items() for row in private_names(path, text)
    ]
    print("\n".join(found))
    assert len(found) <= LIMIT, f"{len(found)} private names, at most {LIMIT}: see them above"


def test_planted_private_names_are_found():
    text = (
        "from eagerflow.op import _a\nx._b\nm.setattr(x, '_c', 1)\nx._d.e\n"
        "x._repr_html_()\nx.__doc__\nclass A:\n    def _f(self):\n        self._g = x._f + x._g\n"
    )
    assert sorted(private_names("t.py", text)) == [
        "t.py:1: _a",
        "t.py:2: _b",
        "t.py:3: _c",
        "t.py:4: _d",
    ]
