"""BackupAndRestore: an interrupted training continues where it was."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eagerflow.errors import TaskLostError
from eagerflow.handlers import suppress
from eagerflow.nn.callbacks.base import Callback, Logs
from eagerflow.nn.callbacks.saving import Frequency
from eagerflow.nn.checkpoint import Checkpoint, Progress
from eagerflow.nn.configured import arguments

__all__ = ["BackupAndRestore"]

MAX_SETBACKS = 3  # without a step in between, after which a state does not help


class BackupAndRestore(Callback):
    """Saves the state of a training after each epoch; ``fit`` with the same folder resumes it.

    The state is that of ``ef.nn.Checkpoint``, in ``backup_dir``, a dedicated folder. It is saved
    after each epoch, or each ``save_freq`` batches: after the last one of an epoch at the epoch's
    end, and if the number of batches is unknown, before the next batch. With ``double_checkpoint``
    the previous state is kept too, in case the last one is damaged. After the training the states
    are deleted, unless ``delete_checkpoint`` is False. A given ``loader`` is resumed too, also in
    the middle of an epoch. The model must have its weights before ``fit``.

    With a ``strategy`` the files are written during training, by the tasks that hold the values. If
    values are lost with a task, ``fit`` returns to the last state automatically, with a warning
    that reports the number of repeated steps.

    >>> ef.nn.callbacks.BackupAndRestore("backup", save_freq=100).delete_checkpoint
    True
    """

    backup_dir: str
    save_freq: Any
    double_checkpoint: bool
    delete_checkpoint: bool
    loader: Any
    reads_batches = False

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
        self._due: tuple[int, Any] | None = None
        """The number of batches in the epoch when a state was due, and the loader's position."""

    def on_train_begin(self, logs: Logs = None) -> None:
        self._checkpoint = Checkpoint(self.backup_dir, keep=2 if self.double_checkpoint else 1)
        self._setbacks = self._done = 0
        self._marks: dict[Path, int] = {}
        found, strategy = self._restore(), self.params.get("strategy")
        if found is None and strategy is not None and self.model.built:
            self._save(self.model._initial_epoch)  # tasks may be lost before the first one is due

    def _restore(self) -> Progress | None:
        strategy = self.params.get("strategy")
        found = self._checkpoint.restore(self.model, self.loader, strategy)
        self._batches, self._due, self._before = 0, None, 0
        if found is not None:
            self.model._initial_epoch = found.epoch or 0
            self._before = 0 if self.loader is None else found.batch or 0
            self.model._initial_batch = self._before
        return found

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self._due is not None:
            self._save(self._epoch, *self._due)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._batches += 1
        self._done += 1
        self._setbacks = 0
        if self.save_freq == "epoch" or self._batches < self.save_freq:
            return
        self._batches = 0
        made, steps = self._before + batch + 1, self.params.get("steps")
        if steps is not None and made < steps:
            self._save(self._epoch, made)
        else:  # it may be the end of the epoch, and then belongs to the next one
            self._due = made, None if self.loader is None else self.loader.state()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._before = 0
        if self.save_freq == "epoch" or self._due is not None:
            self._save(epoch + 1)

    def _save(self, epoch: int, batch: int = 0, place: Any = None) -> None:
        """Save a state at a batch of an epoch; ``place`` is the loader's position at that time."""
        self._due = None
        strategy = self.params.get("strategy")
        self._written()
        path = self._checkpoint.save(
            self.model,
            self.loader if place is None else SimpleNamespace(state=lambda: place),
            epoch=epoch,
            batch=batch,
            strategy=strategy,
            wait=strategy is None,  # otherwise it is written during the next steps
        )
        self._marks[path] = self._done

    def _written(self, fails: type[Exception] = TaskLostError) -> None:
        """Wait for the last state; where a task was lost that wrote it, the one before stays."""
        try:
            self._checkpoint.wait()
        except fails as error:
            warnings.warn(f"a state was not saved: {error}", stacklevel=2)
        there = self._checkpoint.paths
        self._marks = {path: done for path, done in self._marks.items() if path in there}

    def recover(self, error: TaskLostError) -> bool:
        """Restore the last state; False if there is none, or if it cannot be used."""
        if self._setbacks == MAX_SETBACKS:
            return False
        self._setbacks += 1
        self._written()
        found = self._restore()
        if found is None:
            return False
        before, self._done = self._done, self._marks.get(found.path, 0)
        words = f"{error.problem}: training goes on from {found.path.name}"
        warnings.warn(f"{words}, {before - self._done} steps back", stacklevel=2)
        return True

    def on_exception(self, error: BaseException) -> None:
        self._written(Exception)

    def on_train_end(self, logs: Logs = None) -> None:
        self._written()
        if self.delete_checkpoint:
            self._checkpoint.clear()
            with suppress(OSError):  # the folder contains other files
                self._checkpoint.folder.rmdir()
