"""Products of matrices of 8-bit integers, with sums of 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import primitives
from eagerflow.dtypes import as_dtype
from eagerflow.op import Into, Missing
from eagerflow.ops.elementwise.arithmetic import multiply, subtract
from eagerflow.ops.family import Batch, define, op_of
from eagerflow.ops.linear_algebra.contraction import batch_of_products, matmul
from eagerflow.ops.reductions.sums import sum as summed
from eagerflow.runtime.buffers import empty
from eagerflow.spec import Array, Namespace

__all__ = ["integer_matmul"]

BYTES = frozenset(as_dtype(x) for x in ("int8", "uint8"))
SUMS = np.dtype(np.int32)
_MATMUL = op_of(matmul)


def _product_numpy(xp: Namespace, x1: Any, x2: Any) -> Any:
    return product_into(x1, x2)


def product_into(x1: Any, x2: Any, out: Any = None) -> Any:
    """The product of 8-bit integers, in C-contiguous memory of int32."""
    if out is None:
        batch = np.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        columns = x2.shape[-1:] if x2.ndim > 1 else ()
        out = empty((*batch, *x1.shape[-2:-1], *columns), SUMS)
    kernels = primitives.matrix_product
    primitives.integer_products.multiply(*kernels.as_matrices(x1, x2, out))
    return out


def _native(x1: Any, x2: Any, out: Any) -> Any:
    return primitives.matrix_product.fixed(x1, x2, out)


def _operator(w: Any, x1: Any, x2: Any) -> Any:
    """The rule of ONNX; ONNX Runtime does not write empty sums."""
    return w.filled(0) if x1.shape[-1] == 0 else w.MatMulInteger(x1, x2, dtype=SUMS)


@define(
    "quantization",
    aliases=False,
    dtypes=BYTES,
    together=(),
    infer=lambda x1, x2: _MATMUL.infer(x1, x2).like(dtype=SUMS),
    overrides={"numpy": _product_numpy},
    keeps_order=True,
    into=lambda x1, x2: Into(product_into, _native, "bB"),
    threaded=False,
    vjp=Missing("integers have no gradient"),
    batch=Batch(batch_of_products),
    split=_MATMUL.split,
    cost=_MATMUL.cost,
    onnx=_operator,
)
def integer_matmul(xp: Namespace, x1: Array, x2: Array, /) -> Array:
    """Matrix product of 8-bit integers, as int32.

    ``x1`` is an int8 or uint8 tensor of shape (..., m, k) or (k,), ``x2`` one of shape
    (..., k, n) or (k,), as of ``matmul``. The result is exact; beyond 2³¹ it wraps. Raises
    ShapeError where the inner dimensions differ or a tensor has no axes, DTypeError for other
    dtypes. ONNX's MatMulInteger.

    >>> ef.integer_matmul(ef.tensor([[100, 100]], "int8"), ef.tensor([100, 101], "int8"))
    Tensor([20100], int32, cpu:0)
    """
    return xp.matmul(x1.astype(SUMS), x2.astype(SUMS))


def integer_product(x1: Any, x2: Any, zero1: Any = None, zero2: Any = None) -> Any:
    """``(x1 - zero1) @ (x2 - zero2)`` of 8-bit integers, as int32.

    ``zero1`` is one number or one for each row, of shape (..., m, 1), ``zero2`` one number or one
    for each column. Only sums of rows and columns are needed besides the product itself.
    """
    y = integer_matmul(x1, x2)
    whole = x2.ndim > 1
    if zero1 is not None:
        zero1 = zero1.astype(SUMS)
        columns = summed(x2, axis=-2 if whole else -1, keepdims=whole and x1.ndim > 1, dtype=SUMS)
        y = subtract(y, multiply(zero1, columns))
    if zero2 is not None:
        zero2 = zero2.astype(SUMS)
        rows = summed(x1, axis=-1, keepdims=whole, dtype=SUMS)
        if zero1 is not None:
            rows = subtract(rows, multiply(zero1, x1.shape[-1]))
        y = subtract(y, multiply(rows, zero2))
    return y
