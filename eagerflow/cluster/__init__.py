"""Clusters: graphs and training over several machines, and what that would cost."""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {  # where each name is defined; loaded when it is first used
    "Failures": "simulation.machines",
    "Link": "simulation.machines",
    "Machines": "simulation.machines",
    "Workload": "simulation.workload",
    "bill": "simulation.bill",
    "calibrated": "simulation.calibration",
    "simulate": "simulation.simulate",
}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
