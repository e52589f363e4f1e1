"""Steps commit Variables atomically: every reader sees all old values or all new ones."""

import gc
import itertools
import os
import signal
import sys
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import variable as variables
from eagerflow.guard import without_collections
from eagerflow.locks import writing
from eagerflow.ops.indexing.indices import filled
from eagerflow.plan import in_place, owners, plan, replay
from eagerflow.runtime import machine_code, threads
from eagerflow.variable import assign_together
from tests.cases.indexing.indexing import index_samples
from tests.internals import array_in, plans_of
from tests.interrupts import AtTimes, at_every_bytecode, interrupted_at_times

needs_code = pytest.mark.skipif(
    not machine_code.available(), reason="there is no machine code without llvmlite"
)
SIZE = 200_000  # elements: two threads share a kernel


class Counters:
    """Three large Variables and a small one, which each step increases by one.

    And a large one all of whose elements are written at an index.
    """

    def __init__(self, size=SIZE):
        self.large = [ef.Variable(np.zeros(size, "float32"), name=f"v{i}") for i in range(4)]
        self.small = ef.Variable(0.0, name="small")
        self.variables = variables = [*self.large, self.small]
        *plain, written = self.large
        places = ef.arange(size)

        def step(x):
            for variable in (*plain, self.small):
                variable.assign(variable * 1.0 + x)
            written.assign(written.value.at[places].set(written + x))
            return x

        self.eager = lambda x: assign_together({v: v * 1.0 + x for v in variables})
        self.captured = ef.function(step)
        self.session = ef.capture.Session(ef.capture.trace(step, ef.TensorSpec((), "float32")))
        self.one = ef.tensor(1.0)

    def run_session(self, x):
        self.session.run((), {"x": x}, targets=self.session.graphs)

    def seen(self):
        """The one value that all elements of all Variables have."""
        arrays = [v.current.numpy() for v in self.variables]
        low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
        assert low == high, f"values from {low} to {high}: {[a.flat[0] for a in arrays]}"
        return float(low)


@pytest.fixture(params=["captured", "run_session", "eager"])
def way(request):
    return request.param


def _warmed(way, size=SIZE):
    counters = Counters(size)
    step = getattr(counters, way)
    for _ in range(3):
        step(counters.one)
    return counters, lambda: step(counters.one)


def place(variable):
    """The address of a value, looked at without a read."""
    return array_in(variable).ctypes.data


@needs_code
def test_values_without_readers_are_written_over():
    counters, step = _warmed("captured")
    places = list(map(place, counters.large))
    step()
    assert list(map(place, counters.large)) == places
    held = counters.large[1].value
    before = held.numpy().copy()
    step()
    now = list(map(place, counters.large))
    assert [a == b for a, b in zip(now, places, strict=True)] == [True, False, True, True]
    assert np.array_equal(held.numpy(), before)
    del held
    step()
    assert list(map(place, counters.large)) == now
    assert counters.seen() == before[0] + 2


@needs_code
def test_values_that_another_run_reads_are_not_written_over():
    counters, step = _warmed("captured")
    read = counters.large[1]
    before = place(read)
    token = owners.begin_run(frozenset([id(read)]))
    step()
    after = place(read)
    assert after != before
    del token
    step()
    assert place(read) == after


def test_an_exception_at_any_bytecode_leaves_no_half_step(way):
    threads.set_thread_count(2)
    try:
        counters, step = _warmed(way, 40_000)
        before = counters.seen()

        def check():
            nonlocal before
            after = counters.seen()
            assert after in (before, before + 1)
            step()
            assert counters.seen() == after + 1
            before = after + 1
            assert not writing.thread

        assert at_every_bytecode(step, check, step=3) > 100
    finally:
        threads.set_thread_count(None)


def test_collections_of_garbage_see_whole_steps(way):
    """Where every new object starts a collection, and a callback hears of it."""
    counters, step = _warmed(way)
    wrong = []

    def look(phase, info):
        if writing.thread:
            wrong.append(phase)  # and reading would wait for ever

    threshold = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(1)
    try:
        for _ in range(20):
            step()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(look)
    assert not wrong
    assert gc.isenabled()
    counters.seen()


needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX has timers")


@pytest.mark.sampled(2)
@needs_signals
def test_signal_handlers_see_whole_steps_and_may_step(way):
    counters, step = _warmed(way)
    counters.captured(counters.one)
    wrong = []

    def act(frame):
        try:
            counters.seen()
            if way != "eager" and times.acts % 2:  # which reads one Variable after the other
                counters.captured(counters.one)
        except BaseException as error:
            wrong.append(error)

    with AtTimes(act, most=5e-3) as times:
        for _ in range(10_000):
            step()
            if times.acts > 100:
                break
    assert not wrong
    counters.seen()


@pytest.mark.sampled(4)
@needs_signals
def test_interrupts_by_timer_leave_no_half_step(way, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)  # those in finalizers
    counters, step = _warmed(way)

    def check():
        after = counters.seen()
        step()
        assert counters.seen() == after + 1

    assert interrupted_at_times(step, check, 300) > 0


@pytest.mark.sampled(2)
def test_other_threads_see_no_torn_value(way):
    counters, step = _warmed(way)
    wrong, stop = [], threading.Event()

    def look():
        while not stop.is_set():
            for variable in counters.variables:
                values = variable.numpy()
                if values.min() != values.max():
                    wrong.append(values)

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    end = time.perf_counter() + 1.5
    while time.perf_counter() < end:
        step()
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert not wrong
    counters.seen()


@pytest.mark.sampled(3)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_children_see_whole_steps(way):
    counters, step = _warmed(way)
    found, stop = [], threading.Event()

    def fork():
        while not stop.is_set():
            child = os.fork()
            if child == 0:
                try:
                    counters.seen()
                    os._exit(0)
                finally:
                    os._exit(1)
            found.append(os.waitpid(child, 0)[1])

    forker = threading.Thread(target=fork)
    forker.start()
    end = time.perf_counter() + 2.0
    while time.perf_counter() < end or len(found) < 6:
        step()
    stop.set()
    forker.join()
    assert not any(found)


def test_finalizers_see_whole_steps(way):
    counters, step = _warmed(way)
    seen, wrong = [], []

    def gone(_):
        try:
            seen.append(counters.seen())
        except BaseException as error:
            wrong.append(error)

    for _ in range(20):
        dying = [
            weakref.ref(v.current.numpy().base, gone)
            for v in counters.variables
            if v.current.numpy().base is not None
        ]
        step()
        del dying
    assert not wrong
    counters.seen()


def test_a_refused_value_changes_nothing():
    counters = Counters(100)
    values = {v: v.value + 1.0 for v in counters.large}
    with pytest.raises(ef.errors.ShapeError):
        assign_together({**values, counters.small: ef.ones((2,))})
    assert counters.seen() == 0.0


class Rows:
    """Tables that change along slices of their gradients: each step takes one from some rows."""

    def __init__(self, size=8_000):
        self.tables = [ef.Variable(np.zeros((size, 8), "float32"), name=f"t{i}") for i in range(3)]
        self.optimizer = ef.nn.optimizers.SGD(1.0)
        slices = ef.IndexedSlices(np.ones((3, 8), "float32"), [1, size - 1, 5], (size, 8))
        self.one = ef.tensor(1.0)

        def step(x):
            self.optimizer.apply([slices * x for _ in self.tables], self.tables)
            return x

        self.rows_eager = step
        self.rows_captured = ef.function(step)

    def seen(self):
        """The number of steps, which rows of all tables tell too."""
        count = float(self.optimizer.iterations)
        assert all(np.all(t.numpy()[[1, 5, -1]] == -count) for t in self.tables)
        return count


def _refuse(self, *_):
    raise MemoryError


def _plans(counters):
    return plans_of(counters.captured)


def _check_that_none_has_changed(counters, step, monkeypatch):
    before = counters.seen()
    held = [v.value for v in counters.large]  # so that new memory is needed for each
    with pytest.raises(MemoryError):
        step()
    assert counters.seen() == before
    monkeypatch.undo()
    step()
    assert counters.seen() == before + 1 and held[0].numpy()[0] == before


def without_memory(step, at, monkeypatch):
    """Step while the allocation with a number fails, of those while Variables change; if it did."""
    testing = pytest.importorskip("_testcapi")

    def failing(call):
        gc.collect()  # which also frees what Python keeps of tuples and lists that are gone
        testing.set_nomemory(at, at + 1)
        try:
            return without_collections(call)
        finally:
            testing.remove_mem_hooks()

    monkeypatch.setattr("eagerflow.variable.without_collections", failing)
    try:
        step()
    except MemoryError:
        return True
    finally:
        monkeypatch.undo()
    return False


def _check_all_or_nothing(counters, step, monkeypatch):
    """Let each allocation fail; how many there were."""
    for at in itertools.count(1):
        before = counters.seen()
        failed = without_memory(step, at, monkeypatch)
        assert not writing.thread and gc.isenabled()
        after = counters.seen()
        assert after in (before, before + 1)
        step()
        assert counters.seen() == after + 1
        if not failed:
            return at - 1
    return 0


@pytest.mark.parametrize("way", ["captured", "run_session", "eager", "rows_captured", "rows_eager"])
def test_no_allocation_that_fails_leaves_a_half_step(way, monkeypatch):
    counters = Rows() if way.startswith("rows") else Counters(40_000)
    step = partial(getattr(counters, way), counters.one)
    for _ in range(3):
        step()
    assert _check_all_or_nothing(counters, step, monkeypatch) > 1


def test_allocations_between_two_writes_are_found(monkeypatch):
    counters = Counters(100)
    counters.eager(counters.one)

    def put(cell, name, value):
        setattr(cell, name, [value][0])  # a list, which needs memory

    monkeypatch.setattr("eagerflow.variable.setattr", put, raising=False)
    with pytest.raises(AssertionError, match="values from"), pytest.MonkeyPatch.context() as inner:
        _check_all_or_nothing(counters, lambda: counters.eager(counters.one), inner)


@needs_code
def test_copy_failure_before_commit_leaves_no_partial_step(monkeypatch):
    counters, step = _warmed("captured")
    monkeypatch.setattr(in_place, "copied", _refuse)
    _check_that_none_has_changed(counters, step, monkeypatch)


def test_buffers_that_cannot_be_allocated_leave_no_half_step(monkeypatch):
    counters, step = _warmed("captured")
    for found in _plans(counters):
        found.release()
    monkeypatch.setattr(plan.Frame, "__init__", _refuse)
    _check_that_none_has_changed(counters, step, monkeypatch)


@needs_code
@pytest.mark.parametrize("job", [in_place.KernelJob, in_place.PartJob])
def test_values_that_cannot_be_copied_leave_no_half_step(job, monkeypatch):
    counters, step = _warmed("captured")
    reading_before_the_commit(counters.large, monkeypatch)
    monkeypatch.setattr(job, "copy", _refuse)
    with pytest.raises(MemoryError):
        step()
    monkeypatch.undo()
    assert counters.seen() == 3.0
    step()
    assert counters.seen() == 4.0


def reading_before_the_commit(variables, monkeypatch):
    """Let each step find values read that it could have written over; what was read."""
    found = []
    replace = in_place.Commit.replace

    def read_and_replace(*args):
        found[:] = [v.value for v in variables]
        return replace(*args)

    monkeypatch.setattr(in_place.Commit, "replace", read_and_replace)
    return found


@needs_code
@pytest.mark.parametrize("which", [slice(None), slice(1, 2), slice(3, 4)])
def test_values_read_while_a_step_runs_are_copied(which, monkeypatch):
    counters, step = _warmed("captured")
    found = reading_before_the_commit(counters.large[which], monkeypatch)
    for _ in range(3):
        before = counters.seen()
        step()
        held = list(found)
        step()
        assert all(np.all(t.numpy() == before) for t in held)
        assert counters.seen() == before + 2


@needs_code
def test_a_step_in_the_middle_of_a_step_owns_the_values(monkeypatch):
    counters, step = _warmed("captured")
    before = counters.seen()
    replace = in_place.Commit.replace

    def step_and_replace(*args):
        monkeypatch.undo()
        step()
        held.extend(v.value for v in counters.large)
        return replace(*args)

    held = []
    monkeypatch.setattr(in_place.Commit, "replace", step_and_replace)
    step()
    assert all(np.all(t.numpy() == before + 1) for t in held)
    assert counters.seen() == before + 1  # the outer step began with the values of before


@needs_code
def test_parts_are_written_where_they_are():
    table = ef.Variable(np.zeros((1000, 64), "float32"))

    @ef.function
    def step(rows, values):
        table.assign(table.value.at[rows].set(values))

    places = set()
    for k in range(4):
        step(np.array([3, 999, 3]), np.full((3, 64), k, "float32"))
        places.add(place(table))
    assert len(places) == 1
    assert table.numpy().sum() == 2 * 64 * 3 and table.numpy()[[3, 999]].min() == 3
    with pytest.raises(
        ef.errors.IndexRangeError, match=r"(?s)index 1000 is out of .*test_in_place"
    ):
        step(np.array([3, 1000, 3]), np.ones((3, 64), "float32"))
    assert table.numpy().sum() == 2 * 64 * 3


def _writer(v, index):
    @ef.function
    def step(x, *arrays):
        v.assign(ef.index_set(v, x, *arrays, index=index))

    return step


@needs_code
@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float32", "complex128"])
def test_parts_are_those_that_numpy_writes(dtype, monkeypatch):
    for module in (in_place, replay, variables):
        monkeypatch.setattr(module, "MIN_OWNED_BYTES", 0)
    rng = np.random.default_rng(0)
    for shape, arrays, index in [*index_samples(rng), ((2, 70), (), (1,)), ((0,), (), (Ellipsis,))]:
        v = ef.Variable(ef.tensor(rng.integers(0, 2, shape)).astype(dtype), trainable=False)
        key = filled(index, arrays)
        part = np.empty(shape)[key].shape
        x = ef.astype(rng.integers(0, 2, part), dtype)

        step = _writer(v, index)
        wanted = v.numpy().copy()
        for values in (x, x[..., :1] if part and part[-1] else x):
            wanted[key] = values.numpy()
            step(values, *arrays)
            before = place(v)
            step(values, *arrays)
            assert place(v) == before
            np.testing.assert_array_equal(v.numpy(), wanted)


@needs_code
def test_a_part_that_comes_from_the_old_value_is_read_before():
    v = ef.Variable(np.arange(100_000, dtype="float32"))

    @ef.function
    def step():
        v.assign(v.value.at[:50_000].set(v.value[25_000:75_000]))

    step()
    wanted = np.arange(100_000)
    wanted[:50_000] = np.arange(25_000, 75_000)
    assert np.array_equal(v.numpy(), wanted)
