"""Runs of several sessions that write one Variable: one after the other, and none is lost."""

import contextlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import run_order
from eagerflow.capture.run_order import Turn
from tests.capture.placement.several_devices import COSTS
from tests.internals import running_turns
from tests.interrupts import at_every_bytecode

SECONDS = 20.0
RUNS = 100


def counter(*names):
    """A graph that adds to Variables of these names, of which each has one more than the other."""
    counts = [ef.Variable(np.zeros(3), name=name) for name in names]

    def f(x):
        for i, n in enumerate(counts):
            n.assign_add(x * (i + 1))
        return {"y": x + 0}

    return ef.capture.trace(f, ef.TensorSpec((), "float64"))


@pytest.fixture
def impatient():
    """Threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def side_by_side(*calls):
    """What calls give, each in a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [own.result(SECONDS) for own in [pool.submit(call) for call in calls]]


def added(graphs, **where):
    """What is in the Variable n when a session of each graph has added to it RUNS times."""
    sessions = [ef.capture.Session(graph, **where) for graph in graphs]

    def run(session, graph):
        for _ in range(RUNS):
            session.run("y", {"x": 1.0}, targets=graph)

    side_by_side(*[partial(run, s, g) for s, g in zip(sessions, graphs, strict=True)])
    return sessions[0].variables["n"].numpy()


@pytest.mark.parametrize("where", [{}, {"devices": ["cpu:0"]}], ids=["plan", "partition"])
def test_no_run_of_two_sessions_is_lost(impatient, where):
    graph = counter("n")
    np.testing.assert_array_equal(added([graph, graph], **where), np.full(3, 2.0 * RUNS))


def test_no_run_of_two_sessions_over_a_cluster_is_lost(impatient):
    with ef.cluster.Cluster({"worker": 2}, local=True, costs=COSTS) as cluster:
        graph = counter("n")
        found = added([graph, graph], cluster=cluster)
    np.testing.assert_array_equal(found, np.full(3, 2.0 * RUNS))


def test_orders_of_variables_cannot_make_runs_wait_for_each_other(impatient):
    one = counter("n", "m")
    n, m = [cell.variable for cell in one.cells]

    def other(x):
        m.assign_add(x)
        n.assign_add(x)
        return {"y": x + 0}

    graph = ef.capture.trace(other, ef.TensorSpec((), "float64"))
    np.testing.assert_array_equal(added([one, graph]), np.full(3, 2.0 * RUNS))
    np.testing.assert_array_equal(m.numpy(), np.full(3, 3.0 * RUNS))


# Turns -------------------------------------------------------------------------------------------


def begins_soon(*nested, seconds=SECONDS):
    """Whether another thread gets its turns for some Variables, one in the other, now."""
    begun = threading.Event()

    def run():
        with contextlib.ExitStack() as turns:
            for variables in nested:
                turns.enter_context(Turn(frozenset(variables)))
            begun.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    found = begun.wait(seconds)
    return found, thread


def test_reads_and_writes_of_other_variables_do_not_wait():
    graph = counter("n")
    (n,) = [cell.variable for cell in graph.cells]
    session = ef.capture.Session(graph)
    with Turn(frozenset([n])):
        assert begins_soon([ef.Variable(0.0)])[0]
        (read,) = side_by_side(lambda: session.run("n"))
        np.testing.assert_array_equal(read, np.zeros(3))
        found, thread = begins_soon([n], seconds=0.05)
        assert not found
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_waiting_runs_proceed_in_arrival_order():
    n, m = ef.Variable(0.0), ef.Variable(0.0)
    with Turn(frozenset([n])):
        _, both = begins_soon([n, m], seconds=0.05)
        found, late = begins_soon([m], seconds=0.05)
        assert not found, "it has come later than one that waits for the same"
    for thread in (both, late):
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert not running_turns()


def test_nested_run_in_the_same_thread_does_not_wait():
    n = ef.Variable(0.0)
    with Turn(frozenset([n])), Turn(frozenset([n])):
        assert len(running_turns()) == 2
    assert not running_turns()


def test_nested_run_does_not_wait_for_other_threads_either():
    n, m = ef.Variable(0.0), ef.Variable(0.0)
    with Turn(frozenset([n])):
        found, thread = begins_soon([m], [n])
        assert found
    thread.join(SECONDS)


def test_failed_or_interrupted_waiting_run_leaves_the_queue(monkeypatch):
    n = ef.Variable(0.0)

    def use():
        with Turn(frozenset([n])):
            pass

    def check():
        assert not running_turns()

    assert at_every_bytecode(use, check) > 20

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            raise KeyboardInterrupt

    with Turn(frozenset([n])):
        monkeypatch.setattr(run_order, "Event", Interrupted)

        def run():
            with pytest.raises(KeyboardInterrupt), Turn(frozenset([n])):
                pass

        side_by_side(run)
        assert len(running_turns()) == 1
    assert begins_soon([n])[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_does_not_wait_for_parent_threads():
    n = ef.Variable(0.0)
    begun, over = threading.Event(), threading.Event()

    def run():
        with Turn(frozenset([n])):
            begun.set()
            over.wait(SECONDS)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert begun.wait(SECONDS)
        pid = os.fork()
        if not pid:
            with Turn(frozenset([n])):
                os._exit(0)
        assert os.waitstatus_to_exitcode(_waited(pid)) == 0
    finally:
        over.set()
        thread.join(SECONDS)


def _waited(pid):
    """How a child has ended, which is killed if it does not end."""
    timer = threading.Timer(SECONDS, os.kill, (pid, 9))
    timer.start()
    try:
        return os.waitpid(pid, 0)[1]
    finally:
        timer.cancel()
