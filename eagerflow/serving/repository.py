"""The models of a server: found in files and folders, loaded beside each other, swapped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from eagerflow.capture.saving.formats import SUFFIXES
from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.serving.batching import Batcher, Batching
from eagerflow.serving.errors import UnavailableError, UnknownModelError
from eagerflow.serving.executors import Executor, InProcess
from eagerflow.serving.metrics import Metrics, VersionMetrics
from eagerflow.serving.model import ModelVersion
from eagerflow.serving.routes import Routes
from eagerflow.serving.sequences import SequenceLimits
from eagerflow.serving.stepping import SequenceBatcher
from eagerflow.serving.traffic import Traffic

__all__ = ["Folder", "Model", "ModelOptions", "Models", "Plan", "Policy", "Repository", "mark_of"]

_ENDINGS = (SUFFIXES["ef"], SUFFIXES["onnx"])
_Mark = tuple[int, int, int]
"""Identifies the contents of a file: inode, size, modification time."""


class Policy(NamedTuple):
    """The versions of a model that are served: the ``latest`` n, those ``given``, or all.

    ``latest=0`` stands for all. Requests that name no version go to the highest ready one. While
    none of the latest loads, the highest that does is served.

    >>> ef.serving.Policy(latest=2).chosen([1, 2, 5]), ef.serving.Policy(given=(1,)).chosen([1, 2])
    ({2, 5}, {1})
    """

    latest: int = 1
    given: tuple[int, ...] = ()

    def chosen(self, numbers: list[int]) -> set[int]:
        """The served versions among these."""
        if self.given:
            return set(numbers).intersection(self.given)
        return set(sorted(numbers)[-self.latest :] if self.latest else numbers)


class ModelOptions(NamedTuple):
    """A model's path, its policy, its batching settings, and its labels.

    ``labels`` maps names to numbers of versions, ``pinned`` is the version for requests that name
    none. None means the setting of all models, and for labels no change.

    >>> ef.serving.ModelOptions("models/digits", labels={"stable": 3}).pinned
    """

    path: str | os.PathLike[str]
    policy: Policy | None = None
    batching: Batching | None = None
    labels: Mapping[str, int] | None = None
    pinned: int | None = None

    def traffic(self, before: Traffic) -> Traffic:
        """The traffic with these options, after an earlier one; ArgumentError for invalid ones."""
        if self.labels is not None:
            before = before._replace(labels=dict(self.labels), pinned=self.pinned)
        elif self.pinned is not None:
            before = before._replace(pinned=self.pinned)
        return before.checked()


class Folder(NamedTuple):
    """A folder of models, with options for some of them by name.

    The paths in these options are ignored; options may name a model that appears later.
    """

    path: str | os.PathLike[str]
    options: Mapping[str, ModelOptions]


_Places = (
    str
    | os.PathLike[str]
    | Mapping[str, ModelOptions]
    | Mapping[str, str | os.PathLike[str]]
    | Mapping[str, str | os.PathLike[str] | ModelOptions]
)
Models = _Places | Folder


class Model(Routes):
    """A model in a file or a folder of versions, with its ready versions and their traffic.

    ``policy`` selects the versions to load, beside those that its traffic names.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        policy: Policy,
        batching: Batching,
        metrics: Metrics | None = None,
        limits: SequenceLimits | None = None,
    ) -> None:
        super().__init__(name, metrics, limits)
        self.path = path
        self.policy = policy
        self.batching = batching
        self.is_wanted = True
        """Whether it should be loaded; False after a request to unload it."""
        self.marks: dict[int, _Mark] = {}
        self._told: tuple[Mapping[str, int] | None, int | None] = None, None

    def configure(self, options: ModelOptions, policy: Policy, batching: Batching) -> None:
        """Replace the options; files will be polled again.

        The traffic changes only if its options have changed: otherwise later changes, such as a
        roll-back, stay in force.
        """
        path, batching = Path(options.path), options.batching or batching
        if (path, batching) != (self.path, self.batching):
            self.marks.clear()  # so all are loaded again, each beside its predecessor
        self.path, self.batching = path, batching
        self.policy = options.policy or policy
        told = options.labels, options.pinned
        if told != self._told:
            self.traffic, self._told = options.traffic(self.traffic), told


class Plan(NamedTuple):
    """Validated models and options; see ``Repository.plan``."""

    folder: Path | None
    tables: Mapping[str, ModelOptions]
    models: Mapping[str, ModelOptions]
    policy: Policy
    batching: Batching


class Repository:
    """The models in files and folders, loaded and unloaded as files appear, change and vanish.

    ``models`` is a file of a graph, a folder of models (a Folder with options for some), or a
    mapping of names to files or folders of versions. A folder of models has a folder for each name,
    with one for each version, named by its number, that holds one file:
    ``models/digits/3/model.ef``. A version serves requests once it was loaded and has run; a broken
    one never replaces a working one. ``executor`` makes the Executor of a version, ``numerics`` is
    as for ``ef.function``. Raises ArgumentError where nothing is found.
    """

    def __init__(
        self,
        models: Models,
        policy: Policy | None = None,
        batching: Batching | None = None,
        metrics: Metrics | None = None,
        executor: Callable[[ModelVersion], Executor] = InProcess,
        cache: int | None = None,
        sequences: SequenceLimits | None = None,
        numerics: str = "fast",
    ) -> None:
        self.metrics = metrics
        self._numerics = numerics
        self._executor = executor
        self._cache = cache
        self._sequences = (sequences or SequenceLimits()).checked()
        self.models: dict[str, Model] = {}
        self._loader = ThreadPoolExecutor(1, "eagerflow-loader")
        self._refreshing = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self.is_leaving = False
        """Whether the server is shutting down."""
        self._folder: Path | None = None
        self._tables: Mapping[str, ModelOptions] = {}
        self._adopt(self.plan(models, policy, batching))

    def plan(
        self, models: Models, policy: Policy | None = None, batching: Batching | None = None
    ) -> Plan:
        """Validate arguments for ``configure``; ArgumentError as in the constructor."""
        batching = (batching or Batching()).checked()
        places, tables = models if isinstance(models, Folder) else (models, {})
        folder, wanted = _wanted(places)
        for name in wanted.keys() & (tables.keys() | self._tables.keys()):
            path = wanted[name].path
            # Options that were removed from a table return to their defaults.
            table = tables.get(name, ModelOptions(path, labels={}))
            wanted[name] = table._replace(path=path)
        for name, options in wanted.items():
            options.traffic(Traffic())
            (options.batching or batching).checked()
            if not Path(options.path).exists():
                raise ArgumentError(
                    f"there is no file or folder {options.path}",
                    op="serve",
                    argument=name,
                    expected="a file of graph.save or model.export, or a folder of versions",
                )
        return Plan(folder, tables, wanted, policy or Policy(), batching)

    def _adopt(self, plan: Plan) -> list[str]:
        """Adopt these models and options; returns the names of those to unload."""
        self._folder, self._tables = plan.folder, plan.tables
        self._policy, self._batching = plan.policy, plan.batching
        for name, options in plan.models.items():
            self._add(name, options)
        return [name for name in self.models if name not in plan.models]

    def _add(self, name: str, options: ModelOptions) -> None:
        if name not in self.models:
            own = self._policy, self._batching, self.metrics, self._sequences
            made = Model(name, Path(options.path), *own)
            made.keep_answers(self._cache)
            self.models[name] = made
        self.models[name].configure(options, self._policy, self._batching)

    async def configure(self, plan: Plan) -> list[str]:
        """Adopt a plan; returns a line for each model that is unloaded.

        ``refresh`` loads new models. Requests are answered meanwhile, also pending ones of models
        that are unloaded.
        """
        async with self._refreshing:
            told = []
            for model in map(self.models.pop, self._adopt(plan)):
                told += [self._unload(model, number) for number in list(model.ready)]
        return told

    def keep_answers(self, max_bytes: int | None) -> None:
        """Cache so many bytes of responses for each model; None turns caches off."""
        if max_bytes != self._cache:
            self._cache = max_bytes
            for model in self.models.values():
                model.keep_answers(max_bytes)

    def absent(self) -> list[str]:
        """The names of models that have options, but no files."""
        return sorted(self._tables.keys() - self.models.keys())

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
        """Whether every model has a version that is ready, and the server is not shutting down."""
        wanted = [model for model in self.models.values() if model.is_wanted]
        return not self.is_leaving and all(model.ready for model in wanted)

    async def refresh(self) -> list[str]:
        """Poll files and folders: load new versions, unload those that were removed.

        Returns a line for each change. Requests are answered meanwhile.
        """
        async with self._refreshing:
            if self._folder is not None:
                self._find_models(self._folder)
            told: list[str] = []
            for model in list(self.models.values()):
                told += await self._refresh_model(model) if model.is_wanted else ()
            return told

    async def load(self, name: str) -> None:
        """Load a model, with new versions; UnavailableError if none is ready afterwards.

        UnknownModelError where neither a model nor a folder of this name exists.
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
        """Unload a model after its pending requests; it stays unloaded until ``load``."""
        async with self._refreshing:
            model = self.model(name)
            model.is_wanted = False
            for number in list(model.ready):
                self._unload(model, number)
            model.broken.clear()

    async def direct(self, name: str, change: Callable[[Model], Traffic]) -> Model:
        """Change the traffic of a model, once the versions that it names are loaded.

        ``change`` returns the new traffic. Raises the errors of ``Model.direct``; nothing is
        changed then.
        """
        async with self._refreshing:
            model = self.model(name)
            model.found = _versions(model.path) if model.is_wanted else {}
            wanted = change(model).checked()
            for number in sorted(wanted.versions() & model.found.keys() - model.ready.keys()):
                await self._load_changed(model, number)
            model.direct(wanted)
            return model

    def _find_models(self, folder: Path) -> None:
        for name, path in _found_in(folder).items():
            if name not in self.models:
                table = self._tables.get(name, ModelOptions(path))
                self._add(name, table._replace(path=path))

    async def _refresh_model(self, model: Model) -> list[str]:
        found = model.found = _versions(model.path)
        kept = model.traffic.versions() & found.keys()
        chosen = model.policy.chosen(list(found)) | kept
        told = []
        for number in sorted(chosen):
            told += await self._load_changed(model, number)
        if not model.policy.given:
            # At the start all of these may be broken: older ones serve then.
            for number in sorted(found.keys() - chosen, reverse=True):
                if model.ready:
                    break
                told += await self._load_changed(model, number)
        # A version is unloaded only after its replacement is ready.
        answers = any(n in model.ready for n in chosen)
        for number in [n for n in model.ready if n not in chosen]:
            if answers or number not in found:
                told.append(self._unload(model, number))
        for number in [n for n in model.broken if n not in chosen]:
            del model.broken[number]
        model.note()
        return list(filter(None, told))

    async def _load_changed(self, model: Model, number: int) -> list[str]:
        """Load a version if its file has changed."""
        path = model.found[number]
        mark = mark_of(path)
        if mark is None or mark == model.marks.get(number):
            return []
        model.marks[number] = mark
        return [await self._load(model, number, path)]

    async def _load(self, model: Model, number: int, path: Path) -> str:
        """Load a version beside the others; it serves once it has been tried.

        Returns a line, or "" if nothing has changed since the last one.
        """
        loop = asyncio.get_running_loop()
        model.loading.add(number)
        try:
            made = await loop.run_in_executor(self._loader, self._made, model, number, path)
        except Exception as error:  # a broken model does not stop the others
            if isinstance(error, UnavailableError):
                model.marks.pop(number, None)  # a missing file may appear: try again
            told = str(error) or type(error).__name__
            before, model.broken[number] = model.broken.get(number), told
            return "" if told == before else f"{model.name} {number} is broken: {told}"
        finally:
            model.loading.discard(number)
        model.broken.pop(number, None)
        old, model.ready[number] = model.ready.get(number), made
        self._let_go(model, old)
        return f"{model.name} {number} is ready ({made.version.seconds * 1e3:.3g} ms a request)"

    def _made(self, model: Model, number: int, path: Path) -> Batcher:
        """A version, loaded from its file and run; called in the loader's thread."""
        if not path.is_file():
            raise FileFormatError("it is not a file", op="load", argument=str(path))
        version = ModelVersion.load(model.name, number, path, self._numerics)
        counts = None if self.metrics is None else VersionMetrics(self.metrics, model.name, number)
        has_state = version.signature.state is not None
        executor = InProcess(version) if has_state else self._executor(version)
        if has_state:
            made: Batcher = SequenceBatcher(version, model.batching, counts, model.sequences)
        else:
            made = Batcher(version, model.batching, counts, executor)
        made.signatures = {
            name: Batcher(part, model.batching, counts, executor.of_signature(name, part))
            for name, part in version.signatures().items()
        }
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
        """Unload a version after its pending requests."""
        if batcher is not None:
            if isinstance(batcher, SequenceBatcher):
                model.leaving[batcher.version.number] = batcher
            task = asyncio.get_running_loop().create_task(_leave(model, batcher))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def drain(self) -> None:
        """Finish pending requests, and unload all models."""
        for model in self.models.values():
            model.sequences.is_closing = True
            for number in list(model.ready):
                self._unload(model, number)
        await asyncio.gather(*self._leaving)
        self._loader.shutdown(wait=False)


def _wanted(models: _Places) -> tuple[Path | None, dict[str, ModelOptions]]:
    """The folder of models, if there is one, and the options of each by name."""
    if isinstance(models, Mapping):
        given = {
            str(name): x if isinstance(x, ModelOptions) else ModelOptions(x)
            for name, x in models.items()
        }
        return None, given
    path = Path(models)
    if path.is_dir():
        return path, {name: ModelOptions(found) for name, found in _found_in(path).items()}
    return None, {path.name.split(".")[0] or path.name: ModelOptions(path)}


def _found_in(folder: Path) -> dict[str, Path]:
    """The models in a folder: folders of versions, and files of graphs."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            found.setdefault(path.name, path)
        elif path.suffix in _ENDINGS:
            found.setdefault(path.stem, path)
    return found


async def _leave(model: Model, batcher: Batcher) -> None:
    """Drain a version; requests that name it still reach it until then."""
    try:
        await batcher.drain()
    finally:
        if model.leaving.get(batcher.version.number) is batcher:
            del model.leaving[batcher.version.number]


def _versions(path: Path) -> dict[int, Path]:
    """The file of each version of a model, by number; a single file is version 1."""
    if not path.is_dir():
        return {1: path}
    found = {}
    for folder in path.iterdir():
        if folder.name.isascii() and folder.name.isdecimal() and folder.is_dir():
            with suppress(FileNotFoundError):  # a file was just removed; the others are read
                files = sorted(f for f in folder.iterdir() if f.suffix in _ENDINGS)
                if files:
                    found[int(folder.name)] = files[0]
    return found


def mark_of(path: Path) -> _Mark | None:
    """Identify the contents of a file; None for a missing one."""
    try:
        told = path.stat()
    except OSError:  # the file was just removed
        return None
    return told.st_ino, told.st_size, told.st_mtime_ns
