"""Cross-entropies with the usual options: weights, smoothed labels, ignored classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dtypes import FLOATS, INTEGERS, DType, is_floating
from eagerflow.errors import DTypeError, IndexRangeError, ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import ones_like
from eagerflow.ops.elementwise.activation import sigmoid, softplus
from eagerflow.ops.elementwise.arithmetic import add, multiply, negative, subtract
from eagerflow.ops.elementwise.comparison import not_equal
from eagerflow.ops.elementwise.exponential import log, log1p
from eagerflow.ops.elementwise.selection import maximum, where
from eagerflow.ops.indexing.gathering import gather, take
from eagerflow.ops.nn.loss_reduction import check_same, loss_facts, reduced, reduced_reference
from eagerflow.ops.nn.losses import (
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    sparse_softmax_cross_entropy,
)
from eagerflow.ops.reductions.softmax import log_softmax
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.samples import make
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


def _binary_of(p: float, t: float) -> float:
    return -(t * math.log(p) + (1 - t) * math.log(1 - p))


@composed(tensors=3, **loss_facts(lambda p, t, w: w * _binary_of(p, t), (0.1, 0.9), (0, 1), (0, 2)))
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


def _logits_of(x: float, t: float, w: float, pos: float) -> float:
    p = 1 / (1 + math.exp(-x))
    return -w * (pos * t * math.log(p) + (1 - t) * math.log(1 - p))


@composed(tensors=4, **loss_facts(_logits_of, (-3, 3), (0, 1), (0, 2), (0.5, 2)))
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


def _focal_of(x: float, t: float, alpha: float, gamma: float) -> float:
    p = 1 / (1 + math.exp(-x))
    right = t * p + (1 - t) * (1 - p)
    return (1 - right) ** gamma * _binary_of(p, t) * (t * alpha + (1 - t) * (1 - alpha))


@composed(**loss_facts(_focal_of, (-3, 3), (0, 1), alpha=0.4, gamma=1.5))
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


def _labelled(rng: np.random.Generator, dtype: DType, logits: bool = True) -> list[Sample]:
    found = []
    shapes = (((4,), -1), ((3, 4), 1), ((4, 3), 0), ((2, 3, 2), 1), ((5, 3), -1), ((3, 2), -1))
    for i, (shape, axis) in enumerate(shapes):
        x = make(rng, dtype, shape)
        x = x if logits else np.log(np.exp(x) / np.exp(x).sum(axis, keepdims=True)).astype(dtype)
        labels = np.asarray(rng.integers(0, shape[axis], np.delete(shape, axis)))
        weight = make(rng, dtype, (shape[axis],), 0.5, 2) if i % 2 else None
        more: dict[str, Any] = {"axis": axis, "reduction": ("mean", "none", "sum")[i % 3]}
        if logits and i > 1:
            more |= {"label_smoothing": 0.2}
        found.append(Sample((x, labels, weight), more | ({"ignore_index": 1} if i > 2 else {})))
        if logits:
            p = make(rng, dtype, shape, 0.1, 1)
            p = (p / p.sum(axis, keepdims=True)).astype(dtype)
            found.append(Sample((x, p, weight), more))
    base = make(rng, dtype, (4, 6))
    return [
        *found,
        Sample((base[::2, ::-1] if logits else base, np.arange(2 if logits else 4)), {}),
    ]


def _negative_logs(x: Any, axis: int) -> Any:
    x = np.moveaxis(x.astype(float), axis, -1)
    return np.log(np.exp(x).sum(-1, keepdims=True)) - x


def _entropy_reference(
    logits: Any,
    target: Any,
    weight: Any,
    ignore_index: Any,
    label_smoothing: float,
    reduction: str,
    axis: int,
    costs: Any = None,
) -> Any:
    costs = _negative_logs(logits, axis) if costs is None else costs
    classes = costs.shape[-1]
    factors = np.ones(classes) if weight is None else weight.astype(float)
    if target.dtype.kind == "f":
        shares = np.moveaxis(target.astype(float), axis, -1)
        shares = shares * (1 - label_smoothing) + label_smoothing / classes
        out = (costs * shares * factors).sum(-1)
        return reduced_reference(out, reduction)
    out, weights = np.zeros(target.shape), np.zeros(target.shape)
    for at in np.ndindex(target.shape):
        y = int(target[at])
        if y != ignore_index:
            weights[at] = factors[y]
            out[at] = (1 - label_smoothing) * costs[at][y] * factors[y]
            out[at] += label_smoothing / classes * (costs[at] * factors).sum()
    mean = out.sum() / weights.sum() if weights.any() else 0.0
    return mean if reduction == "mean" else reduced_reference(out, reduction)


def _class_errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.random((2, 3))
    return [
        ErrorSample((x, np.array([0, 3])), {}, IndexRangeError, "3 is out of range"),
        ErrorSample((x, np.array([0, 1, 2])), {}, ShapeError, "each example"),
        ErrorSample((x, np.array([0, 1]), np.ones(2)), {}, ShapeError, "differ in number"),
    ]


@composed(
    tensors=3,
    samples=_labelled,
    reference=_entropy_reference,
    dtypes=FLOATS,
    errors=_class_errors,
)
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


@composed(
    tensors=3,
    samples=lambda rng, dtype: _labelled(rng, dtype, logits=False),
    reference=lambda x, target, weight, ignore_index, reduction, axis: _entropy_reference(
        x,
        target,
        weight,
        ignore_index,
        0.0,
        reduction,
        axis,
        -np.moveaxis(x.astype(float), axis, -1),
    ),
    dtypes=FLOATS,
    errors=lambda rng: [
        ErrorSample((np.ones((2, 3)), np.array([0, 3])), {}, IndexRangeError, "index 3"),
        ErrorSample((np.ones((2, 3)), np.array([0.5, 1])), {}, DTypeError, "are integers"),
    ],
)
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
