"""Copies: what a task keeps of the Variables of others, in case that their tasks are lost.

A task sends new values to the one that keeps copies before it says that it has done its part of a
run. They are valid with the same word of the client that makes the values themselves valid, so
that values and copies are those of one run, whoever is lost at whatever moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eagerflow.cluster.transport import Transport
from eagerflow.runtime.shared_memory import settled

__all__ = ["Copies"]


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
                staged[task] = list(map(settled, arrays))
        self._tell({"kept": run, "of": task})

    def commit(self, message: dict[str, Any], arrays: Sequence[Any]) -> None:
        """The new values of a run are valid from now on."""
        staged = self._staged.pop(message["number"])
        for task, keys in message["keys"].items():
            self._values.update(zip(keys, staged[task], strict=True))
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
        """Nobody needs copies of these Variables here any more."""
        for key in message["variables"]:
            self._values.pop(key, None)
