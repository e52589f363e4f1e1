"""Checkers of types see what the package computes at run time: stubs are current and complete."""

import ast
import difflib

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.ops.late import RANDOM
from tests.structure.sources import ROOT, module_name, package_sources, parsed
from tests.structure.stubs import GATHERING, Stub, result_type, stubs

HOW = "python -m tests.structure.stubs"


def differences(path, text, committed):
    """The first lines that differ, as a problem to be read; None where there are none."""
    lines = difflib.unified_diff(committed.splitlines(), text.splitlines(), path, HOW, n=0)
    return "\n".join([*lines][:20]) or None


def open_modules(sources):
    """Modules without a stub where checkers of types take any name, as of ``__getattr__``."""
    stubbed = {path.removesuffix("i") for path in GATHERING}
    problems = []
    for path, text in sources.items():
        for node in () if path in stubbed else parsed(text, path).body:
            names = [getattr(node, "name", None)]
            if isinstance(node, ast.Assign):
                names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
            if "__getattr__" in names:
                problems.append(f"{path}:{node.lineno}: any name passes in {module_name(path)}")
    return problems


def test_stubs_are_current():
    for path, text in stubs().items():
        committed = (ROOT / path).read_text(encoding="utf-8")
        assert not differences(path, text, committed), f"write them again: {HOW}"


def test_planted_change_is_found():
    problem = differences("a.pyi", "x: int\ny: int\n", "x: int\ny: str\n")
    assert "-y: str" in problem and "+y: int" in problem
    assert differences("a.pyi", "x: int\n", "x: int\n") is None


def test_unknown_names_are_errors():
    sources = package_sources()
    # Nothing of it is public.
    del sources["eagerflow/primitives/__init__.py"]
    assert open_modules(sources) == []


@pytest.mark.parametrize(
    "line", ["def __getattr__(name): ...", "__getattr__, __dir__ = members(__name__, __all__)"]
)
def test_planted_open_module_is_found(line):
    guarded = "if TYPE_CHECKING:\n    x = 1\nelse:\n    def __getattr__(name): ...\n"
    planted = {"eagerflow/a.py": line, "eagerflow/b.py": guarded, "eagerflow/__init__.py": line}
    assert open_modules(planted) == ["eagerflow/a.py:1: any name passes in eagerflow.a"]


def test_random_declares_lazily_loaded_functions():
    tree = ast.parse((ROOT / "eagerflow/ops/random.py").read_text(encoding="utf-8"))
    told = {
        line.targets[0].id: ast.unparse(line.value)
        for node in tree.body
        if isinstance(node, ast.If)
        for line in node.body
        if isinstance(line, ast.Assign)
    }
    assert told == {name: f"default_generator.{name}" for name in RANDOM}


def test_results_have_the_type_of_those_of_the_samples():
    x = ef.zeros(2)
    assert result_type([x, x])[0] == "Tensor"
    assert result_type([(x, x)])[0] == "tuple[Tensor, Tensor]"
    assert result_type([(x,), (x, x)])[0] == "tuple[Tensor, ...]"
    with pytest.raises(AssertionError):
        result_type([x, (x, x)])


def test_signatures_are_written_as_they_are():
    def f(x: "int", /, y: "bool" = True, *, z: "float" = np.inf, name: "str" = "a") -> "bool": ...

    stub = Stub("eagerflow", ["bool"])
    stub.define("f", f)
    line = 'def f(x: int, /, y: builtins.bool = True, *, z: float = ..., name: str = "a")'
    assert stub.lines == [f"{line} -> builtins.bool: ..."]
    assert "import builtins\n" in stub.text()
