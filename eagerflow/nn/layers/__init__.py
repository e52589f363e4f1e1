"""The layers, by subject. A module's ``__all__`` is what users see of it as ``ef.nn.<name>``."""

from __future__ import annotations

from eagerflow.nn.layers import (
    cells,
    convolution,
    core,
    normalization,
    recurrent,
    recurrent_cells,
    recurrent_convolution,
    wrappers,
)
from eagerflow.nn.layers.cells import *
from eagerflow.nn.layers.convolution import *
from eagerflow.nn.layers.core import *
from eagerflow.nn.layers.normalization import *
from eagerflow.nn.layers.recurrent import *
from eagerflow.nn.layers.recurrent_cells import *
from eagerflow.nn.layers.recurrent_convolution import *
from eagerflow.nn.layers.wrappers import *

__all__ = sorted(
    [
        *cells.__all__,
        *convolution.__all__,
        *core.__all__,
        *normalization.__all__,
        *recurrent.__all__,
        *recurrent_cells.__all__,
        *recurrent_convolution.__all__,
        *wrappers.__all__,
    ]
)
