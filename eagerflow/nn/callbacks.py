"""Callbacks: what happens between the steps and epochs of ``fit``."""

from __future__ import annotations

import math
from typing import Any

from eagerflow.errors import ArgumentError
from eagerflow.nn.arguments import require
from eagerflow.variable import assign_together

__all__ = ["Callback", "EarlyStopping", "History", "LambdaCallback"]

Logs = dict[str, float] | None
"""Numbers by name: ``loss``, the metrics, and their ``val_`` forms."""


class Callback:
    """Base of callbacks: ``fit`` calls the methods; ``model`` and ``params`` are set before.

    ``logs`` is a dict of numbers: ``loss``, the metrics, and their ``val_`` forms.

    >>> class Shout(ef.nn.callbacks.Callback):
    ...     def on_epoch_end(self, epoch, logs=None):
    ...         print(f"EPOCH {epoch}!")
    >>> Shout().on_epoch_end(0)
    EPOCH 0!
    """

    model: Any = None
    params: dict[str, Any]

    def on_train_begin(self, logs: Logs = None) -> None:
        """Called before the first epoch."""

    def on_train_end(self, logs: Logs = None) -> None:
        """Called after the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Called before each epoch."""

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Called after each epoch, validation included."""

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before each step."""

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after each step."""

    def on_test_begin(self, logs: Logs = None) -> None:
        """Called before an evaluation, also that of validation data."""

    def on_test_end(self, logs: Logs = None) -> None:
        """Called after an evaluation."""

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before each step of an evaluation."""

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after each step of an evaluation."""

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Called before predictions."""

    def on_predict_end(self, logs: Logs = None) -> None:
        """Called after predictions."""

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before the predictions of a batch."""

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after the predictions of a batch, which are ``logs["outputs"]``."""


class History(Callback):
    """What ``fit`` returns: the numbers of each epoch, in ``history`` by name.

    >>> history = ef.nn.callbacks.History()
    >>> history.on_epoch_end(0, {"loss": 1.5})
    >>> history.history, history.epoch
    ({'loss': [1.5]}, [0])
    """

    def __init__(self) -> None:
        self.history: dict[str, list[float]] = {}
        self.epoch: list[int] = []

    def on_train_begin(self, logs: Logs = None) -> None:
        self.history.clear()
        self.epoch.clear()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.epoch.append(epoch)
        for key, value in (logs or {}).items():
            self.history.setdefault(key, []).append(float(value))

    def __repr__(self) -> str:
        last = ", ".join(f"{key} {values[-1]:.4g}" for key, values in self.history.items())
        return f"<History: {len(self.epoch)} epochs{': ' + last if last else ''}>"


class EarlyStopping(Callback):
    """Stops the training when a number has not improved for ``patience`` epochs.

    ``monitor`` names it, ``min_delta`` is the least change that counts, ``mode`` is ``"min"``,
    ``"max"`` or ``"auto"`` (``"max"`` for accuracies). With ``restore_best_weights`` the model
    gets back its weights of the best epoch. ``start_from_epoch`` epochs are not looked at.
    Raises ArgumentError for another mode, or a number that is not there.

    >>> ef.nn.callbacks.EarlyStopping("loss", patience=3).patience
    3
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0.0,
        patience: int = 0,
        mode: str = "auto",
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        known = mode in ("auto", "min", "max")
        require(known, mode, "not a mode", "EarlyStopping", "mode", "'auto', 'min' or 'max'")
        self.monitor, self.min_delta, self.patience = monitor, abs(min_delta), patience
        rising = mode == "max" or (mode == "auto" and ("acc" in monitor or "auc" in monitor))
        self.sign = -1.0 if rising else 1.0
        self.restore_best_weights, self.start_from_epoch = restore_best_weights, start_from_epoch
        self._reset()

    def _reset(self) -> None:
        self.best = math.inf
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best_weights: list[Any] | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self._reset()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if epoch < self.start_from_epoch:
            return
        numbers = logs or {}
        if self.monitor not in numbers:
            raise ArgumentError(
                f"there is no {self.monitor!r}",
                op="EarlyStopping",
                argument="monitor",
                expected="one of " + ", ".join(map(repr, numbers)),
                hint="validation_data or validation_split, for a number that starts with val_",
            )
        value = self.sign * float(numbers[self.monitor])
        if value < self.best - self.min_delta:
            self.best, self.best_epoch, self.wait = value, epoch, 0
            if self.restore_best_weights:
                # Tensors never change, so keeping them is a snapshot without a copy.
                self.best_weights = [w.value for w in self.model.weights]
            return
        self.wait += 1
        if self.wait >= max(self.patience, 1):
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs = None) -> None:
        if self.best_weights is not None:
            assign_together(dict(zip(self.model.weights, self.best_weights, strict=True)))


class LambdaCallback(Callback):
    """A callback from functions, given by the names of the methods.

    >>> lines = []
    >>> log = ef.nn.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: lines.append(epoch))
    >>> log.on_epoch_end(0, {})
    >>> lines
    [0]
    """

    def __init__(self, **functions: Any) -> None:
        for name, function in functions.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                raise ArgumentError(
                    f"there is no {name!r}",
                    op="LambdaCallback",
                    expected="one of " + ", ".join(n for n in vars(Callback) if n[:3] == "on_"),
                )
            setattr(self, name, function)
