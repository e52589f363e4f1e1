"""ONNX's own tests of operators and models: they pass, or are refused for a reason that is listed.

``refused.py`` is the list; ``python -m tests.onnx.reading.node_tests`` writes what it would be now.
"""

from dataclasses import replace

import pytest

from tests.onnx.reading.models import onnx
from tests.onnx.reading.node_tests import model_tests, node_tests, outcome, words
from tests.onnx.reading.refused import MODELS, REFUSED, VERSION

PARTS = 12
REASONS = {
    name: reason
    for listed in (REFUSED, MODELS)
    for reason, names in listed.items()
    for name in names
}
# Their numbers are random.
RANDOM = {f"bernoulli{more}" for more in ("", "_double", "_expanded", "_double_expanded")}


def misfits(names, cases):
    """What is neither right nor refused for the reason that is listed."""
    found = []
    for name in names:
        if name in RANDOM:
            continue
        came = outcome(cases[name])
        reason = words(came) if isinstance(came, set) else None
        if reason != REASONS.get(name) or (reason is None and came != "passed"):
            found.append(f"{name}: {reason or came}, listed: {REASONS.get(name)}")
    return found


@pytest.mark.sampled(8)
@pytest.mark.skipif(onnx.__version__ != VERSION, reason=f"the list is that of onnx {VERSION}")
@pytest.mark.parametrize("part", range(PARTS))
def test_node_tests(part):
    cases = node_tests()
    assert misfits(sorted(cases)[part::PARTS], cases) == []


@pytest.mark.skipif(onnx.__version__ != VERSION, reason=f"the list is that of onnx {VERSION}")
def test_model_tests():
    cases = model_tests()
    assert len(cases) >= 140
    assert misfits(sorted(cases), cases) == []


@pytest.mark.skipif(onnx.__version__ != VERSION, reason=f"the list is that of onnx {VERSION}")
def test_more_pass_than_in_onnx_runtime():
    cases = node_tests()
    refused = [name for names in REFUSED.values() for name in names]
    assert len(cases) == 1884 and set(refused) <= set(cases)
    assert len(cases) - len(refused) - len(RANDOM) > 1346


def test_wrong_values_and_other_reasons_are_found():
    cases = {name: node_tests()[name] for name in ("abs", "add", "cast_FLOAT_to_INT4")}
    assert misfits(cases, cases) == []
    swapped = {"abs": replace(cases["add"], data_sets=[_off_by_one(cases["add"])])}
    assert "wrong" in misfits(swapped, swapped)[0]
    moved = {"abs": cases["cast_FLOAT_to_INT4"], "cast_FLOAT_to_INT4": cases["abs"]}
    assert len(misfits(moved, moved)) == 2


def _off_by_one(case):
    ((inputs, outputs),) = case.data_sets
    return inputs, [y + 1 for y in outputs]
