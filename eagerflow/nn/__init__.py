"""Layers, models and what trains them; names and defaults are those of Keras 3."""

from __future__ import annotations

from eagerflow.nn import (
    activations,
    callbacks,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    optimizers,
    regularizers,
    schedules,
)
from eagerflow.nn.layer import Layer, added_losses

# Of each module, as checkers of types do not know an __all__ that is computed.
from eagerflow.nn.layers.convolution import *
from eagerflow.nn.layers.core import *
from eagerflow.nn.layers.hashing import *
from eagerflow.nn.layers.lookup import *
from eagerflow.nn.layers.normalization import *
from eagerflow.nn.layers.preprocessing import *
from eagerflow.nn.layers.text import *
from eagerflow.nn.loader import Loader
from eagerflow.nn.model import Model
from eagerflow.nn.module import Module
from eagerflow.nn.policy import DTypePolicy, dtype_policy, set_dtype_policy
from eagerflow.nn.sequential import Sequential
from eagerflow.ops.other_names import members

__all__ = sorted(
    [
        "DTypePolicy",
        "Layer",
        "Loader",
        "Model",
        "Module",
        "Sequential",
        "activations",
        "added_losses",
        "callbacks",
        "constraints",
        "dtype_policy",
        "initializers",
        "losses",
        "metrics",
        "optimizers",
        "regularizers",
        "schedules",
        "set_dtype_policy",
        *layers.__all__,
    ]
)

__getattr__, __dir__ = members(__name__, __all__)
