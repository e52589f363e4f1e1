"""Repeated lines of a listing, such as those of equal layers, folded into the first and a count."""

from __future__ import annotations

import re
from collections.abc import Sequence

MIN_LINES = 100  # of a listing that is folded
MIN_COPIES = 3
MAX_TRIES = 8  # next lines of the same form at which a copy may begin
# Numbers in names; those of sizes, values and dtypes are no part of a name.
_NUMBER = re.compile(r"(?<![A-Za-z])(?:float|uint|int|bfloat|complex)\d+|(?<=[A-Za-z_/])\d+")
_SPACES = re.compile(r"(?<=\S)  +")
_HEAD = "in "
Key = tuple[int, tuple[int, ...]]


def fold(lines: Sequence[str]) -> list[str]:
    """The lines, of which copies with numbers counted on are left out; all if they are few.

    >>> from eagerflow.graph.folding import fold
    >>> for line in fold([f"  tanh_{i} = tanh(tanh_{i - 1})" for i in range(1, 200)]):
    ...     print(line)
      tanh_1 = tanh(tanh_0)
      ... 198 times more, up to tanh_199
    """
    if len(lines) < MIN_LINES:
        return list(lines)
    known: dict[str, int] = {}
    keys = [_key(line, known) for line in lines]
    places: dict[int, list[int]] = {}  # lines of each form, from the last to the first
    for at in reversed(range(len(keys))):
        places.setdefault(keys[at][0], []).append(at)
    found: list[str] = []
    at = 0
    while at < len(lines):
        period, copies = _repeated(keys, at, places) if lines[at] else (1, 1)
        copy = lines[at : at + period]
        heads = [i for i, line in enumerate(copy) if line.lstrip().startswith(_HEAD)]
        if copies > 1 and heads and heads[0]:  # a copy begins with its scope
            period, copies = heads[0], 1
        found += lines[at : at + period]
        at += period * copies
        if copies > 1:
            _count(found, lines[at - period : at], copies - 1)
    return found


def _count(found: list[str], last: Sequence[str], copies: int) -> None:
    """Add the number of further copies, and the name in the ``last`` one, before a blank line."""
    named = [line for line in last if line.lstrip().startswith(_HEAD)] or [x for x in last if x]
    words = named[-1].strip()
    name = (
        words.removesuffix(":").removeprefix(_HEAD)
        if words.startswith(_HEAD)
        else re.split(":? ", words)[0]
    )
    indent = named[-1][: len(named[-1]) - len(named[-1].lstrip())]
    place = len(found) - (not found[-1])
    found.insert(place, f"{indent}... {copies} times more, up to {name.rstrip(':,')}")


def _key(line: str, known: dict[str, int]) -> Key:
    """The number of a line's form, without the numbers in its names, and these."""
    numbers: list[int] = []

    def taken(match: re.Match[str]) -> str:
        if not match[0].isdigit():
            return match[0]
        numbers.append(int(match[0]))
        return "#"

    form = _NUMBER.sub(taken, _SPACES.sub(" ", line))
    return known.setdefault(form, len(known)), tuple(numbers)


def _repeated(keys: Sequence[Key], at: int, places: dict[int, list[int]]) -> tuple[int, int]:
    """The length and the number of the copies that begin at a line; (1, 1) without any."""
    alike = places[keys[at][0]]
    while alike[-1] <= at:
        alike.pop()
        if not alike:
            return 1, 1
    best = 1, 1
    for other in reversed(alike[-MAX_TRIES:]):
        period = other - at
        copies = _copies(keys, at, period)
        if copies >= MIN_COPIES and copies * period > best[0] * best[1]:
            best = period, copies
    return best


def _copies(keys: Sequence[Key], at: int, period: int) -> int:
    """How many copies follow each other, each with numbers as far from those before."""
    steps: list[tuple[int, ...]] = []
    copies, start = 1, at
    while start + 2 * period <= len(keys):
        for i in range(start, start + period):
            step = _step(keys[i], keys[i + period])
            if step is None or (copies > 1 and step != steps[i - start]):
                return copies
            if copies == 1:
                steps.append(step)
        copies, start = copies + 1, start + period
    return copies


def _step(one: Key, other: Key) -> tuple[int, ...] | None:
    """The differences of the numbers of two lines; None if their forms differ."""
    if one[0] != other[0]:
        return None
    return tuple(b - a for a, b in zip(one[1], other[1], strict=True))
