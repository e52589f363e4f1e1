"""The building block of most image networks: convolution, normalization, activation."""

from __future__ import annotations

from typing import Any

from eagerflow.nn.layers.activation import Activation
from eagerflow.nn.layers.convolution import Conv2D
from eagerflow.nn.layers.normalization import BatchNormalization
from eagerflow.tensor import Tensor

__all__ = ["convolution"]


def convolution(
    x: Tensor,
    filters: int,
    size: int | tuple[int, int],
    strides: int = 1,
    padding: str = "same",
    activation: str | None = "relu",
    **normalization: Any,
) -> Tensor:
    """A convolution without a bias, batch normalization and, unless None, an activation.

    ``normalization`` are arguments of ``BatchNormalization``.
    """
    x = Conv2D(filters, size, strides, padding, use_bias=False, kernel_initializer="he_normal")(x)
    x = BatchNormalization(**normalization)(x)
    return x if activation is None else Activation(activation)(x)
