"""The models that a server has: found in files and folders, loaded beside each other, swapped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from eagerflow.capture.saving.formats import SUFFIXES
from eagerflow.errors import ArgumentError, EagerflowError, FileFormatError
from eagerflow.serving.batching import Batcher, Batching
from eagerflow.serving.metrics import Metrics, VersionMetrics
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.refusals import UnavailableError, UnknownModelError
from eagerflow.serving.sequences import SequenceLimits, Sequences
from eagerflow.serving.stepping import SequenceBatcher

__all__ = ["Model", "Policy", "Repository"]

_ENDINGS = (SUFFIXES["ef"], SUFFIXES["onnx"])
_Mark = tuple[int, int, int]
"""What tells whether a file is another one than before: inode, size, time of change."""


class Policy(NamedTuple):
    """Which versions of a model are served: the ``latest`` n, or those ``given``, or all.

    ``latest=0`` stands for all. The highest number that is ready answers where a request names
    none.

    >>> ef.serving.Policy(latest=2).chosen([1, 2, 5]), ef.serving.Policy(given=(1,)).chosen([1, 2])
    ({2, 5}, {1})
    """

    latest: int = 1
    given: tuple[int, ...] = ()

    def chosen(self, numbers: list[int]) -> set[int]:
        """The numbers of these that are served."""
        if self.given:
            return set(numbers).intersection(self.given)
        return set(sorted(numbers)[-self.latest :] if self.latest else numbers)


class Model:
    """A model's versions: those that answer, those that are broken and why, and labels.

    ``ready`` and ``leaving`` map numbers to Batchers, ``broken`` numbers to sentences, ``labels``
    names to numbers. ``pinned`` is the version that answers where a request names none, if one was
    said.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        policy: Policy,
        batching: Batching,
        limits: SequenceLimits | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.policy = policy
        self.batching = batching
        self.ready: dict[int, Batcher] = {}
        self.leaving: dict[int, Batcher] = {}
        self.sequences = Sequences(name, limits)
        self.loading: set[int] = set()
        self.broken: dict[int, str] = {}
        self.labels: dict[str, int] = {}
        self.pinned: int | None = None
        self.is_wanted = True
        """Whether it is to be loaded; False once it was unloaded by a request."""
        self.marks: dict[int, _Mark] = {}

    @property
    def current(self) -> int | None:
        """The version that answers where a request names none; None while none is ready."""
        if self.pinned in self.ready:
            return self.pinned
        return max(self.ready, default=None)

    def batcher(self, version: int | None = None, label: str | None = None) -> Batcher:
        """What answers for a version, a label, or for the current version.

        Raises UnknownModelError for numbers and labels that there are not, UnavailableError for
        those that are loading or broken.
        """
        if label is not None:
            if label not in self.labels:
                known = ", ".join(self.labels) or "no labels"
                raise UnknownModelError(
                    f"{self.name!r} has no label {label[:80]!r}", expected=known
                )
            version = self.labels[label]
        number = self.current if version is None else version
        found = self.ready.get(number) if number is not None else None
        if found is None and version is not None:
            found = self.leaving.get(version)  # which has sequences, and refuses all else
        if found is None:
            self._refuse(number)
        assert found is not None
        return found

    def _refuse(self, number: int | None) -> None:
        if number is None:
            why = "; ".join(f"version {n}: {told}" for n, told in sorted(self.broken.items()))
            raise UnavailableError(f"no version of {self.name!r} is ready", received=why or None)
        if number in self.broken:
            raise UnavailableError(
                f"version {number} of {self.name!r} is broken", received=self.broken[number]
            )
        if number in self.loading:
            raise UnavailableError(f"version {number} of {self.name!r} is loading")
        raise UnknownModelError(
            f"{self.name!r} has no version {number}",
            expected=", ".join(map(str, sorted(self.ready))) or "none is ready",
        )

    def pin(self, version: int | None) -> None:
        """Let this version answer where a request names none; None for the highest again."""
        if version is not None:
            self.batcher(version)
        self.pinned = version


class Repository:
    """The models in files and folders, loaded as versions appear, changed and go.

    ``models`` is a file of a graph, a folder of models, or a mapping of names to files or folders
    of versions. A folder of models has a folder for each name, with one for each version, named by
    its number, that holds one file: ``models/digits/3/model.ef``. A version answers when it was
    loaded and has run; one that does not load never takes the place of one that does. Raises
    ArgumentError where nothing is found.
    """

    def __init__(
        self,
        models: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
        policy: Policy | None = None,
        batching: Batching | None = None,
        metrics: Metrics | None = None,
        sequences: SequenceLimits | None = None,
    ) -> None:
        self.metrics = metrics
        self._sequences = (sequences or SequenceLimits()).checked()
        self.models: dict[str, Model] = {}
        self._policy = policy or Policy()
        self._batching = (batching or Batching()).checked()
        self._folder: Path | None = None
        self._loader = ThreadPoolExecutor(1, "eagerflow-loader")
        self._refreshing = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        if isinstance(models, Mapping):
            for name, path in models.items():
                self._add(str(name), Path(path))
        else:
            path = Path(models)
            if path.is_dir():
                self._folder = path
            else:
                self._add(path.name.split(".")[0] or path.name, path)

    def _add(self, name: str, path: Path) -> None:
        if not path.exists():
            raise ArgumentError(
                f"there is no file or folder {path}",
                op="serve",
                argument=name,
                expected="a file of graph.save or model.export, or a folder of versions",
            )
        self.models[name] = Model(name, path, self._policy, self._batching, self._sequences)

    def model(self, name: str) -> Model:
        """The model of this name; UnknownModelError where there is none."""
        found = self.models.get(name)
        if found is None:
            raise UnknownModelError(
                f"there is no model {name[:80]!r}",
                expected="one of " + ", ".join(self.models) if self.models else "no model is there",
            )
        return found

    @property
    def is_ready(self) -> bool:
        """Whether every model has a version that answers."""
        wanted = [model for model in self.models.values() if model.is_wanted]
        return all(model.ready for model in wanted)

    async def refresh(self) -> list[str]:
        """Look at files and folders again, load what is new, let go of what has gone.

        Gives a line for each change. Requests are answered meanwhile.
        """
        async with self._refreshing:
            if self._folder is not None:
                self._find_models(self._folder)
            told: list[str] = []
            for model in list(self.models.values()):
                told += await self._refresh_model(model) if model.is_wanted else ()
            return told

    async def load(self, name: str) -> None:
        """Load a model that was unloaded, and what is new of it; UnavailableError if none is ready.

        UnknownModelError where neither a model nor a folder of this name is there.
        """
        async with self._refreshing:
            if self._folder is not None:
                self._find_models(self._folder)
            model = self.model(name)
            model.is_wanted = True
            model.marks = {n: mark for n, mark in model.marks.items() if n in model.ready}
            await self._refresh_model(model)
            model.batcher()

    async def unload(self, name: str) -> None:
        """Let a model go when it has answered what came; it stays away until it is loaded."""
        async with self._refreshing:
            model = self.model(name)
            model.is_wanted = False
            for number in list(model.ready):
                self._unload(model, number)
            model.broken.clear()

    def _find_models(self, folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            if path.is_dir() and path.name not in self.models and not path.name.startswith("."):
                self._add(path.name, path)
            elif path.suffix in _ENDINGS and path.stem not in self.models:
                self._add(path.stem, path)

    async def _refresh_model(self, model: Model) -> list[str]:
        found = _versions(model.path)
        kept = {n for n in (model.pinned, *model.labels.values()) if n in found}
        chosen = model.policy.chosen(list(found)) | kept
        told = []
        for number in sorted(chosen):
            mark = _mark(found[number])
            if mark is not None and mark != model.marks.get(number):
                model.marks[number] = mark
                told.append(await self._load(model, number, found[number]))
        # What is no longer wanted leaves only when something else answers.
        answers = any(n in model.ready for n in chosen)
        for number in [n for n in model.ready if n not in chosen]:
            if answers or number not in found:
                told.append(self._unload(model, number))
        for number in [n for n in model.broken if n not in chosen]:
            del model.broken[number]
        return told

    async def _load(self, model: Model, number: int, path: Path) -> str:
        """Load a version beside the others; it answers from when it has been tried."""
        loop = asyncio.get_running_loop()
        model.loading.add(number)
        try:
            made = await loop.run_in_executor(self._loader, self._made, model, number, path)
        except (EagerflowError, OSError, MemoryError) as error:
            model.broken[number] = str(error) or type(error).__name__
            return f"{model.name} {number} is broken: {model.broken[number]}"
        finally:
            model.loading.discard(number)
        model.broken.pop(number, None)
        old, model.ready[number] = model.ready.get(number), made
        self._let_go(model, old)
        return f"{model.name} {number} is ready ({made.version.seconds * 1e3:.3g} ms a request)"

    def _made(self, model: Model, number: int, path: Path) -> Batcher:
        """A version that was read from its file, and has run; called in the loader's thread."""
        if not path.is_file():
            raise FileFormatError("it is no file", op="load", argument=str(path))
        version = ModelVersion.load(model.name, number, path)
        counts = None if self.metrics is None else VersionMetrics(self.metrics, model.name, number)
        made = (
            Batcher(version, model.batching, counts)
            if version.signature.state is None
            else SequenceBatcher(version, model.batching, counts, model.sequences)
        )
        made.warm_up()
        return made

    def _unload(self, model: Model, number: int) -> str:
        gone = model.ready.pop(number)
        if gone.metrics is not None:
            gone.metrics.forget()
        self._let_go(model, gone)
        model.marks.pop(number, None)
        return f"{model.name} {number} has left"

    def _let_go(self, model: Model, batcher: Batcher | None) -> None:
        """Let a version finish what it has begun."""
        if batcher is not None:
            model.leaving[batcher.version.number] = batcher
            task = asyncio.get_running_loop().create_task(_leave(model, batcher))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def drain(self) -> None:
        """Answer what has come, and let all models go."""
        for model in self.models.values():
            model.sequences.is_closing = True
            for number in list(model.ready):
                self._unload(model, number)
        await asyncio.gather(*self._leaving)
        self._loader.shutdown(wait=False)


async def _leave(model: Model, batcher: Batcher) -> None:
    """Let a version finish what it has begun; requests that name it find it until then."""
    try:
        await batcher.drain()
    finally:
        if model.leaving.get(batcher.version.number) is batcher:
            del model.leaving[batcher.version.number]


def _versions(path: Path) -> dict[int, Path]:
    """The file of each version of a model, by its number; that of a file alone is 1."""
    if not path.is_dir():
        return {1: path}
    found = {}
    for folder in path.iterdir():
        if folder.name.isascii() and folder.name.isdecimal() and folder.is_dir():
            files = sorted(f for f in folder.iterdir() if f.suffix in _ENDINGS)
            if files:
                found[int(folder.name)] = files[0]
    return found


def _mark(path: Path) -> _Mark | None:
    try:
        told = path.stat()
    except OSError:  # it has just gone
        return None
    return told.st_ino, told.st_size, told.st_mtime_ns
