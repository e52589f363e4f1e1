"""Constants in passes: equal ones are one, and those that other code may write are known."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.passes.shared_constants import is_lent


def constants(*values):
    """How many constants remain of these after equal ones are merged."""
    made = [ef.tensor(np.asarray(value)) for value in values]

    def f(x):
        return [x.astype(value.dtype) * value for value in made]

    graph = ef.capture.trace(f, ef.TensorSpec((), "float32"))
    return len(ef.capture.passes.subexpressions(graph).constants)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 2.0]), 1),
        (np.array([np.nan]), np.array([np.nan]), 1),
        (np.array([1.0, 2.0]), np.array([1.0, 3.0]), 2),
        (np.array([0.0]), np.array([-0.0]), 2),
        (np.array([0.0], "f4"), np.array([0], "i4"), 2),
        (np.zeros((2, 3)), np.zeros((3, 2)), 2),
        (np.ones(129), np.ones(129), 2),  # too large to compare
        (np.ones(128), np.ones(128), 1),
    ],
)
def test_equal_constants_become_one(one, other, count):
    assert constants(one, other) == count
    assert constants(one, other, one.copy()) == count + (one.size > 128)


@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(None, None, 2)], ids=str)
@pytest.mark.parametrize("held", ["nothing", "array", "view", "both"])
def test_memory_that_other_code_holds_is_lent(part, held):
    array = np.arange(6.0)
    view = array[part] if part != slice(None) else array
    tensor = ef.asarray(view)
    keep = {"array": [array], "view": [view], "both": [array, view]}.get(held, [])
    del array, view
    assert is_lent(tensor) is bool(keep)
    assert not is_lent(ef.tensor(np.arange(6.0)[part]))


def test_unused_results_of_other_ops_stay():
    def f(x):
        values, _ = ef.top_k(x, 2)
        return ef.split(values, 2)[0]

    graph = ef.capture.trace(f, ef.TensorSpec((4,), "float32"))
    assert ef.capture.passes.unused_results(graph) is graph
