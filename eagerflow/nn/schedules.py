"""Learning rate schedules: called with the step, they return the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from eagerflow import ops
from eagerflow.convert import as_tensor
from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import Float, TensorLike, number
from eagerflow.nn.configured import Configured, arguments, from_config, named_classes
from eagerflow.ops.absent import explain
from eagerflow.ops.other_names import table
from eagerflow.tensor import Tensor

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "LinearWarmup",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "Schedule",
    "get",
]

Steps = Annotated[float, number(lambda x: x > 0, "not a number of steps", "a positive number")]


class Schedule(Configured):
    """Base of schedules: called with the number of the step, they return the learning rate.

    >>> class Halving(ef.nn.schedules.Schedule):
    ...     def __call__(self, step):
    ...         return 0.5 ** step
    >>> Halving()(ef.tensor(2.0))
    Tensor(0.25, float32, cpu:0)
    """

    name: str

    def __call__(self, step: TensorLike) -> Tensor:
        """The learning rate of this step."""
        raise ArgumentError("the class does not define __call__", op=type(self).__name__)


LearningRateSchedule = Schedule  # its name in Keras


def _number(step: TensorLike) -> Any:
    return as_tensor(step).astype("float32")


class DecayOptions(TypedDict, total=False):
    """The arguments that schedules which decay by a rate take last."""

    staircase: bool
    name: str


class _RateDecay(Schedule):
    """Base of schedules that decay by ``decay_rate`` in ``decay_steps``."""

    initial_learning_rate: float
    decay_steps: float
    decay_rate: float
    staircase: bool

    @arguments
    def __init__(
        self,
        initial_learning_rate: Float,
        decay_steps: Steps,
        decay_rate: Float,
        staircase: Annotated[bool, bool] = False,
        name: str = "Decay",
    ) -> None: ...

    def _part(self, step: TensorLike) -> Any:
        """The number of completed multiples of ``decay_steps``."""
        part = _number(step) / self.decay_steps
        return ops.floor(part) if self.staircase else part


class ExponentialDecay(_RateDecay):
    """``initial_learning_rate * decay_rate ** (step / decay_steps)``.

    With ``staircase`` the rate stays the same for ``decay_steps`` steps.

    >>> ef.nn.schedules.ExponentialDecay(1.0, 10, 0.5)(10)
    Tensor(0.5, float32, cpu:0)
    """

    @arguments
    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        decay_rate: float,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        return ops.power(self.decay_rate, self._part(step)) * self.initial_learning_rate


class InverseTimeDecay(_RateDecay):
    """``initial_learning_rate / (1 + decay_rate * step / decay_steps)``.

    With ``staircase`` the rate stays the same for ``decay_steps`` steps.

    >>> ef.nn.schedules.InverseTimeDecay(1.0, 10, 3.0)(10)
    Tensor(0.25, float32, cpu:0)
    """

    @arguments
    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: float,
        decay_rate: float,
        staircase: bool = False,
        name: str = "InverseTimeDecay",
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        rate: Tensor = self.initial_learning_rate / (self._part(step) * self.decay_rate + 1.0)
        return rate


class PolynomialDecay(Schedule):
    """From ``initial_learning_rate`` to ``end_learning_rate`` in ``decay_steps``.

    The remaining decay is the fraction of remaining steps, to the ``power``. With ``cycle`` the
    rate rises again, and reaches its end at the next multiple of ``decay_steps``.

    >>> rate = ef.nn.schedules.PolynomialDecay(1.0, 10, 0.0, power=2.0)
    >>> rate(5)
    Tensor(0.25, float32, cpu:0)
    """

    initial_learning_rate: float
    decay_steps: float
    end_learning_rate: float
    power: float
    cycle: bool

    @arguments
    def __init__(
        self,
        initial_learning_rate: Float,
        decay_steps: Steps,
        end_learning_rate: Float = 0.0001,
        power: Float = 1.0,
        cycle: Annotated[bool, bool] = False,
        name: str = "PolynomialDecay",
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        done = _number(step) / self.decay_steps
        if self.cycle:
            done = done / ops.maximum(ops.ceil(done), 1.0)
        left: Any = ops.power(1.0 - ops.minimum(done, 1.0), self.power)
        way = self.initial_learning_rate - self.end_learning_rate
        rate: Tensor = left * way + self.end_learning_rate
        return rate


class CosineDecay(Schedule):
    """From ``initial_learning_rate`` along half a cosine to ``alpha`` of it.

    Source: Loshchilov and Hutter, "SGDR", 2017. With a ``warmup_target`` the rate first rises to it
    linearly, in ``warmup_steps``, and then falls from there.

    >>> ef.nn.schedules.CosineDecay(1.0, 10)(10)
    Tensor(0., float32, cpu:0)
    """

    initial_learning_rate: float
    decay_steps: float
    alpha: float
    warmup_target: float | None
    warmup_steps: float

    @arguments
    def __init__(
        self,
        initial_learning_rate: Float,
        decay_steps: Steps,
        alpha: Float = 0.0,
        name: str = "CosineDecay",
        warmup_target: Float | None = None,
        warmup_steps: Float = 0,
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        initial, target, at = self.initial_learning_rate, self.warmup_target, _number(step)
        if target is None or not self.warmup_steps:
            return self._decayed(at, initial if target is None else target)
        rising = at / self.warmup_steps * (target - initial) + initial
        falling = self._decayed(at - self.warmup_steps, target)
        return ops.where(at < self.warmup_steps, rising, falling)

    def _decayed(self, at: Any, highest: float) -> Tensor:
        done = ops.minimum(ops.maximum(at, 0.0) / self.decay_steps, 1.0)
        cosine = (ops.cos(done * math.pi) + 1.0) * 0.5
        rate: Tensor = (cosine * (1.0 - self.alpha) + self.alpha) * highest
        return rate


class CosineDecayRestarts(Schedule):
    """Half cosines one after the other; Loshchilov and Hutter, "SGDR", 2017.

    The first one leads from ``initial_learning_rate`` to ``alpha`` of it in ``first_decay_steps``;
    each further one is ``t_mul`` times as long and begins at ``m_mul`` times the height.

    >>> rate = ef.nn.schedules.CosineDecayRestarts(1.0, 10, m_mul=0.5)
    >>> float(rate(0)), float(rate(10)), float(rate(30))
    (1.0, 0.5, 0.25)
    """

    initial_learning_rate: float
    first_decay_steps: float
    t_mul: float
    m_mul: float
    alpha: float

    @arguments
    def __init__(
        self,
        initial_learning_rate: Float,
        first_decay_steps: Steps,
        t_mul: Float = 2.0,
        m_mul: Float = 1.0,
        alpha: Float = 0.0,
        name: str = "SGDRDecay",
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        passed = _number(step) / self.first_decay_steps
        if self.t_mul == 1.0:
            restarts = ops.floor(passed)
            done = passed - restarts
        else:
            whole = ops.log2(passed * (self.t_mul - 1.0) + 1.0) / math.log2(self.t_mul)
            restarts = ops.floor(whole)
            length = ops.power(self.t_mul, restarts)
            done = (passed - (1.0 - length) / (1.0 - self.t_mul)) / length
        height = ops.power(self.m_mul, restarts)
        cosine = height * (ops.cos(done * math.pi) + 1.0) * 0.5
        return (cosine * (1.0 - self.alpha) + self.alpha) * self.initial_learning_rate


Numbers = Annotated[Sequence[float], list]


class PiecewiseConstantDecay(Schedule):
    """``values[0]`` up to step ``boundaries[0]``, then ``values[1]``, and so on.

    Raises ArgumentError unless there is one more value than boundaries.

    >>> rate = ef.nn.schedules.PiecewiseConstantDecay([10], [1.0, 0.5])
    >>> float(rate(10)), float(rate(11))
    (1.0, 0.5)
    """

    boundaries: list[float]
    values: list[float]

    @arguments
    def __init__(
        self, boundaries: Numbers, values: Numbers, name: str = "PiecewiseConstant"
    ) -> None:
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


class LinearWarmup(Schedule):
    """Warm-up from ``initial_learning_rate`` to the start of ``schedule``, then that schedule.

    The rate rises linearly during ``warmup_steps``; the step after these is the schedule's first.
    ``schedule`` may be a number: then the rate stays there.

    >>> decay = ef.nn.schedules.ExponentialDecay(1.0, 10, 0.5)
    >>> rate = ef.nn.schedules.LinearWarmup(decay, 4)
    >>> float(rate(1)), float(rate(4)), float(rate(14))
    (0.25, 1.0, 0.5)
    """

    schedule: Schedule | float
    warmup_steps: float
    initial_learning_rate: float

    @arguments
    def __init__(
        self,
        schedule: Annotated[Schedule | float, lambda given: _schedule_or_number(given)],
        warmup_steps: Steps,
        initial_learning_rate: Float = 0.0,
        name: str = "LinearWarmup",
    ) -> None: ...

    def __call__(self, step: TensorLike) -> Tensor:
        at = _number(step)
        part = ops.minimum(at / self.warmup_steps, 1.0)
        after: Any = self.schedule
        if isinstance(after, Schedule):
            after = after(ops.maximum(at - self.warmup_steps, 0.0))
        rising = part * (after - self.initial_learning_rate) + self.initial_learning_rate
        return ops.where(part < 1.0, rising, after)


def _schedule_or_number(given: Any) -> Any:
    return float(given) if isinstance(given, int | float) else get(given)


_TABLE = named_classes(Schedule)


def get(identifier: Any) -> Any:
    """The schedule for a configuration or a schedule.

    >>> rate = ef.nn.schedules.ExponentialDecay(1.0, 10, 0.5)
    >>> config = {"class_name": "ExponentialDecay", "config": rate.get_config()}
    >>> ef.nn.schedules.get(config)(10)
    Tensor(0.5, float32, cpu:0)
    """
    return from_config("schedule", identifier, _TABLE, lambda x: isinstance(x, Schedule))


explain(Schedule, table("Schedule"))
