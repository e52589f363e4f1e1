"""Losses of probabilities: cross-entropies, divergence, likelihood of counts."""

from __future__ import annotations

from typing import Annotated, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.nn.arguments import Float, TensorLike, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON, class_numbers, refuse_integers, same_shape
from eagerflow.nn.losses.loss import FunctionLoss, LossOptions, Precision, Reduction, last_mean
from eagerflow.nn.masks import set_mask
from eagerflow.ops.nn.cross_entropies import smoothed
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "CategoricalGeneralizedCrossEntropy",
    "KLDivergence",
    "Poisson",
    "SparseCategoricalCrossentropy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "categorical_generalized_cross_entropy",
    "kl_divergence",
    "poisson",
    "shares",
    "sparse_categorical_crossentropy",
    "yes_or_no",
]


def yes_or_no(y_true: TensorLike, p: TensorLike) -> Tensor:
    """The cross-entropy of each probability of yes."""
    found: Tensor = ops.binary_cross_entropy(
        ops.clip(p, EPSILON, 1.0 - EPSILON), y_true, reduction="none"
    )
    return found


def shares(y_pred: Tensor, axis: int) -> Tensor:
    """Predictions as shares of their sum along an axis."""
    return y_pred / y_pred.sum(axis=axis, keepdims=True)


def binary_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Mean along ``axis`` of the cross-entropy of yes-or-no predictions.

    ``y_true`` holds zeros and ones, ``y_pred`` probabilities, or logits with ``from_logits``,
    in the same shape. ``label_smoothing`` draws targets by that much towards a half. Raises
    ShapeError where the shapes differ.

    >>> ef.nn.losses.binary_crossentropy([[1.0]], [[0.5]])
    Tensor([0.6931], float32, cpu:0)
    """
    refuse_integers("binary_crossentropy", y_true, y_pred)
    y_true, y_pred = same_shape("binary_crossentropy", y_true, y_pred)
    y_true = smoothed(y_true, label_smoothing, 2)
    each = ops.sigmoid_cross_entropy(y_pred, y_true) if from_logits else yes_or_no(y_true, y_pred)
    return last_mean(each, axis)


def categorical_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Cross-entropy of predicted classes along ``axis``, with one-hot targets.

    ``y_true`` and ``y_pred`` (probabilities, or logits with ``from_logits``) have equal shapes.
    ``label_smoothing`` spreads that part of the target over all classes. Raises ShapeError
    where the shapes differ.

    >>> ef.nn.losses.categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]])
    Tensor([0.6931], float32, cpu:0)
    """
    refuse_integers("categorical_crossentropy", y_true, y_pred)
    y_true, y_pred = same_shape("categorical_crossentropy", y_true, y_pred)
    at = normalize_axis(axis, y_pred.ndim)
    if from_logits:
        found: Tensor = ops.cross_entropy(
            y_pred, y_true, label_smoothing=label_smoothing, reduction="none", axis=at
        )
        return found
    y_true = smoothed(y_true, label_smoothing, y_pred.shape[at])
    p = ops.clip(shares(y_pred, at), EPSILON, 1.0 - EPSILON)
    return -(y_true * ops.log(p)).sum(axis=at)


def sparse_categorical_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Tensor:
    """Cross-entropy of predicted classes along ``axis``, with class numbers as targets.

    ``y_true`` holds integers in the shape of ``y_pred`` without that axis, or with size 1
    there; ``y_pred`` holds probabilities, or logits with ``from_logits``. Targets that are
    ``ignore_class`` cost 0, and a mask of the result leaves them out of means. Raises
    ShapeError where the shapes do not fit, IndexRangeError for a class that does not exist.

    >>> ef.nn.losses.sparse_categorical_crossentropy([1], [[0.5, 0.5]])
    Tensor([0.6931], float32, cpu:0)
    """
    name = "sparse_categorical_crossentropy"
    labels, y_pred = class_numbers(name, y_true, y_pred, "CategoricalCrossentropy", axis)
    at = normalize_axis(axis, y_pred.ndim)
    counts = None if ignore_class is None else ops.not_equal(labels, ignore_class)
    if from_logits:
        each = ops.cross_entropy(
            y_pred, labels, ignore_index=ignore_class, reduction="none", axis=at
        )
    else:
        known = labels if counts is None else ops.where(counts, labels, 0)
        classes_last = ops.moveaxis(shares(y_pred, at), at, -1)
        chosen = ops.gather(classes_last, known, batch_dims=labels.ndim)
        each = -ops.log(ops.clip(chosen, EPSILON, 1.0 - EPSILON))
        each = each if counts is None else ops.where(counts, each, 0.0)
    if counts is not None:
        set_mask(each, counts)
    return each


def crossentropy(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """The cross-entropy that shapes speak for: of class numbers, one-hot targets, or yes and no."""
    y_true, y_pred = as_tensor(y_true), as_tensor(y_pred)
    if not y_pred.ndim or y_pred.shape[-1] == 1:
        return binary_crossentropy(y_true, y_pred)
    if y_true.shape != y_pred.shape:
        return sparse_categorical_crossentropy(y_true, y_pred)
    return categorical_crossentropy(y_true, y_pred)


def categorical_generalized_cross_entropy(
    y_true: TensorLike, y_pred: TensorLike, q: float
) -> Tensor:
    """``(1 - p ** q) / q`` of the predicted probability ``p`` of the right class.

    ``y_true`` holds class numbers of shape (...), ``y_pred`` probabilities of shape
    (..., classes). With ``q`` towards 0 it is the cross-entropy, with 1 it forgives wrong
    targets most. Raises ShapeError where the shapes do not fit. Source: Zhang and Sabuncu,
    2018, https://arxiv.org/abs/1805.07836.

    >>> ef.nn.losses.categorical_generalized_cross_entropy([1], [[0.75, 0.25]], q=0.5)
    Tensor([1.], float32, cpu:0)
    """
    name = "categorical_generalized_cross_entropy"
    labels, y_pred = class_numbers(name, y_true, y_pred)
    p = ops.take_along_axis(y_pred, ops.expand_dims(labels, axis=-1), axis=-1)
    return (1.0 - ops.squeeze(p, axis=-1) ** q) / q


def kl_divergence(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Sum over the last axis of ``y_true * log(y_true / y_pred)``.

    ``y_true`` and ``y_pred`` hold probabilities in equal shapes. Raises ShapeError where the
    shapes differ. Source: Kullback and Leibler, 1951.

    >>> ef.nn.losses.kl_divergence([[0.5, 0.5]], [[0.25, 0.75]])
    Tensor([0.1438], float32, cpu:0)
    """
    y_true, y_pred = same_shape("kl_divergence", y_true, y_pred)
    true, pred = ops.clip(y_true, EPSILON, 1.0), ops.clip(y_pred, EPSILON, 1.0)
    terms: Tensor = ops.kl_div(ops.log(pred), true, reduction="none")
    return terms.sum(axis=-1)


def poisson(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """Mean over the last axis of ``y_pred - y_true * log(y_pred)``.

    ``y_true`` holds counts and ``y_pred`` the rates predicted, in equal shapes. Raises
    ShapeError where the shapes differ.

    >>> ef.nn.losses.poisson([[1.0, 0.0]], [[1.0, 2.0]])
    Tensor([1.5], float32, cpu:0)
    """
    y_true, y_pred = same_shape("poisson", y_true, y_pred)
    each = ops.poisson_nll_loss(y_pred, y_true, log_input=False, eps=EPSILON, reduction="none")
    return last_mean(each)


# Classes --------------------------------------------------------------------------------------


class BinaryCrossentropy(FunctionLoss):
    """Cross-entropy of yes-or-no predictions: probabilities, or logits with ``from_logits``.

    ``label_smoothing`` draws targets by that much towards a half; the mean is taken along
    ``axis``.

    >>> ef.nn.losses.BinaryCrossentropy(from_logits=True)([[1.0], [0.0]], [[0.0], [0.0]])
    Tensor(0.6931, float32, cpu:0)
    """

    function = staticmethod(binary_crossentropy)
    of_probabilities = True
    from_logits: bool
    label_smoothing: float
    axis: int

    @arguments
    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: Float = 0.0,
        axis: int = -1,
        **options: Unpack[LossOptions],
    ) -> None: ...


class CategoricalCrossentropy(FunctionLoss):
    """Cross-entropy of predicted classes along ``axis``, with one-hot targets.

    Predictions are probabilities, or logits with ``from_logits``; ``label_smoothing`` spreads
    that part of the targets over all classes.

    >>> ef.nn.losses.CategoricalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]])
    Tensor(0.6931, float32, cpu:0)
    """

    function = staticmethod(categorical_crossentropy)
    of_probabilities = True
    from_logits: bool
    label_smoothing: float
    axis: int

    @arguments
    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: Float = 0.0,
        axis: int = -1,
        **options: Unpack[LossOptions],
    ) -> None: ...


class SparseCategoricalCrossentropy(FunctionLoss):
    """Cross-entropy of predicted classes along ``axis``, with class numbers as targets.

    Predictions are probabilities, or logits with ``from_logits``. Targets that are
    ``ignore_class`` do not count.

    >>> loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    >>> loss([1, 0], ef.zeros((2, 2)))
    Tensor(0.6931, float32, cpu:0)
    """

    function = staticmethod(sparse_categorical_crossentropy)
    from_logits: bool
    ignore_class: int | None
    axis: int

    @arguments
    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: Reduction = "sum_over_batch_size",
        axis: int = -1,
        name: str | None = None,
        dtype: Precision = None,
    ) -> None: ...


class CategoricalGeneralizedCrossEntropy(FunctionLoss):
    """``(1 - p ** q) / q`` of the probability of the right class: it bears wrong targets.

    ``q`` lies between 0 and 1. Source: Zhang and Sabuncu, 2018,
    https://arxiv.org/abs/1805.07836.

    >>> ef.nn.losses.CategoricalGeneralizedCrossEntropy()([1], [[0.75, 0.25]])
    Tensor(1., float32, cpu:0)
    """

    function = staticmethod(categorical_generalized_cross_entropy)
    q: float

    @arguments
    def __init__(
        self,
        q: Annotated[
            float, number(lambda q: 0 < q < 1, "out of range", "a number between 0 and 1")
        ] = 0.5,
        **options: Unpack[LossOptions],
    ) -> None: ...


class KLDivergence(FunctionLoss):
    """Sum of ``y_true * log(y_true / y_pred)`` along the last axis; Kullback and Leibler, 1951.

    >>> ef.nn.losses.KLDivergence()([[0.5, 0.5]], [[0.25, 0.75]])
    Tensor(0.1438, float32, cpu:0)
    """

    function = staticmethod(kl_divergence)


class Poisson(FunctionLoss):
    """Mean of ``y_pred - y_true * log(y_pred)``, for counts and their predicted rates.

    >>> ef.nn.losses.Poisson()([[1.0], [0.0]], [[1.0], [2.0]])
    Tensor(1.5, float32, cpu:0)
    """

    function = staticmethod(poisson)
