"""The layers, by subject. A module's ``__all__`` is public as ``ef.nn.<name>``."""

from __future__ import annotations

from eagerflow.nn.layer import Layer
from eagerflow.nn.layers import (
    activation,
    aliases,
    attention,
    cells,
    convolution,
    core,
    depthwise,
    einsum_dense,
    embedding,
    hashing,
    key_value_cache,
    lookup,
    masking,
    merging,
    multi_head_attention,
    noise,
    normalization,
    pooling,
    positions,
    preprocessing,
    recurrent,
    recurrent_cells,
    recurrent_convolution,
    reshaping,
    resizing,
    spectral,
    standardization,
    text,
    wrappers,
)
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

__all__ = sorted(
    [
        *activation.__all__,
        *aliases.__all__,
        *attention.__all__,
        *cells.__all__,
        *convolution.__all__,
        *core.__all__,
        *depthwise.__all__,
        *einsum_dense.__all__,
        *embedding.__all__,
        *hashing.__all__,
        *key_value_cache.__all__,
        *lookup.__all__,
        *masking.__all__,
        *merging.__all__,
        *multi_head_attention.__all__,
        *noise.__all__,
        *normalization.__all__,
        *pooling.__all__,
        *positions.__all__,
        *preprocessing.__all__,
        *recurrent.__all__,
        *recurrent_cells.__all__,
        *recurrent_convolution.__all__,
        *reshaping.__all__,
        *resizing.__all__,
        *spectral.__all__,
        *standardization.__all__,
        *text.__all__,
        *wrappers.__all__,
    ]
)
