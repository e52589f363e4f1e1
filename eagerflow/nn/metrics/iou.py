"""Metrics of segmentation: intersection over union, from a table of classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Unpack

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.display import summary
from eagerflow.dtypes import is_floating
from eagerflow.errors import DTypeError, ShapeError
from eagerflow.nn.arguments import Count, TensorLike, require
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON
from eagerflow.nn.losses.loss import Precision
from eagerflow.nn.metrics.metric import Metric, MetricOptions
from eagerflow.tensor import Tensor

__all__ = ["BinaryIoU", "IoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU"]


class IoUOptions(MetricOptions, total=False):
    """The arguments that metrics of a table of classes share."""

    ignore_class: int | None
    sparse_y_true: bool
    sparse_y_pred: bool
    axis: int


class _ClassTable(Metric):
    """Base: a confusion matrix of classes, and the intersection over union of some of them.

    The counts are integers, so weights are too, unless ``dtype`` is one of floats.
    """

    _default_dtype = "int64"
    num_classes: int
    ignore_class: int | None
    sparse_y_true: bool
    sparse_y_pred: bool
    axis: int
    target_class_ids: list[int]

    @arguments
    def __init__(
        self,
        num_classes: Count,
        name: str | None = None,
        dtype: Precision = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        shape = (num_classes, num_classes)
        self.total_cm = self.add_variable(shape, name="total_confusion_matrix")

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in class numbers of any shape, or classes along ``axis``, and their weights."""
        true = self._numbers(y_true, self.sparse_y_true)
        pred = self._numbers(y_pred, self.sparse_y_pred)
        if true.shape != pred.shape:
            raise ShapeError(
                "targets and predictions differ in number",
                op=self.name,
                received=f"y_true {summary(true)}, y_pred {summary(pred)}",
            )
        counts = ops.logical_and(self._is_class(true), self._is_class(pred))
        if self.ignore_class is not None:
            counts = ops.logical_and(counts, ops.not_equal(true, self.ignore_class))
        weight = ops.where(counts, self._weight(sample_weight, true.shape), 0)
        at = ops.where(counts, true * self.num_classes + pred, 0)
        found = ops.segment_sum(ops.astype(weight, self.dtype), at, self.num_classes**2)
        self.total_cm.assign_add(found.reshape(self.total_cm.shape))

    def _numbers(self, classes: TensorLike, sparse: bool) -> Any:
        """The class of each position, flattened."""
        classes = as_tensor(classes)
        found = classes if sparse else ops.argmax(classes, axis=self.axis)
        return ops.astype(found, "int64").reshape(-1)

    def _is_class(self, numbers: Any) -> Any:
        return ops.logical_and(numbers >= 0, numbers < self.num_classes)

    def _weight(self, sample_weight: TensorLike, shape: Any) -> Any:
        weight = as_tensor(1 if sample_weight is None else sample_weight)
        if is_floating(weight.dtype) and not is_floating(self.dtype):
            raise DTypeError(
                "the counts are integers, and the weights are not",
                op=self.name,
                argument="sample_weight",
                received=summary(weight),
                hint=f"{type(self).__name__}(..., dtype='float32')",
            )
        return ops.broadcast_to(weight.reshape(-1) if weight.ndim > 1 else weight, shape)

    def result(self) -> Tensor:
        table = self.total_cm.value
        both: Any = ops.diagonal(table)
        union = table.sum(axis=0) + table.sum(axis=1) - both
        both, union = (
            ops.astype(ops.take(x, self.target_class_ids), "float32") for x in (both, union)
        )
        seen = ops.greater(union, 1e-9)
        shares = ops.where(seen, both / (union + EPSILON), 0.0)
        return shares.sum() / (ops.astype(seen, "float32").sum() + EPSILON)


def _class_ids(value: Iterable[int]) -> list[int]:
    return [int(i) for i in value]


ClassIds = Annotated[Iterable[int], _class_ids]
"""Numbers of classes."""


class IoU(_ClassTable):
    """The mean intersection over union of targets and predictions, over some classes.

    There are ``num_classes``; ``target_class_ids`` selects the averaged ones. Targets and
    predictions hold class numbers, or have the classes along ``axis`` with ``sparse_y_true=False``
    or ``sparse_y_pred=False``. Targets of ``ignore_class``, and invalid class numbers, are ignored.
    Source: Jaccard, 1901.

    >>> ef.nn.metrics.IoU(2, target_class_ids=[0])([0, 0, 1, 1], [0, 1, 0, 1])
    Tensor(0.3333, float32, cpu:0)
    """

    @arguments
    def __init__(
        self,
        num_classes: Count,
        target_class_ids: ClassIds,
        **options: Unpack[IoUOptions],
    ) -> None:
        ids = self.target_class_ids
        ok = bool(ids) and all(0 <= i < self.num_classes for i in ids)
        expected = f"integers from 0 to {self.num_classes - 1}"
        require(ok, ids, "out of range", self.name, "target_class_ids", expected)


class BinaryIoU(IoU):
    """``IoU`` of yes and no, where a prediction from ``threshold`` on is a yes.

    >>> ef.nn.metrics.BinaryIoU(threshold=0.3)([0, 1, 0, 1], [0.1, 0.2, 0.4, 0.7])
    Tensor(0.3333, float32, cpu:0)
    """

    def __init__(
        self,
        target_class_ids: Iterable[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(2, target_class_ids, name=name, dtype=dtype)
        self.threshold = float(threshold)

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in targets of zeros and ones and predictions of one shape."""
        yes = ops.greater_equal(as_tensor(y_pred), self.threshold)
        super().update_state(y_true, yes, sample_weight)


class MeanIoU(_ClassTable):
    """``IoU`` of all classes.

    >>> ef.nn.metrics.MeanIoU(2)([0, 0, 1, 1], [0, 1, 0, 1])
    Tensor(0.3333, float32, cpu:0)
    """

    @arguments
    def __init__(self, num_classes: Count, **options: Unpack[IoUOptions]) -> None:
        self.target_class_ids = list(range(self.num_classes))


class OneHotIoU(IoU):
    """``IoU`` of one-hot targets, and predictions of that shape if not ``sparse_y_pred``.

    >>> metric = ef.nn.metrics.OneHotIoU(2, target_class_ids=[1])
    >>> metric([[1, 0], [0, 1]], [[0.2, 0.8], [0.4, 0.6]])
    Tensor(0.5, float32, cpu:0)
    """

    @arguments
    def __init__(
        self,
        num_classes: Count,
        target_class_ids: ClassIds,
        name: str | None = None,
        dtype: Precision = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        self.sparse_y_true = False


class OneHotMeanIoU(MeanIoU):
    """``IoU`` of all classes, of one-hot targets and predictions.

    >>> ef.nn.metrics.OneHotMeanIoU(2)([[1, 0], [0, 1]], [[0.2, 0.8], [0.4, 0.6]])
    Tensor(0.25, float32, cpu:0)
    """

    @arguments
    def __init__(
        self,
        num_classes: Count,
        name: str | None = None,
        dtype: Precision = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        self.sparse_y_true = False
