"""The ops, by subject. A module's ``__all__`` is what users see of it as ``ef.<name>``."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from eagerflow.op import ops as registry
from eagerflow.ops import other_names
from eagerflow.ops.creation.cast import *
from eagerflow.ops.creation.filled import *
from eagerflow.ops.creation.ranges import *
from eagerflow.ops.elementwise.activation import *
from eagerflow.ops.elementwise.arithmetic import *
from eagerflow.ops.elementwise.bitwise import *
from eagerflow.ops.elementwise.comparison import *
from eagerflow.ops.elementwise.complexes import *
from eagerflow.ops.elementwise.exponential import *
from eagerflow.ops.elementwise.powers import *
from eagerflow.ops.elementwise.rounding import *
from eagerflow.ops.elementwise.selection import *
from eagerflow.ops.elementwise.special import *
from eagerflow.ops.elementwise.trigonometric import *
from eagerflow.ops.indexing.gathering import *
from eagerflow.ops.indexing.indexing import *
from eagerflow.ops.indexing.scattering import *
from eagerflow.ops.indexing.updating import *
from eagerflow.ops.inspection import *
from eagerflow.ops.linear_algebra.contraction import *
from eagerflow.ops.linear_algebra.decompositions import *
from eagerflow.ops.linear_algebra.einstein import *
from eagerflow.ops.linear_algebra.matrices import *
from eagerflow.ops.linear_algebra.systems import *
from eagerflow.ops.methods import *
from eagerflow.ops.numpy_calls import *
from eagerflow.ops.reductions.cumulative import *
from eagerflow.ops.reductions.norms import *
from eagerflow.ops.reductions.softmax import *
from eagerflow.ops.reductions.sorting import *
from eagerflow.ops.reductions.statistics import *
from eagerflow.ops.reductions.sums import *
from eagerflow.ops.shapes.diagonals import *
from eagerflow.ops.shapes.joining import *
from eagerflow.ops.shapes.padding import *
from eagerflow.ops.shapes.repeating import *
from eagerflow.ops.shapes.reshaping import *

# Of all modules below, those names that were taken in above.
__all__ = sorted(
    {
        name
        for path, module in sys.modules.items()
        if path.startswith(f"{__name__}.")
        for name in getattr(module, "__all__", ())
        if globals().get(name) is getattr(module, name)
    }
)

# These are loaded when one of their names is asked for: networks, or few programs, use them.
if TYPE_CHECKING:
    from eagerflow.ops.linear_algebra.integer_products import *
    from eagerflow.ops.nn.attention import *
    from eagerflow.ops.nn.batch_normalization import *
    from eagerflow.ops.nn.convolution import *
    from eagerflow.ops.nn.ctc import *
    from eagerflow.ops.nn.four_bits import *
    from eagerflow.ops.nn.integer_convolution import *
    from eagerflow.ops.nn.losses import *
    from eagerflow.ops.nn.normalization import *
    from eagerflow.ops.nn.optimizer_updates import *
    from eagerflow.ops.nn.pooling import *
    from eagerflow.ops.nn.quantization import *
    from eagerflow.ops.nn.recurrent import *
    from eagerflow.ops.nn.regularization import *
    from eagerflow.ops.nn.resizing import *
    from eagerflow.ops.reductions.unique import *

LATE = {
    "adam_update": "nn.optimizer_updates",
    "avg_pool": "nn.pooling",
    "avg_pool_gradient": "nn.pooling",
    "batch_norm": "nn.batch_normalization",
    "conv": "nn.convolution",
    "conv_filter_gradient": "nn.convolution",
    "conv_input_gradient": "nn.convolution",
    "conv_transpose": "nn.convolution",
    "ctc_loss": "nn.ctc",
    "dequantize": "nn.quantization",
    "dot_product_attention": "nn.attention",
    "dropout": "nn.regularization",
    "dynamic_quantize": "nn.quantization",
    "group_norm": "nn.normalization",
    "gru": "nn.recurrent",
    "integer_conv": "nn.integer_convolution",
    "integer_matmul": "linear_algebra.integer_products",
    "layer_norm": "nn.normalization",
    "lstm": "nn.recurrent",
    "max_pool": "nn.pooling",
    "max_pool_gather": "nn.pooling",
    "max_pool_gradient": "nn.pooling",
    "momentum_update": "nn.optimizer_updates",
    "pack_int4": "nn.four_bits",
    "quantize": "nn.quantization",
    "resize": "nn.resizing",
    "resize_gradient": "nn.resizing",
    "rms_norm": "nn.normalization",
    "sigmoid_cross_entropy": "nn.losses",
    "simple_rnn": "nn.recurrent",
    "softmax_cross_entropy": "nn.losses",
    "sparse_softmax_cross_entropy": "nn.losses",
    "unpack_int4": "nn.four_bits",
    "unique_all": "reductions.unique",
    "unique_counts": "reductions.unique",
    "unique_inverse": "reductions.unique",
    "unique_values": "reductions.unique",
}
"""Public names, and the modules that they come from."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(load_late(LATE[name]), name)
    return found


def load_late(module: str) -> Any:
    """A module of ops that is loaded when it is first used."""
    return importlib.import_module(f"{__name__}.{module}")


def load_all() -> None:
    """Load all modules of ops, which register theirs."""
    own = "nn.adaptive_updates", "nn.mean_differences", "nn.weight_products"
    for module in (*LATE.values(), *own):
        load_late(module)


registry.late = load_all
other_names.explain_methods(__all__)
