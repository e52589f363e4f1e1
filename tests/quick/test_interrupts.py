"""Resources are released at whatever bytecode an exception comes."""

import contextlib
import sys
import threading

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.guard import ScopeGuard
from eagerflow.locks import Locked
from eagerflow.runtime import threads
from eagerflow.scopes import scope, scopes
from tests.activities import nothing_is_held
from tests.interrupts import Interrupted, at_bytecode, at_every_bytecode


def tape():
    x = ef.tensor([1.0, 2.0])
    with ef.GradientTape() as outer:
        outer.watch(x)
        with ef.GradientTape() as inner:
            inner.watch(x)
            y = ef.sin(x) * x
        g = inner.gradient(y, x)
    return outer.gradient(g, x)


def scopes_in_scopes():
    with scope("a"), scope("b"):
        return scopes()


def shared_calls():
    found = []
    threads.run(found.append, 3)
    return found


def vmapped():
    return ef.vmap(lambda row: ef.sin(row) @ row)(ef.ones((2, 3)))


def test_no_exception_stays_behind():
    """Else whatever is raised later in this process would tell of it, and hold its frames."""
    variable = ef.Variable(1.0)
    assert at_every_bytecode(lambda: variable * 1.0, lambda: None) > 100
    assert sys.exc_info() == (None, None, None)


@pytest.mark.parametrize(
    "call", [tape, scopes_in_scopes, shared_calls, vmapped], ids=lambda f: f.__name__
)
def test_nothing_is_held_after_an_exception_at_any_bytecode(call):
    call()
    threads.set_thread_count(2)
    try:
        assert at_every_bytecode(call, nothing_is_held, step=17) > 20
    finally:
        threads.set_thread_count(None)


def test_a_lock_is_free_after_an_exception_at_any_bytecode():
    lock = threading.Lock()

    def call():
        with Locked(lock):
            assert lock.locked()

    def check():
        assert not lock.locked()

    assert at_every_bytecode(call, check) > 10


class Careless(ScopeGuard):
    """The planted bug: it gives back in Python's own way, after the call of ``__exit__``."""

    held = False

    def __enter__(self):
        Careless.held = True
        return self

    def __exit__(self, *error):
        Careless.held = False


def test_a_careless_context_is_found():
    def call():
        with Careless():
            pass

    def check():
        held, Careless.held = Careless.held, False
        assert not held

    # The functions of this file are none of the package's: count them all the same.
    with pytest.raises(AssertionError):
        at_every_bytecode(call, check, within=__file__)


def test_guards_work_in_exit_stacks():
    x = ef.tensor(2.0)
    with contextlib.ExitStack() as stack:
        tape = stack.enter_context(ef.GradientTape())
        tape.watch(x)
        y = x * x
    assert tape.gradient(y, x).item() == 4.0
    nothing_is_held()


def test_a_traceback_that_is_kept_holds_nothing():
    kept = []

    def call():
        try:
            tape()
        except Interrupted as error:
            kept.append(error)  # as sys.last_value does at a prompt

    for at in range(1, 2000, 7):
        if at_bytecode(call, at) is None:
            break
        nothing_is_held()
    assert len(kept) > 20


@pytest.mark.parametrize("count", [2, 4])
def test_no_thread_works_on_memory_that_its_caller_has_left(count):
    rows = 64
    threads.set_thread_count(count)
    try:
        array = None

        def fill(i):
            own = array
            for _ in range(20):
                own[i] += 1.0

        def call():
            nonlocal array
            array = np.zeros((rows, 1000))
            threads.run(fill, rows)

        def check():
            before = array.copy()
            threading.Event().wait(1e-4)
            assert np.array_equal(array, before)

        assert at_every_bytecode(call, check, step=3, most=900) > 50
    finally:
        threads.set_thread_count(None)
