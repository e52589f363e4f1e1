"""Questions: a client's pending requests to tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakValueDictionary

from eagerflow.cluster.connections import Connection
from eagerflow.errors import TaskLostError
from eagerflow.handlers import raised_here
from eagerflow.runtime.channel import as_error

__all__ = ["Question", "Questions"]

POLL_SECONDS = 0.2  # between two checks whether the task still exists
Answer = tuple[dict[str, Any], list[Any]]


class Question:
    """One question to a task. ``is_served`` says whether the sending thread is alive."""

    def __init__(self, number: int, connection: Connection, is_served: Callable[[], bool]) -> None:
        self.number, self._connection, self._is_served = number, connection, is_served
        self._found: SimpleQueue[Answer | Exception] = SimpleQueue()

    def send(self, message: dict[str, Any], arrays: Sequence[Any] = ()) -> None:
        """Send it; for the sending thread."""
        try:
            self._connection.send(message | {"ask": self.number}, arrays)
        except raised_here(EOFError):
            self.put(TaskLostError(f"{self._connection.peer} has gone"))

    def put(self, found: Answer | Exception) -> None:
        """Set the answer, or the task's error."""
        self._found.put(found)

    def answer(self, seconds: float | None = None) -> Answer:
        """The answer; the task's error, or TaskLostError if it is lost before it has answered.

        TimeoutError if it has not answered after ``seconds``.
        """
        while True:
            try:
                wait = POLL_SECONDS if seconds is None else min(seconds, POLL_SECONDS)
                found = self._found.get(timeout=wait)
                break
            except Empty:
                peer = self._connection.peer
                if not (self._connection.is_open and self._is_served()):
                    raise TaskLostError(f"{peer} has gone") from None
                if seconds is not None and (seconds := seconds - POLL_SECONDS) <= 0:
                    raise TimeoutError(f"{peer} does not answer") from None
        if isinstance(found, Exception):
            raise found
        return found


class Questions:
    """The questions with a waiting caller, by number; abandoned ones are dropped."""

    def __init__(self, is_served: Callable[[], bool]) -> None:
        self._is_served = is_served
        self._numbers = itertools.count(1)
        self._open: WeakValueDictionary[int, Question] = WeakValueDictionary()

    def to(self, connection: Connection) -> Question:
        """A new question to the task of a connection, still to be sent."""
        made = Question(next(self._numbers), connection, self._is_served)
        self._open[made.number] = made
        return made

    def answered(self, message: dict[str, Any], arrays: list[Any]) -> None:
        """Handle the answer of a task."""
        question = self._open.get(message.pop("answers"))
        if question is not None:
            failed = "error" in message
            question.put(as_error(message["error"]) if failed else (message, arrays))
