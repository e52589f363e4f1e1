"""Elementary functions for generated code, each written once in terms of simpler instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.kernels.functions import basic

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(module, name) for module in (basic,) for name in module.__all__
}
"""Instruction to ``function(s, *operands)``, which writes it in instructions of ``s``."""
