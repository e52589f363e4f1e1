"""Guards: contexts that are left whatever is raised, at whatever bytecode.

Ctrl-C, a signal handler's exception or a debugger's may come at any bytecode: also at the first
one of ``__exit__``, or in a ``finally`` before what it is to do. So what must not be left undone
hangs on the life of an object that only the ``with`` statement holds. The interpreter takes the
bound ``__exit__`` before the block and drops it behind it, in C, on every way out; that object's
death does what a call that was cut short has not done. Nothing else holds it: not a frame, and so
no traceback either.

Two things must be one for this to hold: a change and the note of its maker. A call of C code
is one, as Python looks for signals between bytecodes only; ``in_one_call`` makes several calls
of C functions one.
"""

from __future__ import annotations

import gc
import operator
import os
import weakref
from collections.abc import Callable, Iterable
from contextvars import ContextVar, copy_context
from functools import partial
from types import TracebackType
from typing import Any, Self

from eagerflow.handlers import raised_here


def in_one_call(calls: Iterable[Callable[[], Any]]) -> bool:
    """Make calls one after the other, until one gives something true: whether one did.

    No signal handler and no other thread can come between calls of functions that are written
    in C and keep the interpreter's lock.

    >>> done = []
    >>> in_one_call([partial(done.append, 1), partial(done.append, 2)]), done
    (False, [1, 2])
    """
    return any(map(operator.call, calls))


def without_collections(f: Callable[[], Any]) -> Any:
    """``f()``, a function in C, while no garbage is collected.

    Finalizers and the collector's callbacks are Python code. Before Python 3.12 they may run
    wherever an object is made, later ones also where C code asks for signals.

    >>> without_collections(partial(sum, (1, 2)))
    3
    """
    if not gc.isenabled():
        return f()
    try:
        return list(map(operator.call, (gc.disable, f, gc.enable)))[1]
    except BaseException:
        gc.enable()
        raise


def call_with(
    variable: ContextVar[Any], value: Any, f: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """``f(...)`` in a context of its own, in which ``variable`` has this value.

    The context ends with the call, so there is nothing to set back.

    >>> level = ContextVar("level", default=0)
    >>> call_with(level, 1, level.get), level.get()
    (1, 0)
    """
    return copy_context().run(_set_and_call, variable, value, f, args, kwargs)


def _set_and_call(variable: ContextVar[Any], value: Any, f: Any, args: Any, kwargs: Any) -> Any:
    variable.set(value)
    return f(*args, **kwargs)


ATTEMPTS = 10  # to release what a call that was cut short has held


class _Exit:
    """Gives a ``with`` statement the one object that leaves the guard, called or not."""

    def __get__(self, guard: ScopeGuard | None, owner: type | None = None) -> Any:
        if guard is None:  # as contextlib.ExitStack looks it up
            return _exit
        leave = partial(_exit, guard)
        if guard._watch is None:  # else the guard is entered already
            # Two, as a second exception may come before the first of them has begun its work.
            guard._watch = weakref.ref(leave, guard._dropped), weakref.ref(leave, guard._dropped)
        return leave


def _exit(
    guard: ScopeGuard,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    problem = guard.release()
    guard._watch = None
    if problem is not None and error is None:  # what is raised already comes first
        raise problem


class ScopeGuard:
    """Base of contexts that hold something.

    A subclass says in ``acquire`` what entering does, and in ``release`` what undoes it.
    ``release`` is called on every way out, and again if something is raised in it; it has to undo
    whatever part of ``acquire`` was done and not undone yet. It may give an exception to raise.

    >>> class Noted(ScopeGuard):
    ...     def acquire(self):
    ...         print("entered")
    ...     def release(self):
    ...         print("left")
    >>> with Noted():
    ...     pass
    entered
    left
    """

    _watch: tuple[weakref.ref[Any], ...] | None = None

    def acquire(self) -> None:
        """Begin."""

    def release(self) -> Exception | None:
        """Undo what ``acquire`` did; what is undone already stays so."""
        return None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    __exit__ = _Exit()

    def _dropped(self, _: Any) -> None:
        """The ``with`` statement is over, and the call that should have left the guard was not."""
        for left in range(ATTEMPTS, 0, -1):
            try:
                self.release()
                self._watch = None
                return
            except BaseException:
                if left == 1:
                    raise  # for Python to print, as it does with whatever is raised here


class OpenFile(ScopeGuard):
    """A context that holds an open file descriptor, ``fd``; arguments are those of ``os.open``."""

    def __init__(
        self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> None:
        self._open = partial(os.open, path, flags, mode, dir_fd=dir_fd)
        self._held: list[int] = []

    @property
    def fd(self) -> int:
        """The descriptor, while the context is entered."""
        return self._held[0]

    def acquire(self) -> None:
        """Open the file, and note its descriptor in the same call."""
        self._held.extend(map(operator.call, (self._open,)))

    def release(self) -> Exception | None:
        """Close the file, if it is open."""
        try:
            if self._held:
                close = partial(os.close, self._held[0])
                in_one_call((self._held.clear, close))
        except raised_here(OSError) as error:
            return error
        return None
