"""Losses of classification."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call, operator


def _reduced(call: Call, loss: Any, weight: Any, reduction: str) -> Any:
    """The weighted losses: each, their sum, or their weighted mean."""
    if weight is not None:
        loss = loss * weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return ops.sum(loss)
    if reduction != "mean":
        call.refuse(f"there is no reduction {reduction!r}")
    return ops.mean(loss) if weight is None else ops.sum(loss) / ops.sum(weight)


def _likelihood_loss(
    call: Call, logs: Any, target: Any, weight: Any, ignore_index: int | None, reduction: str
) -> Any:
    """The loss for logarithms ``logs`` (batch, classes, *places) and classes ``target``."""
    ignored = None
    if ignore_index is not None:
        ignored = target == ignore_index
        target = ops.where(ignored, 0, target)
    loss = -ops.take_along_axis(logs, ops.expand_dims(target, 1), axis=1)
    loss = ops.squeeze(loss, axis=1)
    each = None if weight is None else ops.take(weight, target, axis=0)
    if ignored is not None:
        each = ops.where(ignored, 0, 1 if each is None else each)
        # Ignored elements may be infinite.
        loss, each = ops.where(ignored, 0, loss), ops.astype(each, logs.dtype)
    return _reduced(call, loss, each, reduction)


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(
    call: Call,
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """The loss of logarithms of probabilities (batch, classes, *places) for classes."""
    return _likelihood_loss(call, x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(
    call: Call,
    scores: Any,
    labels: Any,
    weights: Any = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """The loss of scores (batch, classes, *places) for classes, and their log-softmax."""
    logs = ops.log_softmax(scores, axis=1)
    return _likelihood_loss(call, logs, labels, weights, ignore_index, reduction), logs
