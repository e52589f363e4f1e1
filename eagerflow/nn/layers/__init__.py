"""The layers, by subject."""

from __future__ import annotations

from eagerflow.nn.layers.convolution import (
    AveragePooling2D,
    Conv2D,
    GlobalAveragePooling2D,
    GlobalMaxPooling2D,
    MaxPooling2D,
)
from eagerflow.nn.layers.core import Activation, Dense, Dropout, Flatten, Input, Reshape
from eagerflow.nn.layers.normalization import BatchNormalization, LayerNormalization

__all__ = [
    "Activation",
    "AveragePooling2D",
    "BatchNormalization",
    "Conv2D",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling2D",
    "Input",
    "LayerNormalization",
    "MaxPooling2D",
    "Reshape",
]
