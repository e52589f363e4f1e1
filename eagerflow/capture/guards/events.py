"""Events: notifications to a thread about running watched functions, line by line.

Python 3.12 and later offer ``sys.monitoring``, which costs nothing in unwatched code.
In 3.11 there is ``sys.settrace``: a trace function set before keeps getting its
events, and is restored at the end.
"""

from __future__ import annotations

import inspect
import operator
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import starmap
from typing import Any

from eagerflow.capture.guards.callables import TRACES
from eagerflow.capture.guards.effects import STARTING, starter, starts_thread
from eagerflow.capture.guards.lookup import CORE, FOREIGN, origins
from eagerflow.cells import file_name
from eagerflow.errors import CaptureError
from eagerflow.guard import in_one_call
from eagerflow.handlers import raised_here, suppress
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.visitors import came, visitors

Monitor = Any  # imports this module

_RESUMES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SKIPPED = (False, False, True, True)  # by origin
assert _SKIPPED[CORE] and _SKIPPED[FOREIGN]


_TOLD = ("hook", "__call__", "_start", "_line", "_jump", "_return")  # callbacks of the interpreter
TOOL = "eagerflow"  # our name in sys.monitoring


class Thread(threading.local):
    """The monitors of one thread, innermost last, and the watched functions that run in it."""

    def __init__(self) -> None:
        self.stack: list[Monitor] = []
        self.runs: dict[Any, Any] = {}
        self.visitors: frozenset[Any] = frozenset()
        self.hooks: list[Any] = []  # our trace function, where one is used, while installed
        self.before: Any = None  # the trace function that it replaced

    def begin(self, monitor: Monitor) -> None:
        """Start sending events to ``monitor``."""
        if not self.stack:
            self.visitors = visitors()
        self.stack.append(monitor)
        _source.start(self)

    def end(self, monitor: Monitor) -> bool:
        """Stop sending events; whether no other tool interfered. An interrupted end is repeated."""
        if monitor in self.stack:
            self.stack.remove(monitor)
        undisturbed = True
        if not self.stack:
            undisturbed = _source.stop(self)
            self.runs.clear()
        return undisturbed

    def is_blind(self) -> bool:
        """Whether no events are sent now: a visitor runs during the handling of an event."""
        frame = sys._getframe(1) if self.stack else None
        while frame is not None:
            if frame.f_code.co_filename == __file__ and frame.f_code.co_name in _TOLD:
                return True
            frame = frame.f_back
        return False

    # A defect here must not look like an error of user code: it is raised when the monitor ends.

    def enter(self, frame: Any) -> Any:
        """A watched function starts or resumes; returns its run, None if it is not watched now."""
        run = self.runs.get(frame)
        if run is None and self.visitors and self._visited(frame):
            return None
        if run is None and self.stack and self.stack[-1].failure is None:
            try:
                run = self.stack[-1].enter(frame, self)
            except raised_here(Exception) as error:
                self.stack[-1].failure = error
            if run is not None:
                self.runs[frame] = run
        return run

    def _visited(self, frame: Any) -> bool:
        first = self.stack[-1].first if self.stack else None
        return came(frame, self.visitors, lambda f: f in self.runs or f is first)

    def skip(self, frame: Any) -> None:
        """An unwatched function starts that has a name in ``STARTING``."""
        if self.stack and starts_thread(frame.f_code):
            found = starter(frame, self.runs, self.stack[-1].first)
            if found is not None:
                name = frame.f_code.co_qualname
                place = f"{file_name(found.f_code.co_filename)}:{found.f_lineno}"
                self.stack[-1].refuse("thread", name, name, place)

    def line(self, frame: Any, run: Any, offset: int) -> None:
        """A watched function reaches the line that begins at ``offset``."""
        if self.stack and not run.quiet and self.stack[-1].failure is None:
            try:
                self.stack[-1].step(frame, run, offset)
            except raised_here(Exception) as error:
                self.stack[-1].failure = error

    def leave(self, frame: Any, run: Any, value: Any, completed: bool = True) -> None:
        """A watched function returns or yields."""
        if self.stack and self.stack[-1].failure is None:
            try:
                self.stack[-1].leave(frame, run, value, self, completed)
            except raised_here(Exception) as error:
                self.stack[-1].failure = error
        if not frame.f_code.co_flags & _RESUMES:
            self.runs.pop(frame, None)


_thread = Thread()


def current() -> Thread:
    """The state of this thread."""
    return _thread


# Python 3.11 ------------------------------------------------------------------------------------


class _Local:
    """The trace function of one frame.

    An object, as a function that returns itself would be a reference cycle, and keep alive
    everything that the run has seen.
    """

    __slots__ = ("lines", "run", "thread")

    def __init__(self, thread: Thread, run: Any) -> None:
        self.thread = thread
        self.run = run
        self.lines = run.program.lines

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        run, thread = self.run, self.thread
        if event == "line":
            line = self.lines.get(frame.f_lasti)
            if line is None or line.actions or run.deferred or run.assignments:
                thread.line(frame, run, frame.f_lasti)
        elif event == "return":
            if thread.stack:
                thread.leave(frame, run, arg, not run.failed)
        elif event == "exception":
            run.assignments.clear()
            run.failed = True
        if event != "exception":
            run.failed = False
        if run.other is not None and not (run.hidden and event == "line"):
            run.other = _others(thread, run.other, frame, event, arg)
            run.hidden = run.hidden or not frame.f_trace_lines
            frame.f_trace_lines = True
        return self


def _others(thread: Thread, theirs: Any, frame: Any, event: str, arg: Any) -> Any:
    """Pass an event to another tool's trace function, and stay installed after that."""
    found = theirs(frame, event, arg)
    now = sys.gettrace()
    if now not in thread.hooks:  # they reinstalled themselves, installed another, or ended tracing
        thread.before = now
        sys.settrace(*thread.hooks)
    return found


class _Tracing:
    """Events from ``sys.settrace``."""

    def start(self, thread: Thread) -> None:
        for ours in thread.hooks:
            if ours.pauses and sys.gettrace() is None:  # a visitor has interrupted
                sys.settrace(ours)
            return
        before = sys.gettrace()
        skipped = _SKIPPED
        files = origins

        def hook(frame: Any, event: Any, arg: Any) -> Any:
            # Called for every function, so the path for unwatched ones is short.
            before = thread.before
            if before is None:
                code = frame.f_code
                if skipped[files[code.co_filename]]:
                    return thread.skip(frame) if code.co_qualname in STARTING else None
            else:
                theirs = _others(thread, before, frame, event, arg)
                if skipped[files[frame.f_code.co_filename]]:
                    thread.skip(frame)
                    return theirs
            run = thread.enter(frame)
            if run is None:
                return None if before is None else theirs
            if before is not None:
                run.other = theirs
                run.hidden = not frame.f_trace_lines
                frame.f_trace_lines = True  # we need lines, even if they do not
            elif run.quiet:
                frame.f_trace_lines = False
            return _Local(thread, run)

        # Long-running unwatched code may remove the hook meanwhile.
        hook.pauses = [] if before is None else None  # type: ignore[attr-defined]
        calls: tuple[Callable[[], Any], ...] = (
            thread.hooks.__len__,  # a visitor has installed one
            partial(setattr, thread, "before", before),
            partial(thread.hooks.append, hook),
            partial(sys.settrace, hook),
        )
        in_one_call(calls)

    def stop(self, thread: Thread) -> bool:
        undisturbed = True
        for hook in tuple(thread.hooks):
            undisturbed = sys.gettrace() is hook or hook not in thread.hooks
            calls: list[Callable[[], Any]] = [
                partial(operator.not_, thread.hooks),  # a visitor has ended it
                *([partial(sys.settrace, thread.before)] if undisturbed else []),
                thread.hooks.clear,
                partial(setattr, thread, "before", None),
            ]
            in_one_call(calls)
        return undisturbed


# Python 3.12 and later --------------------------------------------------------------------------


_monitoring: Any = getattr(sys, "monitoring", None)


class _Monitoring:
    """Events from ``sys.monitoring``, for all threads together.

    Visitors trace too, and may run at any bytecode here. Our tool is therefore either complete or
    absent: it is installed in one call, and removed in one.
    """

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self._active: set[int] = set()  # threads
        self._tool: list[int] = []  # the number of our tool, while we have one
        self._codes: dict[int, Any] = {}  # codes with line events

    def start(self, thread: Thread) -> None:
        with Locked(self._lock):
            self._begin()
            self._active.add(threading.get_ident())

    def _begin(self) -> None:
        events = _monitoring.events
        self._local = events.LINE | events.JUMP | events.PY_RETURN | events.PY_YIELD
        self._disable = _monitoring.DISABLE
        callbacks = (
            (events.PY_START, self._start),
            (events.PY_RESUME, self._start),
            (events.LINE, self._line),
            (events.PY_RETURN, self._return),
            (events.PY_YIELD, self._return),
            (events.JUMP, self._jump),
        )
        # Numbers 0 to 2 and 5 are meant for debuggers, coverage, profilers and optimizers.
        for tool in (4, 3, 5, 2, 1, 0):
            if self._tool:
                return
            registered: deque[Any] = deque(maxlen=0)  # previous callbacks are dropped
            register = partial(_monitoring.register_callback, tool)
            calls: list[Callable[[], Any]] = [
                self._tool.__len__,
                partial(_monitoring.use_tool_id, tool, TOOL),
                partial(self._tool.append, tool),
                partial(registered.extend, starmap(register, callbacks)),
                partial(_monitoring.set_events, tool, events.PY_START | events.PY_RESUME),
            ]
            with suppress(ValueError):  # in use by another tool
                in_one_call(calls)
        if not self._tool:
            raise CaptureError(
                "all tools of sys.monitoring are in use",
                expected="a free one of six",
                hint="end a debugger, a profiler or a coverage measurement",
            )

    def forget_other_threads(self) -> None:
        """Continue in the child of a fork, where only the forking thread lives on."""
        self._active &= {threading.get_ident()}
        if not self._active:
            self.stop(_thread)

    def stop(self, thread: Thread) -> bool:
        with Locked(self._lock):
            self._active.discard(threading.get_ident())
            for tool in () if self._active else tuple(self._tool):
                self._end(tool)
        return True

    def _end(self, tool: int) -> None:
        codes = tuple(self._codes.values())
        calls: list[Callable[[], Any]] = [
            partial(operator.not_, self._tool),  # a visitor has ended it
            partial(_monitoring.set_events, tool, 0),
            *(partial(_monitoring.set_local_events, tool, code, 0) for code in codes),
            self._codes.clear,
            self._tool.clear,
            partial(_monitoring.free_tool_id, tool),
        ]
        in_one_call(calls)

    def _start(self, code: Any, offset: int) -> Any:
        if _SKIPPED[origins[code.co_filename]]:
            if not starts_thread(code):
                return self._disable
            _thread.skip(sys._getframe(1))
            return None
        thread = _thread
        if thread.stack and thread.enter(sys._getframe(1)) is not None:
            self._follow(code)
        return None

    def _follow(self, code: Any) -> None:
        if id(code) not in self._codes:
            with Locked(self._lock):
                for tool in self._tool:
                    follow = partial(_monitoring.set_local_events, tool, code, self._local)
                    in_one_call((follow, partial(self._codes.__setitem__, id(code), code)))

    def _line(self, code: Any, line: int) -> Any:
        thread = _thread
        if thread.stack:
            frame = sys._getframe(1)
            run = thread.runs.get(frame)
            if run is not None:
                thread.line(frame, run, frame.f_lasti)
        return None

    def _jump(self, code: Any, offset: int, target: int) -> Any:
        # A loop on a single line causes no further event for that line.
        if target > offset:
            return self._disable
        thread = _thread
        if thread.stack:
            frame = sys._getframe(1)
            run = thread.runs.get(frame)
            if run is not None:
                thread.line(frame, run, target)
        return None

    def _return(self, code: Any, offset: int, value: Any) -> Any:
        thread = _thread
        if thread.stack:
            frame = sys._getframe(1)
            run = thread.runs.get(frame)
            if run is not None:
                thread.leave(frame, run, value)
        return None


_source: Any = _Tracing() if TRACES else _Monitoring()
if not TRACES and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_source.forget_other_threads)
