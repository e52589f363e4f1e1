"""Learning rates that change from step to step; called with the step, they give the rate."""

from __future__ import annotations

import math
from typing import Any

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.nn.hints import TensorLike
from eagerflow.nn.lookup import Configured, from_config

__all__ = ["CosineDecay", "ExponentialDecay", "PiecewiseConstantDecay", "Schedule", "get"]


class Schedule(Configured):
    """Base of schedules: called with the number of the step, they give the learning rate.

    >>> class Halving(ef.nn.schedules.Schedule):
    ...     def __call__(self, step):
    ...         return 0.5 ** step
    >>> Halving()(ef.tensor(2.0))
    Tensor(0.25, float32, cpu:0)
    """

    def __call__(self, step: TensorLike) -> Any:
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

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
    ) -> None:
        self.initial, self.steps, self.rate = initial_learning_rate, decay_steps, decay_rate
        self.staircase = staircase

    def __call__(self, step: TensorLike) -> Any:
        part = _number(step) / float(self.steps)
        if self.staircase:
            part = ops.floor(part)
        return ops.exp(part * math.log(self.rate)) * self.initial


class CosineDecay(Schedule):
    """From ``initial_learning_rate`` along half a cosine to ``alpha`` of it.

    Source: Loshchilov and Hutter, "SGDR", 2017. With ``warmup_steps`` the rate first rises
    linearly from the initial one to ``warmup_target``, from where it then falls.

    >>> ef.nn.schedules.CosineDecay(1.0, 10)(10)
    Tensor(0., float32, cpu:0)
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        alpha: float = 0.0,
        warmup_target: float | None = None,
        warmup_steps: int = 0,
    ) -> None:
        self.initial, self.steps, self.alpha = initial_learning_rate, decay_steps, alpha
        self.target = initial_learning_rate if warmup_target is None else warmup_target
        self.warmup = warmup_steps

    def __call__(self, step: TensorLike) -> Any:
        at = _number(step)
        done = ops.minimum(ops.maximum(at - float(self.warmup), 0.0) / float(self.steps), 1.0)
        cosine = (ops.cos(done * math.pi) + 1.0) * 0.5
        rate = (cosine * (1.0 - self.alpha) + self.alpha) * self.target
        if not self.warmup:
            return rate
        rising = at / float(self.warmup) * (self.target - self.initial) + self.initial
        return ops.where(at < float(self.warmup), rising, rate)


class PiecewiseConstantDecay(Schedule):
    """``values[0]`` up to step ``boundaries[0]``, then ``values[1]``, and so on.

    Raises ArgumentError unless there is one value more than there are boundaries.

    >>> rate = ef.nn.schedules.PiecewiseConstantDecay([10], [1.0, 0.5])
    >>> float(rate(10)), float(rate(11))
    (1.0, 0.5)
    """

    def __init__(self, boundaries: Any, values: Any) -> None:
        self.boundaries, self.values = list(boundaries), list(values)
        if len(self.values) != len(self.boundaries) + 1:
            raise ArgumentError(
                f"{len(self.values)} values for {len(self.boundaries)} boundaries",
                op=type(self).__name__,
                argument="values",
                expected="one value more",
            )

    def __call__(self, step: TensorLike) -> Any:
        at = _number(step)
        rate = at * 0.0 + self.values[0]
        for boundary, value in zip(self.boundaries, self.values[1:], strict=True):
            rate = ops.where(at > float(boundary), value, rate)
        return rate


_TABLE = {
    "cosine_decay": CosineDecay,
    "exponential_decay": ExponentialDecay,
    "piecewise_constant_decay": PiecewiseConstantDecay,
}


def get(identifier: Any) -> Any:
    """The schedule that a configuration or a schedule stands for.

    >>> rate = ef.nn.schedules.ExponentialDecay(1.0, 10, 0.5)
    >>> config = {"class_name": "ExponentialDecay", "config": rate.get_config()}
    >>> ef.nn.schedules.get(config)(10)
    Tensor(0.5, float32, cpu:0)
    """
    return from_config("schedule", identifier, _TABLE, lambda x: isinstance(x, Schedule))
