"""The thread pool of the kernels: every call is made once, errors arrive, forks work."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError
from eagerflow.runtime import blas, threads


@pytest.fixture(params=[1, 2, 4])
def count(request):
    threads.set_thread_count(request.param)
    yield request.param
    threads.set_thread_count(None)


def test_each_call_is_made_once(count):
    made = []
    for n in (0, 1, 2, 50):
        made.clear()
        threads.run(made.append, n)
        assert sorted(made) == list(range(n))


def test_the_first_error_is_raised_and_the_pool_lives_on(count):
    def fail(i):
        if i == 3:
            raise KeyError("three")

    with pytest.raises(KeyError, match="three"):
        threads.run(fail, 8)
    test_each_call_is_made_once(count)


def test_calls_inside_of_calls(count):
    made = []
    threads.run(lambda i: threads.run(lambda j: made.append((i, j)), 3), 4)
    assert sorted(made) == [(i, j) for i in range(4) for j in range(3)]


def test_several_users_at_once(count):
    results = [[] for _ in range(4)]
    users = [threading.Thread(target=threads.run, args=(r.append, 40)) for r in results]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert [sorted(r) for r in results] == [list(range(40))] * 4


def test_threads_of_the_pool_are_quiet_about_floats(count):
    large, kept = np.full(1000, 1e38, np.float32), []

    def multiply(i):
        if threading.current_thread() is not threading.main_thread():
            np.multiply(large, large)  # a warning would be an error here, see pyproject
            kept.append(np.geterr()["over"])

    threads.run(multiply, 50)
    assert set(kept) <= {"ignore"}


def test_blas_gets_its_threads_back(count):
    functions = blas.thread_functions()
    if functions is None:
        pytest.skip("NumPy's BLAS is not an OpenBLAS that can be found")
    before, inside = functions[1](), []
    threads.run(lambda i: inside.append(functions[1]()), 4)
    assert inside == [1] * 4
    assert functions[1]() == before


def test_scratch_is_reused_and_belongs_to_its_thread():
    first = threads.scratch("test", (3, 4), "float32")
    place = first.ctypes.data
    second = threads.scratch("test", (2, 2), "float64")  # as a signal handler may ask meanwhile
    assert not np.shares_memory(first, second)
    view = first[1:, ::2].T
    del first
    assert not np.shares_memory(view, threads.scratch("test", (3, 4), "float32"))
    del view
    first = threads.scratch("test", (2, 2), "float64")
    assert first.ctypes.data == place
    others = []
    user = threading.Thread(
        target=lambda: others.append(threads.scratch("test", (3, 4), "float32"))
    )
    user.start()
    user.join()
    assert not np.shares_memory(first, others[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own(count):
    threads.run(lambda i: None, 4)
    child = os.fork()
    if child == 0:
        made = []
        threads.run(made.append, 20)
        os._exit(0 if sorted(made) == list(range(20)) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals go to threads on POSIX")
def test_interrupt_is_raised_after_running_calls_finish():
    # They write into arrays that are gone once run() has returned.
    assert threading.current_thread() is threading.main_thread()
    started, ended = threading.Event(), []

    def call(i):
        if threading.current_thread() is threading.main_thread():
            started.wait(10)
            return
        started.set()
        time.sleep(0.1)  # the other call is over by now, and run() waits for this one
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        ended.append(i)

    # Notebooks run by tests before leave a handler of their own.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threads.set_thread_count(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            threads.run(call, 2)
    finally:
        threads.set_thread_count(None)
        signal.signal(signal.SIGINT, before)
    assert len(ended) == 1
    results = []
    threads.run(results.append, 3)  # and the pool still works
    assert sorted(results) == [0, 1, 2]


@pytest.fixture
def default_threads():
    yield
    ef.set_threads()


def test_threads_of_ops_and_blas_are_set_together(default_threads):
    functions = blas.thread_functions()
    before = functions and functions[1]()
    x = ef.tensor(np.random.default_rng(0).standard_normal((300, 300)).astype("f4"))
    expected = ef.softmax(x).numpy()
    for count in (1, 3):
        ef.set_threads(count)
        assert threads.thread_count() == count
        assert functions is None or functions[1]() == count
        np.testing.assert_array_equal(ef.softmax(x).numpy(), expected)
    ef.set_threads()
    assert functions is None or functions[1]() == before


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_numbers_of_threads_are_checked(count, default_threads):
    before = threads.thread_count()
    with pytest.raises(ArgumentError, match="a number of threads is 1 or more"):
        ef.set_threads(count)
    assert threads.thread_count() == before
