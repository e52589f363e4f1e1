"""Metrics: numbers about predictions, gathered batch by batch in Variables."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.nn import losses
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes, snake_case
from eagerflow.nn.losses.alignment import class_numbers, same_shape, weight_for
from eagerflow.ops.attributes import DTypeLike, Sizes
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable, assign_together

__all__ = [
    "Accuracy",
    "BinaryAccuracy",
    "CategoricalAccuracy",
    "Mean",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy",
    "get",
]


class Metric(Configured):
    """Base of metrics: ``update_state`` takes in a batch, ``result`` gives the number so far.

    A subclass makes its state with ``add_variable``, which ``reset_state`` sets back to zero.

    >>> class Count(ef.nn.metrics.Metric):
    ...     def __init__(self, name="count"):
    ...         super().__init__(name)
    ...         self.count = self.add_variable("count")
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         self.count.assign_add(float(len(y_true)))
    ...     def result(self):
    ...         return self.count.value
    >>> count = Count()
    >>> count.update_state([1, 2, 3], None)
    >>> count.result()
    Tensor(3., float32, cpu:0)
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name or snake_case(type(self).__name__)
        self.variables: list[Variable] = []

    def add_variable(self, name: str, shape: Sizes = (), dtype: DTypeLike = "float32") -> Variable:
        """A piece of state of this shape, zero at the start."""
        made = Variable(ops.zeros(shape, dtype), f"{self.name}/{name}", trainable=False)
        self.variables.append(made)
        return made

    def reset_state(self) -> None:
        """Forget all batches."""
        assign_together({v: ops.zeros(v.shape, v.dtype, str(v.device)) for v in self.variables})

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in a batch; every subclass has its own."""
        raise ArgumentError("the class has no update_state", op=type(self).__name__)

    def result(self) -> Tensor:
        """The number so far; every subclass has its own."""
        raise ArgumentError("the class has no result", op=type(self).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        self.update_state(*args, **kwargs)
        return self.result()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Mean(Metric):
    """The mean of the numbers seen so far, which may be weighted.

    >>> mean = ef.nn.metrics.Mean()
    >>> mean.update_state([1.0, 3.0])
    >>> mean.update_state(8.0)
    >>> mean.result()
    Tensor(4., float32, cpu:0)
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total = self.add_variable("total")
        self.count = self.add_variable("count")

    def update_state(self, values: TensorLike, sample_weight: TensorLike = None) -> None:  # type: ignore[override]
        """Take in a number, or a tensor of them, each with its weight."""
        values = as_tensor(values)
        if sample_weight is None:
            self.total.assign_add((values.sum() if values.ndim else values).astype("float32"))
            self.count.assign_add(float(values.size))
            return
        if isinstance(sample_weight, float) and not values.ndim:
            self.total.assign_add(ops.multiply(values.astype("float32"), sample_weight))
            self.count.assign_add(sample_weight)
            return
        weight = weight_for(values.astype("float32"), sample_weight, self.name)
        self.total.assign_add((values * weight).sum())
        self.count.assign_add(weight.sum())

    def result(self) -> Tensor:
        return self.total.value / ops.maximum(self.count.value, 1e-12)


class _MeanMetric(Mean):
    """The mean over examples of what ``values`` gives for each."""

    def values(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        """One number for each example."""
        raise ArgumentError("the class has no values", op=type(self).__name__)

    def update_state(  # type: ignore[override]
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in the targets and predictions of a batch."""
        super().update_state(self.values(y_true, y_pred), sample_weight)


class MeanSquaredError(_MeanMetric):
    """The mean of the squared differences.

    >>> ef.nn.metrics.MeanSquaredError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(2., float32, cpu:0)
    """

    values = staticmethod(losses.mean_squared_error)


class MeanAbsoluteError(_MeanMetric):
    """The mean of the absolute differences.

    >>> ef.nn.metrics.MeanAbsoluteError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(1., float32, cpu:0)
    """

    values = staticmethod(losses.mean_absolute_error)


class SparseCategoricalAccuracy(_MeanMetric):
    """How often the largest prediction is that of the target, a class number.

    >>> accuracy = ef.nn.metrics.SparseCategoricalAccuracy()
    >>> accuracy([1, 0], [[0.2, 0.8], [0.1, 0.9]])
    Tensor(0.5, float32, cpu:0)
    """

    def values(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        y_true, y_pred = class_numbers(self.name, y_true, y_pred)
        return ops.equal(ops.argmax(y_pred, axis=-1), y_true).astype("float32")


class SparseTopKCategoricalAccuracy(_MeanMetric):
    """How often the target, a class number, is among the ``k`` largest predictions.

    >>> accuracy = ef.nn.metrics.SparseTopKCategoricalAccuracy(k=2)
    >>> accuracy([1, 0], [[0.2, 0.3, 0.5], [0.1, 0.6, 0.3]])
    Tensor(0.5, float32, cpu:0)
    """

    k: int

    @arguments
    def __init__(self, k: int = 5, name: str | None = None) -> None: ...

    def values(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        y_true, y_pred = class_numbers(self.name, y_true, y_pred)
        at = y_true.reshape((*y_true.shape, 1)).astype("int64")
        own = ops.take_along_axis(y_pred, at, axis=-1)
        larger = ops.greater(y_pred, own).astype("float32").sum(axis=-1)
        return ops.less(larger, float(self.k)).astype("float32")


class CategoricalAccuracy(_MeanMetric):
    """How often the largest prediction is that of the one-hot target.

    >>> ef.nn.metrics.CategoricalAccuracy()([[0.0, 1.0]], [[0.2, 0.8]])
    Tensor(1., float32, cpu:0)
    """

    def values(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        y_true, y_pred = as_tensor(y_true), as_tensor(y_pred)
        if y_true.shape != y_pred.shape:
            raise ShapeError(
                "targets and predictions have different shapes",
                op=self.name,
                received=f"y_true {summary(y_true)}, y_pred {summary(y_pred)}",
                hint="SparseCategoricalAccuracy for targets that are class numbers",
            )
        same = ops.equal(ops.argmax(y_pred, axis=-1), ops.argmax(y_true, axis=-1))
        return same.astype("float32")


class BinaryAccuracy(_MeanMetric):
    """How often the prediction is on the target's side of ``threshold``.

    >>> ef.nn.metrics.BinaryAccuracy()([[1.0], [0.0]], [[0.7], [0.6]])
    Tensor(0.5, float32, cpu:0)
    """

    threshold: float

    @arguments
    def __init__(self, name: str | None = None, threshold: float = 0.5) -> None: ...

    def values(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        y_true, y_pred = same_shape(self.name, y_true, y_pred)
        above = ops.greater(y_pred, self.threshold).astype(y_true.dtype)
        same = ops.equal(above, y_true).astype("float32")
        return same.mean(axis=-1) if same.ndim else same


class Accuracy(_MeanMetric):
    """How often predictions are right; the shapes say in which of the three ways.

    Class numbers against (..., classes), one-hot targets against predictions of the same
    shape, or zeros and ones against single probabilities.

    >>> ef.nn.metrics.Accuracy()([1, 0], [[0.2, 0.8], [0.9, 0.1]])
    Tensor(1., float32, cpu:0)
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._ways = {
            "sparse": SparseCategoricalAccuracy(self.name),
            "one_hot": CategoricalAccuracy(self.name),
            "binary": BinaryAccuracy(self.name),
        }

    def values(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        y_true, y_pred = as_tensor(y_true), as_tensor(y_pred)
        if not y_pred.ndim or y_pred.shape[-1] == 1 or y_pred.ndim < y_true.ndim:
            way = "binary"
        elif y_true.shape == y_pred.shape:
            way = "one_hot" if y_pred.ndim > 1 else "binary"
        else:
            way = "sparse"
        return self._ways[way].values(y_true, y_pred)


class _FunctionMetric(_MeanMetric):
    """The mean of a loss, or of a user's function, as a metric."""

    def __init__(self, function: Any) -> None:
        super().__init__(getattr(function, "name", None) or getattr(function, "__name__", None))
        self.values = getattr(function, "call", function)  # type: ignore[method-assign]


_TABLE = named_classes(_MeanMetric, acc=Accuracy, mae=MeanAbsoluteError, mse=MeanSquaredError)


def get(identifier: Any) -> Any:
    """The metric that a name, a configuration, a metric, a loss or a function stands for.

    >>> ef.nn.metrics.get("accuracy")
    <Accuracy accuracy>
    """
    found = from_config("metric", identifier, _TABLE, callable)
    if isinstance(identifier, str):
        found.name = identifier
    return found if isinstance(found, Metric) else _FunctionMetric(found)


def metric_for(identifier: Any, loss: Any) -> Any:
    """Like ``get``, but "accuracy" is the one that goes with the model's loss.

    The shapes alone cannot tell targets of one class number from a single probability.
    """
    made = get(identifier)
    if identifier in ("accuracy", "acc") and isinstance(loss, losses.Loss):
        for kind, cls in _BY_LOSS.items():
            if isinstance(loss, kind):
                logits = cls is BinaryAccuracy and getattr(loss, "from_logits", False)
                return cls(name=identifier, **({"threshold": 0.0} if logits else {}))
    return made


_BY_LOSS = {
    losses.SparseCategoricalCrossentropy: SparseCategoricalAccuracy,
    losses.CategoricalCrossentropy: CategoricalAccuracy,
    losses.BinaryCrossentropy: BinaryAccuracy,
}
