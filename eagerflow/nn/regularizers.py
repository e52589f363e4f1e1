"""Regularizers: what large weights or activations cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Float, TensorLike
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes
from eagerflow.tensor import Tensor

__all__ = ["L1", "L1L2", "L2", "Regularizer", "get"]


class Regularizer(Configured):
    """Base of regularizers: a subclass gives ``__call__(x)``, one number for a weight."""

    def __call__(self, x: TensorLike) -> Any:
        raise ArgumentError("the class has no __call__", op=type(self).__name__)


class L1L2(Regularizer):
    """``l1`` times the sum of absolute values and ``l2`` times that of squares.

    >>> ef.nn.regularizers.L1L2(l1=0.5, l2=0.25)(ef.tensor([2.0, -2.0]))
    Tensor(4., float32, cpu:0)
    """

    l1: float
    l2: float

    @arguments
    def __init__(self, l1: Float = 0.0, l2: Float = 0.0) -> None: ...

    def __call__(self, x: TensorLike) -> Tensor:
        found: Any = None
        if self.l1:
            found = ops.abs(x).sum() * self.l1
        if self.l2 or found is None:
            squares = ops.multiply(x, x).sum() * self.l2
            found = squares if found is None else found + squares
        return found


class L1(L1L2):
    """``l1`` times the sum of absolute values.

    >>> ef.nn.regularizers.L1(0.5)(ef.tensor([2.0, -2.0]))
    Tensor(2., float32, cpu:0)
    """

    @arguments
    def __init__(self, l1: Float = 0.01) -> None:
        self.l2 = 0.0


class L2(L1L2):
    """``l2`` times the sum of squares.

    >>> ef.nn.regularizers.L2(0.5)(ef.tensor([2.0, -2.0]))
    Tensor(4., float32, cpu:0)
    """

    @arguments
    def __init__(self, l2: Float = 0.01) -> None:
        self.l1 = 0.0


_TABLE = named_classes(Regularizer, l1_l2=L1L2)


def get(identifier: Any) -> Callable[..., Any] | None:
    """The regularizer that a name, a configuration or a function stands for; None stays None.

    >>> ef.nn.regularizers.get("l2").l2
    0.01
    """
    return None if identifier is None else from_config("regularizer", identifier, _TABLE, callable)


RegularizerLike = Annotated[Any, get]
"""A name, a configuration or a function, of which ``get`` makes what it stands for."""
