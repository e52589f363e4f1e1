"""Losses: how far predictions are from targets, one number per example, then the mean.

Each is a class, whose objects are called with ``(y_true, y_pred, sample_weight=None)``, and a
function ``(y_true, y_pred)`` that gives the numbers of the examples.
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import is_floating
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.nn.arguments import TensorLike, require
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes, snake_case
from eagerflow.ops.family import as_operand
from eagerflow.tensor import Tensor

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "Huber",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "SparseCategoricalCrossentropy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "get",
    "huber",
    "mean_absolute_error",
    "mean_squared_error",
    "sparse_categorical_crossentropy",
]

_EPSILON = 1e-7  # probabilities are kept this far from 0 and 1, as in Keras


def same_shape(name: str, y_true: TensorLike, y_pred: TensorLike) -> tuple[Tensor, Tensor]:
    """Both as tensors of one shape and dtype; a missing last axis of size 1 is added."""
    y_pred = as_tensor(y_pred)
    y_true = as_operand(y_true, y_pred)
    if y_true.dtype != y_pred.dtype and is_floating(y_pred.dtype):
        y_true = y_true.astype(y_pred.dtype)
    if y_true.shape == y_pred.shape:
        return y_true, y_pred
    if y_pred.ndim == y_true.ndim + 1 and y_pred.shape == (*y_true.shape, 1):
        return y_true.reshape(y_pred.shape), y_pred
    if y_true.ndim == y_pred.ndim + 1 and y_true.shape == (*y_pred.shape, 1):
        return y_true, y_pred.reshape(y_true.shape)
    raise ShapeError(
        "targets and predictions have different shapes",
        op=name,
        received=f"y_true {summary(y_true)}, y_pred {summary(y_pred)}",
        expected="equal shapes",
        hint="SparseCategoricalCrossentropy for targets that are class numbers"
        if y_true.ndim + 1 == y_pred.ndim
        else None,
    )


def class_numbers(
    name: str, y_true: TensorLike, y_pred: TensorLike, one_hot: str | None = None
) -> tuple[Tensor, Tensor]:
    """Both as tensors, of shapes (...) and (..., classes); a last axis of size 1 is taken away.

    ``one_hot`` names what takes targets of the shape of the predictions.
    """
    labels, y_pred = as_tensor(y_true), as_tensor(y_pred)
    if labels.ndim == y_pred.ndim and labels.ndim and labels.shape[-1] == 1:
        labels = labels.reshape(labels.shape[:-1])
    if not y_pred.ndim or labels.shape != y_pred.shape[:-1]:
        raise ShapeError(
            "targets do not fit the predictions",
            op=name,
            received=f"y_true {summary(labels)}, y_pred {summary(y_pred)}",
            expected=f"y_true of shape {tuple(y_pred.shape[:-1])}",
            hint=f"{one_hot} for one-hot targets"
            if one_hot and labels.shape == y_pred.shape
            else None,
        )
    return labels, y_pred


def _last_mean(values: Tensor) -> Tensor:
    return values.mean(axis=-1) if values.ndim else values


def mean_squared_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of the squared differences.

    ``y_true`` and ``y_pred`` have equal shapes. Raises ShapeError otherwise.

    >>> ef.nn.losses.mean_squared_error([[0.0, 1.0]], [[0.0, 3.0]])
    Tensor([2.], float32, cpu:0)
    """
    y_true, y_pred = same_shape("mean_squared_error", y_true, y_pred)
    difference = y_pred - y_true
    return _last_mean(difference * difference)


def mean_absolute_error(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of the absolute differences.

    ``y_true`` and ``y_pred`` have equal shapes. Raises ShapeError otherwise.

    >>> ef.nn.losses.mean_absolute_error([[0.0, 1.0]], [[0.0, 3.0]])
    Tensor([1.], float32, cpu:0)
    """
    y_true, y_pred = same_shape("mean_absolute_error", y_true, y_pred)
    return _last_mean(ops.abs(y_pred - y_true))


def huber(y_true: TensorLike, y_pred: TensorLike, delta: float = 1.0) -> Tensor:
    """Mean over the last axis: half the square of small differences, linear beyond ``delta``.

    ``y_true`` and ``y_pred`` have equal shapes. Raises ShapeError otherwise. Source: Huber, 1964.

    >>> ef.nn.losses.huber([[0.0, 0.0]], [[1.0, 3.0]])
    Tensor([1.5], float32, cpu:0)
    """
    y_true, y_pred = same_shape("huber", y_true, y_pred)
    distance = ops.abs(y_pred - y_true)
    inner = ops.minimum(distance, delta)
    return _last_mean(inner * (distance - inner * 0.5))


def binary_crossentropy(
    y_true: TensorLike, y_pred: TensorLike, from_logits: bool = False
) -> Tensor:
    """Mean over the last axis of the cross-entropy of yes-or-no predictions.

    ``y_true`` holds zeros and ones, ``y_pred`` probabilities, or logits with ``from_logits``,
    in the same shape. Raises ShapeError otherwise.

    >>> ef.nn.losses.binary_crossentropy([[1.0]], [[0.5]])
    Tensor([0.6931], float32, cpu:0)
    """
    y_true, y_pred = same_shape("binary_crossentropy", y_true, y_pred)
    if from_logits:
        return _last_mean(ops.sigmoid_cross_entropy(y_pred, y_true))
    p = ops.clip(y_pred, _EPSILON, 1.0 - _EPSILON)
    return _last_mean(-(y_true * ops.log(p) + (1.0 - y_true) * ops.log1p(-p)))


def categorical_crossentropy(
    y_true: TensorLike, y_pred: TensorLike, from_logits: bool = False, label_smoothing: float = 0.0
) -> Tensor:
    """Cross-entropy of predicted classes along the last axis, with one-hot targets.

    ``y_true`` and ``y_pred`` (probabilities, or logits with ``from_logits``) have shape
    (..., classes). ``label_smoothing`` spreads that part of the target over all classes.
    Raises ShapeError where the shapes differ.

    >>> ef.nn.losses.categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]])
    Tensor([0.6931], float32, cpu:0)
    """
    y_true, y_pred = same_shape("categorical_crossentropy", y_true, y_pred)
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + label_smoothing / y_pred.shape[-1]
    if from_logits:
        log = ops.log_softmax(y_pred, axis=-1)
    else:
        p = y_pred / y_pred.sum(axis=-1, keepdims=True)
        log = ops.log(ops.clip(p, _EPSILON, 1.0 - _EPSILON))
    return -(y_true * log).sum(axis=-1)


def sparse_categorical_crossentropy(
    y_true: TensorLike, y_pred: TensorLike, from_logits: bool = False
) -> Tensor:
    """Cross-entropy of predicted classes along the last axis, with class numbers as targets.

    ``y_true`` holds integers of shape (...), or (..., 1); ``y_pred`` has shape (..., classes)
    and holds probabilities, or logits with ``from_logits``. Raises ShapeError where the shapes
    do not fit, IndexRangeError for a class that does not exist.

    >>> ef.nn.losses.sparse_categorical_crossentropy([1], [[0.5, 0.5]])
    Tensor([0.6931], float32, cpu:0)
    """
    name = "sparse_categorical_crossentropy"
    labels, y_pred = class_numbers(name, y_true, y_pred, "CategoricalCrossentropy")
    if is_floating(labels.dtype):
        labels = labels.astype("int64")
    elif labels.dtype.kind not in "iu":
        raise DTypeError(
            "class numbers are integers", op=name, argument="y_true", received=summary(labels)
        )
    if from_logits:
        return ops.sparse_softmax_cross_entropy(y_pred, labels)
    p = y_pred / y_pred.sum(axis=-1, keepdims=True)
    chosen = ops.take_along_axis(p, labels.reshape((*labels.shape, 1)), axis=-1)
    return -ops.log(ops.clip(chosen, _EPSILON, 1.0 - _EPSILON)).reshape(labels.shape)


# Classes --------------------------------------------------------------------------------------

_REDUCTIONS = ("sum_over_batch_size", "mean", "sum", "none", None)


class LossOptions(TypedDict, total=False):
    """The arguments that every loss takes, for the signatures of its subclasses."""

    reduction: str | None
    name: str | None


class Loss(Configured):
    """Base of losses: a subclass gives ``call(y_true, y_pred)``, one number per example.

    ``reduction`` is ``"sum_over_batch_size"`` (the mean over all), ``"mean"`` (divided by the
    sum of the weights), ``"sum"`` or ``"none"``.

    >>> class Distance(ef.nn.losses.Loss):
    ...     def call(self, y_true, y_pred):
    ...         return ef.abs(y_true - y_pred)
    >>> Distance()(ef.tensor([1.0, 2.0]), ef.tensor([1.0, 5.0]))
    Tensor(1.5, float32, cpu:0)
    """

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = None
    ) -> None:
        self.name = name or snake_case(type(self).__name__)
        expected = "one of " + ", ".join(map(repr, _REDUCTIONS))
        known = reduction in _REDUCTIONS
        require(known, reduction, "not a reduction", self.name, "reduction", expected)
        self.reduction = reduction

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        """The loss of each example; every subclass has its own."""
        raise ArgumentError("the class has no call", op=type(self).__name__)

    def __call__(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> Tensor:
        values: Any = self.call(y_true, y_pred)
        if sample_weight is not None:
            weight = weight_for(values, sample_weight, self.name)
            values = values * weight
        if self.reduction in ("none", None):
            return values
        if self.reduction == "sum":
            return values.sum()
        if self.reduction == "mean" and sample_weight is not None:
            return values.sum() / weight.sum()
        return values.mean()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.reduction}>"


def weight_for(values: Tensor, sample_weight: TensorLike, name: str) -> Tensor:
    """``sample_weight`` in the dtype of ``values``, with axes so that it broadcasts to them."""
    weight = as_tensor(sample_weight, values.dtype)
    if weight.ndim == values.ndim + 1 and weight.shape[-1] == 1:
        weight = weight.reshape(weight.shape[:-1])
    if weight.shape != values.shape[: weight.ndim]:
        raise ShapeError(
            "there is not one weight for each example",
            op=name,
            argument="sample_weight",
            received=summary(weight),
            expected=f"shape {tuple(values.shape)}",
        )
    weight = weight.reshape((*weight.shape, *(1,) * (values.ndim - weight.ndim)))
    return ops.broadcast_to(weight, values.shape)


class MeanSquaredError(Loss):
    """Mean of the squared differences.

    >>> ef.nn.losses.MeanSquaredError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(2., float32, cpu:0)
    """

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        return mean_squared_error(y_true, y_pred)


class MeanAbsoluteError(Loss):
    """Mean of the absolute differences.

    >>> ef.nn.losses.MeanAbsoluteError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(1., float32, cpu:0)
    """

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        return mean_absolute_error(y_true, y_pred)


class Huber(Loss):
    """Squared error near the target and absolute error beyond ``delta``; Huber, 1964.

    >>> ef.nn.losses.Huber()([[0.0, 0.0]], [[1.0, 3.0]])
    Tensor(1.5, float32, cpu:0)
    """

    delta: float

    @arguments
    def __init__(self, delta: float = 1.0, **options: Unpack[LossOptions]) -> None: ...

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        return huber(y_true, y_pred, self.delta)


class _Crossentropy(Loss):
    """Base of losses of probabilities, or of logits with ``from_logits``."""

    from_logits: bool

    @arguments
    def __init__(self, from_logits: bool = False, **options: Unpack[LossOptions]) -> None: ...


class BinaryCrossentropy(_Crossentropy):
    """Cross-entropy of yes-or-no predictions: probabilities, or logits with ``from_logits``.

    >>> ef.nn.losses.BinaryCrossentropy(from_logits=True)([[1.0], [0.0]], [[0.0], [0.0]])
    Tensor(0.6931, float32, cpu:0)
    """

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        return binary_crossentropy(y_true, y_pred, self.from_logits)


class CategoricalCrossentropy(_Crossentropy):
    """Cross-entropy of predicted classes with one-hot targets.

    >>> ef.nn.losses.CategoricalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]])
    Tensor(0.6931, float32, cpu:0)
    """

    label_smoothing: float

    @arguments
    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        **options: Unpack[LossOptions],
    ) -> None: ...

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        return categorical_crossentropy(y_true, y_pred, self.from_logits, self.label_smoothing)


class SparseCategoricalCrossentropy(_Crossentropy):
    """Cross-entropy of predicted classes with class numbers as targets.

    >>> loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    >>> loss([1, 0], ef.zeros((2, 2)))
    Tensor(0.6931, float32, cpu:0)
    """

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> Tensor:
        return sparse_categorical_crossentropy(y_true, y_pred, self.from_logits)


class _FunctionLoss(Loss):
    """A user's function of ``(y_true, y_pred)`` as a loss."""

    def __init__(self, function: Any) -> None:
        super().__init__(name=getattr(function, "__name__", "loss"))
        self.call = function  # type: ignore[method-assign]


_TABLE = named_classes(Loss, mae=MeanAbsoluteError, mse=MeanSquaredError)


def get(identifier: Any) -> Any:
    """The loss that a name, a configuration, a loss or a function stands for.

    >>> ef.nn.losses.get("mse")
    <MeanSquaredError: sum_over_batch_size>
    """
    found = from_config("loss", identifier, _TABLE, callable)
    return found if isinstance(found, Loss) else _FunctionLoss(found)
