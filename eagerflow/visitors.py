"""Visitors: code that runs in the middle of a trace without being part of it.

Python calls signal handlers, and callbacks of its garbage collector, between any two bytecodes,
on top of any code. Their computations, reads and assignments are unrelated to the function
being traced: they get real values, and none of their actions is recorded or relied on.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from eagerflow.guard import ScopeGuard
from eagerflow.handlers import SIGNALS, code_of, handler_of
from eagerflow.recorder import Recorder, with_recorder

# The function inside ``signal.signal``, which converts numbers to names, and mistakes a ValueError
# raised by a handler meanwhile for an unknown number.
_set_handler: Callable[[int, Any], Any] = sys.modules["_signal"].signal


class _Visit:
    """Calls a handler without a recorder; its errors are recognized by the handler's own code."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.handler = handler
        while isinstance(handler, partial):
            handler = handler.func
        self.__func__ = handler  # used by ``code_of``

    def __call__(self, *args: Any) -> Any:
        return with_recorder(None, self.handler, *args)


def _is_plain(handler: Any) -> bool:
    """Whether this is a handler written in Python and called in Python's way."""
    if type(handler) is int or handler is None or handler is signal.default_int_handler:
        return False
    return type(handler) is not _Visit


class visited(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which signal handlers run as visitors."""

    def __init__(self) -> None:
        self._handlers: dict[int, tuple[Any, Any]] = {}  # originals and replacements

    def acquire(self) -> None:
        """Replace handlers by a ``_Visit`` from now on."""
        if threading.get_ident() != threading.main_thread().ident:
            return  # other threads handle no signals
        for number, handler in zip(SIGNALS, map(handler_of, SIGNALS), strict=True):
            if _is_plain(handler):
                mine = _Visit(handler)
                _received.add(self)
                self._handlers[number] = handler, mine
                _set_handler(number, mine)

    def release(self) -> None:
        """Restore the handlers, except those changed since."""
        for number, (handler, mine) in self._handlers.items():
            if handler_of(number) is mine:
                _set_handler(number, handler)
        _received.discard(self)


class Secluded(Recorder):
    """Base of recorders that exclude the actions of signal handlers."""

    _visited: visited | None = None

    def acquire(self) -> None:
        """Let handlers run as visitors, and become the innermost recorder."""
        if self._before is None:
            self._visited = visited()
            self._visited.acquire()
        super().acquire()

    def release(self) -> Exception | None:
        """Restore the previous recorder, and the handlers."""
        problem = super().release()
        if self._visited is not None and self._before is None:
            self._visited.release()
        return problem


def secluded(recorder: Recorder, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``f(...)`` with ``recorder`` as the innermost one, but signal handlers as visitors."""
    with visited():
        return with_recorder(recorder, f, *args, **kwargs)


_received: set[visited] = set()  # contexts that have replaced handlers


def visitors() -> frozenset[Any]:
    """The code of visitors; empty if there are none, as in most programs."""
    found = {code_of(f) for f in gc.callbacks} | (
        {_Visit.__call__.__code__} if _received else set()
    )
    return frozenset(found - {None})


def came(frame: Any, codes: frozenset[Any], is_end: Callable[[Any], bool]) -> bool:
    """Whether a visitor has called, directly or indirectly, the code of a frame.

    ``is_end`` marks frames that are known to have no visitor below.
    """
    while frame is not None and not is_end(frame):
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False
