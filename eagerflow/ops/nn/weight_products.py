"""Products of floats with weights that are kept as small integers in groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow import primitives
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ShapeError
from eagerflow.op import Cost, Into, Missing
from eagerflow.ops.family import define
from eagerflow.ops.linear_algebra.contraction import matmul
from eagerflow.ops.linear_algebra.integer_products import BYTES
from eagerflow.ops.nn.four_bits import unpack_int4
from eagerflow.ops.nn.quantization import dequantize
from eagerflow.ops.shapes.reshaping import reshape
from eagerflow.runtime.buffers import empty
from eagerflow.spec import Array, Namespace, TensorSpec

__all__: list[str] = []

_FLOAT = as_dtype("float32")


def rows_of(w: Any) -> Any:
    """The number of rows of the matrix with the groups ``w``."""
    return w.shape[0] * w.shape[1] * (2 if w.dtype == "uint8" else 1)


def _spec(x: TensorSpec, w: TensorSpec, scale: TensorSpec) -> TensorSpec:
    if w.ndim != 3 or scale.shape != (w.shape[0], 1, w.shape[2]):
        raise ShapeError(
            f"weights of shape {w.shape} with scales of shape {scale.shape}",
            argument="w",
            expected="(groups, rows of bytes, columns) and (groups, 1, columns)",
        )
    if x.ndim < 2 or x.shape[-1] != rows_of(w):
        raise ShapeError(
            f"the last axis of x does not have the size of the {rows_of(w)} rows",
            argument="x",
            expected=f"(..., rows, {rows_of(w)})",
        )
    return x.like((*x.shape[:-1], w.shape[2]))


def _into(x: Any, w: Any, scale: Any, out: Any = None) -> Any:
    if out is None:
        out = empty((*x.shape[:-1], w.shape[-1]), _FLOAT)
    return primitives.weight_product.multiply(x, w, scale, out)


def _native(x: Any, w: Any, scale: Any, out: Any) -> Any:
    return primitives.weight_product.fixed(x, w, scale, out)


def _on_numpy(xp: Namespace, x: Any, w: Any, scale: Any) -> Any:
    return _into(x, w, scale)


def whole_weights(w: Any, scale: Any) -> Any:
    """The dequantized matrix of weights."""
    integers = unpack_int4(w, axis=1) if w.dtype == "uint8" else w
    return reshape(dequantize(integers, scale), (rows_of(w), w.shape[2]))


_IN_PLANS = "it is in plans alone, in place of a product with dequantized weights"


@define(
    "quantization",
    dtypes=(frozenset({_FLOAT}), BYTES, frozenset({_FLOAT})),
    together=(),
    infer=_spec,
    overrides={"numpy": _on_numpy},
    aliases=False,
    into=lambda x, w, scale: Into(_into, _native, "fbB"),
    threaded=True,
    vjp=Missing(_IN_PLANS),
    batch=Missing(_IN_PLANS),
    split=Missing(_IN_PLANS),
    cost=lambda x, w, scale: Cost(
        2 * x.size * w.shape[2], 4 * x.size + w.size + 4 * scale.size + 4 * x.shape[0] * w.shape[2]
    ),
    onnx=lambda w, x, y, scale: w.traced(_product, x, y, scale),
    ulp=64,
)
def weight_matmul(xp: Namespace, x: Array, w: Array, scale: Array, /) -> Array:
    """The product of rows of floats with weights that are small integers times scales.

    ``x`` is a float32 tensor of shape (..., rows, k), ``w`` an int8 tensor of shape (groups,
    k / groups, columns), or uint8 with two rows in one, as ``pack_int4`` packs them along axis 1.
    ``scale`` is float32, (groups, 1, columns). Raises ShapeError for others.

    >>> from eagerflow.op import ops
    >>> x, w = ef.ones((1, 4)), ef.ones((2, 2, 3), dtype="int8")
    >>> ops["weight_matmul"].call(x, w, ef.full((2, 1, 3), 0.5))
    Tensor([[2., 2., 2.]], shape=(1, 3), float32, cpu:0)
    """
    if w.dtype == "uint8":
        pairs = xp.stack([w & 15, w >> 4], axis=2)
        w = (xp.reshape(pairs, (w.shape[0], 2 * w.shape[1], w.shape[2])) ^ 8).astype(np.int8) - 8
    weights = xp.reshape(w.astype(scale.dtype) * scale, (-1, w.shape[2]))
    return xp.matmul(x, weights)


def _product(x: Any, w: Any, scale: Any) -> Any:
    """The dequantized value."""
    return matmul(x, whole_weights(w, scale))
