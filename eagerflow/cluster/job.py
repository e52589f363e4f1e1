"""A job: one run over several tasks, from its start to the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from eagerflow.cluster.parts import Part
from eagerflow.cluster.variables import Held
from eagerflow.devices import Device
from eagerflow.graph.ir import Cell

__all__ = ["CopiesOf", "Job"]


class CopiesOf(NamedTuple):
    """The task that keeps copies of a task's new values, and their indices."""

    holder: str
    positions: list[int]


class Job:
    """One run over several tasks, from its start to the answer.

    ``parts`` are those of a graph with ``cells``, whose Variables are on ``places``; ``inputs``
    are arrays. ``outputs`` receives the computed outputs of the graph, by position.
    ``twins`` are cells of other tasks that get the same new values, by position.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        cells: Sequence[Cell],
        places: Sequence[Device],
        inputs: Sequence[Any],
        count: int,
        twins: Mapping[int, int],
    ) -> None:
        self.parts, self.cells, self.places, self.inputs = parts, cells, places, inputs
        self.count = count
        self.twins = twins
        self.held: dict[int, Held] = {}
        """The Variables of cells, by position, as held by tasks."""
        self.outputs: dict[int, Any] = {}
        self.assigns = any(part.assigned for part in parts)
        self.number = 0
        self.copies_number = 0
        self.copies: dict[str, CopiesOf] = {}
        """By task with new values: the task that keeps copies of them."""
        self.waiting: set[Any] = set()
        self.states: dict[int, Any] = {}
        self.error: BaseException | None = None
        self.done: SimpleQueue[None] = SimpleQueue()
        self.over = False
        self.ended = False
        self.lock = threading.Lock()

    @property
    def tasks(self) -> set[str]:
        """The tasks that it needs."""
        return {part.task for part in self.parts} | {own.holder for own in self.copies.values()}

    def plan_copies(self, holder_of: Callable[[str], str | None]) -> None:
        """Choose the tasks that keep copies of new values that exist nowhere else."""
        for part in self.parts:
            here = {i - self.count for i in part.finals}  # returned to the client
            positions = [
                at for at, i in enumerate(part.assigned) if i not in self.twins and i not in here
            ]
            holder = holder_of(part.task) if positions else None
            if holder is not None:
                self.copies[part.task] = CopiesOf(holder, positions)

    def written(self) -> list[Held]:
        """The Variables that it assigns, for the parts that have started."""
        every = (i for part in self.parts for i in part.assigned)
        return [self.held[i] for i in every if i in self.held]

    def kept_by(self) -> dict[str, list[str]]:
        """By holder: the tasks whose new values it keeps."""
        found: dict[str, list[str]] = {}
        for task, own in self.copies.items():
            found.setdefault(own.holder, []).append(task)
        return found

    def end(self) -> None:
        """Mark the end: nothing is pending any more, and the cleanup is done."""
        self.ended = True
        self.done.put(None)

    def begin(self) -> None:
        """Wait for all parts, and for all copies."""
        self.waiting = {part.task for part in self.parts}
        self.waiting |= {("copies", task) for task in self.copies}
