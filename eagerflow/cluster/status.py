"""The status of a cluster: a table of its tasks, and a picture of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from eagerflow.devices import Device
from eagerflow.display import escape
from eagerflow.errors import ArgumentError
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
SLOW = 1.5  # ratio to others from which a task is called slow
MAX_PAIRS = 12  # of GPUs listed individually
_WIDTH, _HEIGHT = 190, 58  # of a task's box
_ACROSS, _DOWN = 96, 64  # between two boxes
_BEND = 6  # ratio of an arrow's length to its bend


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
        return picture(self.tasks)


_COLOURS = {"ready": "#2a9d5c", "lost": "#c8402f", "starting": "#c79a2b", "drained": "#888888"}


def picture(tasks: Sequence[TaskStatus]) -> str:
    """The tasks as boxes in a row for each job, with the traffic between them, as SVG."""
    jobs: dict[str, list[TaskStatus]] = {}
    for task in tasks:
        jobs.setdefault(task.name.split("/")[1], []).append(task)
    columns = max(map(len, jobs.values()), default=1)
    longest = (columns - 1) * (_WIDTH + _ACROSS)
    margin = 16 + max(0, longest // _BEND - _HEIGHT // 2)  # for an arrow over a whole row
    places = {
        task.name: (16 + k * (_WIDTH + _ACROSS), margin + i * (_HEIGHT + _DOWN))
        for i, row in enumerate(jobs.values())
        for k, task in enumerate(row)
    }
    width = 32 + columns * (_WIDTH + _ACROSS) - _ACROSS
    height = 2 * margin + len(jobs) * (_HEIGHT + _DOWN) - _DOWN
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
    """The traffic from one task to another; bent, each direction to its own side."""
    x1, y1, x2, y2 = (
        at + half
        for ends in (start, end)
        for at, half in zip(ends, (_WIDTH / 2, _HEIGHT / 2), strict=True)
    )
    dx, dy = x2 - x1, y2 - y1
    x, y = (x1 + x2) / 2 + dy / _BEND, (y1 + y2) / 2 - dx / _BEND
    a, b = _edge(x1, y1, x, y)
    c, d = _edge(x2, y2, x, y)
    thick = 1 + 4 * size / most
    long = 6 + 2 * thick
    away = math.hypot(c - x, d - y) or 1.0
    u, v = (c - x) / away * long, (d - y) / away * long  # of the head
    far = math.hypot(dx, dy)
    text = bytes_text(size)
    told = escape(f"{text} from {name} to {peer}")
    return (
        f'<g fill="#5577aa" fill-opacity="0.8"><title>{told}</title>'
        f'<path d="M{a:.0f} {b:.0f} Q{x:.0f} {y:.0f} {c - u:.0f} {d - v:.0f}" fill="none" '
        f'stroke="#5577aa" stroke-opacity="0.7" stroke-width="{thick:.1f}"/>'
        f'<path d="M{c:.0f} {d:.0f} L{c - u - v / 2:.0f} {d - v + u / 2:.0f} '
        f'L{c - u + v / 2:.0f} {d - v - u / 2:.0f} Z"/>'
        f'<text x="{(a + 2 * x + c) / 4 + 26 * dy / far:.0f}" '
        f'y="{(b + 2 * y + d) / 4 - 10 * dx / far + 4:.0f}" '
        f'text-anchor="middle" font-size="10">{text}</text></g>'
    )


def _edge(x: float, y: float, to_x: float, to_y: float) -> tuple[float, float]:
    """The point where a line from the middle of a box leaves it."""
    dx, dy = to_x - x, to_y - y
    part = min(_WIDTH / 2 / abs(dx) if dx else 1.0, _HEIGHT / 2 / abs(dy) if dy else 1.0)
    return x + part * dx, y + part * dy


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
        f'stroke="{colour}" stroke-width="2"/>{texts}'
    )
