"""Regularizers: penalties of large weights or activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import INEXACT
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.nn.arguments import TensorLike, choice, number
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes
from eagerflow.ops.nn.similarity import unit
from eagerflow.ops.operands import floating, wide
from eagerflow.tensor import Tensor

__all__ = [
    "L1",
    "L1L2",
    "L2",
    "OrthogonalRegularizer",
    "Regularizer",
    "get",
    "l1",
    "l1_l2",
    "l2",
    "orthogonal_regularizer",
]


def __dir__() -> list[str]:
    return sorted(__all__)


Factor = Annotated[
    float,
    number(lambda x: 0 <= x < math.inf, "not a factor", "a finite number of at least 0"),
]
Mode = Annotated[str, choice("not a mode", "rows", "columns")]


class Regularizer(Configured):
    """Base of regularizers: a subclass defines ``__call__(x)``, one number for a weight.

    >>> class Largest(ef.nn.regularizers.Regularizer):
    ...     def __call__(self, x):
    ...         return ef.max(ef.abs(x))
    >>> Largest()(ef.tensor([2.0, -3.0]))
    Tensor(3., float32, cpu:0)
    """

    def __call__(self, x: TensorLike) -> Any:
        raise ArgumentError("the class does not define __call__", op=type(self).__name__)


class L1L2(Regularizer):
    """``l1`` times the sum of absolute values and ``l2`` times that of squares.

    >>> ef.nn.regularizers.L1L2(l1=0.5, l2=0.25)(ef.tensor([2.0, -2.0]))
    Tensor(4., float32, cpu:0)
    """

    l1: float
    l2: float

    @arguments
    def __init__(self, l1: Factor = 0.0, l2: Factor = 0.0) -> None: ...

    def __call__(self, x: TensorLike) -> Tensor:
        found: Tensor = wide(self._cost, floating(as_tensor(x), allowed=INEXACT))
        return found

    def _cost(self, x: Tensor) -> Tensor:
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
    def __init__(self, l1: Factor = 0.01) -> None:
        self.l2 = 0.0


class L2(L1L2):
    """``l2`` times the sum of squares.

    >>> ef.nn.regularizers.L2(0.5)(ef.tensor([2.0, -2.0]))
    Tensor(4., float32, cpu:0)
    """

    @arguments
    def __init__(self, l2: Factor = 0.01) -> None:
        self.l1 = 0.0


class OrthogonalRegularizer(Regularizer):
    """``factor`` times the mean absolute cosine between the rows of a matrix, or its columns.

    ``mode`` is ``"rows"`` or ``"columns"``: those that are pushed to be orthogonal. Raises
    ShapeError for a weight that is not a matrix.

    >>> ef.nn.regularizers.OrthogonalRegularizer(0.5)(ef.tensor([[2.0, 0.0], [3.0, 3.0]]))
    Tensor(0.3536, float32, cpu:0)
    """

    factor: float
    mode: str

    @arguments
    def __init__(self, factor: Factor = 0.01, mode: Mode = "rows") -> None: ...

    def __call__(self, x: TensorLike) -> Tensor:
        if len(x.shape) != 2:
            raise ShapeError(
                "only matrices have rows and columns",
                op=self._label,
                argument="x",
                received=summary(x),
                expected="2 axes",
            )
        vectors = unit(x, axis=1) if self.mode == "rows" else unit(x, axis=0).mT
        size = vectors.shape[0]
        cosines = ops.abs(ops.matmul(vectors, vectors.mT))
        apart = cosines * (1.0 - ops.eye(size, dtype=cosines.dtype))
        share = self.factor / max(size * (size - 1), 1)
        found: Tensor = wide(lambda x: ops.sum(x) * share, apart)
        return found


# Keras has the classes under their names as functions too.
l1, l2, l1_l2 = L1, L2, L1L2
orthogonal_regularizer = OrthogonalRegularizer

_TABLE = named_classes(Regularizer, l1_l2=L1L2)


def get(identifier: Any) -> Callable[..., Any] | None:
    """Return the regularizer for a name, a configuration or a function; None stays None.

    >>> ef.nn.regularizers.get("l2").l2
    0.01
    """
    return None if identifier is None else from_config("regularizer", identifier, _TABLE, callable)


RegularizerLike = Annotated[Any, get]
"""A name, a configuration or a function, which ``get`` resolves."""
