"""The layers, by subject. A module's ``__all__`` is what users see of it as ``ef.nn.<name>``."""

from __future__ import annotations

from eagerflow.nn.layers import (
    activation,
    convolution,
    core,
    masking,
    merging,
    noise,
    normalization,
    spectral,
    standardization,
)
from eagerflow.nn.layers.activation import *
from eagerflow.nn.layers.convolution import *
from eagerflow.nn.layers.core import *
from eagerflow.nn.layers.masking import *
from eagerflow.nn.layers.merging import *
from eagerflow.nn.layers.noise import *
from eagerflow.nn.layers.normalization import *
from eagerflow.nn.layers.spectral import *
from eagerflow.nn.layers.standardization import *

__all__ = sorted(
    [
        *activation.__all__,
        *convolution.__all__,
        *core.__all__,
        *masking.__all__,
        *merging.__all__,
        *noise.__all__,
        *normalization.__all__,
        *spectral.__all__,
        *standardization.__all__,
    ]
)
