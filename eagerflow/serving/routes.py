"""Routing of a model's requests among its ready versions."""

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
"""A batcher, bare or behind a shadow or a cache: it has ``version``, and ``run`` as Batcher."""

MAX_HISTORY = 100


class Routes:
    """A model's versions, and the routing of requests to them.

    ``ready`` and ``leaving`` map numbers to Batchers, ``loading`` are those in loading, ``broken``
    maps numbers to reasons, ``found`` has the files. ``traffic`` selects the serving versions; a
    version that it names is loaded if it has a file, regardless of the policy. ``sequences`` are
    those of all versions.
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
        self._history: list[int] = []  # versions that served alone

    # Traffic -------------------------------------------------------------------------------------

    @property
    def labels(self) -> Mapping[str, int]:
        """The labels and their versions; ``label`` sets one."""
        return self.traffic.labels

    @property
    def current(self) -> int | None:
        """The version for unversioned requests without shares; None if none is ready."""
        if self.traffic.pinned in self.ready:
            return self.traffic.pinned
        return max(self.ready, default=None)

    def batcher(self, version: int | None = None, label: str | None = None) -> Batcher:
        """The Batcher of a version, of a label, or of the current version.

        Raises UnknownModelError for unknown numbers and labels, UnavailableError for versions that
        are loading or broken.
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
            found = self.leaving.get(version)  # it has sequences, and refuses other requests
        if found is None:
            raise self._refusal(number)
        return found

    def _refusal(self, number: int | None) -> UnavailableError | UnknownModelError:
        """The error for a version that cannot serve."""
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
        """The route of the next request, which counts towards the shares if it names no version.

        ``header`` returns a header of the request, or None. Raises the errors of ``batcher``.
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
            return batcher  # results depend on earlier requests: no cache, no shadow
        shadowed = shadow is not None and shadow.settings.version != batcher.version.number
        found = Shadowed(batcher, shadow) if shadow is not None and shadowed else batcher
        return found if self.cache is None else Cached(found, self.cache)

    # Routing -------------------------------------------------------------------------------------

    def direct(self, traffic: Traffic) -> None:
        """Set the traffic for requests from now on.

        A version that is not loaded, but has a file, is loaded at the next poll of the files.
        Raises ArgumentError for invalid settings, and the errors of ``batcher`` for versions that
        are neither ready nor in files, or are broken; nothing is changed then.
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
        """Serve requests that name no version by this one; None for the highest again."""
        self.direct(self.traffic._replace(pinned=version, split={}))

    def label(self, name: str, version: int | None) -> None:
        """Let a label refer to a version; None removes it."""
        self.direct(self.traffic.changed({"labels": {name: version}}))

    def split(self, shares: Mapping[int, float], key: str = "") -> None:
        """Split the requests that name no version by shares; ``{}`` ends the split.

        ``key`` names a header: requests with the same value of it are served by the same version;
        requests without it are distributed by count.
        """
        self.direct(self.traffic._replace(split=shares, key=key))

    def shadow(
        self, version: int | None, share: float = 1.0, units: int = 4, tolerance: float = 0.0
    ) -> None:
        """Let a shadow recompute requests that others have served, and compare; None ends it."""
        found = None if version is None else Shadowing(version, share, units, tolerance)
        self.direct(self.traffic._replace(shadow=found))

    def keep_answers(self, max_bytes: int | None) -> None:
        """Cache the most recently used responses within so many bytes; None turns the cache off.

        ArgumentError for an invalid size.
        """
        self.cache = None if max_bytes is None else Cache(self.name, max_bytes, self.metrics)

    def roll_back(self) -> int:
        """Return to the version that served alone before; returns its number.

        A split ends: it is then the version that served before the split. UnknownModelError where
        no earlier one is left.
        """
        traffic = self.rolled_back()
        self.direct(traffic)
        assert traffic.pinned is not None
        return traffic.pinned

    def rolled_back(self) -> Traffic:
        """The traffic after ``roll_back``."""
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
        """Record the version that serves alone now; later ones are removed from the history."""
        number = self.current
        if number is None or self.traffic.split or self.traffic.pinned not in (None, number):
            return
        past = self._history
        past = past[: past.index(number)] if number in past else past
        self._history = [*past[-MAX_HISTORY:], number]

    def told(self) -> dict[str, object]:
        """The traffic, and the shadow's findings, as JSON."""
        found = None if self.shadowing is None else self.shadowing.told()
        return {"model": self.name, "current": self.current, **self.traffic.told(), "found": found}
