"""Copies: a task's backups of the Variables of others, in case their tasks are lost.

A task sends new values to the task that keeps copies before it reports the end of its part of a
run. They become valid with the client's commit of the values themselves, so
that values and copies are those of one run, even if a task is lost at any time.

After a partial write, only that part is sent if the client knows that the
copy equals the previous value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from eagerflow.cluster.transport import Transport
from eagerflow.plan.part_writes import PartWrite
from eagerflow.runtime.shared_memory import settled

__all__ = ["Copies", "packed"]


class _Runs(NamedTuple):
    """A partial write to a copy: start indices of runs of elements, and the elements."""

    places: Any
    values: Any

    def over(self, copy: Any) -> Any:
        """The copy after the write, later runs winning; IndexError for indices out of range."""
        own = copy if copy.flags.writeable and copy.flags.c_contiguous else copy.copy()
        windows = sliding_window_view(own.reshape(-1), self.values.shape[1], writeable=True)
        windows[self.places] = self.values
        return own


def packed(values: Sequence[Any]) -> list[Any]:
    """New values as a message: the first array has the number of arrays of each value."""
    parts = [[x.places, x.values] if type(x) is PartWrite else [x] for x in values]
    return [np.array([*map(len, parts)], np.uint8), *(x for own in parts for x in own)]


def _unpacked(arrays: Sequence[Any]) -> list[Any]:
    """The values in a message, or partial writes to copies of them."""
    counts, *rest = [settled(x) for x in arrays]
    each = iter(rest)
    return [_Runs(next(each), next(each)) if count == 2 else next(each) for count in counts]


class Copies:
    """The copies kept by a task, by the keys of Variables.

    ``tell`` sends a message to the client.
    """

    def __init__(self, transport: Transport, tell: Callable[[dict[str, Any]], None]) -> None:
        self._transport, self._tell = transport, tell
        self._values: dict[int, Any] = {}
        self._staged: dict[int, dict[str, list[Any]]] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The bytes of the copies."""
        return sum([x.nbytes for x in self._values.values()])

    def keep(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        """Expect new values of a run from these tasks."""
        self._transport.forget_before(message["oldest"])
        run, number = message["run"], message["number"]
        self._staged[number] = {}
        for task in message["of"]:
            self._transport.receive((number, task), partial(self._arrived, run, number, task))

    def _arrived(self, run: int, number: int, task: str, arrays: list[Any]) -> None:
        with self._lock:
            staged = self._staged.get(number)
            if staged is not None:
                staged[task] = _unpacked(arrays)
        self._tell({"kept": run, "of": task})

    def commit(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        """Make the new values of a run valid.

        Only this thread reads copies, so none is seen half written.
        """
        staged = self._staged.pop(message["number"])
        for task, keys in message["keys"].items():
            for key, new in zip(keys, staged[task], strict=True):
                self._values[key] = new.over(self._values[key]) if type(new) is _Runs else new
        self._transport.forget(message["number"])

    def drop(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        """Drop the new values of a run that has failed."""
        with self._lock:
            self._staged.pop(message["number"], None)
        self._transport.forget(message["number"])

    def fetch(self, message: dict[str, Any], arrays: Sequence[Any]) -> Any:
        """The copies of some Variables."""
        return {}, [self._values[key] for key in message["variables"]]

    def forget(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        """Drop copies of these Variables."""
        for key in message["variables"]:
            self._values.pop(key, None)
