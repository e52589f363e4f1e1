"""Teams of threads in plans: quiet when idle, whole after interrupts, gone with their plans."""

import gc
import resource
import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.devices import current_device
from eagerflow.plan.plan import Plan
from eagerflow.plan.replay import _order
from eagerflow.plan.segments import Segment
from eagerflow.runtime import threads
from tests.interrupts import at_every_bytecode, interrupted_at_times

pytestmark = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")
RUNS_BEFORE_CODE = 20  # small kernels are NumPy's at first
IDLE_SECONDS, BUSY_SECONDS = 1.0, 0.05


@pytest.fixture(autouse=True)
def two_threads():
    threads.set_thread_count(2)
    yield
    threads.set_thread_count(None)


def chain(x, w, v):
    for _ in range(3):
        x = ef.gelu(ef.tanh(x @ w + 1.0) @ v) * 2.0
    return x


def is_same(step, args, wanted):
    """Whether a step gives the very bits that it gave before."""
    return np.array_equal(np.asarray(step(*args)), wanted)


def ready(size, seed=0):
    """A captured chain, ready to run in machine code, its arguments and its result."""
    rng = np.random.default_rng(seed)
    args = [ef.tensor((rng.standard_normal((size, size)) / size).astype("f4")) for _ in range(3)]
    step = ef.function(chain)
    for _ in range(RUNS_BEFORE_CODE):
        found = step(*args)
    return step, args, np.array(found)


def parts_of(step):
    """The parts of the segments of a captured function's plans."""
    (entry,) = step._entries.items.values()
    plans = entry.replay.plans.items.values()
    found = [s for p in plans for s in p._program.globals.values() if type(s) is Segment]
    return [part for s in found for layout in s._free for part in layout.parts]


def test_a_team_is_quiet_when_idle():
    step, args, _ = ready(600)
    assert max(getattr(part, "_helpers", 0) for part in parts_of(step)) > 0
    for _ in range(20):
        step(*args)
    before = time.process_time()
    time.sleep(IDLE_SECONDS)
    assert time.process_time() - before < BUSY_SECONDS


def test_small_steps_wake_nobody(monkeypatch):
    step, args, wanted = ready(16)
    assert max(getattr(part, "_helpers", 0) for part in parts_of(step)) == 0

    def invite(call, count):
        raise AssertionError("a thread is woken")

    monkeypatch.setattr(threads, "invite", invite)
    assert is_same(step, args, wanted)


def test_two_teams_in_two_threads():
    made, errors = [ready(size, size) for size in (300, 400)], []

    def work(step, args, wanted):
        try:
            for _ in range(100):
                assert is_same(step, args, wanted)
        except BaseException as error:
            errors.append(error)

    users = [threading.Thread(target=work, args=own) for own in made]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not errors


@pytest.mark.parametrize("size", [16, 300])
def test_an_exception_at_any_bytecode_leaves_segments_whole(size):
    step, args, wanted = ready(size)

    def check():
        assert is_same(step, args, wanted)

    assert at_every_bytecode(lambda: step(*args), check, step=2) > 50


@pytest.mark.parametrize("size", [16, 300])
def test_signals_leave_segments_whole(size):
    step, args, wanted = ready(size)

    def check():
        assert is_same(step, args, wanted)

    assert interrupted_at_times(lambda: step(*args), check, 100, seconds=20.0) > 20


def plans_made_and_dropped(count):
    """Threads and the most memory that were added by making, running and dropping plans."""
    graph = ef.capture.trace(chain, *[ef.TensorSpec((8, 8), "float32")] * 3).optimized(final=True)
    device = current_device()
    arrays = [np.ones((8, 8), "f4")] * 3
    order = _order(device)

    def make(times):
        for _ in range(times):
            plan = Plan(graph, order, device)
            plan.run(arrays)
            del plan

    make(100)
    gc.collect()
    team = threading.active_count()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    make(count)
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is Plan and o.graph is graph]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return threading.active_count() - team, grown << 10


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_plans_made_and_dropped(count):
    added, grown = plans_made_and_dropped(count)
    assert added == 0
    assert grown < 16 << 20
