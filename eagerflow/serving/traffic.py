"""Traffic of a model, as data: a pinned version, labels, shares, a shadow."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError

__all__ = ["Shadowing", "Shares", "Traffic"]

MAX_LABELS = 100
MAX_SPLIT = 100


class Shadowing(NamedTuple):
    """The settings of a shadow, which recomputes requests that another version serves.

    ``version`` computes a ``share`` of them, from 0 to 1, after they were served. Its numbers count
    as close to the served ones when each is within ``units`` of the last place of the larger one,
    or within ``tolerance``.

    >>> ef.serving.Shadowing(4, share=0.5).units
    4
    """

    version: int
    share: float = 1.0
    units: int = 4
    tolerance: float = 0.0

    def checked(self) -> Shadowing:
        """These settings, validated; ArgumentError for a number out of range."""
        _check_version(self.version, "shadow")
        _check_number(self.share, "share", 1.0)
        _check_number(self.units, "units", float(1 << 53))
        _check_number(self.tolerance, "tolerance", math.inf)
        return self


class Traffic(NamedTuple):
    """The routing of a model's requests to its versions.

    A request that names a version or one of the ``labels`` goes there. Others are distributed over
    ``split``, which maps versions to shares; without it they go to the version ``pinned``, and
    without that to the highest. Where ``key`` names a header, requests with the same value of it go
    to the same version while the shares stay. ``shadow`` sets the version that recomputes requests.

    >>> traffic = ef.serving.Traffic(labels={"stable": 3}, split={3: 0.9, 4: 0.1})
    >>> traffic.versions()
    {3, 4}
    """

    pinned: int | None = None
    labels: Mapping[str, int] = {}
    split: Mapping[int, float] = {}
    key: str = ""
    shadow: Shadowing | None = None

    def versions(self) -> set[int]:
        """The versions that are named."""
        named = {self.pinned, *self.labels.values(), *self.split}
        if self.shadow is not None:
            named.add(self.shadow.version)
        return {number for number in named if number is not None}

    def checked(self) -> Traffic:
        """These settings with shares that add up to 1; ArgumentError for invalid ones."""
        if self.pinned is not None:
            _check_version(self.pinned, "pinned")
        _check_mapping(self.labels, "labels", MAX_LABELS)
        for label, number in self.labels.items():
            if not isinstance(label, str) or not label or "/" in label or len(label) > 100:
                _refuse(label, "label", "a text without '/', of 100 letters at most")
            _check_version(number, f"label {label}")
        _check_mapping(self.split, "split", MAX_SPLIT)
        for number, share in self.split.items():
            _check_version(number, "split")
            _check_number(share, "split", math.inf)
        total = sum(self.split.values())
        if self.split and not 0 < total < math.inf:
            _refuse(dict(self.split), "split", "shares of which one is above 0")
        if not isinstance(self.key, str):
            _refuse(self.key, "key", "the name of a header")
        if self.shadow is not None:
            self.shadow.checked()
        split = {n: self.split[n] / total for n in sorted(self.split)}
        return self._replace(labels=dict(self.labels), split=split)

    def told(self) -> dict[str, Any]:
        """These settings as JSON."""
        split = {str(number): share for number, share in self.split.items()}
        shadow = None if self.shadow is None else self.shadow._asdict()
        return self._asdict() | {"labels": dict(self.labels), "split": split, "shadow": shadow}

    def changed(self, told: Mapping[str, Any]) -> Traffic:
        """The settings, updated by the fields of a JSON object.

        Labels are updated one by one, and removed by null. ArgumentError names the invalid field.

        >>> ef.serving.Traffic(labels={"a": 1}).changed({"labels": {"b": 2}, "pinned": 1})
        Traffic(pinned=1, labels={'a': 1, 'b': 2}, split={}, key='', shadow=None)
        """
        strange = [name for name in told if name not in self._fields]
        if strange:
            _refuse(strange[0], "traffic", "one of " + ", ".join(self._fields))
        fields = dict(told)
        if "labels" in fields:
            given = _check_mapping(fields["labels"] or {}, "labels", MAX_LABELS)
            labels = {**self.labels, **given}
            fields["labels"] = {name: n for name, n in labels.items() if n is not None}
        if "split" in fields:
            split = _check_mapping(fields["split"] or {}, "split", MAX_SPLIT)
            fields["split"] = {_number(text): share for text, share in split.items()}
        if fields.get("shadow") is not None:
            shadow = _check_mapping(fields["shadow"], "shadow", len(Shadowing._fields))
            if "version" not in shadow or not set(shadow).issubset(Shadowing._fields):
                _refuse(shadow, "shadow", "an object of " + ", ".join(Shadowing._fields))
            fields["shadow"] = Shadowing(**shadow)
        if fields.get("key", "") is None:
            fields["key"] = ""
        return self._replace(**fields).checked()


def _refuse(value: Any, argument: str, expected: str) -> None:
    raise ArgumentError(
        f"{value!r:.80} does not fit", op="traffic", argument=argument[:80], expected=expected
    )


def _check_version(number: Any, argument: str) -> None:
    if type(number) is not int or not 0 <= number < 10**18:
        _refuse(number, argument, "the number of a version")


def _check_number(number: Any, argument: str, most: float) -> None:
    if type(number) not in (int, float) or not 0 <= number <= most or number == math.inf:
        _refuse(number, argument, f"a number from 0 to {most:g}")


def _check_mapping(value: Any, argument: str, most: int) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping) or len(value) > most:
        _refuse(value, argument, f"an object of {most} entries at most")
    return value  # type: ignore[no-any-return]


def _number(text: Any) -> Any:
    """The number of a version that is a key of a JSON object."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 19 else text


class Shares:
    """Picks versions so that each has exactly its share of the requests, in a fixed order.

    ``shares`` maps versions to shares that add up to 1. The version with the largest deficit is
    next: over any run of requests, each of two versions is less than one request away from its
    share.

    >>> shares = Shares({3: 0.75, 4: 0.25})
    >>> [shares.pick({3, 4}) for _ in range(8)]
    [3, 3, 4, 3, 3, 3, 4, 3]
    """

    def __init__(self, shares: Mapping[int, float]) -> None:
        self._shares = shares
        self._owed = dict.fromkeys(shares, 0.0)

    def _there(self, ready: Container[int]) -> dict[int, float]:
        return {n: share for n, share in self._shares.items() if share and n in ready}

    def pick(self, ready: Container[int]) -> int | None:
        """The version for the next request, of those that are ready; None where none is.

        Versions that are not ready leave their shares to the others.
        """
        there = self._there(ready)
        if not there:
            return None
        total = sum(there.values())
        for number, share in there.items():
            self._owed[number] += share / total
        found = max(there, key=self._owed.__getitem__)
        self._owed[found] -= 1.0
        return found

    def pick_for(self, key: str, ready: Container[int]) -> int | None:
        """The version for requests with this key: always the same while shares stay.

        The versions have adjacent parts of the range of a hash, in order, so that of two versions a
        growing share only takes keys from the other one.

        >>> Shares({3: 0.75, 4: 0.25}).pick_for("Alice", {3, 4})
        3
        """
        there = self._there(ready)
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2.0**64 * sum(there.values())
        found = None
        for number, share in there.items():
            found = number
            place -= share
            if place < 0:
                break
        return found
