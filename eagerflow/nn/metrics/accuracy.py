"""Accuracies: the frequency of correct predictions."""

from __future__ import annotations

from typing import Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import Count, Float, TensorLike
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import class_numbers, same_shape
from eagerflow.nn.losses.loss import Precision
from eagerflow.nn.metrics.metric import MetricOptions
from eagerflow.nn.metrics.reduction import FunctionMetric
from eagerflow.tensor import Tensor

__all__ = [
    "Accuracy",
    "BinaryAccuracy",
    "CategoricalAccuracy",
    "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy",
    "TopKCategoricalAccuracy",
    "accuracy_by_shape",
]


def accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """1 where a prediction is its target."""
    y_true, y_pred = same_shape("accuracy", y_true, y_pred, floating=False)
    return ops.astype(ops.equal(y_true, y_pred), "float32")


def binary_accuracy(y_true: TensorLike, y_pred: TensorLike, threshold: float = 0.5) -> Tensor:
    """1 where a prediction is on its target's side of the threshold; shapes are equal.

    >>> ef.nn.metrics.binary_accuracy([[1.0], [0.0]], [[0.7], [0.6]])
    Tensor([[1.],
            [0.]], shape=(2, 1), float32, cpu:0)
    """
    y_true, y_pred = same_shape("binary_accuracy", y_true, y_pred)
    above = ops.astype(ops.greater(y_pred, threshold), y_true.dtype)
    return ops.astype(ops.equal(above, y_true), "float32")


def _one_hot(name: str, y_true: TensorLike, y_pred: TensorLike) -> tuple[Tensor, Tensor]:
    """The class numbers of one-hot targets, and predictions of the same shape."""
    y_true, y_pred = as_tensor(y_true), as_tensor(y_pred)
    if y_true.shape != y_pred.shape:
        raise ShapeError(
            "targets and predictions have different shapes",
            op=name,
            received=f"y_true {summary(y_true)}, y_pred {summary(y_pred)}",
            hint="SparseCategoricalAccuracy for targets that are class numbers",
        )
    return ops.argmax(y_true, axis=-1), y_pred


def categorical_accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """1 where the largest prediction is that of the one-hot target; shapes are equal.

    >>> ef.nn.metrics.categorical_accuracy([[0.0, 1.0]], [[0.2, 0.8]])
    Tensor([1.], float32, cpu:0)
    """
    labels, y_pred = _one_hot("categorical_accuracy", y_true, y_pred)
    return ops.astype(ops.equal(ops.argmax(y_pred, axis=-1), labels), "float32")


def sparse_categorical_accuracy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """1 where the largest prediction is that of the target, a class number.

    >>> ef.nn.metrics.sparse_categorical_accuracy([1, 0], [[0.2, 0.8], [0.1, 0.9]])
    Tensor([1., 0.], float32, cpu:0)
    """
    labels, y_pred = class_numbers("sparse_categorical_accuracy", y_true, y_pred)
    return ops.astype(ops.equal(ops.argmax(y_pred, axis=-1), labels), "float32")


def _in_top(labels: Tensor, y_pred: Tensor, k: int) -> Tensor:
    """1 where less than ``k`` predictions are larger than that of the class."""
    own = ops.take_along_axis(y_pred, ops.expand_dims(labels, axis=-1), axis=-1)
    larger = ops.sum(ops.astype(ops.greater(y_pred, own), "float32"), axis=-1)
    return ops.astype(ops.less(larger, float(k)), "float32")


def top_k_categorical_accuracy(y_true: TensorLike, y_pred: TensorLike, k: int = 5) -> Tensor:
    """1 where the class of the one-hot target is among the ``k`` largest predictions.

    >>> ef.nn.metrics.top_k_categorical_accuracy([[0, 1, 0]], [[0.2, 0.3, 0.5]], k=2)
    Tensor([1.], float32, cpu:0)
    """
    labels, y_pred = _one_hot("top_k_categorical_accuracy", y_true, y_pred)
    return _in_top(labels, y_pred, k)


def sparse_top_k_categorical_accuracy(
    y_true: TensorLike, y_pred: TensorLike, k: int = 5, from_sorted_ids: bool = False
) -> Tensor:
    """1 where the target, a class number, is among the ``k`` largest predictions.

    With ``from_sorted_ids`` predictions are class numbers, the likeliest first.

    >>> ef.nn.metrics.sparse_top_k_categorical_accuracy([1], [[0.2, 0.3, 0.5]], k=1)
    Tensor([0.], float32, cpu:0)
    """
    labels, y_pred = class_numbers("sparse_top_k_categorical_accuracy", y_true, y_pred)
    if not from_sorted_ids:
        return _in_top(labels, y_pred, k)
    labels = ops.astype(ops.expand_dims(labels, axis=-1), y_pred.dtype)
    return ops.astype(ops.any(ops.equal(labels, y_pred[..., :k]), axis=-1), "float32")


def accuracy_by_shape(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """The accuracy that shapes speak for: of class numbers, one-hot targets, or yes and no."""
    y_true, y_pred = as_tensor(y_true), as_tensor(y_pred)
    if not y_pred.ndim or y_pred.shape[-1] == 1 or y_pred.ndim < y_true.ndim:
        return binary_accuracy(y_true, y_pred)
    if y_true.shape != y_pred.shape:
        return sparse_categorical_accuracy(y_true, y_pred)
    return (categorical_accuracy if y_pred.ndim > 1 else binary_accuracy)(y_true, y_pred)


class Accuracy(FunctionMetric):
    """The frequency with which predictions equal their targets.

    The name ``"accuracy"`` in ``compile`` selects the variant that fits the model.

    >>> ef.nn.metrics.Accuracy()([1, 2, 3, 4], [1, 2, 0, 4])
    Tensor(0.75, float32, cpu:0)
    """

    function = staticmethod(accuracy)


class BinaryAccuracy(FunctionMetric):
    """The frequency with which predictions are on the target's side of ``threshold``.

    >>> ef.nn.metrics.BinaryAccuracy()([[1.0], [0.0]], [[0.7], [0.6]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(binary_accuracy)
    threshold: float

    @arguments
    def __init__(
        self, name: str | None = None, dtype: Precision = None, threshold: Float = 0.5
    ) -> None: ...


class CategoricalAccuracy(FunctionMetric):
    """The frequency with which the largest prediction is that of the one-hot target.

    >>> ef.nn.metrics.CategoricalAccuracy()([[0.0, 1.0]], [[0.2, 0.8]])
    Tensor(1., float32, cpu:0)
    """

    function = staticmethod(categorical_accuracy)


class SparseCategoricalAccuracy(FunctionMetric):
    """The frequency with which the largest prediction is that of the target, a class number.

    >>> accuracy = ef.nn.metrics.SparseCategoricalAccuracy()
    >>> accuracy([1, 0], [[0.2, 0.8], [0.1, 0.9]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(sparse_categorical_accuracy)


class TopKCategoricalAccuracy(FunctionMetric):
    """The frequency of the one-hot target's class among the ``k`` largest predictions.

    >>> accuracy = ef.nn.metrics.TopKCategoricalAccuracy(k=2)
    >>> accuracy([[0, 1, 0], [1, 0, 0]], [[0.2, 0.3, 0.5], [0.1, 0.6, 0.3]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(top_k_categorical_accuracy)
    k: int

    @arguments
    def __init__(self, k: Count = 5, **options: Unpack[MetricOptions]) -> None: ...


class SparseTopKCategoricalAccuracy(FunctionMetric):
    """The frequency of the target, a class number, among the ``k`` largest predictions.

    With ``from_sorted_ids`` predictions are class numbers, the likeliest first.

    >>> accuracy = ef.nn.metrics.SparseTopKCategoricalAccuracy(k=2)
    >>> accuracy([1, 0], [[0.2, 0.3, 0.5], [0.1, 0.6, 0.3]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(sparse_top_k_categorical_accuracy)
    k: int
    from_sorted_ids: bool

    @arguments
    def __init__(
        self,
        k: Count = 5,
        name: str | None = None,
        dtype: Precision = None,
        from_sorted_ids: bool = False,
    ) -> None: ...
