"""Guards: contexts that are exited whatever is raised, at any bytecode.

Ctrl-C, a signal handler's exception or a debugger's may come at any bytecode: even at the first
one of ``__exit__``, or in a ``finally`` before its work. So cleanup that must not be skipped
is tied to the lifetime of an object that only the ``with`` statement holds. The interpreter takes
the bound ``__exit__`` before the block and drops it after it, in C, on every exit; the object's
finalizer does the work of an interrupted call. Nothing else holds it: no frame, and so
no traceback either.

This requires that a change and the note about it are atomic. A call of C code
is atomic, as Python checks for signals between bytecodes only; ``in_one_call`` combines several
calls of C functions.
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
    """Make calls one after the other, until one returns something true: whether one did.

    No signal handler and no other thread can come between calls of functions that are written
    in C and keep the interpreter's lock.

    >>> done = []
    >>> in_one_call([partial(done.append, 1), partial(done.append, 2)]), done
    (False, [1, 2])
    """
    return any(map(operator.call, calls))


def without_collections(f: Callable[[], Any]) -> Any:
    """``f()``, a function in C, while garbage collection is off.

    Finalizers and the collector's callbacks are Python code. Before Python 3.12 they may run
    whenever an object is created, later ones also when C code checks for signals.

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

    The context ends with the call, so nothing needs to be reset.

    >>> level = ContextVar("level", default=0)
    >>> call_with(level, 1, level.get), level.get()
    (1, 0)
    """
    return copy_context().run(_set_and_call, variable, value, f, args, kwargs)


def _set_and_call(variable: ContextVar[Any], value: Any, f: Any, args: Any, kwargs: Any) -> Any:
    variable.set(value)
    return f(*args, **kwargs)


ATTEMPTS = 10  # to release what an interrupted call has held


class _Exit:
    """Gives a ``with`` statement the one object that exits the guard, called or not."""

    def __get__(self, guard: ScopeGuard | None, owner: type | None = None) -> Any:
        if guard is None:  # as contextlib.ExitStack looks it up
            return _exit
        leave = partial(_exit, guard)
        if guard._watch is None:  # otherwise the guard is entered already
            # Two, as a second exception may come before the first of them has started its work.
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
    if problem is not None and error is None:  # an exception in flight takes precedence
        raise problem


class ScopeGuard:
    """Base of contexts that hold a resource.

    A subclass implements entering in ``acquire``, and its undoing in ``release``.
    ``release`` is called on every exit, and again if something is raised in it; it must undo
    every part of ``acquire`` that was done and not undone yet. It may return an exception to raise.

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
        """Undo ``acquire``; has no effect on parts already undone."""
        return None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    __exit__ = _Exit()

    def _dropped(self, _: Any) -> None:
        """Exit the guard at the end of the ``with`` statement, if its exit was not called."""
        for left in range(ATTEMPTS, 0, -1):
            try:
                self.release()
                self._watch = None
                return
            except BaseException:
                if left == 1:
                    raise  # printed by Python, like everything raised here


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
        """Open the file, and store its descriptor in the same call."""
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
