"""Constraints: what weights are brought back to after each step of an optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.errors import ArgumentError
from eagerflow.nn.configured import Configured, from_config, named_classes
from eagerflow.tensor import Tensor

__all__ = ["Constraint", "NonNeg", "get"]


class Constraint(Configured):
    """Base of constraints: a subclass gives ``__call__(w)``, the weight as it may be."""

    def __call__(self, w: Tensor) -> Tensor:
        raise ArgumentError("the class has no __call__", op=type(self).__name__)


class NonNeg(Constraint):
    """No element below 0.

    >>> ef.nn.constraints.NonNeg()(ef.tensor([1.0, -1.0]))
    Tensor([1., 0.], float32, cpu:0)
    """

    def __call__(self, w: Tensor) -> Tensor:
        return ops.maximum(w, 0.0)


_TABLE = named_classes(Constraint)


def get(identifier: Any) -> Callable[..., Any] | None:
    """The constraint that a name, a configuration or a function stands for; None stays None."""
    return None if identifier is None else from_config("constraint", identifier, _TABLE, callable)


ConstraintLike = Annotated[Any, get]
"""A name, a configuration or a function, of which ``get`` makes what it stands for."""
