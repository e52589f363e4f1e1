"""The availability of operators in a version of ONNX, and for the dtypes of a call.

ONNX allows every float dtype nearly everywhere; ONNX Runtime has kernels of fewer.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from eagerflow.errors import ArgumentError
from eagerflow.graph.ir import Node
from eagerflow.onnx.package import onnx_package
from eagerflow.op import Onnx

OPSETS = range(18, 27)
"""The versions of ONNX's operators that are supported for export."""

NO_FLOAT64 = frozenset(
    """
    Acos Acosh Asin Asinh Atan Atanh Cosh Erf Sinh Tan
    Elu Gelu HardSigmoid HardSwish LeakyRelu Mish Selu Softplus Softsign
    AveragePool Conv ConvTranspose Det
    """.split()
)
"""Operators that ONNX Runtime, on CPUs, computes only in float32 or with its accuracy."""


UINT64 = frozenset(
    """
    Abs Sign Add Sub Mul Div Mod Max Min Equal Greater GreaterOrEqual Less LessOrEqual
    BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    """.split()
)
"""Operators that ONNX Runtime computes in uint64; others use int64, correct below 2^63."""


def check_opset(opset: int) -> None:
    """ArgumentError for an unsupported version of the operators."""
    if opset not in OPSETS:
        raise ArgumentError(
            f"models are not written for opset {opset!r}",
            op="export_onnx",
            argument="opset",
            expected=f"{OPSETS[0]} to {OPSETS[-1]}",
        )


@cache
def is_in(operator: str, opset: int) -> bool:
    """Whether an operator exists in a version."""
    defs = onnx_package().defs
    try:
        defs.get_schema(operator, max_inclusive_version=opset)
    except defs.SchemaError:
        return False
    return True


def is_empty(node: Node) -> bool:
    """Whether all results are empty, so that nothing has to be computed."""
    return all(0 in v.shape for v in node.outputs)


def has_operator(node: Node, opset: int) -> bool:
    """Whether a node is exported as an operator, and not by its op's body."""
    rule = node.op.onnx
    if not isinstance(rule, Onnx):
        return callable(rule) or is_empty(node)
    if not is_in(rule.name, opset):
        return False
    wide = any(v.dtype == np.float64 for v in (*node.values(), *node.outputs))
    return not wide or rule.name not in NO_FLOAT64
