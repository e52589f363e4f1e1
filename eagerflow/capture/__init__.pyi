# Written by tests/structure/stubs.py: do not edit.

from eagerflow.capture.control.branches import cond, switch
from eagerflow.capture.control.loops import fori_loop, while_loop
from eagerflow.capture.control.mapping import map
from eagerflow.capture.control.prints import print
from eagerflow.capture.control.scans import scan
from eagerflow.capture.function import Function, function
from eagerflow.capture.placement.calibration import calibrate
from eagerflow.capture.placement.cost_model import CostModel, Rates
from eagerflow.capture.placement.partition import Partition, partition
from eagerflow.capture.quantization.quantizing import quantize
from eagerflow.capture.saving.file import load
from eagerflow.capture.session import Session
from eagerflow.capture.trace import trace
from eagerflow.capture.verify import Verification, verify
from eagerflow.graph.costs import Costs
from eagerflow.graph.diff import Difference, difference
from eagerflow.onnx.reading.importing import import_onnx
from eagerflow.onnx.writing.exporting import export_onnx
from eagerflow.plan.plan import Plan
from eagerflow.scopes import scope
from eagerflow.standalone.exporting import export_python

from . import passes

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
