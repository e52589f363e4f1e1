"""Turns: runs that write the same Variables come one after the other, in whatever thread.

A run reads Variables at its begin and gives them new values at its end. Of two that begin with the
same value the earlier one's would be lost. So a run that writes is in a list while it lasts, and
waits for those ahead of it that write one of its Variables. A waiting run holds nothing that others
wait for, except its place in the list, so none can wait for ever. Runs that only read do not
wait, and see the Variables as they are between two writes.
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

    A run in the middle of another one of its thread, as that of a signal handler, does not wait:
    what it would wait for might wait for the other one.
    """

    def __init__(self, variables: Set[Variable]) -> None:
        self._variables = variables
        self._thread = get_ident()
        self._waiting: list[Event] = []

    def acquire(self) -> None:
        """Wait for those that came before."""
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
                if other in _turns:  # else it is over, and may not have seen the waiting one
                    over.wait()

    def release(self) -> None:
        """Let the next ones begin."""
        if self in _turns:
            _turns.remove(self)
        for over in self._waiting:
            over.set()


_turns: list[Turn] = []
"""In the order in which they came; each call that looks at it or changes it is one."""


def _after_fork() -> None:
    """In a child only the thread that forked lives on: no other has a turn, or waits for one."""
    own = get_ident()
    _turns[:] = [turn for turn in _turns if turn._thread == own]
    for turn in _turns:
        turn._waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
