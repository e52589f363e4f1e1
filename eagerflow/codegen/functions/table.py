"""Elementary functions for generated code, each written once in terms of simpler instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.codegen.functions import (
    basic,
    error_functions,
    exponential,
    gamma,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    trigonometric,
)

__all__ = ["BOUNDS", "COSTLY_FUNCTIONS", "FUNCTIONS"]

_MODULES: tuple[Any, ...] = (
    basic,
    error_functions,
    exponential,
    gamma,
    hyperbolic,
    inverse_trigonometric,
    logarithm,
    power,
    trigonometric,
)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(module, name)
    for module in _MODULES
    for name in module.__all__
    if name != "BOUNDS"
}
"""Instruction to ``function(s, *operands)``, which writes it in instructions of ``s``."""

COSTLY_FUNCTIONS = frozenset(
    FUNCTIONS.keys() - {"isfinite", "isinf", "isnan", "sign", "signbit", "square"}
)
"""Functions of so many instructions that values are kept rather than recomputed."""

BOUNDS: dict[str, tuple[float, float]] = {
    name: bound for module in _MODULES for name, bound in module.BOUNDS.items()
}
"""From functions to their largest errors in units in the last place, in float32 and in float64."""
