"""Layers, models and what trains them; names and defaults are those of Keras 3."""

from __future__ import annotations

from eagerflow.nn import (
    activations,
    callbacks,
    initializers,
    losses,
    metrics,
    optimizers,
    schedules,
)
from eagerflow.nn.layer import Layer
from eagerflow.nn.layers import (
    Activation,
    AveragePooling2D,
    BatchNormalization,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePooling2D,
    GlobalMaxPooling2D,
    Input,
    LayerNormalization,
    MaxPooling2D,
    Reshape,
)
from eagerflow.nn.model import Model
from eagerflow.nn.sequential import Sequential
from eagerflow.ops.other_names import members

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
    "Layer",
    "LayerNormalization",
    "MaxPooling2D",
    "Model",
    "Reshape",
    "Sequential",
    "activations",
    "callbacks",
    "initializers",
    "losses",
    "metrics",
    "optimizers",
    "schedules",
]

__getattr__, __dir__ = members(__name__, __all__)
