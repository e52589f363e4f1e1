"""Background compilation in threads of the pool; callers block until it is ready.

The code of a plan's first kernels is compiled while the text of later ones is written, and by
all threads in parallel at the end. No thread depends on others: work that none has started is
done by the caller.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from eagerflow.handlers import suppress
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.runtime import threads


class Compilation:
    """The result of ``make()``, which may take long: computed by any thread, from now on."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make: Callable[[], bytes] | None = make
        self._content = b""
        self._begun = False
        self._lock = reentrant_lock()
        if threads.helpers() > 0:
            _waiting.append(self)
            threads.invite(_help, 1)

    def run(self) -> None:
        """Compute the result, unless it is done; return when it is."""
        self._begun = True
        with Locked(self._lock):
            if self._make is not None:
                self._content = self._make()
                self._make = None

    def content(self) -> bytes:
        """The result; raises the errors of ``make``."""
        while self._begun and self._make is not None and _waiting:
            _help()  # another thread is computing it
        self.run()
        with suppress(ValueError):
            _waiting.remove(self)
        return self._content


_waiting: deque[Compilation] = deque()
"""Compilations requested from the pool, and not started yet."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting.clear)


def _help() -> None:
    """Run the oldest pending one; its error is raised in the caller that needs it."""
    with suppress(Exception):
        _waiting.popleft().run()
