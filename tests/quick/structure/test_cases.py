"""Each op and each composed function has a row of cases, and each row belongs to one."""

import importlib
import pkgutil

import pytest

import tests.cases
from eagerflow.op import ops
from tests.cases import cases_of
from tests.contract.cases import shipped
from tests.contract.composed import ALL

FUNCTIONS = [*shipped(), *(composed.facts for composed in ALL)]


def test_every_op_has_cases():
    without = []
    for op in FUNCTIONS:
        try:
            found = cases_of(op)
        except (KeyError, ModuleNotFoundError):
            without.append(op.name)
        else:
            without += [f"{op.name}: {case}" for case, x in found._asdict().items() if x is None]
    assert without == []


def test_every_row_has_an_op():
    names = {op.name for op in FUNCTIONS}
    modules = pkgutil.walk_packages(tests.cases.__path__, "tests.cases.")
    tables = {m.name: getattr(importlib.import_module(m.name), "CASES", {}) for m in modules}
    assert {
        f"{m}: {name}" for m, table in tables.items() for name in table if name not in names
    } == set()
    assert sum(map(len, tables.values())) == len(FUNCTIONS)


def test_an_op_without_cases_is_told(monkeypatch):
    module = importlib.import_module("tests.cases.elementwise.powers")
    monkeypatch.delitem(module.CASES, "hypot")
    with pytest.raises(KeyError, match="hypot"):
        cases_of(ops["hypot"])
