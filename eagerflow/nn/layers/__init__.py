"""The layers, by subject. A module's ``__all__`` is what users see of it as ``ef.nn.<name>``."""

from __future__ import annotations

from eagerflow.nn.layers import (
    convolution,
    core,
    depthwise,
    normalization,
    pooling,
    reshaping,
    resizing,
)
from eagerflow.nn.layers.convolution import *
from eagerflow.nn.layers.core import *
from eagerflow.nn.layers.depthwise import *
from eagerflow.nn.layers.normalization import *
from eagerflow.nn.layers.pooling import *
from eagerflow.nn.layers.reshaping import *
from eagerflow.nn.layers.resizing import *

__all__ = sorted(
    [
        *convolution.__all__,
        *core.__all__,
        *depthwise.__all__,
        *normalization.__all__,
        *pooling.__all__,
        *reshaping.__all__,
        *resizing.__all__,
    ]
)
