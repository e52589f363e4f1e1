"""Callbacks that look whether a number gets better, and end the training if not."""

from __future__ import annotations

import math
from typing import Annotated, Any

from eagerflow.errors import ArgumentError, EagerflowError
from eagerflow.nn.arguments import Float, choice, is_count, require
from eagerflow.nn.callbacks.base import Callback, Logs
from eagerflow.nn.configured import arguments
from eagerflow.variable import assign_together

__all__ = ["EarlyStopping", "Mode", "Monitor", "Patience", "TerminateOnNaN"]

Mode = Annotated[str, choice("not a mode", "auto", "min", "max")]
RISING = ("acc", "auc", "precision", "recall", "f1", "fbeta", "iou", "r2", "cosine", "positives")
FALLING = ("loss", "error", "mse", "mae", "mape", "msle", "rmse", "entropy", "divergence", "hinge")


def _count(value: Any) -> int:
    require(is_count(value, 0), value, "not a count", expected="an integer of at least 0")
    return int(value)


Patience = Annotated[int, _count]


class Monitor(Callback):
    """Base of callbacks that compare a number of ``logs`` with the best one so far.

    ``monitor`` names it. ``mode`` is ``"min"`` or ``"max"``; ``"auto"`` takes it from the
    ``direction`` of the model's metric, ``"up"`` or ``"down"``, or from the name. A change below
    ``min_delta`` is ignored. Raises ArgumentError if the direction is undetermined, and for a
    missing number.

    >>> monitor = ef.nn.callbacks.Monitor("loss")
    >>> monitor.is_better(0.5, than=0.7), monitor.is_better(0.5, than=None)
    (True, True)
    """

    monitor: str
    mode: str
    min_delta: float
    best: float | None = None

    @arguments
    def __init__(
        self, monitor: str = "val_loss", mode: Mode = "auto", min_delta: Float = 0.0
    ) -> None:
        self.min_delta = abs(self.min_delta)

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether a value is better than another one; each is better than None."""
        if than is None:
            return True
        return value - self.min_delta > than if self.rises() else value + self.min_delta < than

    def rises(self) -> bool:
        """Whether a larger number is a better one."""
        if self.mode != "auto":
            return self.mode == "max"
        name = self.monitor.removeprefix("val_")
        for metric in getattr(self.model, "metrics", ()):
            direction = getattr(metric, "direction", None)
            if metric.name == name and direction is not None:
                return bool(direction == "up")
        rising, falling = (any(part in name for part in parts) for parts in (RISING, FALLING))
        if rising == falling:
            raise ArgumentError(
                f"it is not known whether {self.monitor!r} should rise or fall",
                op=type(self).__name__,
                argument="mode",
                expected="'min' or 'max'",
            )
        return rising

    def value_in(self, logs: Logs) -> float | None:
        """The number in ``logs``; None in an epoch without validation that has none."""
        numbers = logs or {}
        if self.monitor in numbers:
            return float(numbers[self.monitor])
        seldom = self.params.get("validation_freq", 1) != 1
        if seldom and self.monitor.startswith("val_"):
            return None
        raise ArgumentError(
            f"there is no {self.monitor!r}",
            op=type(self).__name__,
            argument="monitor",
            expected="one of " + ", ".join(map(repr, numbers)),
            hint="validation_data or validation_split, for a number that starts with val_",
        )


class EarlyStopping(Monitor):
    """Stops the training when a number has not improved for ``patience`` epochs.

    ``monitor``, ``min_delta`` and ``mode`` are those of Monitor. With a ``baseline``, only better
    values count as an improvement. With ``restore_best_weights`` the weights of the best epoch are
    restored. The first ``start_from_epoch`` epochs are ignored. ``verbose=1`` prints each action.

    >>> ef.nn.callbacks.EarlyStopping("loss", patience=3).patience
    3
    """

    patience: int
    verbose: int
    baseline: float | None
    restore_best_weights: bool
    start_from_epoch: int

    @arguments
    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: Float = 0.0,
        patience: Patience = 0,
        verbose: int = 0,
        mode: Mode = "auto",
        baseline: Float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: Patience = 0,
    ) -> None:
        self.on_train_begin()

    def on_train_begin(self, logs: Logs = None) -> None:
        self.best: float | None = None
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best_weights: list[Any] | None = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        value = None if epoch < self.start_from_epoch else self.value_in(logs)
        if value is None:
            return
        self.wait += 1
        if self.is_better(value, self.best):
            self.best, self.best_epoch = value, epoch
            self._keep()
            if self.is_better(value, self.baseline):
                self.wait = 0
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True
        if self.best_weights is None:
            self._keep()

    def _keep(self) -> None:
        if self.restore_best_weights:
            # Tensors never change, so keeping them is a snapshot without a copy.
            self.best_weights = [w.value for w in self.model.weights]

    def on_train_end(self, logs: Logs = None) -> None:
        if self.stopped_epoch and self.verbose:
            print(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.best_weights is not None:
            if self.verbose:
                print(f"The weights are those of the best epoch, {self.best_epoch + 1}")
            assign_together(dict(zip(self.model.weights, self.best_weights, strict=True)))


class TerminateOnNaN(Callback):
    """Stops the training when the loss is not a finite number.

    ``raise_error`` raises EagerflowError, so that other callbacks do not take the training for
    ended.

    >>> ef.nn.callbacks.TerminateOnNaN(raise_error=True).on_train_batch_end(7, {"loss": np.nan})
    Traceback (most recent call last):
    ...
    eagerflow.errors.EagerflowError: TerminateOnNaN: the loss of batch 7 is nan
    """

    raise_error: bool

    @arguments
    def __init__(self, raise_error: bool = False) -> None: ...

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is None or math.isfinite(float(loss)):
            return
        words = f"the loss of batch {batch} is {float(loss)}"
        if self.raise_error:
            raise EagerflowError(words, op="TerminateOnNaN")
        print(f"TerminateOnNaN: {words}; the training ends")
        self.model.stop_training = True
