"""Every public name resolves and explains itself: one sentence first, and an example that runs."""

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.structure.public import own_docstring, public_modules, public_values

# A full stop inside these ends no sentence.
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|cf|vs|et al|etc|Eq|Fig|Sec|No|approx)\.")


def name_problems(module):
    """The faults of a module's `__all__`: missing, unsorted, repeated or dangling names."""
    where = module.__name__
    names = getattr(module, "__all__", None)
    if names is None:
        return [f"{where}: has no __all__"]
    problems = [f"{where}.{name}: does not resolve" for name in names if not hasattr(module, name)]
    problems += [f"{where}.{name}: not in dir()" for name in sorted({*names} - {*dir(module)})]
    if list(names) != sorted(names):
        first = next(a for a, b in zip(names, sorted(names), strict=True) if a != b)
        problems.append(f"{where}.__all__: not sorted, from {first!r} on")
    if len(set(names)) != len(names):
        problems.append(f"{where}.__all__: names repeated")
    return problems


def docstring_problem(value):
    """The fault in a public callable's docstring, or None."""
    doc = own_docstring(value)
    if not doc:
        return "has no docstring of its own"
    first = " ".join(doc.split("\n\n")[0].split())
    plain = ABBREVIATIONS.sub(lambda match: match[0][:-1], first)
    if not plain.endswith(".") or re.search(r"[.!?][\"')\]`]*\s+[A-Z`]", plain):
        return f"its first paragraph is not one sentence: {first[:90]!r}"
    if ">>> " not in doc:
        return "has no example (>>>)"
    return None


def docstring_problems(modules):
    found = ((m, n, docstring_problem(value)) for m, n, value in public_values(modules))
    return [f"{module}.{name}: {problem}" for module, name, problem in found if problem]


@pytest.fixture(scope="module")
def modules():
    return public_modules()


def test_names_are_sorted_and_resolve(modules):
    assert [problem for module in modules.values() for problem in name_problems(module)] == []


def test_public_names_explain_themselves(modules):
    count = sum(1 for _ in public_values(modules))
    print(f"{count} public callables in {len(modules)} modules")
    assert count > 0
    problems = docstring_problems(modules)
    assert not problems, f"{len(problems)} of {count}:\n" + "\n".join(problems)


def planted_module(**values):
    module = ModuleType("planted")
    module.__all__ = list(values)
    for name, value in values.items():
        setattr(module, name, value)
    return module


def documented(doc):
    def function():
        pass

    function.__doc__ = doc
    return function


def test_planted_names_are_found():
    module = planted_module(b=1, a=2)
    module.__all__ += ["gone", "gone"]
    assert name_problems(module) == [
        *["planted.gone: does not resolve"] * 2,
        "planted.gone: not in dir()",
        "planted.__all__: not sorted, from 'b' on",
        "planted.__all__: names repeated",
    ]
    assert name_problems(ModuleType("planted")) == ["planted: has no __all__"]


class OpLike:
    """An op, e.g. sin. See the paper.

    >>> 1
    1
    """

    def __call__(self):
        pass


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (documented(None), "no docstring"),
        (OpLike(), "no docstring"),
        (type("Child", (OpLike,), {}), "no docstring"),
        (OpLike, "not one sentence"),
        (documented("Sine of x\n\n>>> 1\n1"), "not one sentence"),
        (documented("Sine of x."), "no example"),
        (documented("Sine of x; see\nFig. 3, e.g. Knuth.\n\n>>> 1\n1"), None),
    ],
)
def test_planted_docstrings_are_judged(value, problem):
    found = docstring_problem(value)
    assert found is None if problem is None else problem in found


def test_constants_dtypes_and_modules_are_exempt():
    child = planted_module(f=documented(None))
    child.__name__ = "planted.child"
    module = planted_module(
        DType=np.dtype[Any], child=child, float32=np.float32, g=documented(None), pi=3.14
    )
    modules = public_modules(module)
    assert sorted(modules) == ["planted", "planted.child"]
    assert docstring_problems(modules) == [
        "planted.g: has no docstring of its own",
        "planted.child.f: has no docstring of its own",
    ]


@pytest.mark.parametrize("name", public_modules())
def test_completion_offers_public_names_alone(name):
    module = public_modules()[name]
    offered = {name for name in dir(module) if not name.startswith("__")}
    assert offered == {name for name in module.__all__ if not name.startswith("__")}
