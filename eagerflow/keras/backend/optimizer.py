"""Optimizers: Keras's own, with one fused op for a step where there is one."""

from __future__ import annotations

from keras.src.optimizers import base_optimizer

__all__ = ["Optimizer"]


class Optimizer(base_optimizer.BaseOptimizer):  # type: ignore[misc]
    """The base of all optimizers."""
