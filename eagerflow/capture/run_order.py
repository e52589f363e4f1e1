"""Turns: runs that write the same Variables come one after the other, in any thread.

A run reads Variables at its start and assigns new values at its end. If two start with the
same value, the update of the earlier one would be lost. So a writing run is in a list while it
lasts, and waits for those ahead of it that write one of its Variables. A waiting run holds nothing
that others wait for, except its place in the list, so there is no deadlock. Runs that only read do
not wait, and see the Variables between two writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Set
from threading import Event, get_ident

from eagerflow.graph.ir import Cell
from eagerflow.guard import ScopeGuard
from eagerflow.variable import Variable

__all__ = ["Turn", "written_by"]


def written_by(cells: Iterable[Cell]) -> frozenset[Variable]:
    """The Variables that a run of a graph with these cells writes."""
    return frozenset([cell.variable for cell in cells if cell.assigned is not None])


class Turn(ScopeGuard):
    """The context of a run that writes these Variables.

    A run inside another one of its thread, such as a signal handler's, does not wait:
    the run it would wait for might itself wait for the interrupted one.
    """

    def __init__(self, variables: Set[Variable]) -> None:
        self._variables = variables
        self._thread = get_ident()
        self._waiting: list[Event] = []

    def acquire(self) -> None:
        """Wait for earlier runs."""
        _turns.append(self)
        if len(_turns) > 1:
            self._wait()

    def _wait(self) -> None:
        turns = _turns.copy()
        ahead = turns[: turns.index(self)]
        if any(other._thread == self._thread for other in ahead):
            return
        for other in ahead:
            if not self._variables.isdisjoint(other._variables):
                over = Event()
                other._waiting.append(over)
                if other in _turns:  # otherwise it has ended, and may have missed this waiter
                    over.wait()

    def release(self) -> None:
        """Let the next runs start."""
        if self in _turns:
            _turns.remove(self)
        for over in self._waiting:
            over.set()


_turns: list[Turn] = []
"""Runs in order of arrival; each access is a single atomic call."""


def _after_fork() -> None:
    """In a child only the forking thread lives on: no other has a turn, or waits for one."""
    own = get_ident()
    _turns[:] = [turn for turn in _turns if turn._thread == own]
    for turn in _turns:
        turn._waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
