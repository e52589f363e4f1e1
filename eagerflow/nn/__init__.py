"""Layers, models and what trains them; names and defaults are those of Keras 3."""

from __future__ import annotations

from eagerflow.nn import (
    activations,
    callbacks,
    initializers,
    layers,
    losses,
    metrics,
    optimizers,
    schedules,
)
from eagerflow.nn.layer import Layer
from eagerflow.nn.layers import *
from eagerflow.nn.model import Model
from eagerflow.nn.sequential import Sequential
from eagerflow.ops.other_names import members

__all__ = sorted(
    [
        "Layer",
        "Model",
        "Sequential",
        "activations",
        "callbacks",
        "initializers",
        "losses",
        "metrics",
        "optimizers",
        "schedules",
        *layers.__all__,
    ]
)

__getattr__, __dir__ = members(__name__, __all__)
