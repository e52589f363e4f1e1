"""Losses: how far predictions are from targets, one number per example, then the mean.

Each is a class, whose objects are called with ``(y_true, y_pred, sample_weight=None)``, and a
function ``(y_true, y_pred)`` that returns the numbers of the examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eagerflow.nn.configured import from_config, snake_case
from eagerflow.nn.losses.circle import Circle, circle
from eagerflow.nn.losses.ctc import CTC, ctc
from eagerflow.nn.losses.focal import (
    BinaryFocalCrossentropy,
    CategoricalFocalCrossentropy,
    binary_focal_crossentropy,
    categorical_focal_crossentropy,
)
from eagerflow.nn.losses.hinge import (
    CategoricalHinge,
    Hinge,
    SquaredHinge,
    categorical_hinge,
    hinge,
    squared_hinge,
)
from eagerflow.nn.losses.loss import Loss
from eagerflow.nn.losses.overlap import Dice, Tversky, dice, tversky
from eagerflow.nn.losses.probabilistic import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalGeneralizedCrossEntropy,
    KLDivergence,
    Poisson,
    SparseCategoricalCrossentropy,
    binary_crossentropy,
    categorical_crossentropy,
    categorical_generalized_cross_entropy,
    crossentropy,
    kl_divergence,
    poisson,
    sparse_categorical_crossentropy,
)
from eagerflow.nn.losses.regression import (
    CosineSimilarity,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    cosine_similarity,
    huber,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)
from eagerflow.ops.other_names import members

__all__ = [
    "BinaryCrossentropy",
    "BinaryFocalCrossentropy",
    "CTC",
    "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy",
    "CategoricalGeneralizedCrossEntropy",
    "CategoricalHinge",
    "Circle",
    "CosineSimilarity",
    "Dice",
    "Hinge",
    "Huber",
    "KLDivergence",
    "LogCosh",
    "Loss",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Poisson",
    "SparseCategoricalCrossentropy",
    "SquaredHinge",
    "Tversky",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_generalized_cross_entropy",
    "categorical_hinge",
    "circle",
    "cosine_similarity",
    "ctc",
    "dice",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "poisson",
    "sparse_categorical_crossentropy",
    "squared_hinge",
    "tversky",
]


class _UserLoss(Loss):
    """A user's function of ``(y_true, y_pred)`` as a loss."""

    def __init__(self, function: Any) -> None:
        super().__init__(name=getattr(function, "__name__", "loss"))
        self.call = function  # type: ignore[method-assign]


_ALIASES: dict[str, Any] = {
    "bce": BinaryCrossentropy,
    "ce": crossentropy,
    "crossentropy": crossentropy,
    "kld": KLDivergence,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "mse": MeanSquaredError,
    "msle": MeanSquaredLogarithmicError,
}
_CLASSES = [globals()[name] for name in __all__ if name[0].isupper() and name != "Loss"]
_TABLE = {snake_case(cls.__name__): cls for cls in _CLASSES} | _ALIASES


def get(identifier: Any) -> Any:
    """Return the loss for a name, a configuration, a loss or a function.

    >>> ef.nn.losses.get("mse")
    <MeanSquaredError: sum_over_batch_size>
    """
    found = from_config("loss", identifier, _TABLE, callable)
    return found if isinstance(found, Loss) else _UserLoss(found)


if not TYPE_CHECKING:  # so that checkers of types refuse other names as well
    __getattr__, __dir__ = members(__name__, __all__)
