"""Connectionist temporal classification as a loss: labels in order, at unknown times."""

from __future__ import annotations

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import is_floating
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.losses.loss import FunctionLoss
from eagerflow.tensor import Tensor

__all__ = ["CTC", "ctc"]


def ctc(y_true: TensorLike, y_pred: TensorLike) -> Tensor:
    """The loss of unaligned label sequences, as for ``ef.ctc_loss``.

    ``y_true`` holds class numbers of shape (batch, length), padded with 0, which is also the
    class of blanks; ``y_pred`` holds logits of shape (batch, times, classes). Raises ShapeError
    for other shapes. Source: Graves et al., 2006.

    >>> ef.nn.losses.ctc([[1, 0]], ef.zeros((1, 3, 2)))
    Tensor([0.2877], float32, cpu:0)
    """
    labels, y_pred = as_tensor(y_true), as_tensor(y_pred)
    if labels.ndim != 2 or y_pred.ndim != 3:
        raise ShapeError(
            "they are not sequences of labels and of logits",
            op="ctc",
            received=f"y_true {summary(labels)}, y_pred {summary(y_pred)}",
            expected="shapes (batch, length) and (batch, times, classes)",
        )
    if is_floating(labels.dtype):
        labels = labels.astype("int64")
    lengths = ops.sum(ops.astype(ops.not_equal(labels, 0), "int64"), axis=-1)
    found: Tensor = ops.ctc_loss(y_pred, labels, label_lengths=lengths)
    return found


class CTC(FunctionLoss):
    """The loss of unaligned label sequences; Graves et al., 2006.

    Targets are class numbers of shape (batch, length), padded with 0, which is also the class of
    blanks; predictions are logits of shape (batch, times, classes).

    >>> ef.nn.losses.CTC()([[1, 0]], ef.zeros((1, 3, 2)))
    Tensor(0.2877, float32, cpu:0)
    """

    function = staticmethod(ctc)
