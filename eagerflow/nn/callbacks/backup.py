"""BackupAndRestore: a training that was cut off goes on where it was."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from eagerflow.nn.callbacks.base import Callback, Logs
from eagerflow.nn.callbacks.saving import Frequency
from eagerflow.nn.checkpoint import Checkpoint
from eagerflow.nn.configured import arguments

__all__ = ["BackupAndRestore"]


class BackupAndRestore(Callback):
    """Saves the state of a training after each epoch; ``fit`` with the same folder goes on there.

    The state is that of ``ef.nn.Checkpoint``, in ``backup_dir``, which is for nothing else. It is
    saved after each epoch, or each ``save_freq`` batches. With ``double_checkpoint`` the state
    before is kept too, in case the last one is damaged. When the training has ended the states are
    deleted, unless ``delete_checkpoint`` is False. ``loader`` goes on too, if it is given: also in
    the middle of an epoch. The model has its weights before ``fit``.

    >>> ef.nn.callbacks.BackupAndRestore("backup", save_freq=100).delete_checkpoint
    True
    """

    backup_dir: str
    save_freq: Any
    double_checkpoint: bool
    delete_checkpoint: bool
    loader: Any

    @arguments
    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: Frequency = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
        loader: Any = None,
    ) -> None:
        self.backup_dir = os.fspath(backup_dir)
        self._epoch = self._batches = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        self._checkpoint = Checkpoint(self.backup_dir, keep=2 if self.double_checkpoint else 1)
        found = self._checkpoint.restore(self.model, self.loader)
        if found is not None:
            self._epoch = self.model._initial_epoch = found.epoch or 0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch + 1
        if self.save_freq == "epoch":
            self._save()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._batches += 1
        if self.save_freq != "epoch" and self._batches >= self.save_freq:
            self._batches = 0
            self._save()

    def _save(self) -> None:
        self._checkpoint.save(self.model, self.loader, epoch=self._epoch)

    def on_train_end(self, logs: Logs = None) -> None:
        if self.delete_checkpoint:
            for path in self._checkpoint.paths:
                path.unlink(missing_ok=True)
            with suppress(OSError):  # it holds something else
                self._checkpoint.folder.rmdir()
