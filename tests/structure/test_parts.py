"""What the tables of the parts of the suite name is there: a renamed test would be left in."""

import re

import pytest

from tests.structure.sources import ROOT

TESTS = ROOT / "tests"


def unknown(lines):
    """The tests in lines of a table that no file defines."""
    found = []
    for line in lines:
        file, _, name = line.split(" ")[0].partition("::")
        path, name = TESTS / file, name.partition("[")[0]
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if not re.search(rf"^def {name}\(", text, re.MULTILINE):
            found.append(f"{file}::{name}")
    return found


@pytest.mark.parametrize("table", ["extended.txt", "quick.txt"])
def test_every_test_is_there(table):
    lines = (TESTS / table).read_text(encoding="utf-8").splitlines()
    assert unknown(lines) == []
    assert lines == sorted(set(lines))


def test_planted_names_are_found():
    own = "structure/test_parts.py::test_planted_names_are_found"
    assert unknown([own, f"{own}[a 3", f"{own}_not 2", "structure/test_no.py::test_a 0"]) == [
        f"{own}_not",
        "structure/test_no.py::test_a",
    ]
