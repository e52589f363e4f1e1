"""Timelines: tasks by time and device, as a file for trace viewers.

The format is that of Chrome's tracing ("Trace Event Format", JSON object form): one row for each
device, a box for each piece and transfer, an arrow for each value sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.capture.placement.executor import Event, Program
from eagerflow.profiling.trace import MICROSECONDS, PROCESS, box, named, whole

_MAX_LISTED_NODES = 12  # per box


def timeline(
    program: Program,
    events: Sequence[Event],
    arrows: Sequence[tuple[int, int, str, int]],
) -> dict[str, Any]:
    """The trace of one run as a JSON object, times in microseconds from its first start.

    ``arrows`` are the sending task, the receiving task, the value's name and its bytes.
    """
    rows: dict[str, int] = {}
    for task in program.tasks:
        rows.setdefault(_row(task), len(rows))
    start = min((e.begin for e in events), default=0.0)
    found = [named("process", 0, "eagerflow")]
    for name, number in rows.items():
        found += [named("thread", number, name), named("thread", number, number, "sort_index")]
    for event in sorted(events, key=lambda e: e.begin):
        task = program.tasks[event.task]
        more = len(task.nodes) - _MAX_LISTED_NODES
        nodes = [
            *task.nodes[:_MAX_LISTED_NODES],
            *([f"and {more} more"] if more > 0 else ()),
        ]
        category = "transfer" if task.transfer else "piece"
        ends = event.begin - start, event.end - event.begin
        facts = {"nodes": nodes, "cores": task.mode}
        found.append(box(task.label, category, rows[_row(task)], *ends, facts))
    found += _arrows(program, arrows, {e.task: e for e in events}, rows, start)
    return whole(found)


def _arrows(
    program: Program,
    arrows: Sequence[tuple[int, int, str, int]],
    ran: dict[int, Event],
    rows: dict[str, int],
    start: float,
) -> list[dict[str, Any]]:
    """The two ends of each arrow between tasks that both ran."""
    found = []
    for number, (source, target, name, size) in enumerate(arrows):
        if source not in ran or target not in ran:
            continue
        for phase, event, at, own in (
            ("s", ran[source], ran[source].end, program.tasks[source]),
            ("f", ran[target], ran[target].begin, program.tasks[target]),
        ):
            # Within its box, as viewers assign arrows to boxes by time.
            inside = min(max(at, event.begin), event.end)
            arrow: dict[str, Any] = {
                "ph": phase,
                "name": f"send {name}",
                "cat": "send",
                "id": number,
                "pid": PROCESS,
                "tid": rows[_row(own)],
                "ts": (inside - start) * MICROSECONDS,
                "args": {"bytes": size},
            }
            if phase == "f":
                arrow["bp"] = "e"
            found.append(arrow)
    return found


def _row(task: Any) -> str:
    return f"{task.device} transfers" if task.transfer else str(task.device)
