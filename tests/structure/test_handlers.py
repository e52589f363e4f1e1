"""Errors of signal handlers pass through our code as they are: see eagerflow/handlers.py."""

import ast
import builtins
import operator

from tests.structure.sources import package_sources, parsed

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

# Iterators in C, and which of their arguments is a function: one that raises StopIteration ends
# them, and what is made of them is too short. Written in C no handler runs in it.
CALLING = {"map": 0, "filter": 0, "filterfalse": 0, "starmap": 0, "takewhile": 0, "dropwhile": 0}
CALLING |= {"accumulate": 1, "groupby": 1, "iter": 0}
IN_C = {*dir(builtins), *dir(operator)}
MODULES_IN_C = {"dict", "math", "np", "operator", "str", "xp", "ContextVar"}
METHODS_IN_C = {"__contains__", "__getitem__", "acquire", "count", "fullmatch", "get", "index"}
METHODS_IN_C |= {"isdisjoint", "join", "match"}
# Names of their functions that are bound to what NumPy, sys and operator have in C.
BOUND_IN_C = {
    "eagerflow/capture/guards/events.py": {"register"},
    "eagerflow/codegen/ready.py": {"strided"},
    "eagerflow/ops/reductions/cumulative.py": {"function"},
    "eagerflow/ops/reductions/over_nan.py": {"function"},
    "eagerflow/ops/reductions/running_extremes.py": {"function"},
    "eagerflow/visitors.py": {"handler_of"},
}


def kinds(handler):
    kind = handler.type
    parts = kind.elts if isinstance(kind, ast.Tuple) else [kind] if kind else []
    return {part.id for part in parts if isinstance(part, ast.Name)}


def careless(path, text):
    """Clauses that would take an error of a handler for one of the code in the block."""
    found = []
    for node in ast.walk(parsed(text, path)):
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


def is_in_c(function, bound):
    """Whether what an iterator calls is a function in C, as far as its name tells."""
    if isinstance(function, ast.Name):
        return function.id in IN_C or function.id in bound
    if isinstance(function, ast.Attribute):
        return function.attr in METHODS_IN_C or ast.unparse(function.value) in MODULES_IN_C
    return isinstance(function, ast.Constant) or (
        isinstance(function, ast.Call) and ast.unparse(function.func) in operator.__all__
    )


def ended_by_handlers(path, text):
    """Iterators that an error of a handler may end, as if there were nothing more."""
    found, nodes = [], list(ast.walk(parsed(text, path)))
    names, bound = {"map", "filter", "iter"}, set(BOUND_IN_C.get(path, ()))
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            bound |= {ast.unparse(x) for x in targets if is_in_c(node.value, ())}
        if isinstance(node, ast.ImportFrom) and node.module == "itertools":
            names |= {name.name for name in node.names}
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == "__next__":
            found.append(f"{path}:{node.lineno}")
        if not isinstance(node, ast.Call) or len(node.args) + len(node.keywords) < 2:
            continue
        name = ast.unparse(node.func) if type(node.func) in (ast.Name, ast.Attribute) else ""
        kind = name.removeprefix("itertools.")
        if kind not in CALLING or (name == kind and name not in names):
            continue
        functions = [x.value for x in node.keywords if x.arg in ("key", "func")]
        functions += node.args[CALLING[kind] :][:1]
        if not all(is_in_c(x, bound) for x in functions):
            found.append(f"{path}:{node.lineno}")
    return found


def test_iterators_call_no_function_in_python():
    """A comprehension does, which lets StopIteration pass; a generator makes it a RuntimeError."""
    assert not [
        place
        for path, text in package_sources().items()
        if not path.startswith(OTHERS)
        for place in ended_by_handlers(path, text)
    ]


def test_iterators_that_call_functions_in_python_are_found():
    assert ended_by_handlers("", "tuple(map(f, x))")
    assert ended_by_handlers("", "next(filter(lambda x: x, y))")
    assert ended_by_handlers("", "itertools.accumulate(x, self.add)")
    assert ended_by_handlers("", "from itertools import groupby\ngroupby(x, key=f)")
    assert ended_by_handlers("", "for x in iter(self.draw, None): pass")
    assert ended_by_handlers("", "class A:\n  def __next__(self):\n    return 1\n")
    assert not ended_by_handlers(
        "", "f = attrgetter('a')\nmap(is_not, map(f, x), filter(None, map(table.get, y)))"
    )
    assert not ended_by_handlers("", "self.map(f, x), accumulate(x, f), iter(x)")
