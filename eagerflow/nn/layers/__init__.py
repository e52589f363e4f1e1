"""The layers, by subject. A module's ``__all__`` is what users see of it as ``ef.nn.<name>``."""

from __future__ import annotations

from eagerflow.nn.layers import convolution, core, normalization
from eagerflow.nn.layers.convolution import *
from eagerflow.nn.layers.core import *
from eagerflow.nn.layers.normalization import *

__all__ = sorted([*convolution.__all__, *core.__all__, *normalization.__all__])
