"""Stubs for type checkers, of the names that the package computes at run time.

    python -m tests.structure.stubs

writes the stubs: of the modules that gather public names, and of the methods that ops attach to
Tensors and Variables. An op has the signature there that it has at run time, and the result that
it has for its samples; all else comes from where it is defined, with the types that it has there.
``test_stubs.py`` compares the files with this.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import math
import re
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow import ops as eagerflow_ops
from eagerflow.op import REQUIRED, Op, ops
from eagerflow.ops.absent import Absent
from eagerflow.tensor import Operators, Tensor
from tests.cases import cases_of
from tests.cases.samples import Sample
from tests.structure.sources import ROOT, module_name

OPS = "eagerflow.ops"
METHODS = "eagerflow/tensor_methods.pyi"
GATHERING = (  # modules whose public names come from elsewhere
    "eagerflow/__init__.pyi",
    "eagerflow/capture/__init__.pyi",
    "eagerflow/nn/__init__.pyi",
    "eagerflow/ops/__init__.pyi",
    "eagerflow/ops/fft/__init__.pyi",
    "eagerflow/ops/linalg.pyi",
    "eagerflow/ops/signal/__init__.pyi",
)
_HEAD = "# Written by tests/structure/stubs.py: do not edit.\n\n"
_LINE = 100
_DTYPES = ("float32", "int64", "bool", "complex64", "int8")
_PLAIN = {"bool": bool, "float": (int, float), "int": int, "str": str}
_ALIASES = {"DType": "eagerflow.dtypes"}
_STANDARD = ("builtins", "collections", "typing")
# Methods that no code uses by name, and those defined in the class itself.
_ABSENT = {name for name, x in vars(Operators).items() if isinstance(x, Absent)}
_OWN = {"__dir__", "__delitem__", "__setitem__", "__hash__", *_ABSENT}


# Ops ----------------------------------------------------------------------------------------------


def _samples(op: Op) -> list[Sample]:
    """Some of the op's samples, of several dtypes that it takes."""
    allowed = op.allowed(0) if op.data else frozenset({np.dtype("float32")})
    chosen = [d for d in map(np.dtype, _DTYPES) if d in allowed] or [min(allowed, key=str)]
    return [s for d in chosen for s in cases_of(op).samples(np.random.default_rng(0), d)[:8]]


def result_type(results: Iterable[Any]) -> tuple[str, set[tuple[str, str]]]:
    """The type of the results of calls, and the imports of its names."""
    kinds, imports = set(), {("eagerflow.tensor", "Tensor")}
    for result in results:
        if type(result) is tuple:
            assert all(type(part) is Tensor for part in result), result
            kinds.add(f"tuple[{', '.join(['Tensor'] * len(result))}]")
        else:
            kinds.add(type(result).__name__)
            imports = {(type(result).__module__, type(result).__name__)}
    if len(kinds) > 1:
        assert all(kind.startswith("tuple[") for kind in kinds), kinds
        return "tuple[Tensor, ...]", imports
    return kinds.pop(), imports


def _attribute(op: Op, name: str) -> str:
    """The type of an attribute: the kernel's, if it is plain and that of the samples."""
    told = str(inspect.signature(op.kernel).parameters[name].annotation)
    plain, _, optional = told.partition(" | ")
    if plain not in _PLAIN or optional not in ("", "None"):
        return "Any"
    given = [s.attributes[name] for s in _samples(op) if name in s.attributes]
    fits = all(isinstance(x, _PLAIN[plain]) or (optional and x is None) for x in given)
    return told if fits else "Any"


def _typed(op: Op, p: inspect.Parameter) -> str:
    return _attribute(op, p.name) if p.name in op.attributes and p.name not in op.also else "Any"


# Text ---------------------------------------------------------------------------------------------


class Stub:
    """The text of a stub as it grows: imports, names that hide Python's, and lines."""

    def __init__(self, where: str, names: Iterable[str] = ()) -> None:
        self.where = where
        self.names = list(names)
        self.imports: set[tuple[str, str]] = set()
        self.values: list[str] = []
        self.lines: list[str] = []
        self._hidden = set(self.names) & set(vars(builtins))

    def _annotation(self, told: str, known: dict[str, Any]) -> str:
        """A type as it is written here; its names are imported."""
        for word in set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", told)):
            found = known.get(word)
            if word in self._hidden:
                self.imports.add(("builtins", ""))
                told = re.sub(rf"(?<![\w.]){word}\b", f"builtins.{word}", told)
            elif isinstance(found, ModuleType):
                self.imports.add((found.__name__, f"as {word}"))
            elif word in _ALIASES or isinstance(found, type) or found is Any:
                self.imports.add((_ALIASES.get(word, found.__module__), word))
        return told

    def _parameters(self, value: Any, op: Op | None, method: bool) -> list[str]:
        """The parameters of a function, with the marks between them."""
        kinds = inspect.Parameter
        found: list[str] = []
        before: Any = None
        for p in inspect.signature(value).parameters.values():
            kind = p.kind
            if op is not None and p.name in op.attributes and not op.variadic:
                kind = kinds.POSITIONAL_OR_KEYWORD  # attributes are taken by position as well
            if before is kinds.POSITIONAL_ONLY is not kind:
                found.append("/")
            if kind is kinds.KEYWORD_ONLY and before not in (kind, kinds.VAR_POSITIONAL):
                found.append("*")
            first, before = before is None, kind
            if method and first:
                found.append("self")
                continue
            told = p.annotation if p.annotation is not p.empty else _typed(op, p) if op else "Any"
            told = self._annotation(told, {"Any": Any} | getattr(value, "__globals__", {}))
            star = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
            left_out = p.default is not p.empty and p.default is not REQUIRED
            # Keyword arguments are listed among the operands as well.
            left_out |= op is not None and op.variadic and p.kind is kinds.KEYWORD_ONLY
            default = f" = {_default(p.default)}" if left_out else ""
            found.append(f"{star}{p.name}: {told}{default}")
        return [*found, "/"] if before is kinds.POSITIONAL_ONLY else found

    def define(self, name: str, value: Any, method: bool = False) -> None:
        """Add ``def name(...) -> ...: ...``, on one line or with a line for each parameter."""
        op = getattr(value, "op", None)
        result = inspect.signature(value).return_annotation
        if op is not None:
            result, imports = result_type(value(*s.args, **s.attributes) for s in _samples(op))
            self.imports |= imports
        elif result is inspect.Signature.empty:  # one of the operators
            result = self._annotation("Tensor", {"Tensor": Tensor})
        else:
            result = self._annotation(result, value.__globals__)
        parameters = self._parameters(value, op, method)
        note = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        line = f"def {name}({', '.join(parameters)}) -> {result}: ...{note}"
        if len(line) + 4 * method > _LINE:
            inner = "".join(f"    {p},\n" for p in parameters)
            line = f"def {name}(\n{inner}) -> {result}: ..."
        self.lines += line.splitlines()

    def text(self) -> str:
        """All of it, as ruff formats it."""
        groups: list[list[str]] = [[], [], [], []]
        for home in sorted({home for home, _ in self.imports}):
            names = sorted((n for h, n in self.imports if h == home), key=_sorting)
            # A package imports its own modules from ".".
            line = _import_line("." if home == self.where else home, names)
            top = home.split(".")[0]
            own = 3 if home == self.where else 2 if top == "eagerflow" else 1
            groups[0 if top in _STANDARD else own].append(line)
        head = "\n".join("\n".join(sorted(g, key=_plain_last)) + "\n" for g in groups if g)
        listed = "".join(f'    "{n}",\n' for n in self.names)
        shown = f"__all__ = [\n{listed}]\n" if self.names else ""
        parts = head, shown, *("\n".join(x) + "\n" for x in (self.values, self.lines) if x)
        return _HEAD + "\n".join(part for part in parts if part)


def _default(value: Any) -> str:
    """A default that can be written down; ``...`` stands for others."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool | int):
        return repr(value)
    return repr(value) if isinstance(value, float) and math.isfinite(value) else "..."


def _import_line(home: str, names: list[str]) -> str:
    if names == [""]:
        return f"import {home}"
    if names[0].startswith("as "):
        return f"import {home} {names[0]}"
    line = f"from {home} import {', '.join(names)}"
    if len(line) <= _LINE:
        return line
    return f"from {home} import (\n" + "".join(f"    {n},\n" for n in names) + ")"


def _plain_last(line: str) -> bool:
    return line.startswith("from")


def _sorting(name: str) -> tuple[int, list[Any]]:
    """Constants, classes, all else; 2 comes before 10."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", name)]


# Stubs --------------------------------------------------------------------------------------------


def _home(name: str, value: Any) -> str:
    """The module that defines a public value, or gives it this name."""
    gathering = {module_name(path.replace(".pyi", ".py")) for path in GATHERING}
    for home in (getattr(value, "__module__", None) or "", *sorted(sys.modules)):
        found = vars(sys.modules[home]) if home in sys.modules else {}
        listed = home == getattr(value, "__module__", None) or name in found.get("__all__", ())
        ours = home.startswith("eagerflow.") and home not in gathering
        if ours and listed and found.get(name) is value:
            return home
    return ""


def _add(stub: Stub, name: str, value: Any) -> None:
    """Add a public name of a module to its stub."""
    if isinstance(value, ModuleType):
        stub.imports.add((value.__name__.rpartition(".")[0], name))
    elif isinstance(value, np.dtype):
        stub.imports.add(("eagerflow.dtypes", "DType"))
        stub.values.append(f"{name}: DType")
    elif value is None or isinstance(value, float):
        stub.values.append(f"{name}: {'None' if value is None else 'float'}")
    elif isinstance(getattr(value, "op", None), Op):
        if stub.where != OPS and getattr(eagerflow_ops, name, None) is value:
            stub.imports.add((OPS, name))
        else:
            stub.define(name, value)
    elif home := _home(name, value):
        stub.imports.add((home, name))
    else:
        stub.define(name, value)


def module_stub(path: str) -> str:
    """The stub of a module that gathers public names."""
    where = module_name(path.replace(".pyi", ".py"))
    module = importlib.import_module(where)
    names = sorted([*module.__all__, *module.LATE]) if where == OPS else module.__all__
    stub = Stub(where, names)
    for name in ("__array_api_version__", "__version__"):
        if hasattr(module, name):
            stub.values.append(f"{name}: str")
    if where == OPS:
        stub.values.append("LATE: dict[str, str]")  # used inside
    for name in stub.names:
        _add(stub, name, getattr(module, name))
    return stub.text()


def methods_stub() -> str:
    """The stub of the methods that Tensors and Variables have from ops."""
    stub = Stub("eagerflow.tensor_methods")
    found = {n: v for n, v in vars(Operators).items() if n not in _OWN}
    for name, value in vars(ef.Variable).items():  # methods that use its value
        if isinstance(value, FunctionType) and value.__code__.co_name == "method":
            found[name] = vars(Tensor)[name]
        if name in vars(Tensor) and not name.startswith("_"):  # properties that both have
            found[name] = vars(Tensor)[name]
    for name, value in sorted(found.items()):
        if isinstance(value, property):
            stub.lines.append("@property")
            stub.define(name, value.fget, method=True)
        elif callable(value):
            stub.define(name, value, method=True)
    stub.lines = ["class Methods:", *(f"    {line}" for line in stub.lines)]
    return stub.text()


def stubs() -> dict[str, str]:
    """The path of every stub, and its text."""
    assert len(ops)  # all are loaded
    return {METHODS: methods_stub()} | {path: module_stub(path) for path in GATHERING}


if __name__ == "__main__":
    for path, text in stubs().items():
        (ROOT / path).write_text(text, encoding="utf-8")
