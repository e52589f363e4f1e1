"""The pages about kernels state the bounds, sizes and instructions of the code."""

import re

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import generated, kernel
from eagerflow.codegen.functions.table import BOUNDS
from eagerflow.codegen.instructions import INSTRUCTIONS
from eagerflow.codegen.region import REDUCTIONS
from eagerflow.runtime.machine_code import available
from tests.structure.sources import ROOT

NAMES = "kernels", "kernels-regions", "kernels-accuracy"
PAGE, REGIONS, ACCURACY = ((ROOT / "docs" / f"{n}.md").read_text(encoding="utf-8") for n in NAMES)


def table(text, marker):
    """The cells of the table behind ``<!-- marker -->``, without its heading."""
    lines = text.split(f"<!-- {marker} -->\n")[1].splitlines()
    rows = lines[2 : next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


# Bounds -------------------------------------------------------------------------------------------


def wrong_bounds(text):
    """Functions whose row does not state the bounds that hold, or more than them as measured."""
    found = {cells[0].strip("`"): cells[1:] for cells in table(text, "bounds of functions")}
    wrong = [f"{name}: no row" for name in BOUNDS if name not in found]
    for name, (bound, *measured) in found.items():
        if BOUNDS.get(name) != (float(bound), float(bound)):
            wrong.append(f"{name}: the bounds are {BOUNDS.get(name)}, not {bound}")
        if len(measured) != 2 or any(not 0 < float(error) <= float(bound) for error in measured):
            wrong.append(f"{name}: {measured} of {bound} was measured")
    return wrong


def test_bounds_are_those_of_the_code():
    assert wrong_bounds(ACCURACY) == []


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        (r"\| `exp` \| 1 ", "| `exp` | 2 "),
        (r"\| `exp` .*\n", ""),
        (r"\| `exp` .*\n", "| `exp` | 1 | 1.1 | 0.9 |\n"),
        (r"\| `exp` ", "| `expo` "),
    ],
)
def test_a_wrong_bound_is_found(line, changed):
    planted, count = re.subn(line, changed, ACCURACY)
    assert count == 1
    assert any(problem.startswith("exp") for problem in wrong_bounds(planted))


# Ops ----------------------------------------------------------------------------------------------


CALLS = {
    "adam_update": lambda x: ef.adam_update(x, x, x, x, 0.1, 1),
    "dropout": lambda x: ef.dropout(x, 0.5, generator=ef.random.Generator(0)),
    "group_norm": lambda x: ef.group_norm(x.reshape(-1, 4), 2),
    "momentum_update": lambda x: ef.momentum_update(x, x, x, 0.1),
    "sigmoid_cross_entropy": lambda x: ef.sigmoid_cross_entropy(x, x),
    "softmax_cross_entropy": lambda x: ef.softmax_cross_entropy(x, x),
    "sparse_softmax_cross_entropy": lambda x: ef.sparse_softmax_cross_entropy(
        x.reshape(-1, 4), np.zeros(x.size // 4, np.int64)
    ),
}
OPS = {
    name: int(size.replace(",", ""))
    for names, size in table(PAGE, "ops that run as regions")
    for name in names.strip("`").split()
}


def kernels_run(function, x):
    """How many generated kernels a call runs by itself."""
    calls = []
    kernel.watch(calls)
    try:
        function(x)
    finally:
        kernel.watch(None)
    return len(calls)


@pytest.mark.skipif(not available(), reason="ops use generated kernels with llvmlite")
@pytest.mark.parametrize("name", OPS)
def test_ops_use_kernels_from_the_size_on_that_is_stated(name):
    assert generated.enabled()
    function = CALLS.get(name) or getattr(ef, name)
    assert kernels_run(function, ef.ones((OPS[name],))) == 1
    assert kernels_run(function, ef.ones((OPS[name] - 4,))) == 0


# Names --------------------------------------------------------------------------------------------


def test_all_instructions_are_on_the_page():
    words = set(re.findall(r"\w+", REGIONS))
    assert sorted({*INSTRUCTIONS, *REDUCTIONS} - words) == []
