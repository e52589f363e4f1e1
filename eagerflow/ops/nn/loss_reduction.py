"""Common parts of all losses of ``ef``: broadcasting, reduction to one number, and samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from eagerflow.display import summary
from eagerflow.dtypes import FLOATS, DType
from eagerflow.errors import ArgumentError, ShapeError
from eagerflow.op import ErrorSample, Sample
from eagerflow.ops.elementwise.powers import divide_no_nan
from eagerflow.ops.operands import wide
from eagerflow.ops.reductions.statistics import mean
from eagerflow.ops.reductions.sums import sum
from eagerflow.ops.samples import each, make
from eagerflow.spec import broadcast

__all__ = [
    "check_broadcast",
    "check_same",
    "loss_facts",
    "reduced",
    "reduced_reference",
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


# For tests ----------------------------------------------------------------------------------------


def reduced_reference(values: Any, reduction: str) -> Any:
    """The result of ``reduced`` on a NumPy array."""
    return values if reduction == "none" else getattr(values, reduction)()


Range = tuple[float, float]
_SHAPES: tuple[tuple[int, ...], ...] = ((5,), (2, 3), (), (3, 1, 4), (1,))


def loss_facts(function: Callable[..., float], *ranges: Range, **attributes: Any) -> dict[str, Any]:
    """Facts of a loss that is a ``function`` of the elements of arrays with values in ``ranges``.

    In some samples it has the ``attributes``.
    """
    count = len(ranges)

    def samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
        found = []
        for shape in _SHAPES:
            for reduction in _REDUCTIONS[: 3 if len(shape) == 2 else 1]:
                args = tuple(make(rng, dtype, shape, *ends) for ends in ranges)
                more = attributes if len(shape) < 3 else {}
                found.append(Sample(args, {"reduction": reduction, **more}))
        wide = [make(rng, dtype, (4, 6), *ends) for ends in ranges]
        found.append(Sample(tuple(x[::2, ::-1] for x in wide), {"reduction": "none"}))
        found.append(Sample(tuple(x[:0] for x in wide), {"reduction": "sum"}))
        return found

    def reference(*args: Any, reduction: str, **more: Any) -> Any:
        wide = (x.astype(complex if x.dtype.kind == "c" else float) for x in args)
        values = each(function)(*wide, **more)
        return reduced_reference(values, reduction)

    def errors(rng: np.random.Generator) -> list[ErrorSample]:
        ones = np.ones(2)
        found = [
            ErrorSample((ones,) * count, {"reduction": "all"}, ArgumentError, "not a reduction")
        ]
        odd = (np.ones((2, 1)), *(ones,) * (count - 1))
        return [*found, ErrorSample(odd, {}, ShapeError, "not one for each number")]

    return {"samples": samples, "reference": reference, "errors": errors, "dtypes": FLOATS}
