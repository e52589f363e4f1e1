"""Ray, loaded for what needs it: it tells nobody of its use, and leaves Python's own print."""

from __future__ import annotations

from typing import Any

from eagerflow import extras
from eagerflow.settings import set_unless_said

__all__ = ["load_ray"]


def load_ray(extra: str, feature: str) -> Any:
    """The module ``ray``; MissingExtraError, with the pip line of the extra, without it."""
    set_unless_said("RAY_USAGE_STATS_ENABLED", "0")
    set_unless_said("RAY_TQDM_PATCH_PRINT", "0")  # captured code may call print
    return extras.load("ray", extra, feature)
