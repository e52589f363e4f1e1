"""Measurements of this machine, cached in memory and on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from eagerflow.handlers import raised_here
from eagerflow.runtime.cache import ObjectCache

_disk = ObjectCache()
_known: dict[str, Any] = {}


def remembered(
    key: str, measure: Callable[[], Any], read: Callable[[Any], Any], again: bool = False
) -> Any:
    """The result of an earlier measurement, if readable, or else of a new one.

    ``measure()`` returns JSON data, and ``read`` converts these to the cached result.
    """
    if not again:
        if key in _known:
            return _known[key]
        content = _disk.load(key)
        if content is not None:
            try:
                _known[key] = found = read(json.loads(content))
                return found
            except raised_here(ValueError, KeyError, TypeError, AttributeError, OverflowError):
                pass  # damaged: measured anew
    made = json.dumps(measure())
    _disk.store(key, made.encode())
    _known[key] = found = read(json.loads(made))
    return found
