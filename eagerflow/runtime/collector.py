"""Python's garbage collector, kept waiting while much is made of which nothing is garbage yet."""

from __future__ import annotations

import gc
import os
import threading
from functools import partial

from eagerflow.guard import ScopeGuard, in_one_call

NEVER = 1 << 30  # objects made since the last collection


class young(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which the garbage collector does not run by itself.

    A plan is made of many objects that all stay. What a trace makes is young when it ends, so that
    what leaks of it can be found among the young, however much else there is in memory. The last
    one to leave sets the threshold back.
    """

    def acquire(self) -> None:
        """Set a threshold that is not reached."""
        global _threshold
        self._thread = threading.get_ident()
        before = gc.get_threshold()
        if before[0] != NEVER:  # else it is ours, set by a thread that may have left since
            _threshold = before
        in_one_call((partial(_young.add, self), partial(gc.set_threshold, NEVER, *before[1:])))

    def release(self) -> None:
        """Let the collector run as before, unless others are inside still."""
        if self in _young:
            forget = partial(_young.discard, self)
            in_one_call((forget, _young.__len__, partial(gc.set_threshold, *_threshold)))


def set_apart() -> None:
    """Collect garbage, and keep all that is there now out of later collections.

    A process that has begun its work keeps what it began with, and each walk over that takes tens
    of milliseconds, in which nothing else is done.
    """
    gc.collect()
    gc.freeze()


_young: set[young] = set()
_threshold = gc.get_threshold()


def _forget_other_threads() -> None:
    # Only the forking thread lives on in the child, and the others' traces never end there.
    for other in [held for held in _young if held._thread != threading.get_ident()]:
        other.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
