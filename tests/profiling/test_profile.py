"""ef.profile: it sees what runs, once, at the user's lines, and leaves no trace behind."""

import os
import sys
import threading
import time
from operator import is_

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tape
from eagerflow.errors import ArgumentError, ProfileError
from eagerflow.plan.in_place import Commit
from eagerflow.plan.plan import Plan
from eagerflow.plan.segments import Segment
from eagerflow.profiling import kernels, log, memory
from eagerflow.profiling.rows import KEYS, Facts, Site, grouped, parts_of
from eagerflow.recorder import process
from eagerflow.runtime.listeners import learned
from tests.capture.placement.several_devices import COSTS
from tests.internals import watched_arrays
from tests.interrupts import at_every_bytecode, count_bytecodes, interrupted_at_times


def here():
    """The line of the caller, as profiles say it."""
    frame = sys._getframe(1)
    return f"{os.path.basename(__file__)}:{frame.f_lineno}"


def forms():
    """All that a profile puts others in the place of."""
    tables = [
        (op, which, key, entry)
        for op in learned.things
        for which in ("table", "kernels", "many")
        for key, entry in getattr(op, which).items()
    ]
    methods = Plan.run, Segment.__call__, Commit.run, Commit.replace, process.run, tape.pull_back
    return tables, methods, list(learned.hear)


PLAIN = forms()[1]


def same(first, second):
    """Whether these are the very same objects, but for kernels that were learned meanwhile."""
    (before, *methods), (after, *others) = first, second
    now = {(op, which, key): entry for op, which, key, entry in after}
    return methods == others and all(
        now[op, which, key] is entry
        or (type(entry) is tuple and all(map(is_, now[op, which, key], entry)))
        for op, which, key, entry in before
    )


def nothing_is_recorded():
    assert not log._open and not log.events and not watched_arrays()


@pytest.fixture(autouse=True)
def nothing_stays():
    """Each test begins and ends without a profile, and with the plain forms of everything."""
    ef.tanh(ef.ones(3)) + 1.0
    before = forms()
    yield
    nothing_is_recorded()
    assert not memory.changes
    assert same(before, forms())
    for *_, entry in forms()[0]:
        assert not any(hasattr(x, "untimed") for x in (entry if type(entry) is tuple else [entry]))


def counts(profile):
    return {row.name: row.calls for row in profile.by("op")}


X = ef.ones((64, 64))
KIND = X.device.kind(X.dtype)


# Events ------------------------------------------------------------------------------------------


def test_each_form_of_calls_is_seen_once():
    with ef.profile() as p:
        y = ef.tanh(X)
        y = y + X
        y = y * 2.0
        y = y.reshape((32, 128))
        y = ef.concat([y, y], axis=0)
        y = ef.sum(y, axis=1)
        found = ef.unique_values(ef.ones(3))
    assert found.shape == (1,)
    seen = counts(p)
    for name in ("tanh", "add", "multiply", "reshape", "concat", "sum"):
        assert seen[name] == 1, name


def test_lines_and_costs_are_those_of_the_call():
    with ef.profile(gigaflops=100, gigabytes=10) as p:
        y, line = ef.tanh(X @ X), here()
    assert y.shape == X.shape
    assert {row.name for row in p.by("line")} == {line}
    product = next(row for row in p.rows if row.name == "matmul")
    assert (product.flops, product.bytes, product.place) == (2 * 64**3, 3 * 64 * 64 * 4, line)
    assert product.result == "float32(64, 64)"
    assert p.machine == (100, 10)


def test_gradients_are_at_the_lines_of_their_ops():
    x = ef.Variable(np.ones((40, 40), "float32"))

    def step():
        with ef.GradientTape() as recorded:
            y, first = x @ X[:40, :40], here()
            y, second = ef.gelu(y), here()
            loss = ef.sum(y)
        return recorded.gradient(loss, x), first, second

    step()
    with ef.profile() as p:
        _, first, second = step()
    lines = {(row.name, row.place): row.calls for row in p.rows}
    assert lines["matmul", first] == 2, "forward, and back"
    assert any(place == second and "gradient" in name for name, place in lines)


def test_kernels_that_are_learned_meanwhile_are_seen():
    op = ef.cosh.op
    kinds = dict(op.table), dict(op.kernels), dict(op.many)
    for table in (op.table, op.kernels, op.many):
        table.clear()
    try:
        with ef.profile() as p:
            ef.cosh(X)
            ef.cosh(ef.ones(3, dtype="float64"))
    finally:
        for table, own in zip((op.table, op.kernels, op.many), kinds, strict=True):
            table.update(own)
    assert counts(p)["cosh"] == 2


def test_tapes_and_other_recorders_hide_nothing():
    with ef.GradientTape(persistent=True) as recorded:
        recorded.watch(X)
        with ef.profile() as p:
            ef.vmap(ef.tanh)(X)
            ef.exp(X)
            with ef.debug_nans():
                ef.sin(X)
    assert {"tanh", "exp", "sin"} <= counts(p).keys()


def test_optimizer_steps_of_eager_code_have_the_line_of_the_user():
    w = ef.Variable(np.ones((300, 300), "float32"))
    optimizer = ef.nn.optimizers.Adam()
    optimizer.apply([w.value], [w])
    with ef.profile() as p:
        _, line = optimizer.apply([w.value], [w]), here()
    assert p.by("line")[0].name == line
    assert any(row.name == "adam_update" and row.bytes for row in p.rows)


def test_captured_calls_are_seen_with_their_steps():
    f = ef.function(lambda x: ef.tanh(x @ x) @ x)
    f(X)
    with ef.profile() as p:
        for _ in range(3):
            f(X)
    seen = counts(p)
    assert seen["call of lambda"] == 3
    assert sum(row.flops for row in p.rows) >= 3 * 2 * 2 * 64**3
    regions = [row.name for row in p.by("region")]
    assert any(name.startswith("matmul at test_profile.py:") for name in regions)


def test_sessions_and_devices(monkeypatch):
    devices = sys.modules["eagerflow.devices"]
    monkeypatch.setattr(devices.device_types["cpu"], "logical", 2)

    def f(x):
        with ef.device("cpu:1"):
            y = ef.tanh(x @ x)
        with ef.device("cpu:0"):
            return y @ x

    graph = ef.capture.trace(f, ef.TensorSpec((64, 64), "float32"))
    plan = ef.capture.partition(graph, ["cpu:0", "cpu:1"], costs=COSTS)
    plan(X)
    with ef.profile() as p:
        plan(X)
    assert {"cpu:0", "cpu:1"} <= {row.name for row in p.by("device")}
    threads = {row.name for row in p.by("thread")}
    assert {"eagerflow cpu:0", "eagerflow cpu:1"} <= threads
    assert "threads, " in str(p)


def test_threads_that_come_and_go_have_their_names():
    def work():
        ef.sum(ef.exp(X))

    with ef.profile() as p:
        for number in range(3):
            thread = threading.Thread(target=work, name=f"worker {number}")
            thread.start()
            thread.join()
        ef.tanh(X)
    calls = {row.name: row.calls for row in p.by("thread")}
    assert calls == {"worker 0": 2, "worker 1": 2, "worker 2": 2, "MainThread": 1}
    own = sum(part.seconds for part in p.own_parts)
    assert p.accounted == pytest.approx(own) and p.other == pytest.approx(p.seconds - own)


def test_concurrent_threads_are_profiled_separately():
    ready = threading.Barrier(4)

    def work():
        ready.wait()
        for _ in range(50):
            ef.exp(X)

    team = [threading.Thread(target=work, name=f"t{i}") for i in range(4)]
    with ef.profile() as p:
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
    assert {row.name: row.calls for row in p.by("thread")} == {f"t{i}": 50 for i in range(4)}


# Times -------------------------------------------------------------------------------------------


def test_times_of_calls_in_each_other_count_once():
    """What runs inside is taken off what is around it, to the nanosecond."""
    site = log_site("a"), log_site("b"), log_site("c")
    thread = log.Thread("t")
    events = [
        log.Event(10, 20, thread, site[1], None),
        log.Event(12, 15, thread, site[2], None),
        log.Event(0, 100, thread, site[0], None),
        log.Event(20, 30, thread, site[1], None),
        log.Event(100, 110, thread, site[0], None),
        log.Event(5, 50, log.Thread("other"), site[2], None),
    ]
    found = {row.name: row for row in grouped(parts_of(events, "cpu:0"), KEYS["op"])}
    assert [round(found[name].seconds * 1e9) for name in "abc"] == [90, 17, 48]
    assert [found[name].calls for name in "abc"] == [2, 2, 2]


def log_site(name):
    class Named(Site):
        def facts(self, detail):
            return Facts(name)

    return Named()


def test_times_add_up():
    """All rows and what is between them are the whole; a kernel that sleeps is most of it."""
    op = ef.tanh.op
    kind = KIND
    real = op.table[kind]
    op.table[kind] = (lambda a: time.sleep(0.02) or np.tanh(a), *real[1:])
    op.table[kind] = (op.table[kind][0], real[1], op.table[kind][0])
    try:
        begin = time.perf_counter()
        with ef.profile() as p:
            for _ in range(5):
                ef.tanh(X)
        whole = time.perf_counter() - begin
    finally:
        op.table[kind] = real
    assert p.accounted >= 5 * 0.02
    assert p.accounted / p.seconds > 0.8
    assert p.accounted + p.other == pytest.approx(p.seconds)
    assert p.seconds <= whole


# Inside each other, ends and errors --------------------------------------------------------------


def test_inner_profiles_see_their_own_and_outer_ones_all():
    with ef.profile() as outer:
        ef.exp(X)
        with ef.profile() as inner:
            ef.tanh(X)
        ef.sin(X)
    assert counts(inner) == {"tanh": 1}
    assert counts(outer) == {"exp": 1, "tanh": 1, "sin": 1}


def test_profiles_may_overlap():
    first, second = ef.profile().start(), None
    ef.exp(X)
    second = ef.profile().start()
    ef.tanh(X)
    first.stop()
    ef.sin(X)
    second.stop()
    assert counts(first) == {"exp": 1, "tanh": 1}
    assert counts(second) == {"tanh": 1, "sin": 1}


def test_exception_ends_the_profile_and_keeps_events():
    with pytest.raises(ZeroDivisionError), ef.profile() as p:
        ef.exp(X)
        raise ZeroDivisionError
    assert counts(p) == {"exp": 1}


def test_failed_calls_are_explained_as_without():
    with pytest.raises(ef.errors.ShapeError) as plain:
        X @ ef.ones((3, 3))
    with ef.profile() as p, pytest.raises(ef.errors.ShapeError) as found:
        X @ ef.ones((3, 3))
    assert str(found.value) == str(plain.value)
    assert counts(p) == {"ones": 1}


def test_it_is_opened_once_and_asked_when_it_is_closed():
    p = ef.profile()
    with pytest.raises(ProfileError, match="has ended"):
        p.by("op")
    with pytest.raises(ProfileError, match="not open"):
        p.stop()
    p.start()
    with pytest.raises(ProfileError, match="has begun before"):
        p.start()
    with pytest.raises(ProfileError, match="before the profile has ended"):
        p.save("x.json")
    assert "open" in repr(p) and "open" in str(p)
    ef.exp(X)
    p.stop()
    for again in (p.start, p.stop):
        with pytest.raises(ProfileError):
            again()
    assert counts(p) == {"exp": 1}
    with pytest.raises(ArgumentError, match="'colour' is not a key"):
        p.by("colour")


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "fast", True])
def test_rates_that_are_none_are_refused(wrong):
    for name in ("gigaflops", "gigabytes"):
        with pytest.raises(ArgumentError, match="is not a rate"):
            ef.profile(**{name: wrong})


def test_an_empty_profile_has_a_table():
    with ef.profile(1, 1) as p:
        pass
    assert p.by("op") == [] and "Python and other" in str(p)


def test_calls_without_room_are_counted(monkeypatch):
    monkeypatch.setattr("eagerflow.profiling.kernels.MAX_EVENTS", 3)
    with ef.profile(1, 1) as p:
        for _ in range(5):
            ef.exp(X)
    assert counts(p) == {"exp": 3} and p.left_out == 2
    assert "about 2 calls more" in str(p)


def looked_at():
    with ef.profile() as p:
        ef.exp(X)
        ef.sum(X)
    return p


def nothing_is_open():
    nothing_is_recorded()
    assert not learned.hear and forms()[1] == PLAIN
    for *_, entry in forms()[0]:
        assert not any(hasattr(x, "untimed") for x in (entry if type(entry) is tuple else [entry]))


def test_an_interrupt_at_any_bytecode_leaves_the_plain_forms():
    looked_at()
    step = 1 + count_bytecodes(looked_at) // 150
    for first in (1, 2):  # in the middle of calls, and in what they call first
        assert at_every_bytecode(looked_at, nothing_is_open, step=step * first) > 1000


def test_interrupts_by_signals_leave_the_plain_forms():
    # Opening takes longer the more kernels were learned before: moments from begin to end of it.
    begin = time.perf_counter()
    looked_at()
    most = max(2e-3, 1.5 * (time.perf_counter() - begin))
    assert interrupted_at_times(looked_at, nothing_is_open, count=40, seconds=3.0, most=most) > 0


def test_an_end_that_is_cut_short_goes_on_where_it_was(monkeypatch):
    """A close that needs longer than any time between two interrupts is done at last."""
    looked_at()
    done, unwrap = [], kernels.unwrap

    def cut_short(op):
        unwrap(op)
        done.append(op)
        raise KeyboardInterrupt

    p = ef.profile().start()
    count = len(kernels._timed_ops)
    monkeypatch.setattr(kernels, "unwrap", cut_short)
    for _ in range(count):
        with pytest.raises(KeyboardInterrupt):
            p.release()
    p.release()
    assert len(done) == len(set(done)) == count > 1
    nothing_is_open()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_goes_on_by_itself():
    with ef.profile() as p:
        ef.exp(X)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ef.tanh(X)
                p.stop()
                plain = not any(hasattr(x, "untimed") for x in ef.tanh.op.table[KIND])
                code = 0 if counts(p) == {"exp": 1, "tanh": 1} and plain else 2
            finally:
                os._exit(code)
        ef.sin(X)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert counts(p) == {"exp": 1, "sin": 1}


def test_threads_that_go_on_after_the_end_write_nothing():
    go, stop = threading.Event(), threading.Event()

    def work():
        while not stop.is_set():
            ef.exp(X)
            go.set()

    thread = threading.Thread(target=work)
    with ef.profile() as p:
        thread.start()
        go.wait()
    seen = len(p.events)
    try:
        time.sleep(0.02)
        assert len(log.events) <= 1, "the call that ran when it ended"
        assert len(p.events) == seen > 0
    finally:
        stop.set()
        thread.join()
        log.events.clear()
        memory.Memory().off()


# As callbacks use it -----------------------------------------------------------------------------


def test_it_begins_and_ends_at_the_borders_of_batches(tmp_path):
    class Profiler(ef.nn.callbacks.Callback):
        profile = None

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2:
                self.profile = ef.profile().start()

        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                self.profile.stop()

    model = ef.nn.Sequential([ef.nn.layers.Dense(8, activation="tanh"), ef.nn.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    x, own = np.ones((48, 4), "float32"), Profiler()
    model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[own])
    calls = [row for row in own.profile.by("op") if row.name.startswith("call of")]
    assert sum(row.calls for row in calls) == 2
    own.profile.save(tmp_path / "batches.json")
    assert (tmp_path / "batches.json").stat().st_size > 500
