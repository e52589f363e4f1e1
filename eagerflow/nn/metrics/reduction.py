"""Means and sums accumulated over batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Nest, TensorLike
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import in_precision, weight_for
from eagerflow.nn.losses.loss import Precision, options_in
from eagerflow.nn.masks import mask_of
from eagerflow.nn.metrics.metric import Metric, MetricOptions, ratio
from eagerflow.tensor import Tensor

__all__ = ["FunctionMetric", "Mean", "MeanMetricWrapper", "Sum"]


def _joined(values: Any, weights: list[Any], name: str) -> tuple[Any, Any]:
    """Values times the weights that are not None, and the product of these or None."""
    found: list[Any] = [weight_for(values, w, name) for w in weights if w is not None]
    if not found:
        return values, None
    weight = found[0]
    for other in found[1:]:
        weight = weight * other
    return values * weight, weight


def _of_examples(values: Any) -> Any:
    """The mean of each example, along the first axis."""
    return values if values.ndim < 2 else values.mean(axis=tuple(range(1, values.ndim)))


def _sum(values: Any) -> Any:
    return values.sum() if values.ndim else values


class Sum(Metric):
    """The sum of the numbers seen so far, which may be weighted.

    >>> total = ef.nn.metrics.Sum()
    >>> total.update_state([1.0, 3.0], sample_weight=[1.0, 0.5])
    >>> total.result()
    Tensor(2.5, float32, cpu:0)
    """

    @arguments
    def __init__(self, name: str | None = None, dtype: Precision = None) -> None:
        self.total = self.add_variable(name="total")

    def update_state(self, values: TensorLike, sample_weight: TensorLike = None) -> None:
        """Take in a number, or a tensor of them, each with its weight."""
        weights = [sample_weight, mask_of(values)]
        values, _ = _joined(ops.astype(as_tensor(values), self.dtype), weights, self.name)
        self.total.assign_add(values.sum())

    def result(self) -> Tensor:
        return self.total.value


class Mean(Metric):
    """The mean of the numbers seen so far, which may be weighted.

    >>> mean = ef.nn.metrics.Mean()
    >>> mean.update_state([1.0, 3.0])
    >>> mean.update_state(8.0)
    >>> mean.result()
    Tensor(4., float32, cpu:0)
    """

    @arguments
    def __init__(self, name: str | None = None, dtype: Precision = None) -> None:
        self.total = self.add_variable(name="total")
        self.count = self.add_variable(name="count")

    def update_state(self, values: TensorLike, sample_weight: TensorLike = None) -> None:
        """Take in a number, or a tensor with an example along its first axis, and weights.

        An example of several numbers counts as their mean.
        """
        weights = [sample_weight, mask_of(values)]
        values, weight = _joined(ops.astype(as_tensor(values), self.dtype), weights, self.name)
        self.total.assign_add(_sum(_of_examples(values)))
        if weight is not None:
            self.count.assign_add(_sum(_of_examples(weight)))
        else:
            self.count.assign_add(values.shape[0] if values.ndim else 1)

    def result(self) -> Tensor:
        return ratio(self.total.value, self.count.value)


class FunctionMetric(Mean):
    """The mean of a function of targets and predictions; its options are attributes."""

    function: Callable[..., Any]

    @arguments
    def __init__(self, **options: Unpack[MetricOptions]) -> None:
        own = hasattr(self, "function")
        self._options = options_in(type(self), self.function) if own else ()

    def values(self, y_true: Nest, y_pred: Nest) -> Any:
        """One number for each example, or several."""
        options = {name: getattr(self, name) for name in self._options}
        return self.function(y_true, y_pred, **options)

    def update_state(  # type: ignore[override]
        self, y_true: Nest, y_pred: Nest, sample_weight: TensorLike = None
    ) -> None:
        """Take in the targets and predictions of a batch; masks of predictions are obeyed."""
        values = self.values(y_true, in_precision(y_pred, None))
        mask = mask_of(y_pred)
        if mask is not None:
            kept: Any = weight_for(as_tensor(values, self.dtype), mask, self.name, "mask")
            if sample_weight is not None:
                kept = kept * weight_for(kept, sample_weight, self.name)
            sample_weight = kept
        super().update_state(values, sample_weight)


class MeanMetricWrapper(FunctionMetric):
    """The mean of ``fn(y_true, y_pred, **kwargs)``, a function or a loss.

    >>> distance = lambda y_true, y_pred: ef.abs(y_true - y_pred)
    >>> metric = ef.nn.metrics.MeanMetricWrapper(distance, name="distance")
    >>> metric(ef.tensor([1.0, 2.0]), ef.tensor([1.0, 5.0]))
    Tensor(1.5, float32, cpu:0)
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        if not callable(fn):
            raise ArgumentError("it cannot be called", op=type(self).__name__, argument="fn")
        own = getattr(fn, "name", None) or getattr(fn, "__name__", None)
        super().__init__(name=name or own, dtype=dtype)
        self._fn, self._kwargs = getattr(fn, "call", fn), kwargs

    def values(self, y_true: Nest, y_pred: Nest) -> Any:
        return self._fn(y_true, y_pred, **self._kwargs)
