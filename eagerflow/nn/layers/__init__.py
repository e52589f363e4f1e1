"""The layers, by subject. A module's ``__all__`` is what users see of it as ``ef.nn.<name>``."""

from __future__ import annotations

from eagerflow.nn.layers import (
    convolution,
    core,
    hashing,
    lookup,
    normalization,
    preprocessing,
    text,
)
from eagerflow.nn.layers.convolution import *
from eagerflow.nn.layers.core import *
from eagerflow.nn.layers.hashing import *
from eagerflow.nn.layers.lookup import *
from eagerflow.nn.layers.normalization import *
from eagerflow.nn.layers.preprocessing import *
from eagerflow.nn.layers.text import *

__all__ = sorted(
    [
        *convolution.__all__,
        *core.__all__,
        *hashing.__all__,
        *lookup.__all__,
        *normalization.__all__,
        *preprocessing.__all__,
        *text.__all__,
    ]
)
