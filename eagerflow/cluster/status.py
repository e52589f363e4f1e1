"""What a cluster is doing: a table of its tasks, and a picture of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from eagerflow.display import escape
from eagerflow.graph.text import aligned_columns, bytes_text, seconds_text

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
SLOW = 1.5  # times as long as others, from which a task is called slow
_WIDTH, _HEIGHT, _GAP = 190, 58, 26  # of a task's box, and between two


class TaskStatus(NamedTuple):
    """One task: where it is, the numbers of the runs it is at, and bytes of arrays moved so far.

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
    """In which it did its part of a run, by the last ones, without what it waited for (median)."""
    others: float | None = None
    """The same of the other tasks of its job (median)."""

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
    """Tasks, each with the time that the others of its job take."""
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
    """The tasks of a cluster at one moment; it prints as a table, and is a picture in notebooks.

    >>> with ef.cluster.Cluster({"worker": 2}, local=True) as cluster:
    ...     [task.name for task in cluster.status().tasks]
    ['/job:worker/task:0', '/job:worker/task:1']
    """

    tasks: Sequence[TaskStatus]

    @property
    def slow(self) -> list[str]:
        """The names of tasks that take much longer than the others of their jobs."""
        return [task.name for task in self.tasks if task.is_slow]

    def __str__(self) -> str:
        return "\n".join(aligned_columns([_HEAD, *(t.row() for t in self.tasks)], "<<><<<<>><"))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """A picture: a box for each task, an arrow for each way that bytes have gone."""
        return picture(self.tasks)


_COLOURS = {"ready": "#2a9d5c", "lost": "#c8402f", "starting": "#c79a2b", "drained": "#888888"}


def picture(tasks: Sequence[TaskStatus]) -> str:
    """The tasks as boxes in a row for each job, with what has gone between them, as SVG."""
    jobs: dict[str, list[TaskStatus]] = {}
    for task in tasks:
        jobs.setdefault(task.name.split("/")[1], []).append(task)
    places = {
        task.name: (_GAP + k * (_WIDTH + _GAP), _GAP + i * (_HEIGHT + 2 * _GAP))
        for i, row in enumerate(jobs.values())
        for k, task in enumerate(row)
    }
    width = max((x for x, _ in places.values()), default=0) + _WIDTH + _GAP
    height = max((y for _, y in places.values()), default=0) + _HEIGHT + _GAP
    most = max((size for t in tasks for size in t.to_tasks.values()), default=0) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
    ]
    for task in tasks:
        for peer, size in task.to_tasks.items():
            if peer in places:
                parts.append(_arrow(places[task.name], places[peer], size, most, task.name, peer))
    parts += [_box(task, *places[task.name]) for task in tasks]
    return "".join([*parts, "</svg>"])


def _arrow(
    start: tuple[int, int], end: tuple[int, int], size: int, most: int, name: str, peer: str
) -> str:
    x1, y1, x2, y2 = (
        at + half
        for ends in (start, end)
        for at, half in zip(ends, (_WIDTH // 2, _HEIGHT // 2), strict=True)
    )
    # Bent, each way to its own side, so that both ways are seen.
    x, y = (x1 + x2 + (y2 - y1) // 3) // 2, (y1 + y2 - (x2 - x1) // 3) // 2
    told = escape(f"{bytes_text(size)} from {name} to {peer}")
    return (
        f'<path d="M{x1} {y1} Q{x} {y} {x2} {y2}" fill="none" stroke="#5577aa" '
        f'stroke-opacity="0.7" stroke-width="{1 + 5 * size / most:.1f}">'
        f"<title>{told}</title></path>"
    )


def _box(task: TaskStatus, x: int, y: int) -> str:
    lines = [
        task.name,
        f"{task.state}, pid {task.pid}" if task.pid else task.state,
        f"{task.variables} Variables, {bytes_text(task.held_bytes)}",
    ]
    texts = "".join(
        f'<text x="{x + 8}" y="{y + 17 + 16 * i}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    colour = _COLOURS.get(task.state, "#888888")
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#ffffff" '
        f'fill-opacity="0.9" stroke="{colour}" stroke-width="2"/>{texts}'
    )
