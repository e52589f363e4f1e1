"""Layers, models and training; names and defaults are those of Keras 3."""

from __future__ import annotations

import importlib
from typing import Any

from eagerflow.layer_losses import added_losses
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
from eagerflow.nn.checkpoint import Checkpoint
from eagerflow.nn.configuration import clone_model, model_from_config, model_from_json
from eagerflow.nn.foreign_weights import from_torch
from eagerflow.nn.functional_calls import functional_call
from eagerflow.nn.layer import Layer

# Of each module, as checkers of types do not know an __all__ that is computed.
from eagerflow.nn.layers.activation import *
from eagerflow.nn.layers.aliases import *
from eagerflow.nn.layers.attention import *
from eagerflow.nn.layers.cells import *
from eagerflow.nn.layers.convolution import *
from eagerflow.nn.layers.core import *
from eagerflow.nn.layers.depthwise import *
from eagerflow.nn.layers.einsum_dense import *
from eagerflow.nn.layers.embedding import *
from eagerflow.nn.layers.hashing import *
from eagerflow.nn.layers.key_value_cache import *
from eagerflow.nn.layers.lookup import *
from eagerflow.nn.layers.masking import *
from eagerflow.nn.layers.merging import *
from eagerflow.nn.layers.multi_head_attention import *
from eagerflow.nn.layers.noise import *
from eagerflow.nn.layers.normalization import *
from eagerflow.nn.layers.pooling import *
from eagerflow.nn.layers.positions import *
from eagerflow.nn.layers.preprocessing import *
from eagerflow.nn.layers.recurrent import *
from eagerflow.nn.layers.recurrent_cells import *
from eagerflow.nn.layers.recurrent_convolution import *
from eagerflow.nn.layers.reshaping import *
from eagerflow.nn.layers.resizing import *
from eagerflow.nn.layers.spectral import *
from eagerflow.nn.layers.standardization import *
from eagerflow.nn.layers.text import *
from eagerflow.nn.layers.wrappers import *
from eagerflow.nn.loader import Loader
from eagerflow.nn.model import Model
from eagerflow.nn.module import Module
from eagerflow.nn.plotting import plot_model
from eagerflow.nn.policy import DTypePolicy, dtype_policy, set_dtype_policy
from eagerflow.nn.saving import load_model
from eagerflow.nn.sequential import Sequential
from eagerflow.ops.other_names import members

__all__ = sorted(
    [
        "Checkpoint",
        "DTypePolicy",
        "Layer",
        "Loader",
        "Model",
        "Module",
        "Sequential",
        "activations",
        "added_losses",
        "callbacks",
        "clone_model",
        "constraints",
        "dtype_policy",
        "from_torch",
        "functional_call",
        "initializers",
        "load_model",
        "losses",
        "metrics",
        "model_from_config",
        "model_from_json",
        "networks",
        "optimizers",
        "plot_model",
        "regularizers",
        "schedules",
        "set_dtype_policy",
        *layers.__all__,
    ]
)

_missing, __dir__ = members(__name__, __all__)


def __getattr__(name: str) -> Any:
    if name == "networks":  # loaded when it is first used
        return importlib.import_module(f"{__name__}.networks")
    return _missing(name)
