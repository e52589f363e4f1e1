"""Threads: tapes, devices and kernels of one never touch those of another."""

import contextvars
import gc
import signal
import threading
import weakref

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.devices import device_types
from eagerflow.errors import EagerflowError
from eagerflow.recorder import process, recorder_state

THREADS, GRADIENTS = 8, 1_000


def together(work, count):
    """Run ``work(i)`` in ``count`` threads that start at the same moment; their results."""
    gate, results, failures = threading.Barrier(count), [None] * count, []

    def run(i):
        try:
            gate.wait(10)
            results[i] = work(i)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert recorder_state()[:2] == (None, None)
    assert not process.recorders


def test_thousands_of_gradients_in_eight_threads(monkeypatch):
    monkeypatch.setattr(device_types["cpu"], "logical", THREADS)
    monkeypatch.setattr(device_types["cpu"], "devices", dict(device_types["cpu"].devices))

    def work(i):
        wrong = 0
        with ef.device(f"cpu:{i}"):
            w = ef.Variable([float(i + 1), 2.0])
            for step in range(GRADIENTS):
                with ef.GradientTape() as tape:
                    loss = (w * w * float(step)).sum()
                g = tape.gradient(loss, w)
                wrong += g.tolist() != [2.0 * (i + 1) * step, 4.0 * step]
                wrong += str(g.device) != f"cpu:{i}"
        return wrong

    wrong = together(work, THREADS)
    print(f"{THREADS * GRADIENTS} gradients, {sum(wrong)} wrong")
    assert wrong == [0] * THREADS


def test_one_variable_is_read_by_many_threads():
    w = ef.Variable([1.0, 2.0, 3.0])

    def work(i):
        g = []
        for _ in range(200):
            with ef.GradientTape() as tape:
                loss = (w * float(i)).sum()
            g.append(tape.gradient(loss, w).tolist())
        return g

    for i, found in enumerate(together(work, 4)):
        assert found == [[float(i)] * 3] * 200


def test_one_tensor_is_watched_by_many_threads():
    x = ef.tensor([1.0, 2.0])

    def work(i):
        return [ef.grad(lambda x: (x * x * float(i)).sum())(x).tolist() for _ in range(200)]

    for i, found in enumerate(together(work, 4)):
        assert found == [[2.0 * i, 4.0 * i]] * 200


def test_large_arrays_in_two_threads_at_once():
    """The shared quiet context is taken by one thread; the other finds its own."""
    size = 1 << 20

    def work(i):
        x = ef.full((size,), float(i + 1))
        return [float((ef.exp(x * 0.0) * x / 0.5 + x).sum()) for _ in range(20)]

    for i, found in enumerate(together(work, 4)):
        assert found == [3.0 * (i + 1) * size] * 20


def test_collisions_raise_no_floating_point_error():
    def work(i):
        with np.errstate(all="raise"):
            x = ef.tensor(np.linspace(-1, 1, 100_000, dtype=np.float32))
            for _ in range(30):
                assert bool(ef.isnan(ef.log(x)).any())
                assert bool(ef.isinf(x[50_000:50_001] / 0).any())
            assert np.geterr()["divide"] == "raise"
        return True

    assert together(work, 4) == [True] * 4


def test_a_recorder_does_not_leak_into_another_thread():
    entered, leave, seen = threading.Event(), threading.Event(), []
    x = ef.tensor([1.0, 2.0])

    def other():
        entered.wait(5)
        y = x * 3
        seen.append((recorder_state()[1], float(y.sum())))
        leave.set()

    thread = threading.Thread(target=other)
    thread.start()
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        entered.set()
        leave.wait(5)
        y = (x * x).sum()
        assert repr(tape).startswith("<GradientTape recording: 2 ops")
    thread.join()
    assert seen == [(None, 9.0)]
    assert tape.gradient(y, x).tolist() == [2.0, 4.0]


def test_unrecorded_ops_are_correct_while_other_threads_record():
    stop, recorded = threading.Event(), threading.Event()

    def record(i):
        count = 0
        while not stop.is_set():
            with ef.GradientTape() as tape:
                tape.watch(x := ef.tensor(float(count)))
                y = x * x
            assert float(tape.gradient(y, x)) == 2.0 * count
            count += 1
            if count > 20:
                recorded.set()
        return count

    def compute(i):
        try:
            x = ef.tensor([1.0, 2.0])
            rounds = 0
            while rounds < 2_000 or not recorded.is_set():
                rounds += 1
                y = x * x + x
                assert y.tolist() == [2.0, 6.0]
        finally:
            stop.set()

    counts = together(lambda i: compute(i) if i else record(i), 2)
    assert counts[0] > 20


class Stop(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, Stop])
def test_recorders_are_restored_after_any_exception(error):
    x = ef.tensor([1.0, 2.0])

    def interrupted(x):
        raise error

    with ef.GradientTape() as outer:
        outer.watch(x)
        for transform in (
            lambda: ef.grad(interrupted)(x),
            lambda: ef.vmap(interrupted)(x),
            lambda: ef.jvp(interrupted, (x,), (x,)),
            lambda: ef.hessian(interrupted)(x),
            lambda: ef.checkpoint(interrupted)(x),
            lambda: ef.grad(lambda x: ef.vmap(interrupted)(x).sum())(x),
            lambda: ef.custom_gradient(interrupted)(x),
        ):
            with pytest.raises(error):
                transform()
            assert recorder_state()[1] is outer
        y = (x * x).sum()
    assert outer.gradient(y, x).tolist() == [2.0, 4.0]


def test_a_signal_handler_may_call_ops():
    found = []

    def handler(signum, frame):
        found.append(float((ef.ones((3,)) * 2).sum()))

    before = signal.signal(signal.SIGALRM, handler)
    x = ef.tensor(np.ones(200_000))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(100):
            assert float((x * 2 + x).sum()) == 600_000.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found
    assert set(found) == {6.0}


def test_a_finalizer_may_call_ops():
    found = []

    class Owner:
        pass

    for _ in range(20):
        owner = Owner()
        weakref.finalize(owner, lambda: found.append(float(ef.ones((3,)).sum())))
        with ef.GradientTape() as tape:
            tape.watch(x := ef.tensor(2.0))
            y = x * x
            del owner
            gc.collect()
        assert float(tape.gradient(y, x)) == 4.0
    assert found == [3.0] * 20


def test_a_tape_is_left_where_it_was_entered():
    tape = ef.GradientTape()
    tape.__enter__()

    def leave(i):
        with pytest.raises(EagerflowError, match=r"entered in another|not entered|order"):
            tape.__exit__(None, None, None)

    together(leave, 1)
    tape.__exit__(None, None, None)


def test_tapes_are_left_in_reverse_order():
    outer, inner = ef.GradientTape(), ef.GradientTape()
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(EagerflowError, match="entered after it"):
        outer.__exit__(None, None, None)
    assert recorder_state()[1] is None  # nothing records any more, in whatever order they are left
    with pytest.raises(EagerflowError, match="entered after it"):
        inner.__exit__(None, None, None)
    assert recorder_state()[1] is None and not process.recorders


def test_tapes_in_copied_contexts_are_their_own():
    """An asyncio task or an executor may run in a copy of the context."""
    x = ef.tensor(3.0)
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        g = contextvars.Context().run(ef.grad(lambda x: x * x * x), x)
    assert float(g) == 27.0
    assert float(tape.gradient(y, x)) == 6.0
