"""Means of differences along an axis: losses of regression that read their arrays once.

Their gradients are ops too, and write their results in one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.errors import ShapeError
from eagerflow.ops.elementwise.arithmetic import abs, negative, sign
from eagerflow.ops.elementwise.comparison import less
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.elementwise.selection import maximum, minimum
from eagerflow.ops.family import expand_reduced, op_of, reduced_shape
from eagerflow.ops.formula import row_size
from eagerflow.ops.nn.differences import absolute_difference, huber_difference, squared_difference
from eagerflow.ops.reductions.statistics import mean, reduced_count, share_of
from eagerflow.ops.reductions.sums import sum, total
from eagerflow.ops.row_formulas import by_row
from eagerflow.spec import TensorSpec, normalize_axis

__all__ = ["mean_absolute_difference", "mean_huber_difference", "mean_squared_difference"]

Call = Callable[..., Any]


class _Difference(NamedTuple):
    """A function of x1 - x2 as an op; its second derivative is ``curve(x1 - x2)``."""

    call: Call
    curve: Call

    # The mean along an axis -----------------------------------------------------------------

    def mean_on_numpy(self, rows: Call, at: int, x1: Any, x2: Any, **more: Any) -> Any:
        """The mean along axis ``at`` of NumPy's arrays: of few elements in half the time."""
        if x1.size >= generated.MIN_COMPILED_ELEMENTS or generated.calls is not None:
            return rows(at, x1, x2, **more)
        return total(op_of(self.call).overrides["numpy"](np, x1, x2, **more), at) / x1.shape[at]

    def mean_spec(self, x1: TensorSpec, x2: TensorSpec, axis: int = -1, **more: Any) -> TensorSpec:
        """The spec of the mean."""
        shape = reduced_shape(x1.shape, normalize_axis(axis, x1.ndim), False)
        if x1.shape != x2.shape:
            raise ShapeError("the shapes of x1 and x2 differ", expected="equal shapes")
        found: TensorSpec = op_of(self.call).infer(x1, x2, **more)
        return found.like(shape)

    # The gradient of the mean by x1, where g is that of the mean ------------------------------

    def gradient_spec(
        self, x1: TensorSpec, x2: TensorSpec, g: TensorSpec, axis: int = -1, **more: Any
    ) -> TensorSpec:
        """The spec of the gradient."""
        if g.shape != self.mean_spec(x1, x2, axis, **more).shape:
            raise ShapeError("g does not have a value for each mean", argument="g")
        return x1

    def gradient_rules(
        self, c: Any, _: Any, a: Any, b: Any, g: Any, axis: int, **more: Any
    ) -> tuple[Any, ...]:
        """The gradients of the gradient, where ``c`` is that of its result."""
        share = share_of(expand_reduced(g, a, axis, False), reduced_count(a, axis))
        by_a = c * self.curve(a - b, **more) * share
        partials: Any = op_of(self.call).partials
        terms = c * partials[0](None, a, b, **more) / reduced_count(a, axis)
        return by_a, negative(by_a), sum(terms, axis=axis)


_SQUARED = _Difference(squared_difference, lambda d: d * 0.0 + 2.0)
_ABSOLUTE = _Difference(absolute_difference, lambda d: d * 0.0)
_HUBER = _Difference(huber_difference, lambda d, delta: less(abs(d), delta).astype(d.dtype))

# Their ops ---------------------------------------------------------------------------------------


def _mean_of(of: _Difference, gradient: Callable[[], Call]) -> Callable[[Call], Call]:
    return by_row(
        ("mn", "mn"),
        "m",
        infer=of.mean_spec,
        on_numpy=of.mean_on_numpy,
        vjp=(
            lambda g, y, a, b, **more: gradient()(a, b, g, **more),
            lambda g, y, a, b, **more: gradient()(b, a, g, **more),
        ),
        saves="x1 x2",
    )


def _gradient_of(of: _Difference) -> Callable[[Call], Call]:
    return by_row(
        ("mn", "mn", "m"),
        infer=of.gradient_spec,
        vjp=in_float32(of.gradient_rules),
        saves="x1 x2 g",
    )


@_mean_of(_SQUARED, lambda: mean_squared_difference_gradient)
def mean_squared_difference(x1: Any, x2: Any, /, axis: int = -1) -> Any:
    """The mean along an axis of the squares of x1 - x2.

    ``x1`` and ``x2`` are real tensors of one shape with at least one axis, which the result has
    without ``axis``. The mean of nothing is NaN. Raises ShapeError where the shapes differ.

    >>> mean_squared_difference(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(5., float32, cpu:0)
    """
    return mean(squared_difference(x1, x2), axis=axis, keepdims=True)


@_mean_of(_ABSOLUTE, lambda: mean_absolute_difference_gradient)
def mean_absolute_difference(x1: Any, x2: Any, /, axis: int = -1) -> Any:
    """The mean along an axis of the absolute values of x1 - x2.

    ``x1`` and ``x2`` are real tensors of one shape with at least one axis, which the result has
    without ``axis``. The mean of nothing is NaN. Raises ShapeError where the shapes differ.

    >>> mean_absolute_difference(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(2., float32, cpu:0)
    """
    return mean(absolute_difference(x1, x2), axis=axis, keepdims=True)


@_mean_of(_HUBER, lambda: mean_huber_difference_gradient)
def mean_huber_difference(x1: Any, x2: Any, /, axis: int = -1, delta: float = 1.0) -> Any:
    """The mean along an axis of huber_difference.

    ``x1`` and ``x2`` are real tensors of one shape with at least one axis, which the result has
    without ``axis``; ``delta`` is where the squares end. The mean of nothing is NaN. Raises
    ShapeError where the shapes differ.

    >>> mean_huber_difference(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(1.5, float32, cpu:0)
    """
    return mean(huber_difference(x1, x2, delta), axis=axis, keepdims=True)


@_gradient_of(_SQUARED)
def mean_squared_difference_gradient(x1: Any, x2: Any, g: Any, /, *, axis: int = -1) -> Any:
    """The gradient of mean_squared_difference by x1, where ``g`` is that of the mean.

    ``x1`` and ``x2`` are real tensors of one shape, which ``g`` has without ``axis``.
    Raises ShapeError where a shape does not fit.

    >>> x1, x2 = ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0])
    >>> mean_squared_difference_gradient(x1, x2, ef.tensor(3.0))
    Tensor([-3.,  9.], float32, cpu:0)
    """
    return g / row_size(x1) * ((x1 - x2) * 2)


@_gradient_of(_ABSOLUTE)
def mean_absolute_difference_gradient(x1: Any, x2: Any, g: Any, /, *, axis: int = -1) -> Any:
    """The gradient of mean_absolute_difference by x1, where ``g`` is that of the mean.

    ``x1`` and ``x2`` are real tensors of one shape, which ``g`` has without ``axis``.
    It is 0 where x1 and x2 are equal. Raises ShapeError where a shape does not fit.

    >>> x1, x2 = ef.tensor([1.0, 2.0]), ef.tensor([2.0, 2.0])
    >>> mean_absolute_difference_gradient(x1, x2, ef.tensor(3.0))
    Tensor([-1.5,  0. ], float32, cpu:0)
    """
    return g / row_size(x1) * sign(x1 - x2)


@_gradient_of(_HUBER)
def mean_huber_difference_gradient(
    x1: Any, x2: Any, g: Any, /, *, axis: int = -1, delta: float = 1.0
) -> Any:
    """The gradient of mean_huber_difference by x1, where ``g`` is that of the mean.

    ``x1`` and ``x2`` are real tensors of one shape, which ``g`` has without ``axis``.
    Raises ShapeError where a shape does not fit.

    >>> x1, x2 = ef.tensor([1.5, 5.0]), ef.tensor([2.0, 2.0])
    >>> mean_huber_difference_gradient(x1, x2, ef.tensor(3.0))
    Tensor([-0.75,  1.5 ], float32, cpu:0)
    """
    return g / row_size(x1) * maximum(minimum(x1 - x2, delta), -delta)
