"""Copies: what a task keeps of the Variables of others, in case that their tasks are lost.

A task sends new values to the one that keeps copies before it says that it has done its part of a
run. They are valid with the same word of the client that makes the values themselves valid, so
that values and copies are those of one run, whichever task is lost at whatever moment.

Of a value of which a part is written over, that part alone is sent where the client knows that the
copy is what the value was before.
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
    """What is to be written over a copy: where runs of elements begin, and these."""

    places: Any
    values: Any

    def over(self, copy: Any) -> Any:
        """The copy with them, of several at one place the last; IndexError for places beyond it."""
        own = copy if copy.flags.writeable and copy.flags.c_contiguous else copy.copy()
        windows = sliding_window_view(own.reshape(-1), self.values.shape[1], writeable=True)
        windows[self.places] = self.values
        return own


def packed(values: Sequence[Any]) -> list[Any]:
    """What is sent of new values: the first array says how many of the others each of them has."""
    parts = [[x.places, x.values] if type(x) is PartWrite else [x] for x in values]
    return [np.array([*map(len, parts)], np.uint8), *(x for own in parts for x in own)]


def _unpacked(arrays: Sequence[Any]) -> list[Any]:
    """The values, or what is to be written over copies of them, from what was sent."""
    counts, *rest = [settled(x) for x in arrays]
    each = iter(rest)
    return [_Runs(next(each), next(each)) if count == 2 else next(each) for count in counts]


class Copies:
    """The copies that a task keeps, by the keys of Variables.

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
        """New values of a run are to come from these tasks."""
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
        """The new values of a run are valid from now on.

        Only this thread looks at copies, so none is seen half written.
        """
        staged = self._staged.pop(message["number"])
        for task, keys in message["keys"].items():
            for key, new in zip(keys, staged[task], strict=True):
                self._values[key] = new.over(self._values[key]) if type(new) is _Runs else new
        self._transport.forget(message["number"])

    def drop(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        """The new values of a run are those of none."""
        with self._lock:
            self._staged.pop(message["number"], None)
        self._transport.forget(message["number"])

    def fetch(self, message: dict[str, Any], arrays: Sequence[Any]) -> Any:
        """The copies of some Variables."""
        return {}, [self._values[key] for key in message["variables"]]

    def forget(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        """Copies of these Variables are not needed here any more."""
        for key in message["variables"]:
            self._values.pop(key, None)
