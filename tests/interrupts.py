"""Exceptions and guests in the middle of a call, as by Ctrl-C, signal handlers and finalizers.

``at_bytecode`` is exact: it counts the bytecodes of eagerflow's functions. ``AtTimes`` uses real
signals, which come at any moment, also in code of others, and whose handlers may do anything.
"""

import _imp
import contextlib
import dis
import random
import signal
import sys
import threading
import time
from contextvars import copy_context
from functools import cache, partial
from pathlib import Path

import eagerflow

PACKAGE = str(Path(eagerflow.__file__).parent)


class Interrupted(BaseException):
    """The exception raised by interrupts, distinct from all other errors."""


def interrupt(place):
    """Raise at a bytecode."""
    raise Interrupted(place)


@contextlib.contextmanager
def handling(handler):
    """A handler of SIGALRM; afterwards no timer runs, and the handler before is back."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


RUNNING = ("CALL", "PRECALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "RESUME", "BINARY_OP")
RUNNING += ("COMPARE_OP", "FOR_ITER", "BEFORE_WITH", "SEND")


@cache
def _runs_handlers(code):
    """For each bytecode of a function, whether a signal handler may be called in it."""
    return [dis.opname[op].startswith(RUNNING) for op in code.co_code]


class _Counter:
    """Counts the bytecodes of eagerflow's functions, and acts at one of them, once.

    With ``for_signals`` only those count in which Python looks for signals.
    """

    def __init__(self, at, act, within, for_signals=False):
        self.for_signals = for_signals
        self.count = 0
        self.within = within
        self.at = at
        self.act = act
        self.place = None

    def reached(self, code, offset):
        if self.for_signals and not _runs_handlers(code)[offset]:
            return
        self.count += 1
        if self.count == self.at:
            self.place = code.co_filename, code.co_qualname, offset
            self.act(self.place)


def _by_trace(counter, call):
    """Python 3.11: a trace function hears of every bytecode."""

    def trace(frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(counter.within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            offset = frame.f_lasti
            frame = None  # else this function would be taken for a signal's handler by it
            counter.reached(code, offset)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(before)


def _by_monitoring(counter, call):
    monitoring, tool = sys.monitoring, sys.monitoring.DEBUGGER_ID
    caller = threading.get_ident()  # events come from all threads
    events = monitoring.events.INSTRUCTION

    def instruction(code, offset):
        if not code.co_filename.startswith(counter.within):
            return monitoring.DISABLE
        if threading.get_ident() == caller:
            counter.reached(code, offset)
        return None

    monitoring.use_tool_id(tool, "interrupts")
    monitoring.register_callback(tool, events, instruction)
    monitoring.restart_events()
    monitoring.set_events(tool, events)
    try:
        return call()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


def at_bytecode(call, at, act=interrupt, within=PACKAGE, for_signals=False):
    """Call, and act at that bytecode: where it was, or None where the call ended before.

    ``within`` says in which folder or file bytecodes count. What the call itself raises in answer,
    such as a note added to the exception, is its own.
    """
    return _counted(call, at, act, within, for_signals).place


def count_bytecodes(call, within=PACKAGE, for_signals=False):
    """How many bytecodes of eagerflow's a call runs."""
    return _counted(call, 0, interrupt, within, for_signals).count


def _counted(call, at, act, within, for_signals=False):
    counter = _Counter(at, act, within, for_signals)
    run = _by_monitoring if hasattr(sys, "monitoring") else _by_trace
    with contextlib.suppress(Interrupted):
        next(_handling_apart(partial(run, counter, call)))
    return counter


def _handling_apart(call):
    """Call within a generator, which has a stack of its own of exceptions that are handled.

    Python looks for signals at the ends of calls, at backward jumps and at the starts of functions.
    Where it ends an ``except`` block nothing can raise but what counts bytecodes here, and the
    handled exception, with all that its frames hold, would stay with this thread for ever.
    """
    yield call()


def at_every_bytecode(call, check, step=1, most=100_000, act=interrupt, within=PACKAGE):
    """Make a call again and again, act at its next bytecode each time, and check what is left.

    ``check()`` raises where something is wrong. Gives how many bytecodes there were.
    """
    at = 1
    while at < most:
        place = at_bytecode(call, at, act, within)
        if place is None:
            return at - 1
        try:
            check()
        except Exception as error:
            error.add_note(f"after bytecode {at}: {place}")
            raise
        at += step
    return at


class AtTimes:
    """A context in which ``act(frame)`` is called by a signal, at moments that vary.

    The moments are from ``least`` to ``most`` seconds after the last act. ``act`` may raise; it is
    not called while an act is under way, nor where Python imports: what is raised there leaves the
    lock of all imports held, by Python itself, and other threads would wait for it for ever.
    """

    def __init__(self, act, least=2e-5, most=2e-3, seed=0):
        self.act = act
        self.acts = 0
        self._choose = random.Random(seed)
        self._between = least, most
        self._on = self._acting = False

    def __enter__(self):
        # What is raised in a finalizer is dropped. pytest's hook, which would keep it, is Python
        # code that the next alarm can come into.
        self._hook, sys.unraisablehook = sys.unraisablehook, bool
        self._before = signal.signal(signal.SIGALRM, self._handle)
        self._on = True
        self._next()
        return self

    def __exit__(self, *error):
        self._on = False  # no alarm may come when this handler is gone: it would end the process
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        sys.unraisablehook = self._hook

    def _next(self):
        signal.setitimer(signal.ITIMER_REAL, self._choose.uniform(*self._between), 0.05)

    def _handle(self, number, frame):
        if not self._on or self._acting:
            return
        if _imp.lock_held():
            self._next()
            return
        self._acting = True
        try:
            self.acts += 1
            # A context of its own: Python reads freed memory where code that the garbage collector
            # runs in the middle of ``ContextVar.set`` sets a variable in the same context.
            copy_context().run(self.act, frame)
        finally:
            self._acting = False
            if self._on:
                self._next()


def interrupted_at_times(call, check, count, seconds=60.0, seed=0, most=2e-3):
    """Call again and again, broken off by signals; how many of them came out of the call.

    ``check()`` follows each. An exception may also be lost, as Python prints and drops those in
    finalizers. Ends after ``count`` of them, or after so many seconds.
    """
    state = {"armed": False}

    def act(frame):
        if state["armed"]:
            raise Interrupted

    came, end = 0, time.monotonic() + seconds
    with AtTimes(act, most=most, seed=seed):
        while came < count and time.monotonic() < end:
            try:
                try:
                    state["armed"] = True
                    while True:
                        call()
                except Interrupted:
                    state["armed"] = False
                    came += 1
            except Interrupted:  # a second one before the first was noted
                state["armed"] = False
            check()
    return came
