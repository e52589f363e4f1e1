"""The executor: order, overlap, errors, threads, and no deadlock."""

import gc
import itertools
import json
import linecache
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.placement import executor
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.capture.placement.executor import ALONE, FREE, SHARED, Program, Task
from eagerflow.capture.placement.partition import partition
from eagerflow.devices import as_device, current_device
from eagerflow.plan.replay import replay_of
from eagerflow.runtime import threads
from tests.capture.placement.several_devices import (
    COSTS,
    EAGER_TO_SPLIT,
    bits,
    far,
    random_program,
    three_cpus,
)
from tests.hangs import LIMIT
from tests.internals import last_run_of, program_in

__all__ = ["far", "three_cpus"]


def number(i):
    return lambda given: [sum(given) + i]


def tasks_of(places, after, calls=None, modes=None):
    """A task for each list of those that it waits for; each gives the sum of theirs, and 1 more."""
    devices = [as_device(p) for p in places]
    return [
        Task(
            f"task {i}",
            devices[i % len(devices)],
            (calls or {}).get(i, number(1)),
            tuple(b + 1 for b in before) or (0,),
            (i + 1,),
            (modes or {}).get(i, FREE),
            float(len(after) - i),
        )
        for i, before in enumerate(after)
    ]


def program_of(places, after, **more):
    count = len(after)
    return Program(tasks_of(places, after, **more), [0], range(1, count + 1))


def expected(after, given=0):
    found = []
    for before in after:
        found.append(1 + sum(found[b] for b in before) if before else given + 1)
    return found


# Order and values --------------------------------------------------------------------------------


def test_tasks_receive_results_of_their_dependencies(three_cpus):
    after = [[], [], [0], [0, 1], [2, 3], [4, 0]]
    values, events = program_of(three_cpus, after).run([5])
    assert values == expected(after, 5)
    when = {e.task: e for e in events}
    for i, before in enumerate(after):
        assert all(when[b].end <= when[i].begin for b in before)


def test_random_dependencies_neither_hang_nor_mix_up(three_cpus):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 60))
        after = [
            sorted(set(rng.integers(0, i, int(rng.integers(0, 4))).tolist())) if i else []
            for i in range(count)
        ]
        modes = {i: (SHARED, ALONE, FREE)[int(rng.integers(3))] for i in range(count)}
        tasks = tasks_of(three_cpus, after, modes=modes)
        tasks = [published(task) if rng.integers(2) else task for task in tasks]
        values, events = Program(tasks, [0], range(1, count + 1)).run([seed])
        assert values == expected(after, seed)
        assert sorted(e.task for e in events) == list(range(count))


def published(task):
    """The same task, which tells of its result before it ends."""
    call = task.call

    def publish(given):
        given[0](0, call(given[1:])[0])
        return []

    task.call, task.published, task.outputs = publish, task.outputs, ()
    return task


def test_published_values_are_available_before_the_task_ends(three_cpus):
    begun = threading.Event()

    def make(given):
        given[0](0, 7)
        assert begun.wait(LIMIT / 2)  # for the reader, who so runs beside it
        return [8]

    def read(given):
        begun.set()
        return [given[0] + 1]

    first, second = map(as_device, three_cpus[:2])
    tasks = [
        Task("make", first, make, (0,), (2,), FREE, published=(1,)),
        Task("read", second, read, (1,), (3,), FREE),
        Task("both", first, number(0), (1, 2), (4,), FREE),
    ]
    for _ in range(20):
        begun.clear()
        values, events = Program(tasks, [0], [1, 2, 3, 4]).run([0])
        assert values == [7, 8, 8, 15]
        assert len(events) == 3


@pytest.mark.parametrize("failing", ["make", "read"])
def test_errors_beside_published_values_end_the_run(three_cpus, failing):
    def make(given):
        given[0](0, 7)
        if failing == "make":
            raise ValueError("make")
        return [8]

    def read(given):
        if failing == "read":
            raise ValueError("read")
        return [0]

    first, second = map(as_device, three_cpus[:2])
    tasks = [
        Task("make", first, make, (0,), (2,), FREE, published=(1,)),
        Task("read", second, read, (1,), (3,), FREE),
        published(Task("never", first, number(0), (2, 3), (4,), FREE)),
        Task("nor", second, number(0), (4,), (5,), FREE),
    ]
    program = Program(tasks, [0], [5])
    for _ in range(20):
        with pytest.raises(ValueError, match=failing):
            program.run([0])


def test_the_most_urgent_of_the_ready_tasks_runs_first(three_cpus):
    order = []

    def note(i):
        return lambda given: [order.append(i)]

    place = as_device("cpu:0")
    first = [Task("opening", place, lambda given: [time.sleep(0.02)], (0,), (1,))]
    rest = [
        Task(f"{i}", place, note(i), (1,), (2 + i,), FREE, priority)
        for i, priority in enumerate([1.0, 3.0, 2.0])
    ]
    Program(first + rest, [0], [2]).run([None])
    assert order == [1, 2, 0]


def test_devices_have_one_thread_each_on_their_own_device(three_cpus):
    seen = []

    def note(given):
        seen.append((threading.current_thread().name, str(current_device())))
        return [0]

    after = [[], [], [], [0], [1], [2]]
    program = program_of(three_cpus, after, calls=dict.fromkeys(range(6), note))
    for _ in range(3):
        program.run([0])
    assert len(set(seen)) == 3
    assert all(name == f"eagerflow {place}" for name, place in seen)


@pytest.mark.parametrize("mode", [FREE, SHARED])
def test_independent_tasks_overlap(three_cpus, mode):
    met = threading.Barrier(3)  # those that ran one by one would never meet
    meet = lambda given: [met.wait(LIMIT / 2)]
    modes = dict.fromkeys(range(3), mode)
    program = program_of(three_cpus, [[], [], []], calls=dict.fromkeys(range(3), meet), modes=modes)
    values, events = program.run([0])
    assert sorted(values) == [0, 1, 2]
    assert max(e.begin for e in events) < min(e.end for e in events)


def test_tasks_that_want_to_be_alone_are(three_cpus):
    inside = []

    def note(given):
        inside.append(1)
        time.sleep(0.003)
        inside.pop()
        return [0]

    def alone(given):
        crowd = [len(inside), note(given), len(inside)]
        return [0] if crowd == [0, [0], 0] else pytest.fail("not alone")

    after = [[] for _ in range(12)]
    calls = {i: alone if i % 3 == 0 else note for i in range(12)}
    modes = {i: ALONE if i % 3 == 0 else SHARED for i in range(12)}
    # The number of a task decides its device; here each kind is on all of them.
    places = [three_cpus[i // 3 % 3] for i in range(12)]
    Program(tasks_of(places, after, calls, modes), [0], [1]).run([0])


def test_core_share_is_one_thread_when_devices_match_cores(three_cpus):
    found = []

    def look(given):
        threads.run(lambda i: found.append(threading.current_thread().name), 8)
        return [0]

    program_of(three_cpus, [[], []], calls={0: look}, modes={0: SHARED}).run([0])
    if executor.share_of(as_device("cpu:0")) == 1:
        assert set(found) == {"eagerflow cpu:0"}
    assert len(found) == 8


def test_arrays_are_let_go_of_after_their_last_reader(three_cpus):
    class Thing:
        pass

    known = []

    def make(given):
        thing = Thing()
        known.append(weakref.ref(thing))
        return [thing]

    def look(given):
        gc.collect()
        return [known[0]() is None]

    place = as_device("cpu:0")
    tasks = [
        Task("make", place, make, (0,), (1,)),
        Task("use", place, lambda given: [1], (1,), (2,)),
        Task("look", place, look, (2,), (3,)),
    ]
    values, _ = Program(tasks, [0], [3]).run([None])
    assert values == [True]


# Errors ------------------------------------------------------------------------------------------


class PlannedError(Exception):
    pass


def fail(given):
    raise PlannedError("as planned")


def test_error_cancels_pending_tasks(three_cpus):
    ran = []
    after = [[], [0], [1], [2], []]
    calls = {1: fail, 3: lambda given: [ran.append(3)]}
    program = program_of(three_cpus, after, calls=calls)
    for _ in range(20):
        with pytest.raises(PlannedError, match="as planned"):
            program.run([0])
    assert ran == []


def test_a_run_after_an_error_is_a_good_one(three_cpus):
    wrong = [True]
    after = [[], [], [0, 1], [2]]
    calls = {1: lambda given: fail(given) if wrong[0] else [1]}
    program = program_of(three_cpus, after, calls=calls)
    with pytest.raises(PlannedError):
        program.run([0])
    wrong[0] = False
    assert program.run([0])[0] == expected(after)


def test_random_failures_never_hang(three_cpus):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 40))
        after = [
            sorted(set(rng.integers(0, i, int(rng.integers(0, 3))).tolist())) if i else []
            for i in range(count)
        ]
        calls = {int(i): fail for i in rng.integers(0, count, 3)}
        modes = {i: (SHARED, ALONE, FREE)[int(rng.integers(3))] for i in range(count)}
        with pytest.raises(PlannedError):
            program_of(three_cpus, after, calls=calls, modes=modes).run([0])


def waits_for_its_tasks(thread):
    """Whether a thread is inside of the call in which a run waits for its end."""
    frame = sys._current_frames()[thread.ident]
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return frame.f_code is executor.Run.release.__code__ and "_done.get()" in line


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals go to threads on POSIX")
def test_interrupt_waits_for_running_tasks(three_cpus, monkeypatch):
    runs, ended, main = [], [], threading.main_thread()
    left = threading.Event()

    class Watched(executor.Run):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            runs.append(self)

    def slow(given):
        while not waits_for_its_tasks(main):
            time.sleep(0.001)
        signal.pthread_kill(main.ident, signal.SIGINT)
        while runs[0].error is None and not left.is_set():
            # One that comes just before the system call that waits is seen with the next one.
            signal.pthread_kill(main.ident, signal.SIGUSR1)
            time.sleep(0.001)
        left.wait(0.1)
        ended.append("after run" if left.is_set() else "in time")
        return [0]

    monkeypatch.setattr(executor, "Run", Watched)
    calls = {0: slow, 2: lambda given: [ended.append("begun later")]}
    program = program_of(three_cpus, [[], [0], [1]], calls=calls)
    # Notebooks run by tests before leave a handler of their own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    poked = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with pytest.raises(KeyboardInterrupt):
            program.run([0])
        left.set()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGUSR1, poked)
    assert ended == ["in time"]


# Threads -----------------------------------------------------------------------------------------


def test_several_threads_run_programs_at_once(three_cpus):
    after = [[], [], [0, 1], [2], [2], [3, 4]]
    program = program_of(three_cpus, after)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda i: program.run([i])[0], range(200)))
    assert found == [expected(after, i) for i in range(200)]


def test_several_threads_run_a_partition_at_once(three_cpus):
    for seed in (3, 8, 21):
        graph, inputs, variables = random_program(seed, three_cpus)
        if any(cell.assigned is not None for cell in graph.cells):
            continue
        plan = partition(graph, three_cpus, numerics="exact", costs=EAGER_TO_SPLIT)
        wanted = bits(replay_of(graph, "exact").run(inputs))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: bits(plan.run(inputs)), range(40)))  # noqa: B023
        assert all(f == wanted for f in found)
        assert len(variables) < 4


def test_shutdown_ends_the_threads_and_later_runs_start_new_ones(three_cpus):
    program = program_of(three_cpus, [[], [], [0, 1]])
    program.run([0])
    names = {f"eagerflow {place}" for place in three_cpus}
    assert {t.name for t in threading.enumerate()} & names
    executor.shutdown()
    assert not {t.name for t in threading.enumerate()} & names
    assert program.run([0])[0] == [1, 1, 3]


def test_a_thread_that_is_to_end_takes_nothing_more(three_cpus):
    worker = executor.worker_of(as_device("cpu:0"), False)
    executor.shutdown()
    assert not worker.put(None, 0, 0.0)
    assert executor.worker_of(as_device("cpu:0"), False) is not worker


def test_shutdown_meanwhile_loses_nothing(three_cpus):
    program = program_of(three_cpus, [[], [0], [1], [2], [3], [4]])
    stop = threading.Event()

    def interfere():
        while not stop.is_set():
            executor.shutdown()

    other = threading.Thread(target=interfere)
    other.start()
    try:
        assert all(program.run([0])[0] == [1, 2, 3, 4, 5, 6] for _ in range(100))
    finally:
        stop.set()
        other.join()


def _child(program, queue):
    queue.put(program.run([1])[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(three_cpus):
    program = program_of(three_cpus, [[], [], [0, 1]])
    program.run([0])
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_child, args=(program, queue))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert queue.get() == expected([[], [], [0, 1]], 1)


# Transfers ---------------------------------------------------------------------------------------


def two_memories(backend):
    def f(x):
        with ef.device("far:0"):
            a = ef.sin(x)
        with ef.device("cpu:1"):
            b = ef.cos(x)
        return a + b

    graph = ef.capture.trace(f, ef.TensorSpec((16, 16), "float32"))
    plan = partition(graph, ["cpu:0", "cpu:1", "far:0"], numerics="exact", costs=COSTS)
    x = ef.tensor(np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32))
    return f, plan, x


def test_values_are_copied_once_where_no_memory_is_shared(far):
    _, plan, x = two_memories(far)
    far.received.clear()
    assert bits([plan(x)]) == bits([ef.sin(x) + ef.cos(x)])
    assert [size for size, *_ in far.received] == [16 * 16 * 4]  # x, to far:0
    assert {(c.value, c.source, c.target) for c in plan.cuts} >= {
        ("x", "cpu:0", "far:0"),
        ("sin", "far:0", "cpu:0"),
    }
    transfers = [t for t in program_in(plan).tasks if t.transfer]
    assert len(transfers) == 2


def test_transfers_overlap_with_compute(far, monkeypatch):
    _, plan, x = two_memories(far)
    met = threading.Barrier(2)  # one after the other they would never meet
    monkeypatch.setattr(far, "before", lambda: met.wait(LIMIT / 2))
    tasks = program_in(plan).tasks
    for task in tasks:
        if str(task.device) == "cpu:1":
            task.call = lambda given, call=task.call: (met.wait(LIMIT / 2), call(given))[1]
    assert bits([plan(x)]) == bits([ef.sin(x) + ef.cos(x)])
    assert "transfer of x" in {tasks[e.task].label for e in last_run_of(plan)[1]}


def test_pieces_on_one_device_wait_for_their_own_transfers_only(far, monkeypatch):
    computed, in_time = threading.Event(), []
    monkeypatch.setattr(far, "before", lambda: in_time.append(computed.wait(LIMIT / 2)))

    def f(x, y):
        with ef.device("far:0"):
            a = ef.sin(x)
        with ef.device("cpu:1"):
            b = ef.cos(y) * 2.0
            return a + 1.0, b

    spec = ef.TensorSpec((4, 4), "float32")
    plan = partition(
        ef.capture.trace(f, spec, spec),
        ["cpu:0", "cpu:1", "far:0"],
        numerics="exact",
        costs=CostModel({"*": Rates()}, 1e-6, {("cpu:0", "far:0"): 1e3}),
    )
    program = program_in(plan)
    for task, waits in zip(program.tasks, program.waits, strict=True):
        if str(task.device) == "cpu:1" and not waits:
            task.call = lambda given, call=task.call: (call(given), computed.set())[0]
    plan(ef.ones((4, 4)), ef.ones((4, 4)))
    assert in_time == [True]  # what waits for no transfer has run before it ended
    trace = plan.timeline()["traceEvents"]
    boxes = {n: e for e in trace if e["ph"] == "X" for n in e["args"]["nodes"]}
    assert boxes["cos"]["ts"] < boxes["sin"]["ts"]


# Timeline ----------------------------------------------------------------------------------------


def test_the_timeline_is_a_chrome_trace(three_cpus, tmp_path):
    def f(x):
        with ef.device("cpu:1"):
            a = ef.sin(x)
        with ef.device("cpu:2"):
            return ef.cos(a) + x

    spec = ef.TensorSpec((8, 8), "float32")
    plan = partition(ef.capture.trace(f, spec), three_cpus, numerics="exact", costs=COSTS)
    plan(ef.ones((8, 8)))
    path = tmp_path / "trace.json"
    plan.timeline(path)
    trace = json.loads(path.read_text())
    check_trace(trace)
    rows = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    boxes = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {rows[e["tid"]] for e in boxes} == {"cpu:1", "cpu:2"}
    assert [n for e in boxes for n in e["args"]["nodes"]] == ["sin", "cos", "add"]
    arrows = [e for e in trace["traceEvents"] if e["ph"] == "s"]
    assert [(e["name"], e["args"]["bytes"]) for e in arrows] == [("send sin", 256)]


def check_trace(trace):
    """The rules of the format that a viewer relies on."""
    events = trace["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    boxes, ends = {}, {}
    for e in events:
        assert e["ph"] in ("M", "X", "s", "f")
        assert isinstance(e["name"], str)
        if e["ph"] == "M":
            continue
        assert (e["pid"], e["tid"]) in named
        assert e["ts"] >= 0
        if e["ph"] == "X":
            assert e["dur"] >= 0
            boxes.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
        else:
            ends.setdefault(e["id"], {})[e["ph"]] = e
    for spans in boxes.values():
        spans.sort()
        assert all(a[1] <= b[0] + 1e-3 for a, b in itertools.pairwise(spans))
    for pair in ends.values():
        assert set(pair) == {"s", "f"}
        assert pair["s"]["ts"] <= pair["f"]["ts"] + 1e-3
        for e in pair.values():
            inside = [a <= e["ts"] + 1e-3 and e["ts"] <= b + 1e-3 for a, b in boxes[e["tid"]]]
            assert any(inside), "an arrow that touches no box"


def test_planted_faults_of_a_trace_are_found(three_cpus):
    def good():
        return {
            "traceEvents": [
                {"ph": "M", "name": "thread_name", "pid": 1, "tid": 0, "args": {"name": "cpu:0"}},
                {"ph": "X", "name": "a", "pid": 1, "tid": 0, "ts": 0.0, "dur": 5.0},
                {"ph": "X", "name": "b", "pid": 1, "tid": 0, "ts": 6.0, "dur": 5.0},
                {"ph": "s", "name": "x", "id": 0, "pid": 1, "tid": 0, "ts": 5.0},
                {"ph": "f", "name": "x", "id": 0, "pid": 1, "tid": 0, "ts": 6.0},
            ]
        }

    check_trace(good())
    for change in (
        lambda e: e[1].update(dur=8.0),
        lambda e: e[1].update(dur=-1.0),
        lambda e: e[2].update(tid=7),
        lambda e: e.pop(),
        lambda e: e[4].update(ts=4.0),
        lambda e: e[3].update(ts=5.5),
        lambda e: e[2].update(ph="B"),
    ):
        wrong = good()
        change(wrong["traceEvents"])
        with pytest.raises(AssertionError):
            check_trace(wrong)


# Arrivals ----------------------------------------------------------------------------------------


class Ended(executor.Run):
    """A run that others bring values to."""

    def __init__(self, program, arrays):
        super().__init__(program, arrays)
        self.over = SimpleQueue()

    def ended(self):
        self.over.put(True)


def with_arrivals(three_cpus):
    place = as_device(three_cpus[0])
    add = lambda given: [sum(given)]
    tasks = [
        executor.Task("a", place, add, ("x", "early"), ("a",)),
        executor.Task("b", place, add, ("a", "late"), ("b",)),
    ]
    return executor.Program(tasks, ["x"], ["b", "late"], ["early", "late"])


def test_arrivals_make_tasks_ready_and_come_once(three_cpus):
    run = Ended(with_arrivals(three_cpus), [1])
    run.acquire()
    run.arrive("late", 100)
    run.arrive("late", 999)
    with pytest.raises(Empty):
        run.over.get(timeout=0.05)
    run.arrive("early", 10)
    assert run.over.get(timeout=20)
    assert (run.values["b"], run.values["late"]) == (111, 100)
    with pytest.raises(Empty):
        run.over.get(timeout=0.05)


def test_a_cancelled_run_waits_for_no_arrival(three_cpus):
    run = Ended(with_arrivals(three_cpus), [1])
    run.acquire()
    run.arrive("early", 10)
    run.cancel(ValueError("enough"))
    assert run.over.get(timeout=20)
    run.arrive("late", 1)
    run.cancel(ValueError("again"))
    assert str(run.error) == "enough"
    with pytest.raises(Empty):
        run.over.get(timeout=0.05)


def test_an_error_ends_a_run_with_arrivals(three_cpus):
    place = as_device(three_cpus[0])
    task = executor.Task("bad", place, lambda given: 1 / 0, ("x",), ("y",))
    run = Ended(executor.Program([task], ["x"], ["y"], ["late"]), [1])
    run.acquire()
    assert run.over.get(timeout=20)
    assert isinstance(run.error, ZeroDivisionError)
