"""The results of a profile: events as rows, times, memory."""

from __future__ import annotations

from math import inf

from eagerflow.errors import ArgumentError, ProfileError
from eagerflow.profiling import log, memory
from eagerflow.profiling.machine import Machine, measured
from eagerflow.profiling.rows import KEYS, Part, Row, grouped, parts_of
from eagerflow.runtime.properties import cached_property


class Results:
    """The results from ``begin`` to ``end``, once that is over; see ``Profile``.

    Figures of a table are per run, for this number of ``runs``.
    """

    def __init__(self, gigaflops: float | None, gigabytes: float | None, runs: int) -> None:
        for name, value in (("gigaflops", gigaflops), ("gigabytes", gigabytes)):
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (plain and 0 < value < inf):
                raise refused(f"{value!r} is not a rate", name, "a number above 0")
        if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
            raise refused(f"{runs} rounds measure nothing", "rounds", "1 at least")
        self.runs = runs
        self.thread = log.here.thread
        """The thread that opened it."""
        self.begin = self.end = 0
        """Nanoseconds on the clock of ``time.perf_counter_ns``."""
        self.left_out = 0
        """The approximate number of calls beyond the maximum."""
        self._told = gigaflops, gigabytes
        self._events: list[log.Event] | None = None
        self._changes: list[memory.Change] = []
        self._device = ""

    @property
    def seconds(self) -> float:
        """The time from begin to end."""
        self._closed("seconds")
        return (self.end - self.begin) * 1e-9

    @property
    def events(self) -> list[log.Event]:
        """The events written, in order of their ends."""
        return self._closed("events")

    @cached_property
    def parts(self) -> list[Part]:
        """Events with their own times, without those of nested ones."""
        return parts_of(self._closed("parts"), self._device)

    @property
    def own_parts(self) -> list[Part]:
        """Those of the thread that opened it."""
        return [part for part in self.parts if part.event.thread is self.thread]

    def by(self, key: str) -> list[Row]:
        """Rows of everything that ran, the longest first.

        ``key`` is "op", "line", "region" (one kernel of a plan), "thread" or
        "device". A row has a name, calls, seconds, flops and bytes. Raises ArgumentError for
        any other key, and ProfileError while the profile is open.

        >>> with ef.profile() as p:
        ...     y = ef.tanh(ef.ones((100, 100)))
        >>> [(row.name, row.calls) for row in p.by("device")]
        [('cpu:0', 2)]
        """
        if key not in KEYS:
            raise refused(f"{key!r} is not a key", "key", ", ".join(map(repr, KEYS)), "by")
        return grouped(self.parts, KEYS[key])

    @property
    def rows(self) -> list[Row]:
        """Rows of the table, by name and line."""
        return grouped(self.parts, lambda part: (part.facts.name, part.facts.place))

    @property
    def accounted(self) -> float:
        """Seconds of its own thread that are accounted for in the rows."""
        return sum(part.seconds for part in self.own_parts)

    @property
    def other(self) -> float:
        """Seconds of its own thread in Python, or waiting: between the rows."""
        return self.seconds - self.accounted

    @cached_property
    def memory(self) -> memory.Timeline:
        """Memory of results over time, and the lines that hold it.

        Arrays below 64 KiB are left out.
        """
        self._closed("memory")
        return memory.Timeline(self._changes)

    @cached_property
    def machine(self) -> Machine:
        """The peak rates of this machine: as given to ``ef.profile``, or measured now."""
        gigaflops, gigabytes = self._told
        if gigaflops is not None and gigabytes is not None:
            return Machine(gigaflops, gigabytes)
        found = measured()
        return Machine(gigaflops or found.gigaflops, gigabytes or found.gigabytes)

    def _closed(self, how: str) -> list[log.Event]:
        if self._events is None:
            raise ProfileError(
                "there is nothing to show before the profile has ended",
                op=how,
                hint="leave the with statement first, or call stop()",
            )
        return self._events


def refused(words: str, argument: str, expected: str, op: str = "profile") -> ArgumentError:
    """The error of an argument."""
    return ArgumentError(words, op=op, argument=argument, expected=expected)
