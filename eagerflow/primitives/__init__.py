"""Array kernels with algorithms of their own: attention, convolution, pooling and others.

Submodules are attributes of this package, imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "attention",
    "byte_convolution",
    "batch_normalization",
    "compiled_attention",
    "compiled_recurrence",
    "convolution",
    "integer_products",
    "matrix_product",
    "pooling",
    "recurrence",
    "weight_product",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
