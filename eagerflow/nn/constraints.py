"""Constraints: projections of weights after each step of an optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import number
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes
from eagerflow.ops.attributes import Axes
from eagerflow.tensor import Tensor

__all__ = [
    "Constraint",
    "MaxNorm",
    "MinMaxNorm",
    "NonNeg",
    "UnitNorm",
    "get",
    "max_norm",
    "min_max_norm",
    "non_neg",
    "unit_norm",
]


def __dir__() -> list[str]:
    return sorted(__all__)


_EPSILON = 1e-7

Length = Annotated[float, number(lambda x: x >= 0, "not a length", "a number of at least 0")]
Part = Annotated[float, number(lambda x: 0 <= x <= 1, "not a rate", "a number from 0 to 1")]


class Constraint(Configured):
    """Base of constraints: a subclass defines ``__call__(w)``, the projected weight.

    >>> class Small(ef.nn.constraints.Constraint):
    ...     def __call__(self, w):
    ...         return ef.clip(w, -1.0, 1.0)
    >>> Small()(ef.tensor([0.5, 3.0]))
    Tensor([0.5, 1. ], float32, cpu:0)
    """

    def __call__(self, w: Tensor) -> Tensor:
        raise ArgumentError("the class does not define __call__", op=type(self).__name__)


class NonNeg(Constraint):
    """No element below 0.

    >>> ef.nn.constraints.NonNeg()(ef.tensor([1.0, -1.0]))
    Tensor([1., 0.], float32, cpu:0)
    """

    def __call__(self, w: Tensor) -> Tensor:
        return ops.maximum(w, 0.0)


class _Norm(Constraint):
    """Base of constraints on the norms of vectors along ``axis``."""

    axis: Axes

    @arguments
    def __init__(self, axis: Axes = 0) -> None: ...

    def length(self, norms: Tensor) -> Any:
        """The lengths that vectors of these lengths shall have."""
        raise ArgumentError("the class does not define length", op=type(self).__name__)

    def __call__(self, w: Tensor) -> Tensor:
        norms = ops.vector_norm(w, axis=self.axis, keepdims=True)
        return ops.multiply(w, ops.divide(self.length(norms), ops.add(norms, _EPSILON)))


class UnitNorm(_Norm):
    """Every vector has length 1.

    The vectors lie along ``axis``, an integer or several: 0 for the inputs of one unit of
    ``Dense``, (0, 1, 2) for a filter of ``Conv2D``.

    >>> ef.nn.constraints.UnitNorm()(ef.tensor([[3.0], [4.0]]))
    Tensor([[0.6],
            [0.8]], shape=(2, 1), float32, cpu:0)
    """

    @arguments
    def __init__(self, axis: Axes = 0) -> None: ...

    def length(self, norms: Tensor) -> Any:
        return 1.0


class MaxNorm(_Norm):
    """No vector is longer than ``max_value``.

    The vectors lie along ``axis``, an integer or several. Raises ArgumentError for a negative
    length. Source: Srivastava and others, "Dropout", 2014.

    >>> ef.nn.constraints.MaxNorm(1.0)(ef.tensor([[3.0, 0.3], [4.0, 0.4]]))
    Tensor([[0.6, 0.3],
            [0.8, 0.4]], shape=(2, 2), float32, cpu:0)
    """

    max_value: float

    @arguments
    def __init__(self, max_value: Length = 2.0, axis: Axes = 0) -> None: ...

    def length(self, norms: Tensor) -> Any:
        return ops.minimum(norms, self.max_value)


class MinMaxNorm(_Norm):
    """No vector is shorter than ``min_value`` or longer than ``max_value``.

    The vectors lie along ``axis``, an integer or several. ``rate`` is the part of the way to the
    allowed length that a step goes, from 0 to 1. Raises ArgumentError for other numbers.

    >>> ef.nn.constraints.MinMaxNorm(1.0, 2.0)(ef.tensor([[3.0, 0.3], [4.0, 0.4]]))
    Tensor([[1.2, 0.6],
            [1.6, 0.8]], shape=(2, 2), float32, cpu:0)
    """

    min_value: float
    max_value: float
    rate: float

    @arguments
    def __init__(
        self,
        min_value: Length = 0.0,
        max_value: Length = 1.0,
        rate: Part = 1.0,
        axis: Axes = 0,
    ) -> None: ...

    def length(self, norms: Tensor) -> Any:
        allowed = ops.clip(norms, self.min_value, self.max_value)
        return ops.add(allowed * self.rate, ops.multiply(norms, 1.0 - self.rate))


# Keras has the classes under their names as functions too.
max_norm, min_max_norm = MaxNorm, MinMaxNorm
non_neg, unit_norm = NonNeg, UnitNorm

_TABLE = named_classes(Constraint)


def get(identifier: Any) -> Callable[..., Any] | None:
    """Return the constraint for a name, a configuration or a function; None stays None.

    >>> ef.nn.constraints.get("max_norm").max_value
    2.0
    """
    return None if identifier is None else from_config("constraint", identifier, _TABLE, callable)


ConstraintLike = Annotated[Any, get]
"""A name, a configuration or a function, which ``get`` resolves."""
