"""Focal losses: cross-entropies in which easy examples count little; Lin et al., 2017."""

from __future__ import annotations

from typing import Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.nn.arguments import Float, TensorLike
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON, refuse_integers, same_shape
from eagerflow.nn.losses.loss import FunctionLoss, LossOptions, last_mean
from eagerflow.nn.losses.probabilistic import shares, yes_or_no
from eagerflow.ops.nn.cross_entropies import focused, smoothed
from eagerflow.spec import normalize_axis
from eagerflow.tensor import Tensor

__all__ = [
    "BinaryFocalCrossentropy",
    "CategoricalFocalCrossentropy",
    "binary_focal_crossentropy",
    "categorical_focal_crossentropy",
]


def binary_focal_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Mean along ``axis`` of yes-or-no cross-entropies times ``(1 - p) ** gamma``.

    ``p`` is the predicted probability of the target. With ``apply_class_balancing`` a yes counts
    ``alpha`` and a no ``1 - alpha``. Other arguments are those of ``binary_crossentropy``. Raises
    ShapeError where the shapes differ. Source: Lin et al., 2017, https://arxiv.org/abs/1708.02002.

    >>> ef.nn.losses.binary_focal_crossentropy([[1.0]], [[0.5]])
    Tensor([0.1733], float32, cpu:0)
    """
    refuse_integers("binary_focal_crossentropy", y_true, y_pred)
    y_true, y_pred = same_shape("binary_focal_crossentropy", y_true, y_pred)
    y_true = smoothed(y_true, label_smoothing, 2)
    p = ops.sigmoid(y_pred) if from_logits else y_pred
    share = alpha if apply_class_balancing else None
    return last_mean(focused(yes_or_no(y_true, p), p, y_true, share, gamma), axis)


def categorical_focal_crossentropy(
    y_true: TensorLike,
    y_pred: TensorLike,
    alpha: Any = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """Cross-entropy of predicted classes, in which each class counts ``(1 - p) ** gamma``.

    ``p`` is the predicted probability of the class, ``alpha`` a factor, or one for each class
    along the last axis. Other arguments are those of ``categorical_crossentropy``. Raises
    ShapeError where the shapes differ. Source: Lin et al., 2017,
    https://arxiv.org/abs/1708.02002.

    >>> ef.nn.losses.categorical_focal_crossentropy([[0.0, 1.0]], [[0.5, 0.5]])
    Tensor([0.0433], float32, cpu:0)
    """
    refuse_integers("categorical_focal_crossentropy", y_true, y_pred)
    y_true, y_pred = same_shape("categorical_focal_crossentropy", y_true, y_pred)
    at = normalize_axis(axis, y_pred.ndim)
    y_true = smoothed(y_true, label_smoothing, y_pred.shape[at])
    p = shares(ops.softmax(y_pred, axis=at) if from_logits else y_pred, at)
    p = ops.clip(p, EPSILON, 1.0 - EPSILON)
    factor = (1.0 - p) ** gamma * as_tensor(alpha, p.dtype)
    return -(factor * y_true * ops.log(p)).sum(axis=at)


class BinaryFocalCrossentropy(FunctionLoss):
    """Binary cross-entropy in which easy examples count little.

    Each is multiplied by ``(1 - p) ** gamma``, where ``p`` is the predicted probability of the
    target; with ``apply_class_balancing`` also by ``alpha`` for a yes and ``1 - alpha`` for a no.
    Source: Lin et al., 2017, https://arxiv.org/abs/1708.02002.

    >>> ef.nn.losses.BinaryFocalCrossentropy()([[1.0], [1.0]], [[0.5], [1.0]])
    Tensor(0.0866, float32, cpu:0)
    """

    function = staticmethod(binary_focal_crossentropy)
    of_probabilities = True
    apply_class_balancing: bool
    alpha: float
    gamma: float
    from_logits: bool
    label_smoothing: float
    axis: int

    @arguments
    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: Float = 0.25,
        gamma: Float = 2.0,
        from_logits: bool = False,
        label_smoothing: Float = 0.0,
        axis: int = -1,
        **options: Unpack[LossOptions],
    ) -> None: ...


class CategoricalFocalCrossentropy(FunctionLoss):
    """Categorical cross-entropy in which easy examples count little.

    Each class counts ``alpha * (1 - p) ** gamma``, where ``p`` is its predicted probability;
    ``alpha`` is a factor, or one for each class. Source: Lin et al., 2017,
    https://arxiv.org/abs/1708.02002.

    >>> ef.nn.losses.CategoricalFocalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]])
    Tensor(0.0433, float32, cpu:0)
    """

    function = staticmethod(categorical_focal_crossentropy)
    of_probabilities = True
    alpha: Any
    gamma: float
    from_logits: bool
    label_smoothing: float
    axis: int

    @arguments
    def __init__(
        self,
        alpha: Any = 0.25,
        gamma: Float = 2.0,
        from_logits: bool = False,
        label_smoothing: Float = 0.0,
        axis: int = -1,
        **options: Unpack[LossOptions],
    ) -> None: ...
