"""Cross-entropies with the usual options: weights, smoothed labels, ignored classes."""

from __future__ import annotations

from typing import Any

from eagerflow.dtypes import FLOATS, INTEGERS, is_floating
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.activation import sigmoid, softplus
from eagerflow.ops.elementwise.arithmetic import add, multiply, negative, subtract
from eagerflow.ops.elementwise.comparison import not_equal
from eagerflow.ops.elementwise.exponential import log, log1p
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.indexing.gathering import gather, take
from eagerflow.ops.nn.loss_reduction import check_same, reduced
from eagerflow.ops.nn.losses import (
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    sparse_softmax_cross_entropy,
)
from eagerflow.ops.reductions.softmax import log_softmax
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.shapes.reshaping import moveaxis, reshape
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "nll_loss",
    "sigmoid_focal_loss",
]


def smoothed(target: Any, label_smoothing: float, classes: Any) -> Any:
    """Targets with a part of them spread over all classes."""
    if not label_smoothing:
        return target
    return add(multiply(target, 1.0 - label_smoothing), label_smoothing / classes)


def focused(each: Any, p: Any, target: Any, alpha: float | None, gamma: float) -> Any:
    """Yes-or-no cross-entropies that count little where the probability ``p`` is nearly right.

    Lin et al., 2017. Positives have the weight ``alpha`` and negatives 1 - ``alpha``, unless it is
    None.
    """
    right = add(multiply(target, p), multiply(subtract(1.0, target), subtract(1.0, p)))
    each = multiply(subtract(1.0, right) ** gamma, each)
    if alpha is None:
        return each
    share = add(multiply(target, alpha), multiply(subtract(1.0, target), 1.0 - alpha))
    return multiply(each, share)


# Yes or no ----------------------------------------------------------------------------------------


@composed(tensors=3, dtypes=FLOATS)
def binary_cross_entropy(
    x: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of yes-or-no predictions that are probabilities.

    ``x`` and ``target`` hold probabilities in one shape, ``weight`` a factor for each; logarithms
    are clipped at -100. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``. Raises ShapeError
    where the shapes differ, ArgumentError for another reduction.

    >>> ef.binary_cross_entropy(ef.tensor([0.5, 0.0]), ef.tensor([1.0, 1.0]), reduction="none")
    Tensor([  0.6931, 100.    ], float32, cpu:0)
    """
    check_same(x, target)
    yes, no = maximum(log(x), -100.0), maximum(log1p(negative(x)), -100.0)
    each = negative(add(multiply(target, yes), multiply(subtract(1.0, target), no)))
    return reduced(each if weight is None else multiply(each, weight), reduction)


@composed(tensors=4, dtypes=FLOATS)
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of yes-or-no predictions that are logits, without overflow.

    ``x`` holds logits and ``target`` probabilities in one shape; ``weight`` has a factor for
    each, ``pos_weight`` one for the positive part; both broadcast. ``reduction`` is ``"mean"``,
    ``"sum"`` or ``"none"``. Raises ShapeError where the shapes do not fit, ArgumentError for
    another reduction.

    >>> x, target = ef.tensor([0.0, 0.0]), ef.tensor([1.0, 0.0])
    >>> ef.binary_cross_entropy_with_logits(x, target, pos_weight=3.0, reduction="none")
    Tensor([2.0794, 0.6931], float32, cpu:0)
    """
    check_same(x, target)
    if pos_weight is None:
        each = sigmoid_cross_entropy(x, target)
    else:
        yes = multiply(multiply(target, pos_weight), softplus(negative(x)))
        each = add(yes, multiply(subtract(1, target), softplus(x)))
    return reduced(each if weight is None else multiply(each, weight), reduction)


@composed(dtypes=FLOATS)
def sigmoid_focal_loss(
    x: Any, target: Any, /, alpha: float | None = 0.25, gamma: float = 2.0, reduction: str = "none"
) -> Tensor:
    """Binary cross-entropy of logits in which easy examples count little (focal loss).

    Each is multiplied by ``(1 - p) ** gamma``, where ``p`` is the predicted probability of the
    target, and by ``alpha`` for positives and ``1 - alpha`` for negatives, unless that is None.
    Other arguments and errors are those of ``binary_cross_entropy_with_logits``. Source: Lin et
    al., arXiv:1708.02002.

    >>> ef.sigmoid_focal_loss(ef.tensor([0.0]), ef.tensor([1.0]), alpha=None)
    Tensor([0.1733], float32, cpu:0)
    """
    check_same(x, target)
    each = sigmoid_cross_entropy(x, target)
    return reduced(focused(each, sigmoid(x), target, alpha, gamma), reduction)


# One of several classes ---------------------------------------------------------------------------


def _kept(target: Any, ignore_index: int | None) -> tuple[Any, Any]:
    """Valid class numbers, and which of them count; None for all."""
    if target.dtype not in INTEGERS:
        raise DTypeError("class numbers are integers", argument="target")
    if ignore_index is None:
        return target, None
    kept = not_equal(target, ignore_index)
    return where(kept, target, 0), kept


def _counted(each: Any, share: Any, kept: Any, reduction: str) -> Any:
    """The losses of the examples that count, and their weighted mean."""
    if kept is not None:
        each = where(kept, each, 0)
        if reduction == "mean":
            share = where(kept, ones_like(each) if share is None else share, 0)
    return reduced(each, reduction, share)


def _along(weight: Any, at: int, rank: int) -> Any:
    """A factor for each class, along the axis of classes."""
    return reshape(weight, (weight.shape[0], *(1,) * (rank - 1 - at)))


def _check_weight(weight: Any, classes: Any) -> None:
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(
            "factors and classes differ in number",
            argument="weight",
            expected=f"shape {(classes,)}",
        )


@composed(tensors=3, dtypes=FLOATS)
def cross_entropy(
    logits: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    axis: int = -1,
) -> Tensor:
    """Cross-entropy between the softmax of logits and classes, or probabilities of these.

    ``logits`` has the classes along ``axis``; ``target`` holds class numbers in the shape of the
    other axes, or probabilities in that of ``logits``. ``weight`` has a factor for each class;
    examples of class ``ignore_index`` are ignored; ``label_smoothing`` is the part of a target that
    is spread over all classes. ``reduction`` is ``"mean"`` (for class numbers: weighted by the
    factors of the classes that count; 0 if there are none), ``"sum"`` or ``"none"``. Raises
    ShapeError where the shapes do not fit, IndexRangeError for a class that does not exist,
    ArgumentError for another reduction.

    >>> ef.cross_entropy(ef.zeros((3, 2)), ef.tensor([0, 1, -100]))
    Tensor(0.6931, float32, cpu:0)
    """
    at = normalize_axis(axis, logits.ndim)
    classes = logits.shape[at]
    _check_weight(weight, classes)
    factors = None if weight is None else _along(weight, at, logits.ndim)
    if is_floating(target.dtype):
        shares = smoothed(target, label_smoothing, classes)
        shares = shares if factors is None else multiply(shares, factors)
        return reduced(softmax_cross_entropy(logits, shares, axis=at), reduction)
    labels, kept = _kept(target, ignore_index)
    each = sparse_softmax_cross_entropy(logits, labels, axis=at)
    share = None if weight is None else take(weight, labels, axis=0)
    each = each if share is None else multiply(each, share)
    if label_smoothing:
        logs = log_softmax(logits, axis=at)
        logs = logs if factors is None else multiply(logs, factors)
        spread = mean(logs, axis=at)
        each = subtract(multiply(each, 1 - label_smoothing), multiply(spread, label_smoothing))
    return _counted(each, share, kept, reduction)


@composed(tensors=3, dtypes=FLOATS)
def nll_loss(
    x: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    axis: int = -1,
) -> Tensor:
    """Negative logarithms of the probabilities of classes.

    ``x`` holds logarithms of probabilities with the classes along ``axis``, ``target`` class
    numbers in the shape of the other axes. Other arguments and errors are those of
    ``cross_entropy``, the second half of which this is.

    >>> ef.nll_loss(ef.log(ef.tensor([[0.5, 0.5]])), ef.tensor([1]))
    Tensor(0.6931, float32, cpu:0)
    """
    at = normalize_axis(axis, x.ndim)
    _check_weight(weight, x.shape[at])
    labels, kept = _kept(target, ignore_index)
    each = negative(gather(moveaxis(x, at, -1), labels, axis=-1, batch_dims=labels.ndim))
    share = None if weight is None else take(weight, labels, axis=0)
    return _counted(each if share is None else multiply(each, share), share, kept, reduction)
