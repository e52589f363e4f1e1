"""Ops and functions that are loaded when one of their names is asked for.

Networks, or few programs, use them; importing them all would make every start slower. Each table
tells the modules of ``eagerflow.ops``, and the public names that come from each.
"""

from __future__ import annotations

import importlib
from typing import Any

from eagerflow.op import ops as registry

_TOP = {
    "elementwise.binary_parts": "cbrt frexp ldexp",
    "elementwise.closeness": "allclose array_equal isclose",
    "elementwise.divisors": "fmod gcd lcm",
    "elementwise.formulas": "bitwise_count deg2rad heaviside logaddexp2 logit modf nan_to_num "
    "rad2deg sinc xlog1py xlogy",
    "elementwise.numbers_over_nan": "fmax fmin",
    "creation.spaced": "geomspace logspace",
    "indexing.flat_places": "argwhere compress extract flatnonzero ravel_multi_index select "
    "unravel_index",
    "linear_algebra.integer_products": "integer_matmul",
    "linear_algebra.products": "cdist dot inner kron polyval vander vdot",
    "nn.attention": "dot_product_attention",
    "nn.batch_normalization": "batch_norm",
    "nn.convolution": "conv conv_filter_gradient conv_input_gradient conv_transpose",
    "nn.ctc": "ctc_loss",
    "nn.four_bits": "pack_int4 unpack_int4",
    "nn.integer_convolution": "integer_conv",
    "nn.losses": "sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy",
    "nn.normalization": "group_norm layer_norm rms_norm",
    "nn.optimizer_updates": "adam_update momentum_update",
    "nn.pooling": "avg_pool avg_pool_gradient max_pool max_pool_gather max_pool_gradient",
    "nn.quantization": "dequantize dynamic_quantize quantize",
    "nn.recurrent": "gru lstm simple_rnn",
    "nn.regularization": "dropout",
    "nn.resizing": "resize resize_gradient",
    "reductions.histograms": "bincount digitize histogram histogram2d histogram_bin_edges "
    "histogramdd",
    "reductions.moments": "average corrcoef cov ptp",
    "reductions.neighbours": "convolve correlate ediff1d gradient interp trapezoid",
    "reductions.over_nan": "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod "
    "nanstd nansum nanvar",
    "reductions.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "reductions.running_extremes": "cummax cummin logcumsumexp",
    "reductions.sets": "intersect1d isin setdiff1d setxor1d union1d",
    "reductions.unique": "unique unique_all unique_counts unique_inverse unique_values",
    "shapes.diagonal_matrices": "block_diag diag_embed diag_indices diagflat tril_indices "
    "triu_indices",
    "shapes.stacking": "append array_split atleast_1d atleast_2d atleast_3d block column_stack "
    "dsplit dstack hsplit hstack vsplit vstack",
    "shapes.turning": "fliplr flipud rot90",
}
_LINALG: dict[str, str] = {}
_UNNAMED = ("nn.adaptive_updates", "nn.mean_differences", "nn.weight_products")


def _by_name(table: dict[str, str]) -> dict[str, str]:
    return {name: module for module, names in table.items() for name in names.split()}


TOP = _by_name(_TOP)
"""Public names of ``ef``, and the modules that they come from."""
LINALG = _by_name(_LINALG)
"""Public names of ``ef.linalg``, and the modules that they come from."""


def load(module: str) -> Any:
    """A module of ops, which registers its own."""
    return importlib.import_module(f"{__package__}.{module}")


def load_all() -> None:
    """Load all modules of ops."""
    for module in (*_TOP, *_LINALG, *_UNNAMED):
        load(module)


def _find(name: str | None) -> bool:
    """Load the module of a public name, or all of them; whether some may be left."""
    if name in TOP:
        load(TOP[name])
        return True
    load_all()
    return False


registry.late = _find
