"""Rows of tables that lie in tasks: written where they are, and only once a run has succeeded."""

import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.cluster import server
from eagerflow.errors import IndexRangeError, TaskLostError
from eagerflow.runtime import machine_code
from tests.capture.placement.several_devices import COSTS
from tests.cluster.programs import error_of
from tests.cluster.test_faults import wait_for
from tests.internals import server_of

needs_code = pytest.mark.skipif(
    not machine_code.available(), reason="there is no machine code without llvmlite"
)
ROWS, WIDTH, COUNT = 4000, 16, 5
WORKER, OTHER, PS = "/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"


class Table:
    """A table in the task ps, and a session that writes rows of it and reads the old ones."""

    def __init__(self, cluster, name="table", worker=WORKER):
        self.begin = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
        with ef.device(PS):
            self.variable = ef.Variable(self.begin, name=name)

        def step(ids, rows, last):
            with ef.device(worker):
                checked = ef.ones(3)[last]
            with ef.device(PS):
                old = ef.take(self.variable, ids, axis=0)
                self.variable.assign(self.variable.value.at[ids].set(rows))
            return {"old": old, "checked": checked}

        self.graph = ef.capture.trace(
            step,
            ef.TensorSpec((COUNT,), "int64"),
            ef.TensorSpec((COUNT, WIDTH), "float32"),
            ef.TensorSpec((), "int64"),
        )
        self.name = name
        self.session = ef.capture.Session(self.graph, cluster=cluster)

    def write(self, ids, value, last=0):
        """Write rows; gives the old ones."""
        rows = np.full((COUNT, WIDTH), value, "float32")
        feeds = {"ids": np.array(ids), "rows": rows, "last": last}
        return self.session.run(["old", "checked"], feeds, targets=self.graph)[0].numpy()

    @property
    def values(self):
        return self.session.variables[self.name].numpy()


@pytest.fixture
def table(local):
    made = Table(local)
    yield made
    made.session.close()


def address(cluster):
    """Where the table lies."""
    (array,) = [x for x in server_of(cluster, PS).variables.values() if x.shape == (ROWS, WIDTH)]
    return array.ctypes.data


IDS = [3, -1, 3, 0, 77]


@needs_code
def test_rows_are_written_where_they_are(local, table):
    wanted = table.begin.copy()
    np.testing.assert_array_equal(table.write(IDS, -1.0), table.begin[IDS])
    lies = address(local)
    for value in (-2.0, -3.0, -4.0):
        assert (table.write(IDS, value) == value + 1).all(), "the old rows were read"
        assert address(local) == lies
    wanted[IDS] = -4.0
    np.testing.assert_array_equal(table.values, wanted)


def test_a_run_that_fails_anywhere_leaves_the_table_as_it_was(local, table):
    table.write(IDS, -1.0)
    before = table.values
    error = error_of(lambda: table.write([0, 1, ROWS, 3, 4], -2.0))
    assert type(error) is IndexRangeError
    assert "test_part_writes.py" in error.at
    assert type(error_of(lambda: table.write(IDS, -2.0, last=99))) is IndexRangeError
    np.testing.assert_array_equal(table.values, before)
    table.write(IDS, -3.0)
    assert (table.values[IDS] == -3.0).all()


def test_held_table_values_survive_writes(local, table):
    table.write(IDS, -1.0)
    assert (table.values[IDS] == -1.0).all(), "that run is over in the task too"
    held = dict(server_of(local, PS).variables)
    before = [x.copy() for x in held.values()]
    table.write(IDS, -2.0)
    assert all(map(np.array_equal, held.values(), before))
    assert (table.values[IDS] == -2.0).all()


def test_runs_at_one_time_write_all_their_rows(local):
    one = Table(local)
    other = ef.capture.Session(one.graph, cluster=local)

    def write(session, first, errors):
        rows = np.full((COUNT, WIDTH), -1.0, "float32")
        try:
            for i in range(first, 200, 2):
                ids = np.arange(COUNT) + COUNT * i
                feeds = {"ids": ids, "rows": rows, "last": 0}
                session.run("old", feeds, targets=one.graph)
        except Exception as error:
            errors.append(error)

    errors = []
    threads = [
        threading.Thread(target=write, args=(session, first, errors))
        for first, session in enumerate((one.session, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (one.values[: 200 * COUNT] == -1.0).all()
    np.testing.assert_array_equal(one.values[200 * COUNT :], one.begin[200 * COUNT :])
    one.session.close()
    other.close()


# Copies of tables --------------------------------------------------------------------------------


@pytest.fixture
def redundant():
    with ef.cluster.Cluster(
        {"worker": 2, "ps": 1}, local=True, costs=COSTS, redundant=True
    ) as made:
        yield made


def copies_of(cluster, name=WORKER):
    """The tables that a task keeps copies of, as it has them."""
    copies = list(server_of(cluster, name).copies._values.values())
    return [x for x in copies if x.shape == (ROWS, WIDTH)]


def sent_copies(cluster, call):
    """The bytes that a call lets the table's task send to the one with the copy."""
    sent = server_of(cluster, PS).transport.traffic
    call()
    return server_of(cluster, PS).transport.traffic[WORKER] - sent.get(WORKER, 0)


def check_copy(cluster, table, name=WORKER):
    values = table.values  # after the run is over everywhere
    wait_for(lambda: [np.array_equal(x, values) for x in copies_of(cluster, name)] == [True])


@needs_code
def test_a_copy_gets_the_rows_that_are_written(redundant):
    table = Table(redundant)
    whole = ROWS * WIDTH * 4
    assert sent_copies(redundant, lambda: table.write(IDS, -1.0)) > whole
    for i, ids in enumerate((IDS, [0, 1, 2, 3, ROWS - 1], [9, 9, 9, -ROWS, -1])):
        assert sent_copies(redundant, lambda: table.write(ids, -2.0 - i)) < whole / 50  # noqa: B023
        check_copy(redundant, table)
    (lies,) = [x.ctypes.data for x in copies_of(redundant)]
    table.write(IDS, -9.0)
    check_copy(redundant, table)
    assert [x.ctypes.data for x in copies_of(redundant)] == [lies], "it is written where it is"
    table.session.close()


@needs_code
def test_full_copy_is_sent_only_if_the_replica_is_stale(redundant):
    """It is so when the program has given a value, and in another task; not when a run fails."""
    table = Table(redundant, worker=OTHER)
    whole = ROWS * WIDTH * 4
    table.write(IDS, -1.0)
    table.variable.assign(table.begin + 1)
    assert sent_copies(redundant, lambda: table.write(IDS, -2.0)) > whole
    check_copy(redundant, table)
    assert type(error_of(lambda: table.write(IDS, -3.0, last=99))) is IndexRangeError
    assert sent_copies(redundant, lambda: table.write(IDS, -4.0)) < whole / 50
    check_copy(redundant, table)
    redundant.drain(WORKER)
    for value in (-5.0, -6.0):
        table.write(IDS, value)
        check_copy(redundant, table, OTHER)
    table.session.close()


@needs_code
def test_a_task_that_cannot_write_rows_of_a_copy_ends(redundant, monkeypatch):
    table, task = Table(redundant), redundant.task(WORKER)
    lives = task.lives
    table.write(IDS, -1.0)
    check_copy(redundant, table)  # else it might be that run's copy which cannot be written
    server = server_of(redundant, task.name)

    def commit(message, arrays):
        raise MemoryError

    monkeypatch.setattr(server.copies, "commit", commit)
    table.write(IDS, -2.0)
    wait_for(lambda: task.lives > lives and task.state == "ready")
    table.write(IDS, -3.0)
    check_copy(redundant, table)
    table.session.close()


@needs_code
def test_a_task_that_has_no_memory_for_new_values_ends(local, table, monkeypatch):
    task = local.task(PS)
    lives = task.lives
    table.write(IDS, -1.0)
    assert (table.values[IDS] == -1.0).all(), "that run is over in the task too"

    def written(values):
        raise MemoryError

    monkeypatch.setattr(server, "written", written)
    table.write(IDS, -2.0)
    assert type(error_of(lambda: table.values)) is TaskLostError
    monkeypatch.undo()
    wait_for(lambda: task.lives > lives and task.state == "ready")
    table.variable.assign(table.begin)
    table.write(IDS, -3.0)
    assert (table.values[IDS] == -3.0).all()
