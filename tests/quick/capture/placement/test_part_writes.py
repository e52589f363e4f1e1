"""Rows of Variables in partitions: written where they are, or to copies where the value is read."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import IndexRangeError
from eagerflow.runtime import machine_code
from tests.capture.placement.several_devices import COSTS, three_cpus
from tests.cluster.programs import error_of
from tests.internals import array_of

__all__ = ["three_cpus"]

needs_code = pytest.mark.skipif(
    not machine_code.available(), reason="there is no machine code without llvmlite"
)
ROWS, WIDTH = 4000, 16
BEGIN = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
IDS = np.array([3, -1, 3, 0])


@pytest.fixture
def table(three_cpus):
    """A Variable whose rows a step over two devices writes, and that step."""
    variable, count = ef.Variable(BEGIN), ef.Variable(0.0)

    def step(ids, rows):
        with ef.device("cpu:1"):
            new = rows * 2.0
        with ef.device("cpu:0"):
            old = ef.take(variable, ids, axis=0)
            variable.assign(variable.value.at[ids].set(new))
            count.assign_add(1.0)
        return old

    specs = ef.TensorSpec((4,), "int64"), ef.TensorSpec((4, WIDTH), "float32")
    graph = ef.capture.trace(step, *specs)
    plan = ef.capture.partition(graph, three_cpus[:2], costs=COSTS)
    return variable, count, lambda ids, value: plan(ids, np.full((4, WIDTH), value, "float32"))


def after(value, begin=BEGIN):
    found = begin.copy()
    found[IDS] = 2 * value
    return found


@needs_code
def test_rows_are_written_where_they_are(table):
    variable, count, write = table
    lies = array_of(variable.current).ctypes.data
    np.testing.assert_array_equal(write(IDS, 1.0), BEGIN[IDS])
    assert (write(IDS, 5.0).numpy() == 2.0).all()
    assert array_of(variable.current).ctypes.data == lies
    np.testing.assert_array_equal(variable.numpy(), after(5.0))
    assert float(count) == 2.0


def test_held_values_survive_writes(table):
    variable, count, write = table
    held = variable.value
    write(IDS, 1.0)
    np.testing.assert_array_equal(held, BEGIN)
    np.testing.assert_array_equal(variable.numpy(), after(1.0))
    assert float(count) == 1.0


def test_a_step_that_fails_changes_nothing(table):
    variable, count, write = table
    write(IDS, 1.0)
    error = error_of(lambda: write(np.array([0, 1, ROWS, 2]), 5.0))
    assert type(error) is IndexRangeError
    assert error.op in ("take", "index_set")
    assert "test_part_writes.py" in error.at
    np.testing.assert_array_equal(variable.numpy(), after(1.0))
    assert float(count) == 1.0


def test_a_tape_sees_the_new_value(table):
    variable, _, write = table
    with ef.GradientTape() as tape:
        write(IDS, 1.0)
        y = (variable * 3.0).sum()
    np.testing.assert_array_equal(tape.gradient(y, variable), np.full_like(BEGIN, 3.0))
    np.testing.assert_array_equal(variable.numpy(), after(1.0))
