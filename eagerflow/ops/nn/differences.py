"""Elementwise differences: the building blocks of regression losses."""

from __future__ import annotations

from typing import Any

from eagerflow.errors import DTypeError
from eagerflow.ops.elementwise.arithmetic import abs, copysign, sign
from eagerflow.ops.elementwise.comparison import greater_equal
from eagerflow.ops.elementwise.powers import square
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import minimum, where
from eagerflow.ops.family import pointwise
from eagerflow.spec import TensorSpec, broadcast

__all__ = ["absolute_difference", "huber_difference", "squared_difference"]


def _difference(slope: Any, **facts: Any) -> Any:
    """A function of x1 - x2, with this slope: a rule of the difference and attributes."""
    return pointwise(
        partials=(
            in_float32(lambda y, a, b, **more: slope(a - b, **more)),
            in_float32(lambda y, a, b, **more: -slope(a - b, **more)),
        ),
        saves="x1 x2",
        **facts,
    )


@_difference(lambda d: d * 2)
def squared_difference(x1: Any, x2: Any, /) -> Any:
    """The square of x1 - x2, element by element.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. Raises ShapeError where the shapes do not broadcast.

    >>> squared_difference(ef.tensor([1.0, 5.0]), 2.0)
    Tensor([1., 9.], float32, cpu:0)
    """
    return square(x1 - x2)


@_difference(sign)
def absolute_difference(x1: Any, x2: Any, /) -> Any:
    """The absolute value of x1 - x2, element by element.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. The gradient is 0 where they are equal. Raises ShapeError where the shapes
    do not broadcast.

    >>> absolute_difference(ef.tensor([1.0, 5.0]), 2.0)
    Tensor([1., 3.], float32, cpu:0)
    """
    return abs(x1 - x2)


def _huber_spec(x1: Any, x2: Any, delta: Any) -> TensorSpec:
    if type(delta) not in (int, float):
        raise DTypeError(f"{delta!r} is not a number", argument="delta", expected="a Python number")
    like = x1 if isinstance(x1, TensorSpec) else x2
    shapes = [x.shape if isinstance(x, TensorSpec) else () for x in (x1, x2)]
    found: TensorSpec = like.like(broadcast(*shapes))
    return found


@_difference(
    lambda d, delta: where(greater_equal(abs(d), delta), copysign(delta, d), d),
    infer=_huber_spec,
    trusted=False,
    direct=None,
)
def huber_difference(x1: Any, x2: Any, /, delta: float = 1.0) -> Any:
    """Half the square of x1 - x2 where that is small, and linear from ``delta`` on.

    ``x1`` and ``x2`` are real tensors, arrays or numbers of shapes that broadcast; integers are
    taken as float32. Raises ShapeError where the shapes do not broadcast. Source: Huber, 1964.

    >>> huber_difference(ef.tensor([1.0, 3.0]), 0.0)
    Tensor([0.5, 2.5], float32, cpu:0)
    """
    distance = abs(x1 - x2)
    inner = minimum(distance, delta)
    return inner * (distance - inner * 0.5)
