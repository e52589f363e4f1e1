"""Profiles for TensorBoard's profile plugin: an XSpace of planes, lines and events.

Source: the XLA project, ``xplane.proto``: names and numbers of fields.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from typing import Any

from eagerflow.files.atomic import as_path, refuse, write_whole
from eagerflow.files.protobuf import message_classes
from eagerflow.handlers import raised_here
from eagerflow.profiling.profile import Profile

__all__ = ["write_space"]

_MESSAGES = {
    "XSpace": "*XPlane planes; *string errors; *string warnings; *string hostnames",
    "XPlane": "int64 id; string name; *XLine lines; %int64:XEventMetadata event_metadata; "
    "%int64:XStatMetadata stat_metadata; *XStat stats",
    "XLine": "int64 id; string name; int64 timestamp_ns; *XEvent events; int64 duration_ps=9; "
    "int64 display_id; string display_name",
    "XEvent": "int64 metadata_id; int64 offset_ps; int64 duration_ps; *XStat stats",
    "XStat": "int64 metadata_id; double double_value; uint64 uint64_value; int64 int64_value; "
    "string str_value",
    "XEventMetadata": "int64 id; string name; bytes metadata; string display_name; *XStat stats",
    "XStatMetadata": "int64 id; string name; string description",
}
_PLANE = "/host:CPU"  # shown as a process by the plugin
_STATISTICS = ("line", "result", "flops", "bytes", "device")
_PICOSECONDS = 1000  # in a nanosecond


@cache
def messages() -> dict[str, Any]:
    return message_classes("eagerflow.profiler", _MESSAGES, "tensorboard", "profiles there")


def write_space(profile: Profile, logdir: str | os.PathLike[str], run: str) -> str:
    """Write a profile where TensorBoard looks for those of a run; returns the file's path.

    ``logdir`` is the folder of the run, ``run`` the name that the profile has in it. The package
    ``tensorboard-plugin-profile`` shows it. Raises FileFormatError where it cannot be written.
    """
    space = _space(profile)
    folder = os.path.join(as_path(logdir), "plugins", "profile", run)
    try:
        os.makedirs(folder, exist_ok=True)
    except raised_here(OSError) as error:
        refuse(error, "written", folder)
    path = os.path.join(folder, f"{platform.node() or 'local'}.xplane.pb")
    write_whole(path, [space.SerializeToString()])
    return path


def _space(profile: Profile) -> Any:
    """A line for each thread, with nested events."""
    known = messages()
    plane = known["XPlane"](id=1, name=_PLANE)
    for number, name in enumerate(_STATISTICS, 1):
        plane.stat_metadata[number].CopyFrom(known["XStatMetadata"](id=number, name=name))
    lines: dict[int, Any] = {}
    numbers: dict[str, int] = {}
    for part in profile.parts:
        thread, facts, event = part.event.thread, part.facts, part.event
        line = lines.get(thread.number)
        if line is None:
            line = lines[thread.number] = plane.lines.add(
                id=thread.number + 1, name=thread.name, timestamp_ns=profile.begin
            )
        number = numbers.setdefault(facts.name, len(numbers) + 1)
        made = line.events.add(
            metadata_id=number,
            offset_ps=(event.begin - profile.begin) * _PICOSECONDS,
            duration_ps=(event.end - event.begin) * _PICOSECONDS,
        )
        texts = facts.place, facts.result, int(facts.flops), int(facts.bytes), part.device
        for place, value in enumerate(texts, 1):
            if value:
                kind = "str_value" if isinstance(value, str) else "int64_value"
                made.stats.add(metadata_id=place, **{kind: value})
    for name, number in numbers.items():
        plane.event_metadata[number].CopyFrom(known["XEventMetadata"](id=number, name=name))
    return known["XSpace"](planes=[plane], hostnames=[platform.node()])
