"""What arguments of layers, losses and metrics may be, as their signatures say it."""

from __future__ import annotations

from typing import Any

__all__ = ["Nest", "TensorLike"]

TensorLike = Any
"""A Tensor or Variable, an array, a number, or nested lists of numbers."""
Nest = Any
"""A tensor, or nested tuples, lists and dicts of tensors."""
