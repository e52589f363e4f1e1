"""Callbacks that change the learning rate between epochs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Real
from typing import Annotated, Any

import numpy as np

from eagerflow.errors import ArgumentError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import Float, number
from eagerflow.nn.callbacks.base import Callback, Logs
from eagerflow.nn.callbacks.monitors import Mode, Monitor, Patience
from eagerflow.nn.configured import arguments
from eagerflow.tensor import Operators

__all__ = ["LearningRateScheduler", "ReduceLROnPlateau"]


def learning_rate(model: Any) -> float:
    """The learning rate of a model's optimizer, now."""
    return float(np.asarray(model.optimizer.learning_rate))


class LearningRateScheduler(Callback):
    """Sets the learning rate of each epoch: ``schedule(epoch, rate)``, from the rate before.

    A function of the epoch only is accepted. Epochs are counted from 0. ``verbose=1`` prints the
    rate. ``logs`` get a ``learning_rate``. Raises ArgumentError if the schedule returns no number,
    or the optimizer has a schedule already.

    >>> halve = ef.nn.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    >>> halve.verbose
    0
    """

    schedule: Callable[..., Any]
    verbose: int
    _takes_epoch_alone = False

    @arguments
    def __init__(self, schedule: Callable[..., Any], verbose: int = 0) -> None:
        try:
            inspect.signature(schedule).bind(0, 0.0)
        except raised_here(TypeError):
            self._takes_epoch_alone = True
        except raised_here(ValueError):  # a C function without a signature
            pass

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        given = epoch, learning_rate(self.model)
        found = self.schedule(*given[: 1 if self._takes_epoch_alone else 2])
        if not isinstance(found, Real | Operators) or isinstance(found, bool):
            raise ArgumentError(
                f"the schedule gave {short_repr(found)}",
                op="LearningRateScheduler",
                argument="schedule",
                expected="a number",
            )
        rate = float(np.asarray(found))
        self.model.optimizer.learning_rate = rate
        if self.verbose:
            print(f"Epoch {epoch + 1}: the learning rate is {rate:g}")

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs["learning_rate"] = learning_rate(self.model)


class ReduceLROnPlateau(Monitor):
    """Multiplies the learning rate by ``factor`` when a number has not improved for a while.

    The while is ``patience`` epochs; after it, ``cooldown`` epochs are not counted. ``min_lr`` is
    the least rate. ``monitor``, ``mode`` and ``min_delta`` are those of Monitor, ``verbose=1``
    prints changes. ``logs`` get a ``learning_rate``. Raises ArgumentError for a factor of 1 or
    more.

    >>> ef.nn.callbacks.ReduceLROnPlateau("loss", factor=0.5).patience
    10
    """

    factor: float
    patience: int
    verbose: int
    cooldown: int
    min_lr: float

    @arguments
    def __init__(
        self,
        monitor: str = "val_loss",
        factor: Annotated[float, number(lambda x: 0 < x < 1, "not below 1")] = 0.1,
        patience: Patience = 10,
        verbose: int = 0,
        mode: Mode = "auto",
        min_delta: Float = 1e-4,
        cooldown: Patience = 0,
        min_lr: Float = 0.0,
    ) -> None:
        self.on_train_begin()

    def on_train_begin(self, logs: Logs = None) -> None:
        self.best: float | None = None
        self.wait = self.cooling = 0

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        rate = learning_rate(self.model)
        if logs is not None:
            logs["learning_rate"] = rate
        value = self.value_in(logs)
        if value is None:
            return
        if self.cooling:
            self.cooling -= 1
            self.wait = 0
        if self.is_better(value, self.best):
            self.best, self.wait = value, 0
        elif not self.cooling:
            self.wait += 1
            if self.wait >= self.patience and rate > np.float32(self.min_lr):
                self._reduce(epoch, rate)

    def _reduce(self, epoch: int, rate: float) -> None:
        rate = max(rate * self.factor, self.min_lr)
        self.model.optimizer.learning_rate = rate
        self.wait, self.cooling = 0, self.cooldown
        if self.verbose:
            print(f"Epoch {epoch + 1}: the learning rate becomes {rate:g}")
