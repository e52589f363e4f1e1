"""Optimizers by their names; the package fills the table."""

from __future__ import annotations

from typing import Any

from eagerflow.nn.configured import from_config, snake_case
from eagerflow.nn.optimizers.base import Optimizer

__all__ = ["get", "offer"]

_classes: dict[str, type[Optimizer]] = {}


def offer(*classes: type[Optimizer]) -> None:
    """Allow ``get`` to find classes by their names in snake case, or in lower case."""
    for cls in classes:
        _classes[snake_case(cls.__name__)] = _classes[cls.__name__.lower()] = cls


def get(identifier: Any) -> Any:
    """Return the optimizer for a name, a configuration or an optimizer.

    >>> ef.nn.optimizers.get("adam")
    <Adam: learning_rate=0.001, step 0>
    """
    return from_config("optimizer", identifier, _classes, lambda x: isinstance(x, Optimizer))
