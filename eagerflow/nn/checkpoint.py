"""Checkpoints: the complete state of a training, which resumes bit for bit."""

from __future__ import annotations

import json
import os
import re
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, FileFormatError, printable
from eagerflow.handlers import raised_here, suppress
from eagerflow.nn import files, shards, state
from eagerflow.nn.arguments import is_count, require, require_strategy
from eagerflow.nn.saving import read_facts, write_state
from eagerflow.variable import Variable

__all__ = ["Checkpoint"]

_NAME = re.compile(r"checkpoint-(\d{8,})\.ef")


class Progress(NamedTuple):
    """How far a training was when its state was saved."""

    path: Path
    step: int
    """The number that ``save`` was given, or that of the optimizer's steps."""
    epoch: int | None
    """The number that ``save`` was given."""
    batch: int | None = None
    """The number that ``save`` was given."""


@dataclass
class _Made:
    """A checkpoint in progress: its file, and its contents."""

    path: Path
    step: int | None
    epoch: int | None
    batch: int | None
    variables: dict[str, Variable] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    here: list[str] = field(default_factory=list)
    """The names of those values that are needed in this process: the optimizer's count."""
    calls: int = 1
    """The number of counted calls per step."""


class _Values:
    """The values of Variables at one moment, all of them in this process."""

    def __init__(self, variables: dict[str, Variable]) -> None:
        self._arrays = {name: variable.numpy() for name, variable in variables.items()}

    def finish(self) -> tuple[dict[str, Any], list[shards.ShardFile]]:
        """The values by name, and the files in which other tasks have written some of them."""
        return self._arrays, []

    def saved(self, path: Path) -> None:
        """The checkpoint is whole."""


class _Writing:
    """A thread that writes a checkpoint during training, and is joined at exit."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="eagerflow checkpoint")
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        """Return when it is written, or has failed."""
        self._thread.join()

    def raise_error(self) -> None:
        """Raise the error of a failed write."""
        if self._error is not None:
            raise self._error


class Checkpoint:
    """The saved states of a training in a folder; the newest ``keep`` are kept.

    ``folder`` is made if it is not there; ``keep`` is a number of files, from 1 on. A state is the
    weights, the optimizer's state, the random generators (the global one and those of layers), and
    that of a loader. A file is written completely or not at all: if the process is killed, the
    newest complete one remains. Tasks of a cluster write the values that they hold themselves, into
    separate files. Raises ArgumentError for other values of ``keep``, FileFormatError for errors of
    the file system.

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
        require(is_count(keep), keep, "not a number of files", "Checkpoint", "keep", expected)
        self.folder = Path(folder)
        self.keep = keep
        self._writing: _Writing | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except raised_here(OSError) as error:
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
        """The newest file; None if there is none."""
        return next(reversed(self.paths), None)

    def save(
        self,
        model: Any,
        loader: Any = None,
        step: int | None = None,
        epoch: int | None = None,
        strategy: Any = None,
        wait: bool = True,
        batch: int | None = None,
    ) -> Path:
        """Write the current state of a training; returns the file's path.

        ``loader`` has ``state()``, which returns JSON-compatible values. ``step``, ``epoch`` and
        ``batch`` are numbers that ``restore`` returns; ``step`` defaults to the optimizer's steps.
        With the ``strategy`` of the training, the values are a consistent snapshot between two
        runs, merged; tasks write the values that they hold in parallel, into ``folder``, which all
        machines have to share. Without ``wait`` this returns after the snapshot, and the files are
        written during training; errors are raised by the next ``save``, ``restore`` or ``wait``.
        Raises FileFormatError if a file cannot be written, TaskLostError if a value was lost: then
        no state is added.
        """
        require_strategy("Checkpoint.save", strategy)
        self.wait()
        latest = self.latest
        number = 1 if latest is None else int(latest.stem.partition("-")[2]) + 1
        made = _Made(self.folder / f"checkpoint-{number:08}.ef", step, epoch, batch)
        made.variables = state.named_state(model)
        if loader is not None:
            made.texts["loader"] = json.dumps(loader.state())
        if step is None and model.optimizer is not None:
            counter, made.calls = model.optimizer._counter
            made.here = [name for name, v in made.variables.items() if v is counter]
        if not wait:
            self._writing = _Writing(self._begun(made, strategy))
        elif strategy is None:
            self._begun(made, strategy)()
        else:
            strategy.again(lambda: self._begun(made, strategy)())
        return made.path

    def wait(self) -> None:
        """Return when all pending files are written; raises errors of these writes."""
        writing = self._writing
        if writing is not None:
            writing.join()  # after Ctrl-C here it is still pending
            self._writing = None
            writing.raise_error()

    def _begun(self, made: _Made, strategy: Any) -> Callable[[], None]:
        """Take a snapshot of the values; returns the function that writes them."""
        prefix = shards.new_prefix(made.path.stem)
        if strategy is None:
            taken: Any = _Values(made.variables)
        else:
            folder = str(self.folder.absolute())
            taken = strategy.snapshot(made.variables, made.here, folder, prefix)
        return lambda: self._finish(made, prefix, taken)

    def _finish(self, made: _Made, prefix: str, taken: Any) -> None:
        """Write the checkpoint's own file, after all other files."""
        op = "Checkpoint.save"
        arrays, parts = taken.finish()
        step = made.step
        if step is None:
            step = next((int(arrays[name]) // made.calls for name in made.here), 0)
        progress = {"step": step, "epoch": made.epoch, "batch": made.batch}
        texts = {**made.texts, "progress": json.dumps(progress)}
        if parts:
            shards.check_there(self.folder, parts, op)
            texts[shards.ENTRY] = shards.listed(parts)
        write_state(arrays, made.path, {"missing": "it is a checkpoint"}, texts, op)
        taken.saved(made.path)
        self._keep(self.paths[-self.keep :], prefix)

    def _keep(self, paths: list[Path], prefix: str) -> None:
        """Delete all states except these; ``prefix`` is that of the last one's files."""
        for old in self.paths:
            if old not in paths:
                old.unlink(missing_ok=True)
        shards.remove(self.folder, [*(f"{path.stem}-" for path in paths[:-1]), prefix])

    def clear(self) -> None:
        """Delete all states.

        >>> from tempfile import TemporaryDirectory
        >>> model = ef.nn.Sequential([ef.nn.Input((2,)), ef.nn.Dense(1)])
        >>> with TemporaryDirectory() as folder:
        ...     checkpoint = ef.nn.Checkpoint(folder)
        ...     path = checkpoint.save(model)
        ...     checkpoint.clear()
        ...     checkpoint.paths
        []
        """
        with suppress(Exception):  # an unwritten file need not be deleted
            self.wait()
        for path in self.paths:
            path.unlink(missing_ok=True)
        shards.remove(self.folder, ())

    def restore(self, model: Any, loader: Any = None, strategy: Any = None) -> Progress | None:
        """Restore the newest complete state; returns its position, or None if there is none.

        ``model`` is constructed and compiled as before, and has its weights; ``loader`` has
        ``set_state(state)``. With the ``strategy`` of the training, the same number of replicas
        resume with their own values, to the bit; otherwise they begin with the merged values. A
        damaged file is skipped with a warning. Raises FileFormatError where the state is that of
        another model.
        """
        require_strategy("Checkpoint.restore", strategy)
        self.wait()
        for path in reversed(self.paths):
            try:
                found = shards.read(path, "Checkpoint.restore")
                read_facts(found, path)
                facts = files.loads(found.texts.get("progress", ""))
                made = Progress(path, int(facts["step"]), facts["epoch"], facts.get("batch"))
                position = files.loads(found.texts.get("loader", "null"))
            except raised_here(FileFormatError, TypeError, KeyError) as error:
                warnings.warn(f"{printable(str(path))} is passed over: {error}", stacklevel=2)
                continue
            if loader is not None and position is None:
                raise ArgumentError(
                    "the state was saved without a loader",
                    op="Checkpoint.restore",
                    argument="loader",
                )
            state.restore(model, found.arrays)
            if strategy is not None:
                strategy.go_on(state.named_state(model), found.arrays)
            if loader is not None:
                loader.set_state(position)
            return made
        return None

    def __repr__(self) -> str:
        return f"<Checkpoint {printable(str(self.folder))}: {len(self.paths)} of {self.keep}>"
