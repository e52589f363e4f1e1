"""Tasks of a cluster in a notebook: a box for each, an arrow for each direction with traffic."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.graph.text import bytes_text
from eagerflow.notebook.markup import BLUE, GREY, OLIVE, RED, TEAL, Markup, element, label, picture

_WIDTH, _HEIGHT = 190, 58  # of a task's box
_ACROSS, _DOWN = 96, 64  # between two boxes
_BEND = 6  # ratio of an arrow's length to its bend
_COLOURS = {"ready": TEAL, "lost": RED, "starting": OLIVE}


def view(status: Any) -> Markup:
    """A Status: its tasks in a row for each job, with the traffic between them."""
    tasks = status.tasks
    jobs: dict[str, list[Any]] = {}
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
    arrows = [
        _arrow(places[task.name], places[peer], size, size / most, f"{task.name} to {peer}")
        for task in tasks
        for peer, size in task.to_tasks.items()
        if peer in places
    ]
    boxes = [part for task in tasks for part in _box(task, *places[task.name])]
    title = f"{len(tasks)} tasks in {len(jobs)} jobs"
    return picture(width, height, title, *arrows, *boxes)


def _arrow(
    start: tuple[int, int], end: tuple[int, int], size: int, share: float, ends: str
) -> Markup:
    """The traffic from one task to another; bent, each direction to its own side."""
    x1, y1, x2, y2 = (
        at + half
        for place in (start, end)
        for at, half in zip(place, (_WIDTH / 2, _HEIGHT / 2), strict=True)
    )
    dx, dy = x2 - x1, y2 - y1
    x, y = (x1 + x2) / 2 + dy / _BEND, (y1 + y2) / 2 - dx / _BEND
    a, b = _edge(x1, y1, x, y)
    c, d = _edge(x2, y2, x, y)
    thick = 1 + 4 * share
    long = 6 + 2 * thick
    away = math.hypot(c - x, d - y) or 1.0
    u, v = (c - x) / away * long, (d - y) / away * long  # of the head
    far = math.hypot(dx, dy)
    text = bytes_text(size)
    line = f"M{a:.0f} {b:.0f} Q{x:.0f} {y:.0f} {c - u:.0f} {d - v:.0f}"
    head = (
        f"M{c:.0f} {d:.0f} L{c - u - v / 2:.0f} {d - v + u / 2:.0f} "
        f"L{c - u + v / 2:.0f} {d - v - u / 2:.0f} Z"
    )
    return element(
        "g",
        element("title", f"{text} from {ends}"),
        element("path", d=line, fill="none", stroke=BLUE, stroke_width=f"{thick:.1f}"),
        element("path", d=head, fill=BLUE),
        label(
            (a + 2 * x + c) / 4 + 26 * dy / far,
            (b + 2 * y + d) / 4 - 10 * dx / far + 4,
            text,
            "middle",
            font_size=10,
        ),
    )


def _edge(x: float, y: float, to_x: float, to_y: float) -> tuple[float, float]:
    """The point where a line from the middle of a box leaves it."""
    dx, dy = to_x - x, to_y - y
    part = min(_WIDTH / 2 / abs(dx) if dx else 1.0, _HEIGHT / 2 / abs(dy) if dy else 1.0)
    return x + part * dx, y + part * dy


def _box(task: Any, x: int, y: int) -> list[Markup]:
    lines = [
        task.name,
        f"{task.state}, pid {task.pid}" if task.pid else task.state,
        f"{task.variables} Variables, {bytes_text(task.held_bytes)}",
    ]
    frame = element(
        "rect", x=x, y=y, width=_WIDTH, height=_HEIGHT, rx=6, fill="none",
        stroke=_COLOURS.get(task.state, GREY), stroke_width=2,
    )  # fmt: skip
    return [frame, *(label(x + 8, y + 17 + 16 * i, line) for i, line in enumerate(lines))]
