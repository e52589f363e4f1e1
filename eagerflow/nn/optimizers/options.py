"""The arguments of optimizers: types, checks, and those common to all optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypedDict

from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import TensorLike, is_count, number, require
from eagerflow.nn.module import Module
from eagerflow.nn.schedules import Schedule

__all__ = [
    "Beta",
    "CommonOptions",
    "LearningRate",
    "Limit",
    "Momentum",
    "OptimizerOptions",
    "rate_from",
    "steps",
]

LearningRate = float | Schedule | Callable[[], Any] | Mapping[str, Any]
"""A number, a schedule, a callable that returns the rate, or a schedule's configuration."""

_positive = number(lambda x: x > 0, "not a limit", "a positive number")
Limit = Annotated[float | None, lambda x: None if x is None else _positive(x)]
_from_0_to_1 = number(lambda x: 0 <= x <= 1, "not a momentum", "a number from 0 to 1")
Momentum = Annotated[float, _from_0_to_1]
Beta = Annotated[float, number(lambda x: 0 <= x < 1, "out of range", "a number from 0 to below 1")]


def steps(value: Any) -> int:
    """The check of the number of calls per step."""
    require(is_count(value, 2), value, "out of range", expected="an integer of at least 2, or None")
    return int(value)


class CommonOptions(TypedDict, total=False):
    """The arguments that every optimizer takes last."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None


class OptimizerOptions(CommonOptions, total=False):
    """The common arguments of optimizers besides the learning rate."""

    weight_decay: float | None


def rate_from(name: str, rate: TensorLike) -> Any:
    """A learning rate as a tensor; ArgumentError, which names the optimizer, for other values."""
    if isinstance(rate, list | tuple | Iterator | Module):
        raise ArgumentError(
            f"a {type(rate).__name__} is not a learning rate",
            op=name,
            argument="learning_rate",
            expected="a number of at least 0, or a schedule",
            hint="Adam(0.001), and then optimizer.apply(gradients, variables)",
        )
    text = isinstance(rate, str)
    value = as_tensor(-1.0 if text else rate, "float32")
    ok = not value.ndim and float(value) >= 0
    expected = "a number of at least 0, or a schedule"
    require(ok, rate, "not a learning rate", name, "learning_rate", expected)
    return value
