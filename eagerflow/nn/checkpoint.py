"""Checkpoints: the whole state of a training, from which it goes on bit for bit."""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, FileFormatError, printable
from eagerflow.nn import files, state
from eagerflow.nn.arguments import is_count, require
from eagerflow.nn.saving import read_facts, write_state

__all__ = ["Checkpoint"]

_NAME = re.compile(r"checkpoint-(\d{8,})\.ef")


class Progress(NamedTuple):
    """How far a training was when its state was saved."""

    path: Path
    step: int
    """The number that ``save`` was given, or that of the optimizer's steps."""
    epoch: int | None
    """The number that ``save`` was given."""


class Checkpoint:
    """The states of a training in a folder, of which the newest ``keep`` stay.

    ``folder`` is made if it is not there; ``keep`` is a number of files, from 1 on. A state is
    the weights, the optimizer's state, the random generators (the global one and those of
    layers), and that of a loader. A file is written whole or not at all: whenever the process is
    killed, the newest whole one is there. Raises ArgumentError for other values of ``keep``,
    FileFormatError where the system refuses.

    >>> from tempfile import TemporaryDirectory
    >>> model = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(1, kernel_initializer="ones")])
    >>> model.compile("sgd", "mse")
    >>> with TemporaryDirectory() as folder:
    ...     checkpoint = ef.nn.Checkpoint(folder)
    ...     path = checkpoint.save(model, step=7)
    ...     model.set_weights([[[0.0], [0.0]], [0.0]])
    ...     checkpoint.restore(model).step
    7
    >>> model.get_weights()[0].tolist()
    [[1.0], [1.0]]
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 3) -> None:
        expected = "an integer of at least 1"
        require(is_count(keep), keep, "no number of files", "Checkpoint", "keep", expected)
        self.folder = Path(folder)
        self.keep = keep
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileFormatError(
                f"the folder cannot be made: {error.strerror}",
                op="Checkpoint",
                argument=str(folder),
            ) from error

    @property
    def paths(self) -> list[Path]:
        """The files, the oldest first."""
        found = {path: _NAME.fullmatch(path.name) for path in self.folder.iterdir()}
        numbers = {path: int(match[1]) for path, match in found.items() if match is not None}
        return sorted(numbers, key=lambda path: numbers[path])

    @property
    def latest(self) -> Path | None:
        """The newest file; None where there is none."""
        return next(reversed(self.paths), None)

    def save(
        self, model: Any, loader: Any = None, step: int | None = None, epoch: int | None = None
    ) -> Path:
        """Write the state of a training now; gives the file's path.

        ``loader`` has ``state()``, which JSON can hold. ``step`` and ``epoch`` are numbers that
        ``restore`` gives back; ``step`` is that of the optimizer's steps if it is not given.
        """
        if step is None:
            step = 0 if model.optimizer is None else int(model.optimizer.iterations)
        texts = {"progress": json.dumps({"step": step, "epoch": epoch})}
        if loader is not None:
            texts["loader"] = json.dumps(loader.state())
        latest = self.latest
        number = 1 if latest is None else int(latest.stem.partition("-")[2]) + 1
        path = self.folder / f"checkpoint-{number:08}.ef"
        write_state(model, path, {"missing": "it is a checkpoint"}, texts, "Checkpoint.save")
        for old in self.paths[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def restore(self, model: Any, loader: Any = None) -> Progress | None:
        """Go on from the newest whole state; gives how far that was, None where there is none.

        ``model`` is made and compiled as it was, and has its weights; ``loader`` has
        ``set_state(state)``. A file that is damaged is passed over with a warning. Raises
        FileFormatError where the state is that of another model.
        """
        for path in reversed(self.paths):
            try:
                found = files.read(path, "Checkpoint.restore")
                read_facts(found, path)
                progress = files.loads(found.texts.get("progress", ""))
                made = Progress(path, int(progress["step"]), progress["epoch"])
                position = files.loads(found.texts.get("loader", "null"))
            except (FileFormatError, TypeError, KeyError) as error:
                warnings.warn(f"{printable(str(path))} is passed over: {error}", stacklevel=2)
                continue
            if loader is not None and position is None:
                raise ArgumentError(
                    "the state was saved without a loader",
                    op="Checkpoint.restore",
                    argument="loader",
                )
            state.restore(model, found.arrays)
            if loader is not None:
                loader.set_state(position)
            return made
        return None

    def __repr__(self) -> str:
        return f"<Checkpoint {printable(str(self.folder))}: {len(self.paths)} of {self.keep}>"
