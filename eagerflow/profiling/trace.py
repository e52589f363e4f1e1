"""Traces in the JSON form that chrome://tracing and Perfetto read.

Source of the format: Google, "Trace Event Format", 2016: complete events (``X``) with begin and
duration in microseconds, counters (``C``), and names of processes and threads (``M``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from eagerflow.files.atomic import write_whole
from eagerflow.profiling.results import Results
from eagerflow.profiling.rows import Facts

PROCESS = 1
"""The number of the one process of a trace."""
MICROSECONDS = 1e6  # in a second
_CATEGORIES = {True: "call", False: "kernel"}


def named(what: str, track: int, value: Any, key: str = "name") -> dict[str, Any]:
    """A record that gives the process or a thread, ``what``, a name or another property."""
    facts = {"ph": "M", "name": f"{what}_{key}", "pid": PROCESS, "tid": track}
    return facts | {"args": {key: value}}


def box(
    name: str, category: str, track: int, begin: float, seconds: float, more: dict[str, Any]
) -> dict[str, Any]:
    """A record of something with a start time and a duration, in one of the tracks."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": PROCESS,
        "tid": track,
        "ts": begin * MICROSECONDS,
        "dur": seconds * MICROSECONDS,
        "args": more,
    }


def whole(records: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A trace of these records as a JSON object."""
    return {"traceEvents": records, "displayTimeUnit": "ms"} | more


def write(trace: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a trace where a viewer can open it."""
    write_whole(path, [json.dumps(trace).encode()])


def write_profile(profile: Results, path: str | os.PathLike[str]) -> None:
    """Write the trace of a closed profile into a file."""
    more = {"seconds": profile.seconds, "left out": profile.left_out}
    write(whole([*_records(profile)], otherData=more), path)


def _records(profile: Results) -> Iterator[dict[str, Any]]:
    first, parts = profile.begin, profile.parts
    yield named("process", 0, "eagerflow")
    threads = {part.event.thread.number: part.event.thread.name for part in parts}
    for number, name in threads.items():
        yield named("thread", number, name)
    for part in parts:
        event, facts = part.event, part.facts
        begin, taken = (event.begin - first) * 1e-9, (event.end - event.begin) * 1e-9
        arguments = _arguments(facts, taken) | {"device": part.device}
        category = _CATEGORIES[facts.is_call]
        yield box(facts.name, category, event.thread.number, begin, taken, arguments)
    for time, total in zip(profile.memory.times, profile.memory.totals, strict=True):
        yield {
            "ph": "C",
            "name": "memory of results",
            "pid": PROCESS,
            "ts": (time - first) * 1e-9 * MICROSECONDS,
            "args": {"bytes": total},
        }


def _arguments(facts: Facts, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"line": facts.place, "result": facts.result, "region": facts.region}
    if facts.calls > 1:
        found["calls"] = facts.calls
    for name, rate, amount in (
        ("flops", "GFLOP/s", facts.flops),
        ("bytes", "GB/s", facts.bytes),
    ):
        if amount:
            found[name] = amount
            found[rate] = round(amount / max(seconds, 1e-9) / 1e9, 3)
    return {key: value for key, value in found.items() if value}
