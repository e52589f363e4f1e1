"""What was measured on this machine, and is remembered: in memory, and on disk."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from functools import cache
from typing import Any

from eagerflow.runtime.cache import ObjectCache

_disk = ObjectCache()
_known: dict[str, Any] = {}


@cache
def processor() -> str:
    """The name of the processor, and how many of its threads there are."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
        return f"{names[0]} x{len(names)}" if names else platform.processor()
    except OSError:  # only Linux has it
        return platform.processor() or platform.machine()


def remembered(
    key: str, measure: Callable[[], Any], read: Callable[[Any], Any], again: bool = False
) -> Any:
    """What was measured before and can be read, or else is measured now.

    ``measure()`` gives what JSON can hold, and ``read`` makes of that what is remembered.
    """
    if not again:
        if key in _known:
            return _known[key]
        content = _disk.load(key)
        if content is not None:
            try:
                _known[key] = found = read(json.loads(content))
                return found
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                pass  # damaged: measured anew
    made = json.dumps(measure())
    _disk.store(key, made.encode())
    _known[key] = found = read(json.loads(made))
    return found
