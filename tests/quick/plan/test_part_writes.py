"""Parts of values that are written when a run is over: where they are, or over copies."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import IndexRangeError
from eagerflow.plan import part_writes
from eagerflow.plan.part_writes import copied, part_write_of, written
from eagerflow.runtime import machine_code
from tests.internals import array_in

needs_code = pytest.mark.skipif(
    not machine_code.available(), reason="there is no machine code without llvmlite"
)
ROWS, WIDTH = 40, 3
IDS = np.array([3, -1, 3, 7])


def write_graph():
    specs = [((ROWS, WIDTH), "float32"), ((len(IDS), WIDTH), "float32"), ((len(IDS),), "int64")]
    return ef.capture.trace(
        lambda table, rows, ids: table.at[ids].set(rows), *[ef.TensorSpec(*s) for s in specs]
    )


def told(table, ids=IDS):
    """What is to be written over a table, and what it will be."""
    rows = np.arange(len(ids) * WIDTH, dtype="float32").reshape(-1, WIDTH) + 1
    (found,) = part_write_of(write_graph())([table, rows, ids])
    wanted = table.copy()
    wanted[ids] = rows
    return found, wanted


class Kept(dict):
    """A holder of one value."""

    def take(self, one):
        (self["table"],) = written([one])


@needs_code
def test_part_is_written_in_place_if_unshared():
    kept = Kept(table=np.zeros((ROWS, WIDTH), "float32"))
    address = kept["table"].ctypes.data
    one, wanted = told(kept["table"])
    assert not kept["table"].any(), "nothing is written before"
    kept.take(one)
    assert kept["table"].ctypes.data == address
    np.testing.assert_array_equal(kept["table"], wanted)


@needs_code
@pytest.mark.parametrize("hold", [lambda x: x, lambda x: x[1:], lambda x: memoryview(x)])
def test_held_value_is_unchanged_by_part_writes(hold):
    kept = Kept(table=np.ones((ROWS, WIDTH), "float32"))
    held = hold(kept["table"])
    one, wanted = told(kept["table"])
    kept.take(one)
    assert (np.asarray(held) == 1).all()
    np.testing.assert_array_equal(kept["table"], wanted)


@needs_code
@pytest.mark.parametrize("make", [np.asfortranarray, lambda x: np.frombuffer(x.tobytes(), x.dtype)])
def test_unwritable_values_are_copied(make):
    begin = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    kept = Kept(table=make(begin).reshape(ROWS, WIDTH))
    one, wanted = told(kept["table"])
    kept.take(one)
    np.testing.assert_array_equal(kept["table"], wanted)


@needs_code
def test_concurrent_part_writes_apply_to_their_initial_value():
    kept = Kept(table=np.zeros((ROWS, WIDTH), "float32"))
    first, one = told(kept["table"], IDS[:1].repeat(4))
    second, other = told(kept["table"], IDS[3:].repeat(4))
    kept.take(first)
    del first
    np.testing.assert_array_equal(kept["table"], one)
    kept.take(second)
    np.testing.assert_array_equal(kept["table"], other)


@needs_code
def test_a_copy_leaves_the_value_as_it_is():
    table = np.zeros((ROWS, WIDTH), "float32")
    one, wanted = told(table)
    np.testing.assert_array_equal(copied(one), wanted)
    assert not table.any()
    assert copied(table) is table


@needs_code
def test_nothing_is_written_where_there_is_no_memory_for_a_copy(monkeypatch):
    kept = [np.zeros((ROWS, WIDTH), "float32") for _ in range(2)]
    held = kept[1]
    writes = [told(x)[0] for x in kept]

    def array(*args, **named):
        raise MemoryError

    monkeypatch.setattr(part_writes.np, "array", array)
    with pytest.raises(MemoryError):
        written(writes)
    assert not kept[0].any()
    assert not held.any()


@needs_code
def test_an_index_out_of_range_is_refused_before_with_op_and_line():
    with pytest.raises(IndexRangeError, match="index 99") as raised:
        told(np.zeros((ROWS, WIDTH), "float32"), np.array([3, 99, 0, 0]))
    assert raised.value.op == "index_set"
    assert "test_part_writes.py" in raised.value.at


def test_without_machine_code_there_are_none(monkeypatch):
    monkeypatch.setattr(part_writes.kernel, "can_count", lambda: False)
    assert part_write_of(write_graph()) is None
    assert written([1, 2]) == [1, 2]


def test_eager_steps_write_rows_where_they_are():
    table = ef.Variable(np.ones((5_000, 64), "float32"))
    ids = ef.tensor([3, 4_000, 17])
    optimizer = ef.nn.optimizers.SGD(0.01)
    places = set()
    for number in range(6):
        with ef.GradientTape() as tape:
            rows = ef.embedding_lookup(table, ids, sparse_gradient=True)
            loss = (rows * rows).sum()
        optimizer.apply([tape.gradient(loss, table)], [table])
        if number:
            places.add(array_in(table).ctypes.data)
    assert len(places) == 1
