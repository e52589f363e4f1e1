"""Which operators there are: in a version of ONNX, and for the dtypes of a call.

ONNX allows every float dtype nearly everywhere; ONNX Runtime has kernels of fewer.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from eagerflow.errors import ArgumentError
from eagerflow.extras import load
from eagerflow.graph.ir import Node
from eagerflow.op import Missing, Onnx

OPSETS = range(18, 27)
"""The versions of ONNX's operators that models are written for."""

NO_FLOAT64 = frozenset(
    """
    Acos Acosh Asin Asinh Atan Atanh Cosh Erf Sinh Tan
    Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Selu Softplus Softsign
    AveragePool Conv ConvTranspose Det
    """.split()
)
"""Operators that ONNX Runtime, on processors, computes in float32 alone, or as inexactly."""


def check_opset(opset: int) -> None:
    """ArgumentError for a version of the operators that no model is written for."""
    if opset not in OPSETS:
        raise ArgumentError(
            f"models are not written for opset {opset!r}",
            op="export_onnx",
            argument="opset",
            expected=f"{OPSETS[0]} to {OPSETS[-1]}",
        )


@cache
def is_in(operator: str, opset: int) -> bool:
    """Whether a version of the operators has one."""
    defs = load("onnx", "onnx", "ONNX").defs
    try:
        defs.get_schema(operator, max_inclusive_version=opset)
    except defs.SchemaError:
        return False
    return True


def has_operator(node: Node, opset: int) -> bool:
    """Whether a node is exported as it is, and not as what its body consists of."""
    rule = node.op.onnx
    if not isinstance(rule, Onnx):
        return callable(rule) or isinstance(rule, Missing)
    if not is_in(rule.name, opset):
        return False
    wide = any(v.dtype == np.float64 for v in (*node.values(), *node.outputs))
    return not wide or rule.name not in NO_FLOAT64
