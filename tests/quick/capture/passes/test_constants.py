"""Constants in passes: equal ones are one, and those that other code may write are known."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.passes.shared_constants import is_lent
from eagerflow.devices import add_task, remove_task


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


@pytest.fixture
def hosts():
    """Devices of this process, and one of a task."""
    ef.set_logical_devices("cpu", 2)
    add_task("/job:worker/task:0", {"cpu": 1})
    yield "cpu:0", "cpu:1", "/job:worker/task:0/device:cpu:0"
    remove_task("/job:worker/task:0")


def test_constants_of_all_hosts_are_computed_once(hosts):
    """The pieces of a step have one program wherever they run, and so the same bits."""
    graph = ef.capture.trace(lambda x: x * ef.exp(ef.ones((3,))), ef.TensorSpec((3,), "float32"))
    for where in (*hosts, "gpu:9"):
        for node in graph.nodes:
            node.device = where
        found = ef.capture.passes.constants(graph)
        if where == "gpu:9":
            assert found is graph
        else:
            assert [node.op.name for node in found.nodes] == ["multiply"]
            assert [str(value.constant.device) for value in found.constants] == [where]


def test_unused_results_of_other_ops_stay():
    def f(x):
        values, _ = ef.top_k(x, 2)
        return ef.split(values, 2)[0]

    graph = ef.capture.trace(f, ef.TensorSpec((4,), "float32"))
    assert ef.capture.passes.unused_results(graph) is graph
