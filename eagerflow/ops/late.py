"""Ops and functions that are loaded when one of their names is asked for.

Networks, or few programs, use them; importing them all would make every start slower. Each table
tells the modules of ``eagerflow.ops``, and the public names that come from each.
"""

from __future__ import annotations

import importlib
from typing import Any

from eagerflow.op import ops as registry

_TOP = {
    "linear_algebra.integer_products": "integer_matmul",
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
    "reductions.unique": "unique_all unique_counts unique_inverse unique_values",
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
