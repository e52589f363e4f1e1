"""Circle loss: embeddings of one class close together, those of others far apart."""

from __future__ import annotations

import math
from typing import Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import Float, TensorLike
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.loss import FunctionLoss, LossOptions
from eagerflow.nn.masks import set_mask
from eagerflow.ops.operands import floating
from eagerflow.tensor import Tensor

__all__ = ["Circle", "circle"]


def circle(
    y_true: TensorLike,
    y_pred: TensorLike,
    ref_labels: Any = None,
    ref_embeddings: Any = None,
    remove_diagonal: bool = True,
    gamma: float = 80.0,
    margin: float = 0.4,
) -> Tensor:
    """The dissimilarity of embeddings within a class, and their similarity to other classes.

    ``y_true`` holds class numbers of shape (batch,) or (batch, 1), ``y_pred`` embeddings of length
    1 and shape (batch, features). They are compared with each other, or with ``ref_embeddings``
    (references, features) of the classes ``ref_labels``; an example is not compared with itself
    with ``remove_diagonal``. ``gamma`` is the scale and ``margin`` the margin of similarity. A mask
    of the result excludes examples without a loss. Raises ShapeError for mismatched shapes. Source:
    Sun et al., 2020, https://arxiv.org/abs/2002.10857.

    >>> ef.nn.losses.circle([0, 0, 1], [[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    Tensor([38.4  , 60.928,  0.   ], float32, cpu:0)
    """
    labels, y_pred = _labelled(y_true, y_pred)
    others, references = labels, y_pred
    if ref_embeddings is not None:
        others, references = _labelled(ref_labels, ref_embeddings)
    distance = ops.maximum(1.0 - ops.matmul(y_pred, references.T), 0.0)
    same = ops.equal(labels.reshape((-1, 1)), others.reshape((1, -1)))
    different = ops.logical_not(same)
    if remove_diagonal:
        itself = ops.eye(labels.shape[0], others.shape[0], dtype="bool")
        same = ops.logical_and(same, ops.logical_not(itself))
    near = (distance + margin) * (distance - margin) * gamma
    far = ops.maximum(1.0 + margin - distance, 0.0) * (1.0 - margin - distance) * gamma
    total = [
        ops.logsumexp(ops.where(mask, value, -math.inf), axis=1)
        for mask, value in ((same, near), (different, far))
    ]
    found = ops.softplus(total[0] + total[1])
    set_mask(found, ops.greater(found, 0.0))
    return found


def _labelled(labels: TensorLike, embeddings: TensorLike) -> tuple[Tensor, Tensor]:
    """Class numbers along one axis, and the embeddings that have them."""
    labels, embeddings = as_tensor(labels), floating(as_tensor(embeddings), "embeddings")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = ops.squeeze(labels, axis=1)
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise ShapeError(
            "class ids and embeddings differ in number",
            op="circle",
            received=f"{summary(labels)} and {summary(embeddings)}",
            expected="shapes (batch,) and (batch, features)",
        )
    return labels, embeddings


class Circle(FunctionLoss):
    """Embeddings of one class are to be close together, and far from those of other classes.

    Targets are class numbers, predictions embeddings of length 1. ``gamma`` is the scale,
    ``margin`` the margin of similarity; an example is not compared with itself with
    ``remove_diagonal``. Source: Sun et al., 2020, https://arxiv.org/abs/2002.10857.

    >>> loss = ef.nn.losses.Circle(gamma=1.0)
    >>> loss([0, 0, 1], [[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    Tensor(1.0532, float32, cpu:0)
    """

    function = staticmethod(circle)
    gamma: float
    margin: float
    remove_diagonal: bool

    @arguments
    def __init__(
        self,
        gamma: Float = 80.0,
        margin: Float = 0.4,
        remove_diagonal: bool = True,
        **options: Unpack[LossOptions],
    ) -> None: ...
