"""Teams of threads in plans: quiet when idle, whole after interrupts, gone with their plans."""

import ctypes
import gc
import itertools
import resource
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen import kernel
from eagerflow.devices import current_device
from eagerflow.plan.plan import Plan
from eagerflow.plan.replay import order_for
from eagerflow.runtime import threads
from tests.internals import keep_latest_kernels, most_helpers
from tests.interrupts import at_every_bytecode, interrupted_at_times

pytestmark = pytest.mark.skipif(not kernel.has_segments(), reason="there are no segments here")
RUNS_BEFORE_CODE = 20  # small kernels are NumPy's at first
IDLE_SECONDS, BUSY_SECONDS = 1.0, 0.05


@pytest.fixture(autouse=True)
def two_threads():
    threads.set_thread_count(2)
    threads.run(lambda i: None, 2)  # the pool is there
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


def test_a_team_is_quiet_when_idle():
    step, args, _ = ready(600)
    assert most_helpers(step) > 0
    for _ in range(20):
        step(*args)
    before = time.process_time()
    time.sleep(IDLE_SECONDS)
    assert time.process_time() - before < BUSY_SECONDS


def test_small_steps_wake_no_threads(monkeypatch):
    step, args, wanted = ready(16)
    assert most_helpers(step) == 0

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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [16, 300])
def test_an_exception_at_any_bytecode_leaves_segments_whole(size):
    step, args, wanted = ready(size)

    def check():
        assert is_same(step, args, wanted)

    assert at_every_bytecode(lambda: step(*args), check, step=2) > 50


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [16, 300])
def test_signals_leave_segments_whole(size):
    step, args, wanted = ready(size)

    def check():
        assert is_same(step, args, wanted)

    assert interrupted_at_times(lambda: step(*args), check, 100, seconds=20.0) > 20


# Memory ------------------------------------------------------------------------------------------


class Held:
    """What the process has: threads, memory maps, and bytes of memory."""

    def __init__(self):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        self.threads = threading.active_count()
        self.maps = Path("/proc/self/maps").read_text().count("\n")
        self.bytes = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def grows(self, maps, size):
        """What there is more of by now than the limits allow."""
        now = Held()
        more = {
            "threads": now.threads - self.threads,
            "maps": now.maps - self.maps,
            "bytes": now.bytes - self.bytes,
        }
        allowed = {"threads": 0, "maps": maps, "bytes": size}
        return {kind: count for kind, count in more.items() if count > allowed[kind]}


def check_keeps_size(work, maps, size, rounds=3):
    """What leaks does so each time; a process that has run other tests grows at times by itself."""
    for _ in range(rounds):
        before = Held()
        work()
        grown = before.grows(maps, size)
        if not grown:
            return
    raise AssertionError(f"grew each time, the last time by {grown}")


def make_plans(graph, count):
    """Make plans of a graph, run them, and drop them."""
    device = current_device()
    arrays = [np.ones((8, 8), "f4")] * 3
    order = order_for(device)
    for _ in range(count):
        Plan(graph, order, device).run(arrays)


linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the system as Linux answers")


@linux
@pytest.mark.parametrize("count", [250, pytest.param(10_000, marks=pytest.mark.soak)])
def test_plans_made_and_dropped(count):
    graph = ef.capture.trace(chain, *[ef.TensorSpec((8, 8), "float32")] * 3).optimized(final=True)
    make_plans(graph, 100)
    check_keeps_size(lambda: make_plans(graph, count), maps=16, size=8 << 20)
    assert not [o for o in gc.get_objects() if type(o) is Plan and o.graph is graph]


def make_functions(count, start):
    """Capture functions of which none is like another, run them, and drop them.

    Each has regions of its own, products of its own sizes, a scan and its gradient, attention, a
    convolution, and guards about what it reads.
    """
    for i in range(start, start + count):
        settings, size, bits = {"scale": 1 + i / 4096}, 32 + i % 20, f"{i:012b}"

        @ef.function
        def step(x, w, k, settings=settings, bits=bits):
            def cell(h, row):
                h = ef.tanh(h @ w + row * settings["scale"])
                return h, h

            with ef.GradientTape() as tape:
                tape.watch([x, w, k])
                rows = ef.scan(cell, x[0], x)[1]
                q = rows[None, None, :, 0] * settings["scale"]
                y = ef.relu(ef.dot_product_attention(q, q, q) @ w)
                y = ef.conv(y[0, ..., None], k)
                for bit in bits:
                    y = ef.tanh(y) if bit == "1" else ef.sigmoid(y)
                loss = ef.mean(ef.exp(-y * settings["scale"]))
            return tape.gradient(loss, [x, w, k])

        given = [np.full(s, 0.1, "f4") for s in ((16, 4, size), (size, size), (3, 3, 1, 2))]
        for _ in range(2):
            step(*map(ef.tensor, given))


def check_functions_made_and_dropped(count, rounds=3):
    starts = itertools.count(0, count)
    make_functions(count, next(starts))
    check_keeps_size(
        lambda: make_functions(count, next(starts)), maps=32, size=2 << 20, rounds=rounds
    )


@pytest.mark.soak
@linux
@pytest.mark.parametrize("count", [20, pytest.param(1_000, marks=pytest.mark.soak)])
def test_functions_made_and_dropped(count, monkeypatch):
    """Whatever is kept of them, be it code, calls or guards, is bounded."""
    keep_latest_kernels(monkeypatch, 8)
    check_functions_made_and_dropped(count)


@pytest.mark.soak
@linux
def test_planted_kernels_that_are_kept_for_good_are_found(monkeypatch):
    keep_latest_kernels(monkeypatch, None)
    with pytest.raises(AssertionError):
        check_functions_made_and_dropped(20, rounds=1)
