"""Python's garbage collector, paused while many objects without garbage are created."""

from __future__ import annotations

import gc
import os
import threading
from functools import partial

from eagerflow.guard import ScopeGuard, in_one_call

NEVER = 1 << 30  # threshold of new objects since the last collection


class young(ScopeGuard):  # noqa: N801 (it is used like a function)
    """A context in which the garbage collector does not run by itself.

    A plan consists of many objects that all survive. Objects of a trace are still young at its end,
    so that leaks can be found among the young generation, however large the heap is. The last
    context to end restores the threshold.
    """

    def acquire(self) -> None:
        """Set an unreachable threshold."""
        global _threshold
        self._thread = threading.get_ident()
        before = gc.get_threshold()
        if before[0] != NEVER:  # otherwise set by a thread that may have left since
            _threshold = before
        in_one_call((partial(_young.add, self), partial(gc.set_threshold, NEVER, *before[1:])))

    def release(self) -> None:
        """Restore the collector, unless other contexts are active."""
        if self in _young:
            forget = partial(_young.discard, self)
            in_one_call((forget, _young.__len__, partial(gc.set_threshold, *_threshold)))


def set_apart() -> None:
    """Collect garbage, and exclude all current objects from later collections.

    A process that has started its work keeps its initial objects, and each scan of them takes tens
    of milliseconds, in which nothing else runs.
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
