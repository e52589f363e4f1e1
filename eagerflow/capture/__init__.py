"""Capture: Python functions as graphs that can be read, saved, split over devices and replayed."""

import importlib
from typing import Any

from eagerflow.capture import passes as passes
from eagerflow.capture.control import cond, fori_loop, map, print, scan, switch, while_loop
from eagerflow.capture.function import Function, function
from eagerflow.capture.gradient import gradient as gradient
from eagerflow.capture.placement.calibration import calibrate
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.capture.placement.partition import Partition, partition
from eagerflow.capture.saving.file import load
from eagerflow.capture.session import Session
from eagerflow.capture.trace import trace
from eagerflow.capture.verify import Verification, verify
from eagerflow.graph import check as check  # imports attach methods
from eagerflow.graph import drawing as drawing
from eagerflow.graph import edit as edit
from eagerflow.graph.costs import Costs
from eagerflow.graph.diff import Difference, difference
from eagerflow.plan import Plan
from eagerflow.scopes import scope

__all__ = [
    "CostModel",
    "Costs",
    "Difference",
    "Function",
    "Partition",
    "Plan",
    "Rates",
    "Session",
    "Verification",
    "calibrate",
    "cond",
    "difference",
    "export_onnx",
    "export_python",
    "fori_loop",
    "function",
    "import_onnx",
    "load",
    "map",
    "partition",
    "passes",
    "print",
    "quantize",
    "scan",
    "scope",
    "switch",
    "trace",
    "verify",
    "while_loop",
]


_LATE = {  # loaded at first use: rarely used, or dependent on this package
    "export_onnx": "onnx.writing.exporting",
    "export_python": "standalone.exporting",
    "import_onnx": "onnx.reading.importing",
    "quantize": "capture.quantization.quantizing",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        package = __name__.partition(".")[0]
        return getattr(importlib.import_module(f"{package}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
