"""Losses as metrics: the mean of a loss over all batches."""

from __future__ import annotations

from eagerflow.nn import losses
from eagerflow.nn.arguments import Float
from eagerflow.nn.configured import arguments
from eagerflow.nn.losses.loss import Precision
from eagerflow.nn.metrics.reduction import FunctionMetric

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "Hinge",
    "KLDivergence",
    "LogCoshError",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Poisson",
    "SparseCategoricalCrossentropy",
    "SquaredHinge",
]


class MeanSquaredError(FunctionMetric):
    """The mean of the squared differences.

    >>> ef.nn.metrics.MeanSquaredError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(2., float32, cpu:0)
    """

    function = staticmethod(losses.mean_squared_error)


class MeanAbsoluteError(FunctionMetric):
    """The mean of the absolute differences.

    >>> ef.nn.metrics.MeanAbsoluteError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(1., float32, cpu:0)
    """

    function = staticmethod(losses.mean_absolute_error)


class MeanAbsolutePercentageError(FunctionMetric):
    """The mean of the absolute differences, in percent of the targets.

    >>> ef.nn.metrics.MeanAbsolutePercentageError()([[2.0], [4.0]], [[1.0], [4.0]])
    Tensor(25., float32, cpu:0)
    """

    function = staticmethod(losses.mean_absolute_percentage_error)


class MeanSquaredLogarithmicError(FunctionMetric):
    """The mean of the squared differences of ``log(1 + y)``.

    >>> ef.nn.metrics.MeanSquaredLogarithmicError()([[0.0], [1.0]], [[0.0], [3.0]])
    Tensor(0.2402, float32, cpu:0)
    """

    function = staticmethod(losses.mean_squared_logarithmic_error)


class LogCoshError(FunctionMetric):
    """The mean of ``log(cosh(y_pred - y_true))``.

    >>> ef.nn.metrics.LogCoshError()([[0.0, 0.0]], [[0.0, 1.0]])
    Tensor(0.2169, float32, cpu:0)
    """

    function = staticmethod(losses.log_cosh)

    @arguments
    def __init__(self, name: str | None = "logcosh", dtype: Precision = None) -> None: ...


class Hinge(FunctionMetric):
    """The mean of ``max(1 - y_true * y_pred, 0)``, with targets -1 and 1, or 0 and 1.

    >>> ef.nn.metrics.Hinge()([[0.0], [1.0]], [[-2.0], [0.5]])
    Tensor(0.25, float32, cpu:0)
    """

    function = staticmethod(losses.hinge)


class SquaredHinge(FunctionMetric):
    """The mean of ``max(1 - y_true * y_pred, 0) ** 2``, with targets -1 and 1, or 0 and 1.

    >>> ef.nn.metrics.SquaredHinge()([[0.0], [1.0]], [[-2.0], [0.5]])
    Tensor(0.125, float32, cpu:0)
    """

    function = staticmethod(losses.squared_hinge)


class CategoricalHinge(FunctionMetric):
    """The mean distance of the right class to a margin of 1 over others.

    >>> ef.nn.metrics.CategoricalHinge()([[0.0, 1.0]], [[0.5, 1.0]])
    Tensor(0.5, float32, cpu:0)
    """

    function = staticmethod(losses.categorical_hinge)


class KLDivergence(FunctionMetric):
    """The mean of the sums of ``y_true * log(y_true / y_pred)``.

    >>> ef.nn.metrics.KLDivergence()([[0.5, 0.5]], [[0.25, 0.75]])
    Tensor(0.1438, float32, cpu:0)
    """

    function = staticmethod(losses.kl_divergence)


class Poisson(FunctionMetric):
    """The mean of ``y_pred - y_true * log(y_pred)``.

    >>> ef.nn.metrics.Poisson()([[1.0], [0.0]], [[1.0], [2.0]])
    Tensor(1.5, float32, cpu:0)
    """

    function = staticmethod(losses.poisson)


class BinaryCrossentropy(FunctionMetric):
    """The mean cross-entropy of yes-or-no predictions; arguments are those of the loss.

    >>> ef.nn.metrics.BinaryCrossentropy()([[1.0], [0.0]], [[0.5], [0.5]])
    Tensor(0.6931, float32, cpu:0)
    """

    function = staticmethod(losses.binary_crossentropy)
    from_logits: bool
    label_smoothing: float

    @arguments
    def __init__(
        self,
        name: str | None = None,
        dtype: Precision = None,
        from_logits: bool = False,
        label_smoothing: Float = 0.0,
    ) -> None: ...


class CategoricalCrossentropy(FunctionMetric):
    """The mean cross-entropy of one-hot targets; arguments are those of the loss.

    >>> ef.nn.metrics.CategoricalCrossentropy()([[0.0, 1.0]], [[0.5, 0.5]])
    Tensor(0.6931, float32, cpu:0)
    """

    function = staticmethod(losses.categorical_crossentropy)
    from_logits: bool
    label_smoothing: float
    axis: int

    @arguments
    def __init__(
        self,
        name: str | None = None,
        dtype: Precision = None,
        from_logits: bool = False,
        label_smoothing: Float = 0.0,
        axis: int = -1,
    ) -> None: ...


class SparseCategoricalCrossentropy(FunctionMetric):
    """The mean cross-entropy of class numbers; arguments are those of the loss.

    >>> ef.nn.metrics.SparseCategoricalCrossentropy()([1], [[0.5, 0.5]])
    Tensor(0.6931, float32, cpu:0)
    """

    function = staticmethod(losses.sparse_categorical_crossentropy)
    from_logits: bool
    ignore_class: int | None
    axis: int

    @arguments
    def __init__(
        self,
        name: str | None = None,
        dtype: Precision = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ) -> None: ...
