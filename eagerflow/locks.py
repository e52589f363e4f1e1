"""Locks for threads, signal handlers, finalizers and forks alike.

A handler or a finalizer runs in the middle of any code of its thread, so a lock must be
reentrant, and the protected data must be consistent at every bytecode. In a forked child
only the thread that forked lives on: locks of other threads are free there.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from time import sleep
from typing import Any

from eagerflow.guard import ScopeGuard, in_one_call

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def reentrant_lock() -> Any:
    """A reentrant lock that is free in a forked child if another thread held it.

    >>> lock = reentrant_lock()
    >>> with Locked(lock), Locked(lock):
    ...     pass
    """
    made = threading.RLock()
    _locks.add(made)
    return made


class Locked(ScopeGuard):
    """A context that holds a lock.

    Python's own ``with lock`` is safe from signals, though not from exceptions at every
    bytecode; it costs a tenth of this.
    """

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._held: list[bool] = []

    def acquire(self) -> None:
        """Wait for the lock, and record in the same call that it is held."""
        self._held.extend(map(self._lock.acquire, (True,)))

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._held:
            in_one_call((self._held.clear, self._lock.release))


class _Writing:
    """The thread that is overwriting Variables' values; 0 if there is none.

    It is set and reset by calls that also do the writing, so only other threads can ever see it
    set: they wait.
    """

    __slots__ = ("end", "now", "thread")

    def __init__(self) -> None:
        self.thread = 0
        self.now = partial(getattr, self, "thread")
        self.end = partial(setattr, self, "thread", 0)

    def begin(self) -> Callable[[], None]:
        """The call by which this thread starts writing."""
        return partial(setattr, self, "thread", threading.get_ident())

    def wait(self) -> None:
        """Return when no other thread is writing."""
        while self.thread:
            sleep(5e-5)


writing = _Writing()

# Forks -------------------------------------------------------------------------------------------


def _before_fork() -> None:
    # A child would see half-written values forever.
    begin = writing.begin()
    while in_one_call((writing.now, begin)):
        writing.wait()


def _after_fork() -> None:
    writing.end()
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()


# Functions called before a fork run in reverse order. This one comes last, as a thread that has
# started writing must not wait for a lock: its holder's finalizers may read Variables.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=writing.end, after_in_child=_after_fork
    )
