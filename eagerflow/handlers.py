"""Errors raised by signal handlers, distinguished from those of the interrupted code.

A handler runs on top of any function, so its error comes out of that one, and an ``except`` clause
there would mistake it for its own: for a missing key, or an unknown name. Clauses around
calls use ``except raised_here(KeyError)``, which lets errors of handlers pass.

StopIteration from a function ends an iterator in C that calls it, and the result is too short.
Here ``map`` and similar only call functions in C, in which no handler runs, and our own iterators
are generators. Python turns a StopIteration in a generator into a RuntimeError with that cause.

Python itself drops errors in finalizers, and interprets errors of Python code called from C: an
AttributeError in a property under ``hasattr``, a StopIteration in a ``__str__`` under ``map(str)``.
Errors of handlers at these places cannot be distinguished.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType, TracebackType
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)

_PACKAGE = os.path.join(os.path.dirname(__file__), "")
SIGNALS = sorted(map(int, signal.valid_signals()))
# The function inside ``signal.getsignal``, which converts numbers to names: for each of 64 signals
# that would take as long as tracing an op.
handler_of: Callable[[int], Any] = sys.modules["_signal"].getsignal


def raised_here(*kinds: type[E]) -> tuple[type[E], ...]:
    """The kinds of errors for an ``except`` clause; none for an error of a signal handler.

    >>> try:
    ...     print({}["name"].lower())
    ... except raised_here(KeyError):
    ...     print("there is no name")
    there is no name
    """
    error = sys.exception()
    return () if error is not None and _is_of_handler(error) else kinds


class suppress(contextlib.suppress):  # noqa: N801 (it is used like a function)
    """``contextlib.suppress``, which lets errors of signal handlers pass."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Whether the error is suppressed."""
        if error is not None and _is_of_handler(error):
            return False
        return bool(super().__exit__(kind, error, trace))


def _is_of_handler(error: BaseException) -> bool:
    """Whether the error has passed through a frame of a handler."""
    if type(error) is RuntimeError and isinstance(error.__cause__, StopIteration):
        error = error.__cause__  # the original error in a generator
    trace = error.__traceback__ and error.__traceback__.tb_next
    codes: list[Any] | None = None
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if frame.f_code.co_filename.startswith(_PACKAGE):  # handlers are user code
            continue
        if codes is None:
            codes = [code_of(handler_of(number)) for number in SIGNALS]
        if frame.f_code in codes or _interrupts(frame):
            return True
    return False


def _interrupts(frame: FrameType) -> bool:
    """Whether a frame has the frame below it as an argument, as those of handlers do."""
    code, below = frame.f_code, frame.f_back
    count = code.co_argcount
    has_more = bool(code.co_flags & inspect.CO_VARARGS)
    if below is None or not (count or has_more):
        return False
    values, names = frame.f_locals, code.co_varnames
    more = values.get(names[count + code.co_kwonlyargcount], ()) if has_more else ()
    given = [values.get(name) for name in names[:count]]
    given.extend(more if type(more) is tuple else (more,))
    return any([x is below for x in given])  # noqa: C419 (a generator would change StopIteration)


def code_of(callback: Any) -> Any:
    """The code that runs when an object is called."""
    while isinstance(callback, partial):
        callback = callback.func
    inner = getattr(callback, "__func__", callback)
    return getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
