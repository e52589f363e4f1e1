"""Common parts of all losses of ``ef``: broadcasting, and reduction to one number."""

from __future__ import annotations

from typing import Any, NoReturn

from eagerflow.display import summary
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.ops.elementwise.powers import divide_no_nan
from eagerflow.ops.operands import wide
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import sum
from eagerflow.spec import broadcast

__all__ = [
    "check_broadcast",
    "check_same",
    "reduced",
    "weighted_mean",
]

_REDUCTIONS = ("mean", "sum", "none")


def check_same(x: Any, target: Any, argument: str = "target") -> None:
    """Raise ShapeError unless there is one target for each number, or one for all."""
    if target.ndim and x.shape != target.shape:
        _refuse(x, target, argument)


def check_broadcast(x: Any, target: Any, argument: str = "target") -> None:
    """Raise ShapeError unless the targets, broadcast, have the shape of the numbers."""
    if target.ndim and broadcast(x.shape, target.shape) != x.shape:
        _refuse(x, target, argument)


def _refuse(x: Any, target: Any, argument: str) -> NoReturn:
    raise ShapeError(
        "there is not one for each number",
        argument=argument,
        received=f"{summary(target)} for {summary(x)}",
        expected=f"shape {tuple(x.shape)}",
    )


def reduced(values: Any, reduction: str, weight: Any = None) -> Any:
    """All losses, their sum, or their mean: the sum over that of ``weight``, if there is one.

    Raises ArgumentError for another ``reduction``.
    """
    if reduction not in _REDUCTIONS:
        raise ArgumentError(
            f"{reduction!r} is not a reduction",
            argument="reduction",
            expected="'mean', 'sum' or 'none'",
        )
    if reduction == "none":
        return values
    if reduction == "sum":
        return sum(values)
    return mean(values) if weight is None else weighted_mean(values, weight)


def weighted_mean(values: Any, weight: Any) -> Any:
    """The sum of values over that of a weight, 0 if that is 0; sums need not fit into float16.

    The values have their weights as factors already.
    """
    return wide(lambda x, w: divide_no_nan(sum(x), sum(w)), values, weight)
