"""The status of a cluster: a table of its tasks, and a picture of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from eagerflow.devices import Device
from eagerflow.errors import ArgumentError
from eagerflow.graph.text import aligned_columns, bytes_text, seconds_text
from eagerflow.notebook.views import html

__all__ = ["Status", "TaskStatus"]

_HEAD = (
    "task",
    "state",
    "pid",
    "node",
    "runs",
    "a run",
    "Variables",
    "from client",
    "to client",
    "to tasks",
)
SLOW = 1.5  # ratio to others from which a task is called slow
MAX_PAIRS = 12  # of GPUs listed individually


class TaskStatus(NamedTuple):
    """One task: its machine, the numbers of its active runs, and bytes of arrays moved so far.

    >>> with ef.cluster.Cluster({"worker": 1}, local=True) as cluster:
    ...     cluster.status().tasks[0].to_tasks
    {}
    """

    name: str
    state: str
    pid: int | None
    node: str | None
    runs: Sequence[int] = ()
    variables: int = 0
    held_bytes: int = 0
    from_client: int = 0
    to_client: int = 0
    to_tasks: dict[str, int] = {}
    seconds: float | None = None
    """The time of its part of a run, by the last ones, without waiting (median)."""
    others: float | None = None
    """The same of the other tasks of its job (median)."""
    memory: str = ""
    """An identifier of the memory that tasks share."""
    past_host: Sequence[tuple[str, str, str, str, int]] = ()
    """From each device that may bypass host memory to each such one of other tasks: the
    library in use, or "" and the reason, and the bytes sent this way."""

    @property
    def is_slow(self) -> bool:
        """Whether it takes much longer than the other tasks of its job."""
        if self.seconds is None or self.others is None:
            return False
        return self.seconds > SLOW * self.others

    def row(self) -> tuple[str, ...]:
        """The cells of its line in the table."""
        sent = ", ".join(f"{bytes_text(size)} to {peer}" for peer, size in self.to_tasks.items())
        held = f"{self.variables} of {bytes_text(self.held_bytes)}" if self.variables else "none"
        taken = "" if self.seconds is None else seconds_text(self.seconds)
        if self.is_slow:
            taken += f", slow: others {seconds_text(self.others or 0.0)}"
        return (
            self.name,
            self.state,
            str(self.pid or ""),
            self.node or "",
            ", ".join(map(str, self.runs)) or "none",
            taken or "none",
            held,
            bytes_text(self.from_client),
            bytes_text(self.to_client),
            sent or "none",
        )


def compared(tasks: Sequence[TaskStatus]) -> list[TaskStatus]:
    """Tasks, each with the time of the others of its job."""
    found = []
    for task in tasks:
        job = task.name.rpartition("/")[0]
        others = [
            t.seconds
            for t in tasks
            if t.seconds is not None and t is not task and t.name.rpartition("/")[0] == job
        ]
        found.append(task._replace(others=median(others) if others else None))
    return found


class Status(NamedTuple):
    """The tasks of a cluster at one time; it prints as a table, and is a picture in notebooks.

    >>> with ef.cluster.Cluster({"worker": 2}, local=True) as cluster:
    ...     [task.name for task in cluster.status().tasks]
    ['/job:worker/task:0', '/job:worker/task:1']
    """

    tasks: Sequence[TaskStatus]

    @property
    def slow(self) -> list[str]:
        """The names of tasks that take much longer than the others of their jobs."""
        return [task.name for task in self.tasks if task.is_slow]

    def transport(self, source: Device | str, target: Device | str) -> str:
        """The path of arrays between devices of two tasks; ArgumentError for other devices.

        It is the name of a library for direct transfers between GPUs, or else ``"shared memory"``
        or ``"sockets"``, followed by the reason why GPUs use these.

        >>> with ef.cluster.Cluster({"worker": 2}, local=True) as cluster:
        ...     cluster.status().transport(*cluster.devices())
        'shared memory'
        """
        tasks = {task.name: task for task in self.tasks}
        ends = [tasks.get(str(place).rpartition("/device:")[0]) for place in (source, target)]
        first, last = ends
        if first is None or last is None or first is last:
            raise ArgumentError(
                "two devices of different tasks are needed",
                op="Status.transport",
                received=f"{source} and {target}",
                expected="devices of " + ", ".join(tasks),
            )
        by_host = "shared memory" if first.memory == last.memory else "sockets"
        pair = str(source), str(target)
        return next((w for *ends, w, _ in self._past_host() if tuple(ends) == pair), by_host)

    def _past_host(self) -> Iterator[tuple[str, str, str, int]]:
        """For pairs of devices that may bypass host memory: the path in use, and bytes."""
        memories = {task.name: task.memory for task in self.tasks}
        for task in self.tasks:
            for source, target, library, why, sent in task.past_host:
                same = task.memory == memories.get(target.rpartition("/device:")[0])
                by_host = "shared memory" if same else "sockets"
                yield source, target, library or f"{by_host} ({why})", sent

    def _ways(self) -> list[str]:
        """A line for each pair of such devices, or for each path of many pairs."""
        pairs = list(self._past_host())
        if len(pairs) <= MAX_PAIRS:
            return [f"{a} to {b}: {way}, {bytes_text(sent)}" for a, b, way, sent in pairs]
        ways: dict[str, list[int]] = {}
        for _, _, way, sent in pairs:
            ways.setdefault(way, []).append(sent)
        return [f"{len(n)} pairs of GPUs: {way}, {bytes_text(sum(n))}" for way, n in ways.items()]

    def __str__(self) -> str:
        lines = aligned_columns([_HEAD, *(t.row() for t in self.tasks)], "<<><<<<>><")
        return "\n".join([*lines, *self._ways()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """A picture: a box for each task, an arrow for each direction with traffic."""
        return html(self, "tasks")
