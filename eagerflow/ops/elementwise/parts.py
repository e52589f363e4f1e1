"""Parts of formulas: limits, polynomials, and products without rounding errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerflow.dtypes import FLOATS
from eagerflow.ops.elementwise.arithmetic import negative
from eagerflow.ops.elementwise.comparison import greater, less
from eagerflow.ops.elementwise.selection import where
from eagerflow.ops.family import Operand, elementwise
from eagerflow.spec import Array, Namespace

__all__ = ["at_least", "at_most", "fma", "horner", "two_product"]


@elementwise(
    partials=(Operand(2), Operand(1), 1),
    saves="x1 x2",
    dtypes=FLOATS,
)
def fma(xp: Namespace, x1: Array, x2: Array, x3: Array, /) -> Array:
    """A product plus a number: x1·x2 + x3, rounded once in generated code.

    ``x1``, ``x2`` and ``x3`` are float tensors or numbers of shapes that broadcast.

    >>> from eagerflow.ops.elementwise.parts import fma
    >>> fma(ef.tensor([2.0]), 3.0, 1.0)
    Tensor([7.], float32, cpu:0)
    """
    return x1 * x2 + x3


def at_least(x: Any, low: float) -> Any:
    """The larger of x and a constant; NaN stays. One instruction, unlike ``maximum``."""
    return where(less(x, low), low, x)


def at_most(x: Any, high: float) -> Any:
    """The smaller of x and a constant; NaN stays."""
    return where(greater(x, high), high, x)


def horner(x: Any, coefficients: Sequence[float]) -> Any:
    """The polynomial with these coefficients, the constant one first."""
    *rest, second, first = coefficients
    total = fma(x, first, second)
    for coefficient in reversed(rest):
        total = fma(total, x, coefficient)
    return total


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """A product and its rounding error."""
    high = a * b
    return high, fma(a, b, negative(high))
