"""Parameters of distributions: numbers, or tensors that broadcast to the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.convert import plain_number
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.handlers import raised_here
from eagerflow.ops.elementwise.arithmetic import add, multiply
from eagerflow.ops.family import as_operand
from eagerflow.spec import broadcast
from eagerflow.tensor import Operators, Tensor


def fitting(value: Any, numbers: Tensor, argument: str) -> Any:
    """A number as Python's, or a tensor that broadcasts to the drawn numbers."""
    if isinstance(value, int | float | np.number):
        return plain_number(value)
    tensor = as_operand(value, numbers)
    try:
        fits = broadcast(tensor.shape, numbers.shape) == numbers.shape
    except raised_here(ShapeError):
        fits = False
    if not fits:
        raise ShapeError(
            "the value does not broadcast to the shape to draw",
            op="random",
            argument=argument,
            received=summary(tensor),
            expected=f"a shape that broadcasts to {numbers.shape}",
            hint="the shape to draw is the first argument, before parameters",
        )
    return tensor


def moved(numbers: Tensor, offset: Any, scale: Any, dtype: Any) -> Tensor:
    """``numbers * scale + offset``, without no-op steps.

    Tensors may widen the dtype, unless it is given.
    """
    scale, offset = fitting(scale, numbers, "scale"), fitting(offset, numbers, "offset")
    if isinstance(scale, Operators) or scale != 1:
        numbers = multiply(numbers, scale)
    if isinstance(offset, Operators) or offset != 0:
        numbers = add(numbers, offset)
    return numbers if dtype is None else numbers.astype(dtype)


def demand(x: Any, argument: str, holds: Callable[[Any], Any], expected: str) -> None:
    """ArgumentError for a number outside of the parameter's range; tensors are not checked."""
    if isinstance(x, int | float | np.number) and not holds(x):
        raise ArgumentError(
            "the distribution has no such parameter",
            op="random",
            argument=argument,
            received=repr(x),
            expected=expected,
        )


def check_scale(x: Any, argument: str) -> None:
    """ArgumentError for an invalid scale or standard deviation."""
    demand(x, argument, lambda number: number >= 0, "a number of at least 0")
