"""ModelCheckpoint: saves the model while it is trained."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from eagerflow.errors import ArgumentError
from eagerflow.handlers import raised_here
from eagerflow.nn.arguments import Float, is_count, require
from eagerflow.nn.callbacks.base import Logs
from eagerflow.nn.callbacks.monitors import Mode, Monitor
from eagerflow.nn.configured import arguments

__all__ = ["Frequency", "ModelCheckpoint"]


def _frequency(value: Any) -> Any:
    ok = value == "epoch" or is_count(value)
    require(ok, value, "not a frequency", expected="'epoch', or a number of batches")
    return value


Frequency = Annotated[Any, _frequency]
"""``"epoch"``, or a number of batches."""


class ModelCheckpoint(Monitor):
    """Saves the model after each epoch, or each ``save_freq`` batches.

    ``filepath`` may have fields for ``epoch`` and ``batch``, counted from 1, and for the numbers of
    ``logs``: ``"{epoch:02d}-{val_loss:.2f}"``; its folder is made. With ``save_best_only`` the
    model is saved if ``monitor`` is better than before, and than ``initial_value_threshold``;
    ``mode`` is that of Monitor. ``save_weights_only`` calls ``model.save_weights`` instead of
    ``model.save``. ``verbose=1`` prints each action. Raises ArgumentError for unknown fields and
    numbers.

    >>> ef.nn.callbacks.ModelCheckpoint("best.safetensors", save_best_only=True).save_freq
    'epoch'
    """

    filepath: str
    verbose: int
    save_best_only: bool
    save_weights_only: bool
    save_freq: Any
    initial_value_threshold: float | None

    @arguments
    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: Mode = "auto",
        save_freq: Frequency = "epoch",
        initial_value_threshold: Float | None = None,
    ) -> None:
        self.filepath = os.fspath(filepath)
        self.best = self.initial_value_threshold
        self._epoch = self._batches = 0
        hears_alone = type(self).on_train_batch_end is ModelCheckpoint.on_train_batch_end
        self.reads_batches = self.save_freq != "epoch" or not hears_alone

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._batches += 1
        if self.save_freq != "epoch" and self._batches >= self.save_freq:
            self._batches = 0
            self._save({"epoch": self._epoch + 1, "batch": batch + 1}, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self.save_freq == "epoch":
            self._save({"epoch": epoch + 1}, logs)

    def _save(self, fields: dict[str, Any], logs: Logs) -> None:
        title = f"Epoch {fields['epoch']}"
        if self.save_best_only:
            value = self.value_in(logs)
            if value is None or not self.is_better(value, self.best):
                self._say(f"{title}: {self.monitor} is not better than {self.best}")
                return
            self.best = value
            self._say(f"{title}: {self.monitor} is {value:.5f}, the best so far")
        path = self._path((logs or {}) | fields)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        (self.model.save_weights if self.save_weights_only else self.model.save)(path)
        self._say(f"{title}: saved as {path}")

    def _path(self, fields: dict[str, Any]) -> str:
        try:
            return self.filepath.format(**fields)
        except raised_here(KeyError, IndexError, ValueError) as error:
            raise ArgumentError(
                f"{self.filepath!r} cannot be filled in: {error}",
                op="ModelCheckpoint",
                argument="filepath",
                expected="fields of " + ", ".join(fields),
            ) from None

    def _say(self, words: str) -> None:
        if self.verbose:
            print(words)
