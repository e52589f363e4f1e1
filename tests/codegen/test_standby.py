"""Helpers that stand by: teams that run are seen, done once, and left before they end."""

import ctypes
import os
import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.codegen.llvm import team
from eagerflow.runtime import machine_code, threads

pytestmark = pytest.mark.skipif(not machine_code.available(), reason="needs llvmlite")
SIZE = 1 << 18


@pytest.fixture
def two():
    threads.set_thread_count(2)
    yield
    threads.set_thread_count(None)


def operands(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, SIZE), np.float32)


def sigmoid(x):
    return ef.sigmoid(ef.tensor(x)).numpy()


def helpers_wait(board):
    """Call until a helper is seen to stand by: on a busy machine it may come late each time."""
    end, x = time.monotonic() + 10, operands(0)[0]
    while time.monotonic() < end:
        sigmoid(x)
        seen = time.monotonic() + 0.02
        while time.monotonic() < seen:
            if board.waiting():
                return True
            time.sleep(0)  # a helper needs Python's lock to learn of the call
    return False


def spent_in(seconds):
    """Processor time of this process while there is no work."""
    start = time.process_time()
    time.sleep(seconds)
    return time.process_time() - start


def test_helpers_stand_by_and_then_sleep(two):
    """One that waits is not asked again; after a moment it costs nothing."""
    board = team.functions()[2]
    assert helpers_wait(board)
    time.sleep(0.2)
    assert any(spent_in(0.3) < 0.15 for _ in range(5))  # code of earlier tests may be in the making
    assert board.waiting() == 0


def test_dismissed_helpers_stop_waiting(two):
    board = team.functions()[2]
    assert helpers_wait(board)
    threads.dismiss()
    end = time.monotonic() + 10
    while board.waiting() and time.monotonic() < end:
        pass
    assert board.waiting() == 0


def test_several_threads_run_teams_at_once(two):
    """Only one team is on the board at a time; the others are done without it."""
    given = [operands(seed) for seed in range(4)]
    wanted = [np.float32(1) / (1 + np.exp(-x.astype(np.float64))) for x, _ in given]
    wrong = []

    def work(i):
        for _ in range(60):
            found = sigmoid(given[i][0])
            if np.abs(found - wanted[i]).max() > 1e-6:
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []
    assert list(team.functions()[2]._words[:1]) == [0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_has_no_standby_helpers(two):
    x, _ = operands(5)
    wanted = sigmoid(x)
    board = team.functions()[2]
    assert helpers_wait(board)
    child = os.fork()
    if child == 0:
        none = board.waiting() == 0
        same = all(np.array_equal(sigmoid(x), wanted) for _ in range(5))
        os._exit(0 if none and same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_waits_for_no_helper_of_its_parent():
    """A helper is at work while the process forks: it counts in the team's first word."""
    own = team.Team([], None)
    at_work = ctypes.c_int64.from_address(own.address)
    at_work.value += 1
    child = os.fork()
    if child == 0:
        own.run(0)
        os._exit(0)
    at_work.value -= 1
    timer = threading.Timer(20, os.kill, (child, 9))
    timer.start()
    assert os.waitpid(child, 0)[1] == 0
    timer.cancel()


def test_memory_that_all_threads_share_is_no_helpers_own(two):
    """Rows so long that threads share each of them: their pieces meet in memory of the call's."""
    x = np.random.default_rng(6).standard_normal((2, 1 << 18), np.float32)
    for _ in range(20):
        found = ef.softmax(ef.tensor(x)).numpy()
        powers = np.exp(x.astype(np.float64))
        np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5)
