"""Which of the versions of a model that are ready serves a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eagerflow.errors import ArgumentError
from eagerflow.serving.batching import Batcher
from eagerflow.serving.cache import Cache, Cached
from eagerflow.serving.errors import UnavailableError, UnknownModelError
from eagerflow.serving.metrics import Metrics
from eagerflow.serving.sequences import SequenceLimits, Sequences
from eagerflow.serving.shadow import Shadow, Shadowed
from eagerflow.serving.traffic import Shadowing, Shares, Traffic

__all__ = ["Answering", "Routes"]

Answering = Batcher | Shadowed | Cached
"""What answers a request: it has a ``version``, and ``run`` as a Batcher has."""

MAX_HISTORY = 100


class Routes:
    """A model's versions, and which of them answers which request.

    ``ready`` and ``leaving`` map numbers to Batchers, ``loading`` has those that are loaded now,
    ``broken`` maps numbers to sentences, ``found`` has the files. ``traffic`` says which versions
    serve; a version that it names is loaded if it has a file, whatever the policy says.
    ``sequences`` are those of all versions.
    """

    def __init__(
        self, name: str, metrics: Metrics | None = None, limits: SequenceLimits | None = None
    ) -> None:
        self.name = name
        self.metrics = metrics
        self.sequences = Sequences(name, limits)
        self.ready: dict[int, Batcher] = {}
        self.leaving: dict[int, Batcher] = {}
        self.loading: set[int] = set()
        self.broken: dict[int, str] = {}
        self.found: dict[int, Path] = {}
        self.traffic = Traffic()
        self.shadowing: Shadow | None = None
        self.cache: Cache | None = None
        self._shares = Shares({})
        self._history: list[int] = []  # versions that answered alone

    # Traffic -------------------------------------------------------------------------------------

    @property
    def labels(self) -> Mapping[str, int]:
        """The labels and their versions; ``label`` sets one."""
        return self.traffic.labels

    @property
    def current(self) -> int | None:
        """The version that answers where neither a request nor shares say which; None if none is
        ready.
        """
        if self.traffic.pinned in self.ready:
            return self.traffic.pinned
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
            raise self._refusal(number)
        return found

    def _refusal(self, number: int | None) -> UnavailableError | UnknownModelError:
        """Why a version does not answer."""
        if number is None:
            why = "; ".join(f"version {n}: {told}" for n, told in sorted(self.broken.items()))
            return UnavailableError(f"no version of {self.name!r} is ready", received=why or None)
        if number in self.broken:
            return UnavailableError(
                f"version {number} of {self.name!r} is broken", received=self.broken[number]
            )
        if number in self.loading or (number in self.found and number in self.traffic.versions()):
            return UnavailableError(f"version {number} of {self.name!r} is loading")
        return UnknownModelError(
            f"{self.name!r} has no version {number}",
            expected=", ".join(map(str, sorted(self.ready))) or "none is ready",
        )

    def next(
        self,
        version: int | None = None,
        label: str | None = None,
        header: Callable[[str], str | None] | None = None,
    ) -> Answering:
        """What answers the next request, which counts for the shares where it names no version.

        ``header`` gives the text of a header of the request, or None. Errors are as for
        ``batcher``.
        """
        if version is None and label is None and self.traffic.split:
            key = header(self.traffic.key) if header is not None and self.traffic.key else None
            version = (
                self._shares.pick(self.ready)
                if key is None
                else self._shares.pick_for(key, self.ready)
            )
        batcher, shadow = self.batcher(version, label), self.shadowing
        if batcher.version.signature.state is not None:
            return batcher  # an answer follows from those before: nothing else can tell it
        shadowed = shadow is not None and shadow.settings.version != batcher.version.number
        found = Shadowed(batcher, shadow) if shadow is not None and shadowed else batcher
        return found if self.cache is None else Cached(found, self.cache)

    # Routing -------------------------------------------------------------------------------------

    def direct(self, traffic: Traffic) -> None:
        """Let requests be answered so from now on.

        A version that is not loaded, but has a file, is loaded at the next look at the files.
        Raises ArgumentError for settings that cannot be, and what ``batcher`` raises for versions
        that are neither ready nor in files, or are broken; nothing is changed then.
        """
        traffic = traffic.checked()
        for number in traffic.versions() - self.traffic.versions():
            if number not in self.ready and (number not in self.found or number in self.broken):
                raise self._refusal(number)
        if traffic.split != self.traffic.split:
            self._shares = Shares(traffic.split)
        if traffic.shadow != self.traffic.shadow:
            if self.shadowing is not None:
                self.shadowing.close()
            self.shadowing = traffic.shadow and Shadow(
                self.name, self.ready, traffic.shadow, self.metrics
            )
        self.traffic = traffic
        self.note()

    def changed(self, told: Any) -> Traffic:
        """The traffic that a JSON object asks for: its fields, or ``{"roll_back": true}``."""
        if not isinstance(told, Mapping):
            raise ArgumentError("the body is a JSON object", received=type(told).__name__)
        if told.get("roll_back") is not True:
            return self.traffic.changed(told)
        if len(told) > 1:
            raise ArgumentError("a roll-back comes alone", op="traffic", argument="roll_back")
        return self.rolled_back()

    def pin(self, version: int | None) -> None:
        """Let this version answer where a request names none; None for the highest again."""
        self.direct(self.traffic._replace(pinned=version, split={}))

    def label(self, name: str, version: int | None) -> None:
        """Let a label stand for a version; None takes it off."""
        self.direct(self.traffic.changed({"labels": {name: version}}))

    def split(self, shares: Mapping[int, float], key: str = "") -> None:
        """Let versions answer shares of the requests that name none; ``{}`` ends it.

        ``key`` is the name of a header whose value decides, so that requests with the same one are
        answered by the same version; requests without it are counted.
        """
        self.direct(self.traffic._replace(split=shares, key=key))

    def shadow(
        self, version: int | None, share: float = 1.0, units: int = 4, tolerance: float = 0.0
    ) -> None:
        """Let a version compute again what others have answered, and compare; None ends it."""
        found = None if version is None else Shadowing(version, share, units, tolerance)
        self.direct(self.traffic._replace(shadow=found))

    def keep_answers(self, max_bytes: int | None) -> None:
        """Keep the answers that were asked for last, as many as fit into these bytes; None: none.

        ArgumentError for what is no size.
        """
        self.cache = None if max_bytes is None else Cache(self.name, max_bytes, self.metrics)

    def roll_back(self) -> int:
        """Let the version answer that did so before, alone; gives its number.

        Shares end: where there are some, it is the version that answered before them.
        UnknownModelError where none is left.
        """
        traffic = self.rolled_back()
        self.direct(traffic)
        assert traffic.pinned is not None
        return traffic.pinned

    def rolled_back(self) -> Traffic:
        """The traffic that ``roll_back`` leads to."""
        past = self._history if self.traffic.split else self._history[:-1]
        there = (self.ready.keys() | self.found.keys()) - self.broken.keys()
        left = [number for number in past if number in there]
        if not left:
            raise UnknownModelError(
                f"no version of {self.name!r} that answered before is left",
                expected=", ".join(map(str, sorted(self.ready))) or None,
                hint="pin one of those that are ready",
            )
        return self.traffic._replace(pinned=left[-1], split={})

    def note(self) -> None:
        """Remember the version that serves alone now; what came after it is forgotten."""
        number = self.current
        if number is None or self.traffic.split or self.traffic.pinned not in (None, number):
            return
        past = self._history
        past = past[: past.index(number)] if number in past else past
        self._history = [*past[-MAX_HISTORY:], number]

    def told(self) -> dict[str, object]:
        """The serving versions, and what the shadow found, as JSON."""
        found = None if self.shadowing is None else self.shadowing.told()
        return {"model": self.name, "current": self.current, **self.traffic.told(), "found": found}
