"""The base of losses: from one number per example to the number that is minimized."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypedDict, Unpack

from eagerflow.dtypes import DType
from eagerflow.errors import ArgumentError
from eagerflow.nn import policy
from eagerflow.nn.arguments import TensorLike, choice
from eagerflow.nn.configured import Configured, arguments, snake_case
from eagerflow.nn.losses.alignment import in_precision, refuse_integers, tensors, weight_for
from eagerflow.nn.masks import mask_of
from eagerflow.ops.nn.loss_reduction import weighted_mean
from eagerflow.tensor import Tensor

__all__ = [
    "FunctionLoss",
    "Loss",
    "LossOptions",
    "Precision",
    "Reduction",
    "last_mean",
    "options_in",
]

_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")
Reduction = Annotated[str | None, choice("not a reduction", *_MEANS, "sum", "none", None)]
"""How the numbers of the examples become one."""


def _precision(dtype: Any) -> DType:
    return policy.get(dtype).compute_dtype


Precision = Annotated[Any, lambda dtype: None if dtype is None else _precision(dtype)]
"""The dtype of the computation, or a policy with one; None: the predictions', at least float32."""


class LossOptions(TypedDict, total=False):
    """The arguments that every loss takes, for the signatures of its subclasses."""

    reduction: Reduction
    name: str | None
    dtype: Precision


class Loss(Configured):
    """Base of losses: a subclass defines ``call(y_true, y_pred)``, one number per example.

    The object is called with ``(y_true, y_pred, sample_weight=None)``. ``reduction`` is
    ``"sum_over_batch_size"`` or ``"mean"`` (the mean over all numbers),
    ``"mean_with_sample_weight"`` (divided by the sum of the weights), ``"sum"`` or ``"none"``.
    Masked predictions are not counted. ``dtype`` is that of the computation: None is that of the
    predictions, and float32 for half precision.

    >>> class Distance(ef.nn.losses.Loss):
    ...     def call(self, y_true, y_pred):
    ...         return ef.abs(y_true - y_pred)
    >>> Distance()(ef.tensor([1.0, 2.0]), ef.tensor([1.0, 5.0]))
    Tensor(1.5, float32, cpu:0)
    """

    of_probabilities = False  # whether targets and predictions of one shape have different meanings

    reduction: str | None
    name: str
    dtype: DType | None

    @arguments
    def __init__(
        self,
        reduction: Reduction = "sum_over_batch_size",
        name: str | None = None,
        dtype: Precision = None,
    ) -> None:
        self.name = name or snake_case(type(self).__name__)

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        """The loss of each example; every subclass has its own."""
        raise ArgumentError("the class does not define call", op=type(self).__name__)

    def __call__(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike = None
    ) -> Tensor:
        if self.of_probabilities:
            refuse_integers(self.name, y_true, y_pred)
        values: Any = self.call(tensors(y_true), in_precision(y_pred, self.dtype))
        kept = _mask(values, y_pred, self.name)
        weight: Any = kept
        if sample_weight is not None:
            weight = weight_for(values, sample_weight, self.name)
            weight = weight if kept is None else weight * kept
        if weight is not None:
            values = values * weight
        if self.reduction in ("none", None):
            return values
        if self.reduction == "sum":
            return values.sum()
        number = weight if self.reduction == "mean_with_sample_weight" else kept
        return values.mean() if number is None else weighted_mean(values, number)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.reduction}>"


def _mask(values: Tensor, y_pred: Any, name: str) -> Tensor | None:
    """1 for each valid number, 0 for masked ones: by masks of predictions and of values."""
    masks = [mask for mask in (mask_of(x) for x in (y_pred, values)) if mask is not None]
    found: list[Any] = [weight_for(values, mask, name, "mask") for mask in masks]
    return found[0] * found[1] if len(found) == 2 else found[0] if found else None


class FunctionLoss(Loss):
    """A loss by a function; its parameters besides targets and predictions are attributes."""

    function: Callable[..., Tensor]

    @arguments
    def __init__(self, **options: Unpack[LossOptions]) -> None:
        self._options = options_in(type(self), self.function)

    def call(self, y_true: Any, y_pred: Any) -> Tensor:
        return self.function(
            y_true, y_pred, **{name: getattr(self, name) for name in self._options}
        )


def options_in(cls: Any, function: Callable[..., Any]) -> tuple[str, ...]:
    """The arguments of a function of targets and predictions that a class's constructor has too."""
    own = inspect.signature(cls.__init__).parameters
    return tuple(name for name in inspect.signature(function).parameters if name in own)


def last_mean(values: Tensor, axis: int = -1) -> Tensor:
    """The mean along an axis, or the number itself."""
    return values.mean(axis=axis) if values.ndim else values
