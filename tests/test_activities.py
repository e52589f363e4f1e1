"""Calls cut short at any moment, and other threads in between, leave everything right."""

import os
import random
import signal
import sys
import threading

import pytest

from eagerflow import visitors
from eagerflow.capture.guards import events
from eagerflow.recorder import with_recorder
from eagerflow.runtime.properties import cached_property
from tests.activities import ACTIVITIES, Guest, Partitioned, Tracing, in_child, nothing_is_held
from tests.interrupts import (
    AtTimes,
    at_bytecode,
    at_every_bytecode,
    count_bytecodes,
    interrupted_at_times,
)

pytest_plugins = ["tests.capture.placement.several_devices"]

MOMENTS = 40  # of each activity; the soak run takes every bytecode
needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX has timers")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.fixture(params=ACTIVITIES, ids=lambda kind: kind.__name__)
def activity(request):
    made = request.param()
    yield made
    made.end()


@pytest.fixture
def quiet(monkeypatch):
    """What is raised in finalizers is printed and dropped: not here."""
    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)


def moments(activity, count):
    """Numbers of bytecodes from all over a call."""
    total = count_bytecodes(activity.call)
    activity.check()
    choose = random.Random(0)
    return sorted({1 + choose.randrange(total) for _ in range(count)})


def tried(activity, at, act):
    place = at_bytecode(activity.call, at, *act)
    try:
        activity.after()
    except Exception as error:
        error.add_note(f"after bytecode {at}: {place}")
        raise


def test_exceptions_at_bytecodes(activity, quiet):
    for at in moments(activity, MOMENTS):
        tried(activity, at, ())


def test_guests_at_bytecodes(activity):
    guest = Guest(traces=False)  # nothing can be traced inside of a trace function
    for at in moments(activity, MOMENTS // 2):
        tried(activity, at, (lambda place: with_recorder(None, guest),))
    assert guest.calls > MOMENTS // 4


@pytest.mark.sampled(2)
@needs_signals
def test_interrupts_by_timer(activity, quiet):
    assert interrupted_at_times(activity.call, activity.after, MOMENTS) > 0


@pytest.mark.sampled(3)
@needs_signals
def test_guests_by_timer(activity):
    guest = Guest()
    wrong = []

    def act(frame):
        try:
            guest()
        except BaseException as error:
            wrong.append(repr(error))

    with AtTimes(act, most=5e-3) as times:
        for _ in range(10_000):
            activity.call()
            assert not wrong
            if times.acts >= MOMENTS:
                break
    assert not wrong
    activity.after()


@needs_signals
def test_guests_where_watches_begin_and_end():
    activity, guest, wrong = Tracing(), Guest(), []

    def handle(number, frame):
        try:
            guest()
        except BaseException as error:
            wrong.append(repr(error))

    def soon(place):  # after some bytecodes, and then outside of this call
        signal.setitimer(signal.ITIMER_REAL, 1e-6)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for part in (events, visitors):
            total = count_bytecodes(activity.call, part.__file__)
            for at in range(1, total + 1, max(1, total // 50)):
                at_bytecode(activity.call, at, soon, part.__file__)
                assert (wrong, activity.after()) == ([], None)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert guest.calls > 50
    activity.end()


@pytest.mark.sampled(3)
@needs_signals
@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks_by_timer(activity):
    right = []
    with AtTimes(lambda frame: right.append(in_child(activity.inside)), most=1e-2) as times:
        for _ in range(10_000):
            activity.call()
            if times.acts >= 5:
                break
    assert all(right)
    activity.after()


class Slow:
    """Has a property that takes its time."""

    def __init__(self, begun, go_on):
        self.begun, self.go_on = begun, go_on

    @cached_property
    def value(self):
        self.begun.set()
        return self.go_on.wait()


@needs_signals
@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_while_another_thread_computes_a_property():
    """Python 3.11's own holds a lock for all objects of a class."""
    slow = Slow(threading.Event(), threading.Event())
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    slow.begun.wait()
    there = threading.Event()
    there.set()
    try:
        assert in_child(lambda: Slow(threading.Event(), there).value, seconds=5)
    finally:
        slow.go_on.set()
        thread.join()


@needs_signals
@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks_while_another_thread_traces():
    activity, stop = Tracing(), threading.Event()

    def trace():
        while not stop.is_set():
            activity.call()

    def check():
        nothing_is_held()
        activity.check()
        Tracing().end()

    thread = threading.Thread(target=trace)
    thread.start()
    try:
        assert all(in_child(check) for _ in range(15))
    finally:
        stop.set()
        thread.join()
    activity.end()


def test_two_devices(three_cpus, quiet):
    activity = Partitioned()
    for at in moments(activity, MOMENTS):
        tried(activity, at, ())
    activity.end()


# The whole counts: pytest -m soak tests/test_activities.py ---------------------------------------


@pytest.mark.soak
def test_exceptions_at_every_bytecode(activity, quiet):
    step = 1 + count_bytecodes(activity.call) // 20_000
    assert at_every_bytecode(activity.call, activity.after, step) > 50


@pytest.mark.soak
@needs_signals
@pytest.mark.parametrize("part", range(10))
def test_fifty_thousand_interrupts(activity, quiet, part):
    count = 50_000 // (10 * len(ACTIVITIES)) + 1
    came = interrupted_at_times(activity.call, activity.after, count, seconds=600, seed=part)
    assert came == count
