"""Learning rates that change from step to step; called with the step, they give the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes
from eagerflow.tensor import Tensor

__all__ = ["CosineDecay", "ExponentialDecay", "PiecewiseConstantDecay", "Schedule", "get"]


class Schedule(Configured):
    """Base of schedules: called with the number of the step, they give the learning rate.

    >>> class Halving(ef.nn.schedules.Schedule):
    ...     def __call__(self, step):
    ...         return 0.5 ** step
    >>> Halving()(ef.tensor(2.0))
    Tensor(0.25, float32, cpu:0)
    """

    def __call__(self, step: TensorLike) -> Tensor:
        """The learning rate of this step."""
        raise ArgumentError("the class has no __call__", op=type(self).__name__)


def _number(step: TensorLike) -> Any:
    return as_tensor(step).astype("float32")


class ExponentialDecay(Schedule):
    """``initial_learning_rate * decay_rate ** (step / decay_steps)``.

    With ``staircase`` the rate stays the same for ``decay_steps`` steps.

    >>> ef.nn.schedules.ExponentialDecay(1.0, 10, 0.5)(10)
    Tensor(0.5, float32, cpu:0)
    """

    initial_learning_rate: float
    decay_steps: int
    decay_rate: float
    staircase: bool

    @arguments
    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        part = _number(step) / float(self.decay_steps)
        if self.staircase:
            part = ops.floor(part)
        return ops.exp(part * math.log(self.decay_rate)) * self.initial_learning_rate


class CosineDecay(Schedule):
    """From ``initial_learning_rate`` along half a cosine to ``alpha`` of it.

    Source: Loshchilov and Hutter, "SGDR", 2017. With ``warmup_steps`` the rate first rises
    linearly from the initial one to ``warmup_target``, from where it then falls.

    >>> ef.nn.schedules.CosineDecay(1.0, 10)(10)
    Tensor(0., float32, cpu:0)
    """

    initial_learning_rate: float
    decay_steps: int
    alpha: float
    warmup_target: float | None
    warmup_steps: int

    @arguments
    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        alpha: float = 0.0,
        warmup_target: float | None = None,
        warmup_steps: int = 0,
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        initial, warmup = self.initial_learning_rate, float(self.warmup_steps)
        target = initial if self.warmup_target is None else self.warmup_target
        at = _number(step)
        done = ops.minimum(ops.maximum(at - warmup, 0.0) / float(self.decay_steps), 1.0)
        cosine = (ops.cos(done * math.pi) + 1.0) * 0.5
        rate = (cosine * (1.0 - self.alpha) + self.alpha) * target
        if not warmup:
            return rate
        return ops.where(at < warmup, at / warmup * (target - initial) + initial, rate)


Numbers = Annotated[Sequence[float], list]


class PiecewiseConstantDecay(Schedule):
    """``values[0]`` up to step ``boundaries[0]``, then ``values[1]``, and so on.

    Raises ArgumentError unless there is one value more than there are boundaries.

    >>> rate = ef.nn.schedules.PiecewiseConstantDecay([10], [1.0, 0.5])
    >>> float(rate(10)), float(rate(11))
    (1.0, 0.5)
    """

    boundaries: list[float]
    values: list[float]

    @arguments
    def __init__(self, boundaries: Numbers, values: Numbers) -> None:
        if len(self.values) != len(self.boundaries) + 1:
            raise ArgumentError(
                f"{len(self.values)} values for {len(self.boundaries)} boundaries",
                op=type(self).__name__,
                argument="values",
                expected="one value more",
            )

    def __call__(self, step: TensorLike) -> Tensor:
        at = _number(step)
        rate = at * 0.0 + self.values[0]
        for boundary, value in zip(self.boundaries, self.values[1:], strict=True):
            rate = ops.where(at > float(boundary), value, rate)
        return rate


_TABLE = named_classes(Schedule)


def get(identifier: Any) -> Any:
    """The schedule that a configuration or a schedule stands for.

    >>> rate = ef.nn.schedules.ExponentialDecay(1.0, 10, 0.5)
    >>> config = {"class_name": "ExponentialDecay", "config": rate.get_config()}
    >>> ef.nn.schedules.get(config)(10)
    Tensor(0.5, float32, cpu:0)
    """
    return from_config("schedule", identifier, _TABLE, lambda x: isinstance(x, Schedule))
