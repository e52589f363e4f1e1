"""Metrics: numbers about predictions, gathered batch by batch in Variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagerflow.nn import losses
from eagerflow.nn.configured import from_config, snake_case
from eagerflow.nn.losses import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)
from eagerflow.nn.metrics.accuracy import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    accuracy_by_shape,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from eagerflow.nn.metrics.confusion import (
    FalseNegatives,
    FalsePositives,
    Precision,
    Recall,
    TrueNegatives,
    TruePositives,
)
from eagerflow.nn.metrics.curves import (
    AUC,
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SpecificityAtSensitivity,
)
from eagerflow.nn.metrics.f_score import F1Score, FBetaScore
from eagerflow.nn.metrics.iou import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
from eagerflow.nn.metrics.mean_losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    Hinge,
    KLDivergence,
    LogCoshError,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
    SparseCategoricalCrossentropy,
    SquaredHinge,
)
from eagerflow.nn.metrics.metric import Metric
from eagerflow.nn.metrics.reduction import Mean, MeanMetricWrapper, Sum
from eagerflow.nn.metrics.regression import (
    ConcordanceCorrelation,
    CosineSimilarity,
    PearsonCorrelation,
    R2Score,
    RootMeanSquaredError,
)
from eagerflow.ops.other_names import members

__all__ = [
    "AUC",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "BinaryIoU",
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "ConcordanceCorrelation",
    "CosineSimilarity",
    "F1Score",
    "FBetaScore",
    "FalseNegatives",
    "FalsePositives",
    "Hinge",
    "IoU",
    "KLDivergence",
    "LogCoshError",
    "Mean",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanIoU",
    "MeanMetricWrapper",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Metric",
    "OneHotIoU",
    "OneHotMeanIoU",
    "PearsonCorrelation",
    "Poisson",
    "Precision",
    "PrecisionAtRecall",
    "R2Score",
    "Recall",
    "RecallAtPrecision",
    "RootMeanSquaredError",
    "SensitivityAtSpecificity",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
    "SpecificityAtSensitivity",
    "SquaredHinge",
    "Sum",
    "TopKCategoricalAccuracy",
    "TrueNegatives",
    "TruePositives",
    "binary_accuracy",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_accuracy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_hinge",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "metric_for",
    "poisson",
    "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy",
    "sparse_top_k_categorical_accuracy",
    "squared_hinge",
    "top_k_categorical_accuracy",
]

_ALIASES = {
    "acc": Accuracy,
    "bce": BinaryCrossentropy,
    "kld": KLDivergence,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "mse": MeanSquaredError,
    "msle": MeanSquaredLogarithmicError,
    "rmse": RootMeanSquaredError,
}
_CLASSES = [globals()[name] for name in __all__ if name[0].isupper() and name != "Metric"]
_TABLE = {snake_case(cls.__name__): cls for cls in _CLASSES} | _ALIASES


def get(identifier: Any) -> Any:
    """Return the metric for a name, a configuration, a metric, a loss or a function.

    >>> ef.nn.metrics.get("accuracy")
    <Accuracy accuracy>
    """
    found = from_config("metric", identifier, _TABLE, callable)
    if isinstance(identifier, str):
        found.name = identifier
    return found if isinstance(found, Metric) else MeanMetricWrapper(found)


_BY_LOSS = {
    losses.SparseCategoricalCrossentropy: SparseCategoricalAccuracy,
    losses.CategoricalCrossentropy: CategoricalAccuracy,
    losses.CategoricalFocalCrossentropy: CategoricalAccuracy,
    losses.BinaryCrossentropy: BinaryAccuracy,
    losses.BinaryFocalCrossentropy: BinaryAccuracy,
}


def metric_for(identifier: Any, loss: Any) -> Any:
    """Like ``get``, but "accuracy" is the one that matches the model's loss.

    Shapes cannot distinguish class numbers from single probabilities; they decide only if the loss
    does not.

    >>> ef.nn.metrics.metric_for("acc", ef.nn.losses.BinaryCrossentropy())
    <BinaryAccuracy acc>
    """
    if identifier not in ("accuracy", "acc"):
        return get(identifier)
    cls: Any = next((_BY_LOSS[kind] for kind in _BY_LOSS if isinstance(loss, kind)), None)
    if cls is None:
        return MeanMetricWrapper(accuracy_by_shape, name=identifier)
    logits = cls is BinaryAccuracy and loss.from_logits
    return cls(name=identifier, **({"threshold": 0.0} if logits else {}))


if not TYPE_CHECKING:  # so that checkers of types refuse other names as well
    __getattr__, __dir__ = members(__name__, __all__)
