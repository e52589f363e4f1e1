"""Visitors: code that runs in the middle of a trace and is no part of it.

Python calls handlers of signals, and callbacks of its garbage collector, between any two bytecodes,
on top of whatever runs. What they compute, read and assign is no business of the function that is
being traced: they get real values, and nothing that they do is recorded or relied on.
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
from eagerflow.recorder import with_recorder

_SIGNALS = sorted(map(int, signal.valid_signals()))
# What is inside of ``signal.getsignal``, which turns numbers into names: for each of 64 signals
# that would take as long as to trace an op.
_handler_of: Callable[[int], Any] = sys.modules["_signal"].getsignal


def _visit(handler: Callable[..., Any], *args: Any) -> Any:
    """Call a handler as if nobody recorded."""
    return with_recorder(None, handler, *args)


def _is_plain(handler: Any) -> bool:
    """Whether this is a handler that was written in Python and is called in Python's way."""
    if type(handler) is int or handler is None or handler is signal.default_int_handler:
        return False
    return not (isinstance(handler, partial) and handler.func is _visit)


class visited(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which handlers of signals run as visitors."""

    def __init__(self) -> None:
        self._handlers: dict[int, tuple[Any, Any]] = {}  # as they were, and as they are called

    def acquire(self) -> None:
        """Call handlers by way of ``_visit`` from now on."""
        if threading.current_thread() is not threading.main_thread():
            return  # other threads handle no signals
        for number, handler in zip(_SIGNALS, map(_handler_of, _SIGNALS), strict=True):
            if _is_plain(handler):
                mine = partial(_visit, handler)
                _received.add(self)
                self._handlers[number] = handler, mine
                signal.signal(number, mine)

    def release(self) -> None:
        """Call them as before, but for those that somebody has changed since."""
        for number, (handler, mine) in self._handlers.items():
            if _handler_of(number) is mine:
                signal.signal(number, handler)
        _received.discard(self)


_received: set[visited] = set()  # those that have changed how handlers are called


def visitors() -> frozenset[Any]:
    """The code of visitors; empty where there are none, as in most programs."""
    found = {_code_of(f) for f in gc.callbacks} | ({_visit.__code__} if _received else set())
    return frozenset(found - {None})


def _code_of(callback: Any) -> Any:
    """The code that runs when somebody's object is called."""
    inner = getattr(callback, "__func__", callback)
    return getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)


def came(frame: Any, codes: frozenset[Any], is_end: Callable[[Any], bool]) -> bool:
    """Whether a visitor has called, through others or not, what runs in a frame.

    ``is_end`` says of which frames it is known that none has.
    """
    while frame is not None and not is_end(frame):
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False
