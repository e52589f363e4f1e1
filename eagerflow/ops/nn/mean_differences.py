"""Means of differences along an axis: losses of regression that read their arrays once.

Their gradients are ops too, and write their results in one pass over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen import generated
from eagerflow.codegen.instructions import instructions
from eagerflow.codegen.numpy.rows import RowKernel, whole_rows
from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import Split
from eagerflow.ops.elementwise.arithmetic import abs, negative
from eagerflow.ops.elementwise.comparison import less
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import (
    Rows,
    batch_along_axis,
    define,
    expand_reduced,
    op_of,
    reduced_shape,
)
from eagerflow.ops.nn.differences import absolute_difference, huber_difference, squared_difference
from eagerflow.ops.reductions.statistics import reduced_count, share_of
from eagerflow.ops.reductions.sums import sum, total
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis

__all__ = ["mean_absolute_difference", "mean_huber_difference", "mean_squared_difference"]

Call = Callable[..., Any]


class _Difference(NamedTuple):
    """A function of x1 - x2 as an op, and its derivatives by that; all take its attributes.

    ``slope(s, d)`` is the first one in scalar instructions, and ``curve(d)`` the second one of a
    Tensor.
    """

    call: Call
    slope: Call
    curve: Call

    # The mean along an axis -----------------------------------------------------------------

    def mean_body(self, s: Any, x1: Any, x2: Any, **more: Any) -> Any:
        """The mean of each row."""
        of: Any = op_of(self.call).kernel
        return s.mean(of(s, x1, x2, **more), "n")

    def few_means(self, at: int, x1: Any, x2: Any, **more: Any) -> Any:
        """The mean of each row of few elements of NumPy's, along axis ``at``."""
        return total(op_of(self.call).overrides["numpy"](np, x1, x2, **more), at) / x1.shape[at]

    def mean_spec(self, x1: TensorSpec, x2: TensorSpec, axis: int = -1, **more: Any) -> TensorSpec:
        """The spec of the mean."""
        shape = reduced_shape(x1.shape, normalize_axis(axis, x1.ndim), False)
        if x1.shape != x2.shape:
            raise ShapeError("the shapes of x1 and x2 differ", expected="equal shapes")
        found: TensorSpec = op_of(self.call).infer(x1, x2, **more)
        return found.like(shape)

    # The gradient of the mean by x1, where g is that of the mean ------------------------------

    def gradient_body(self, s: Any, x1: Any, x2: Any, g: Any, **more: Any) -> Any:
        """The gradient of each row."""
        share = s.divide(g, s.extent("n", x1.dtype))
        return s.multiply(share, self.slope(s, s.subtract(x1, x2), **more))

    def few_gradients(self, at: int, x1: Any, x2: Any, g: Any, **more: Any) -> Any:
        """The gradient of few elements of NumPy's, along axis ``at``."""
        shape = x1.shape
        share = g.reshape((*shape[:at], 1, *shape[at + 1 :])) / shape[at]
        return share * self.slope(instructions(np), x1 - x2, **more)

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
        d = a - b
        by_a = c * self.curve(d, **more) * _share(g, a, axis)
        partials: Any = op_of(self.call).partials
        terms = c * partials[0](None, a, b, **more) / reduced_count(a, axis)
        return by_a, negative(by_a), sum(terms, axis=axis)


_SQUARED = _Difference(squared_difference, lambda s, d: s.multiply(d, 2), lambda d: d * 0.0 + 2.0)
_ABSOLUTE = _Difference(absolute_difference, lambda s, d: s.sign(d), lambda d: d * 0.0)
_HUBER = _Difference(
    huber_difference,
    lambda s, d, delta: s.maximum(s.minimum(d, delta), -delta),
    lambda d, delta: less(abs(d), delta).astype(d.dtype),
)

# Their ops ---------------------------------------------------------------------------------------


def _share(g: Any, x: Any, axis: int) -> Any:
    return share_of(expand_reduced(g, x, axis, False), reduced_count(x, axis))


def _split(x1: TensorSpec, *more: TensorSpec, axis: int = -1, **attributes: Any) -> list[Split]:
    """Along all axes but the one of the mean, which the mean and ``g`` do not have."""
    at = normalize_axis(axis, x1.ndim)
    found = []
    for i in range(x1.ndim):
        if i != at:
            own = i - (i > at)
            cuts = (i, *(i if x.ndim == x1.ndim else own for x in more))
            found.append(Split(cuts, own if len(more) == 1 else i))
    return found


def _of_rows(few: Call, rows: Rows, **facts: Any) -> Callable[[Call], Call]:
    """An op along an axis; ``few(at, *arrays)`` is its kernel for few elements of NumPy's."""
    many = RowKernel(rows.body)

    def on_numpy(xp: Namespace, x1: Any, *more: Any, axis: int, **attributes: Any) -> Any:
        at = normalize_axis(axis, x1.ndim)
        if x1.size >= generated.MIN_COMPILED_ELEMENTS or generated.calls is not None:
            return many(at, x1, *more, **attributes)
        return few(at, x1, *more, **attributes)

    return define(
        "rows",
        scalar=rows,
        dtypes=FLOATS,
        overrides={"numpy": on_numpy},
        batch=batch_along_axis,
        split=_split,
        **facts,
    )


def _mean_of(of: _Difference, gradient: Callable[[], Call]) -> Callable[[Call], Call]:
    return _of_rows(
        of.few_means,
        Rows(of.mean_body, ("mn", "mn")),
        infer=of.mean_spec,
        vjp=(
            lambda g, y, a, b, **more: gradient()(a, b, g, **more),
            lambda g, y, a, b, **more: gradient()(b, a, g, **more),
        ),
        saves="x1 x2",
    )


def _gradient_of(of: _Difference) -> Callable[[Call], Call]:
    return _of_rows(
        of.few_gradients,
        Rows(of.gradient_body, ("mn", "mn", "m"), ("mn",)),
        infer=of.gradient_spec,
        vjp=in_float32(of.gradient_rules),
        saves="x1 x2 g",
    )


def _means(of: _Difference, xp: Namespace, axis: int, x1: Any, x2: Any, **more: Any) -> Any:
    at = normalize_axis(axis, x1.ndim)
    return xp.squeeze(whole_rows(of.mean_body, xp, at, x1, x2, **more), axis=at)


def _gradients(of: _Difference, xp: Namespace, axis: int, *arrays: Any, **more: Any) -> Any:
    at = normalize_axis(axis, arrays[0].ndim)
    return whole_rows(of.gradient_body, xp, at, *arrays, **more)


@_mean_of(_SQUARED, lambda: mean_squared_difference_gradient)
def mean_squared_difference(xp: Namespace, x1: Array, x2: Array, /, axis: int = -1) -> Array:
    """The mean along an axis of the squares of x1 - x2.

    ``x1`` and ``x2`` are real tensors of one shape with at least one axis, which the result has
    without ``axis``. The mean of nothing is NaN. Raises ShapeError where the shapes differ.

    >>> mean_squared_difference(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(5., float32, cpu:0)
    """
    return _means(_SQUARED, xp, axis, x1, x2)


@_mean_of(_ABSOLUTE, lambda: mean_absolute_difference_gradient)
def mean_absolute_difference(xp: Namespace, x1: Array, x2: Array, /, axis: int = -1) -> Array:
    """The mean along an axis of the absolute values of x1 - x2.

    ``x1`` and ``x2`` are real tensors of one shape with at least one axis, which the result has
    without ``axis``. The mean of nothing is NaN. Raises ShapeError where the shapes differ.

    >>> mean_absolute_difference(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(2., float32, cpu:0)
    """
    return _means(_ABSOLUTE, xp, axis, x1, x2)


@_mean_of(_HUBER, lambda: mean_huber_difference_gradient)
def mean_huber_difference(
    xp: Namespace, x1: Array, x2: Array, /, axis: int = -1, delta: float = 1.0
) -> Array:
    """The mean along an axis of huber_difference.

    ``x1`` and ``x2`` are real tensors of one shape with at least one axis, which the result has
    without ``axis``; ``delta`` is where the squares end. The mean of nothing is NaN. Raises
    ShapeError where the shapes differ.

    >>> mean_huber_difference(ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0]))
    Tensor(1.5, float32, cpu:0)
    """
    return _means(_HUBER, xp, axis, x1, x2, delta=delta)


@_gradient_of(_SQUARED)
def mean_squared_difference_gradient(
    xp: Namespace, x1: Array, x2: Array, g: Array, /, *, axis: int = -1
) -> Array:
    """The gradient of mean_squared_difference by x1, where ``g`` is that of the mean.

    ``x1`` and ``x2`` are real tensors of one shape, which ``g`` has without ``axis``.
    Raises ShapeError where a shape does not fit.

    >>> x1, x2 = ef.tensor([1.0, 5.0]), ef.tensor([2.0, 2.0])
    >>> mean_squared_difference_gradient(x1, x2, ef.tensor(3.0))
    Tensor([-3.,  9.], float32, cpu:0)
    """
    return _gradients(_SQUARED, xp, axis, x1, x2, g)


@_gradient_of(_ABSOLUTE)
def mean_absolute_difference_gradient(
    xp: Namespace, x1: Array, x2: Array, g: Array, /, *, axis: int = -1
) -> Array:
    """The gradient of mean_absolute_difference by x1, where ``g`` is that of the mean.

    ``x1`` and ``x2`` are real tensors of one shape, which ``g`` has without ``axis``.
    It is 0 where x1 and x2 are equal. Raises ShapeError where a shape does not fit.

    >>> x1, x2 = ef.tensor([1.0, 2.0]), ef.tensor([2.0, 2.0])
    >>> mean_absolute_difference_gradient(x1, x2, ef.tensor(3.0))
    Tensor([-1.5,  0. ], float32, cpu:0)
    """
    return _gradients(_ABSOLUTE, xp, axis, x1, x2, g)


@_gradient_of(_HUBER)
def mean_huber_difference_gradient(
    xp: Namespace, x1: Array, x2: Array, g: Array, /, *, axis: int = -1, delta: float = 1.0
) -> Array:
    """The gradient of mean_huber_difference by x1, where ``g`` is that of the mean.

    ``x1`` and ``x2`` are real tensors of one shape, which ``g`` has without ``axis``.
    Raises ShapeError where a shape does not fit.

    >>> x1, x2 = ef.tensor([1.5, 5.0]), ef.tensor([2.0, 2.0])
    >>> mean_huber_difference_gradient(x1, x2, ef.tensor(3.0))
    Tensor([-0.75,  1.5 ], float32, cpu:0)
    """
    return _gradients(_HUBER, xp, axis, x1, x2, g, delta=delta)
