"""Operators on matrices."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call, operator
from eagerflow.onnx.reading.element_types import converted


@operator("MatMul")
def matmul(call: Call, a: Any, b: Any) -> Any:
    """The product of matrices, or of stacks of them."""
    return converted(ops.matmul(a, b), a.dtype)


@operator("Gemm")
def gemm(
    call: Call,
    a: Any,
    b: Any,
    c: Any = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """Alpha * a @ b + beta * c, with a and b optionally transposed."""
    if a.ndim != 2 or b.ndim != 2:
        call.refuse("operands that are not matrices")
    y = ops.matmul(
        ops.matrix_transpose(a) if transA else a, ops.matrix_transpose(b) if transB else b
    )
    y = _scaled(y, alpha)
    y = y if c is None or beta == 0 else y + _scaled(c, beta)
    return converted(y, a.dtype)


def _scaled(x: Any, factor: float) -> Any:
    if factor == 1.0:
        return x
    return x * (factor if x.dtype.kind == "f" or not factor.is_integer() else int(factor))


@operator("Einsum")
def einsum(call: Call, *xs: Any, equation: str) -> Any:
    """Sums of products along axes, given by an equation."""
    return converted(ops.einsum(equation.replace(" ", ""), *xs), xs[0].dtype)


@operator("Det")
def det(call: Call, x: Any) -> Any:
    """Determinants of square matrices."""
    return ops.linalg.det(x)
