"""Traces of profiles in the JSON form that chrome://tracing and Perfetto read.

Source of the format: Google, "Trace Event Format", 2016: complete events (``X``) with begin and
duration in microseconds, counters (``C``), and names of processes and threads (``M``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eagerflow.files.atomic import write_whole
from eagerflow.profiling.rows import Facts, known_facts

if TYPE_CHECKING:
    from eagerflow.profiling.profile import Profile

_CATEGORIES = {True: "call", False: "kernel"}


def write_trace(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write the trace of a closed profile into a file."""
    whole = {
        "traceEvents": list(_records(profile)),
        "displayTimeUnit": "ms",
        "otherData": {"seconds": profile.seconds, "left out": profile.left_out},
    }
    write_whole(path, [json.dumps(whole).encode()])


def _records(profile: Profile) -> Iterator[dict[str, Any]]:
    process, first = os.getpid(), profile.begin
    yield _meta("process_name", process, 0, "eagerflow")
    threads = {event.thread.number: event.thread.name for event in profile.events}
    for number, name in threads.items():
        yield _meta("thread_name", process, number, name)
    known: dict[Any, Facts] = {}
    for event in sorted(profile.events, key=lambda e: (e.begin, -e.end)):
        facts = known_facts(known, event.site, event.detail)
        taken = event.end - event.begin
        yield {
            "ph": "X",
            "name": facts.name,
            "cat": _CATEGORIES[facts.is_call],
            "pid": process,
            "tid": event.thread.number,
            "ts": (event.begin - first) / 1e3,
            "dur": taken / 1e3,
            "args": _arguments(facts, taken),
        }
    for time, total in zip(profile.memory.times, profile.memory.totals, strict=True):
        yield {
            "ph": "C",
            "name": "memory of results",
            "pid": process,
            "tid": 0,
            "ts": (time - first) / 1e3,
            "args": {"bytes": total},
        }


def _meta(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _arguments(facts: Facts, nanoseconds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"line": facts.place, "result": facts.result, "region": facts.region}
    for name, rate, amount in (
        ("flops", "GFLOP/s", facts.flops),
        ("bytes", "GB/s", facts.bytes),
    ):
        if amount:
            found[name] = amount
            found[rate] = round(amount / max(nanoseconds, 1), 3)
    return {key: value for key, value in found.items() if value}
