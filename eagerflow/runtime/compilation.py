"""Background compilation: a thread of the pool begins with it; callers block until it is ready.

So the code of a plan's first kernels is made while the texts of the later ones are written, and by
all threads at once in the end. No thread depends on others: what none of them has begun with is
made by the one that asks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from eagerflow.handlers import suppress
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.runtime import threads


class Compilation:
    """What ``make()`` gives, which may take long: made by any thread, from now on."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make: Callable[[], bytes] | None = make
        self._content = b""
        self._begun = False
        self._lock = reentrant_lock()
        if threads.helpers() > 0:
            _waiting.append(self)
            threads.invite(_help, 1)

    def run(self) -> None:
        """Make it now, unless it is made; return when it is."""
        self._begun = True
        with Locked(self._lock):
            if self._make is not None:
                self._content = self._make()
                self._make = None

    def content(self) -> bytes:
        """What was made; raises what ``make`` does."""
        while self._begun and self._make is not None and _waiting:
            _help()  # another thread is at it
        self.run()
        with suppress(ValueError):
            _waiting.remove(self)
        return self._content


_waiting: deque[Compilation] = deque()
"""Those that a thread of the pool was asked for, and that none has begun with."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting.clear)


def _help() -> None:
    """Make the one that waits for longest; its error is for the caller that needs it."""
    with suppress(Exception):
        _waiting.popleft().run()
