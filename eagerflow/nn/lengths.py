"""Vectors of length 1."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.nn.arguments import TensorLike
from eagerflow.ops.attributes import Axes
from eagerflow.tensor import Tensor

__all__ = ["unit"]


def unit(x: TensorLike, axis: Axes = -1, epsilon: float = 1e-7) -> Tensor:
    """The vectors along ``axis`` divided by their lengths, or by ``epsilon`` if these are shorter.

    >>> from eagerflow.nn.lengths import unit
    >>> unit(ef.tensor([[3.0, 4.0], [0.0, 0.0]]))
    Tensor([[0.6, 0.8],
            [0. , 0. ]], shape=(2, 2), float32, cpu:0)
    """
    lengths: Any = ops.vector_norm(x, axis=axis, keepdims=True)
    found: Tensor = ops.divide(x, ops.maximum(lengths, epsilon))
    return found
