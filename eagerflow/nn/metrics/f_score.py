"""F scores: precision and recall in one number."""

from __future__ import annotations

from typing import Annotated, Any

from eagerflow import ops
from eagerflow.display import summary
from eagerflow.errors import ShapeError
from eagerflow.nn.arguments import TensorLike, choice, number
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.alignment import EPSILON, in_precision, same_shape, weight_for
from eagerflow.nn.losses.loss import Precision
from eagerflow.nn.metrics.metric import Metric
from eagerflow.recorder import unrecorded
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["F1Score", "FBetaScore"]

Average = Annotated[str | None, choice("not an average", None, "micro", "macro", "weighted")]
Threshold = Annotated[
    float, number(lambda t: 0 < t <= 1, "out of range", "a number above 0, at most 1")
]
Beta = Annotated[float, number(lambda b: b > 0, "out of range", "a number above 0")]


class FBetaScore(Metric):
    """The mean of precision and recall in which recall has ``beta`` times the weight.

    Targets and predictions have shape (batch, classes). The predicted class is the largest, or all
    above ``threshold``. ``average`` is None for the score of each class, ``"macro"`` for their
    mean, ``"weighted"`` for that by the number of targets, ``"micro"`` for the score of all counts
    together. Raises ShapeError for other shapes. Source: van Rijsbergen, 1979.

    >>> metric = ef.nn.metrics.FBetaScore(beta=2.0, threshold=0.5)
    >>> metric([[1, 1, 1], [1, 0, 0]], [[0.2, 0.6, 0.7], [0.2, 0.6, 0.6]])
    Tensor([0.    , 0.8333, 0.8333], float32, cpu:0)
    """

    average: str | None
    beta: float
    threshold: float | None
    true_positives: Variable
    false_positives: Variable
    false_negatives: Variable
    intermediate_weights: Variable

    @arguments
    def __init__(
        self,
        average: Average = None,
        beta: Beta = 1.0,
        threshold: Threshold | None = None,
        name: str | None = "fbeta_score",
        dtype: Precision = None,
    ) -> None: ...

    def _build(self, *classes: int) -> None:
        self.true_positives = self.add_variable(classes, name="true_positives")
        self.false_positives = self.add_variable(classes, name="false_positives")
        self.false_negatives = self.add_variable(classes, name="false_negatives")
        self.intermediate_weights = self.add_variable(classes, name="intermediate_weights")

    def update_state(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> None:
        """Take in the targets and predictions of a batch."""
        y_true, y_pred = same_shape(self.name, y_true, in_precision(y_pred, self.dtype))
        if y_pred.ndim != 2:
            raise ShapeError(
                "the predictions do not have two axes",
                op=self.name,
                received=summary(y_pred),
                expected="shape (batch, classes)",
            )
        micro = self.average == "micro"
        if not self.variables:
            classes = () if micro else (y_pred.shape[1],)
            unrecorded(f"state of {self.name!r}", self._build, *classes)
        if self.threshold is None:
            largest = ops.greater_equal(y_pred, ops.max(y_pred, axis=-1, keepdims=True))
            found = ops.logical_and(largest, ops.greater(ops.abs(y_pred), 1e-9))
        else:
            found = ops.greater(y_pred, self.threshold)
        chosen: Any = ops.astype(found, self.dtype)
        weight: Any = weight_for(y_true, 1.0 if sample_weight is None else sample_weight, self.name)
        for variable, value in (
            (self.true_positives, chosen * y_true),
            (self.false_positives, chosen * (1.0 - y_true)),
            (self.false_negatives, (1.0 - chosen) * y_true),
            (self.intermediate_weights, y_true),
        ):
            variable.assign_add(ops.sum(value * weight, axis=None if micro else 0))

    def result(self) -> Tensor:
        hits: Any = self.true_positives.value
        precision = hits / (hits + self.false_positives + EPSILON)
        recall = hits / (hits + self.false_negatives + EPSILON)
        square = self.beta**2
        score = precision * recall / (precision * square + recall + EPSILON) * (1.0 + square)
        if self.average == "weighted":
            number = self.intermediate_weights.value
            return (score * (number / (number.sum() + EPSILON))).sum()
        return score if self.average is None else score.mean()


class F1Score(FBetaScore):
    """The harmonic mean of precision and recall; arguments are those of ``FBetaScore``.

    >>> metric = ef.nn.metrics.F1Score(threshold=0.5)
    >>> metric([[1, 1, 1], [1, 0, 0]], [[0.2, 0.6, 0.7], [0.2, 0.6, 0.6]])
    Tensor([0.    , 0.6667, 0.6667], float32, cpu:0)
    """

    @arguments
    def __init__(
        self,
        average: Average = None,
        threshold: Threshold | None = None,
        name: str | None = None,
        dtype: Precision = None,
    ) -> None: ...
