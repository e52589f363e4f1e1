"""``ef.profile()``: where the time goes of whatever runs."""

from __future__ import annotations

import os
from functools import cached_property
from math import inf

from eagerflow.devices import current_device
from eagerflow.errors import ArgumentError, ProfileError
from eagerflow.guard import ScopeGuard
from eagerflow.profiling import device_events, kernels, log, memory
from eagerflow.profiling.device_events import started
from eagerflow.profiling.log import clock, events, here
from eagerflow.profiling.machine import Machine, measured
from eagerflow.profiling.rows import KEYS, Part, Row, grouped, parts_of
from eagerflow.profiling.table import table_text
from eagerflow.profiling.trace import write_profile

__all__ = ["Profile", "profile"]

for _switch in (kernels.Kernels(), memory.Memory(), device_events.DeviceEvents()):
    log.offer(_switch)


class Profile(ScopeGuard):
    """What ran while it was open, in all threads; made by ``ef.profile``.

    It is a context, or begins with ``start()`` and ends with ``stop()``; once only. Prints as a
    table: rows of the ops of eager code and of the steps of captured code, by the user's lines,
    with their time, operations, bytes, and shares of the machine's peak. ``by`` groups otherwise,
    ``save`` writes a trace. ``seconds`` is the time from begin to end.
    """

    def __init__(
        self, gigaflops: float | None = None, gigabytes: float | None = None, runs: int = 1
    ) -> None:
        for name, value in (("gigaflops", gigaflops), ("gigabytes", gigabytes)):
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (plain and 0 < value < inf):
                raise _refused(f"{value!r} is no rate", name, "a number above 0")
        if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
            raise _refused(f"{runs} rounds measure nothing", "rounds", "1 at least")
        self.runs = runs
        self._told = gigaflops, gigabytes
        # How many events, works of devices, changes of memory, and calls left out there were.
        self._first: tuple[int, int, int, int] | None = None
        self._begin = self._end = 0
        self._events: list[log.Event] | None = None
        self._changes: list[memory.Change] = []
        self._left_out = 0
        self._device = ""
        self.thread = here.thread
        """The thread that has opened it."""

    # Opening and closing -------------------------------------------------------------------------

    def acquire(self) -> None:
        """Begin; ProfileError where it has begun before."""
        if self._begin:
            raise ProfileError(
                "this profile has begun before", op="profile", hint="ef.profile() makes a new one"
            )
        self._device, self.thread = str(current_device()), here.thread
        count = log.begin(self)
        self._first = count, len(started), len(memory.changes), log.left_out()
        self._begin = clock()

    def release(self) -> Exception | None:
        """End; what is written into the log later is others'."""
        first = self._first
        if first is not None:
            end = clock()
            found = [log.Event(*event) for event in events[first[0] :]]
            found += device_events.ended(started[first[1] :])
            changes = [memory.Change(*change) for change in memory.changes[first[2] :]]
            self._left_out = log.left_out() - first[3]
            begin = self._begin or end
            self._changes = [c for c in changes if begin <= c.since and c.time <= end]
            self._events = [event.within(begin, end) for event in found]
            self._end = end
            self._first = None
        log.end(self)
        return None

    def start(self) -> Profile:
        """Begin, where no ``with`` statement does; gives the profile itself.

        >>> p = ef.profile().start()
        >>> y = ef.ones(3) + 1.0
        >>> p.stop().by("op")[0].calls
        1
        """
        try:
            self.acquire()
        except ProfileError:
            raise
        except BaseException:  # Ctrl-C: nobody has it who could end it
            self.release()
            raise
        return self

    def stop(self) -> Profile:
        """End; ProfileError where it has not begun, or has ended."""
        if self._first is None:
            raise ProfileError(
                "this profile is not open",
                op="stop",
                expected="start() before, and one stop() for it",
            )
        self.release()
        return self

    @property
    def is_open(self) -> bool:
        """Whether it has begun and has not ended."""
        return self._first is not None

    # What was seen -------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """The time from begin to end."""
        self._closed("seconds")
        return (self._end - self._begin) * 1e-9

    @property
    def begin(self) -> int:
        """When it began, in nanoseconds on the clock of ``time.perf_counter_ns``."""
        return self._begin

    @property
    def events(self) -> list[log.Event]:
        """What was written, in the order in which it ended."""
        return self._closed("events")

    @property
    def left_out(self) -> int:
        """About how many calls were too many to be kept."""
        return self._left_out

    @cached_property
    def parts(self) -> list[Part]:
        """Events with their own times, without those of what ran in them."""
        return parts_of(self._closed("parts"), self._device)

    @property
    def own_parts(self) -> list[Part]:
        """Those of the thread that has opened it."""
        return [part for part in self.parts if part.event.thread is self.thread]

    def by(self, key: str) -> list[Row]:
        """Rows of all that ran, the longest first.

        ``key`` is "op", "line", "region" (what one kernel of a plan computes), "thread" or
        "device". A row has a name, calls, seconds, flops and bytes. Raises ArgumentError for
        another key, and ProfileError while the profile is open.

        >>> with ef.profile() as p:
        ...     y = ef.tanh(ef.ones((100, 100)))
        >>> [(row.name, row.calls) for row in p.by("device")]
        [('cpu:0', 2)]
        """
        if key not in KEYS:
            raise _refused(f"{key!r} is no key", "key", ", ".join(map(repr, KEYS)), "by")
        return grouped(self.parts, KEYS[key])

    @property
    def rows(self) -> list[Row]:
        """Rows of the table: what has one name and one line."""
        return grouped(self.parts, lambda part: (part.facts.name, part.facts.place))

    @property
    def accounted(self) -> float:
        """Seconds of its own thread in which something ran that is in the rows."""
        return sum(part.seconds for part in self.own_parts)

    @property
    def other(self) -> float:
        """Seconds of its own thread in Python, or waiting: between what is in the rows."""
        return self.seconds - self.accounted

    @cached_property
    def memory(self) -> memory.Timeline:
        """Memory over time that results took which were made meanwhile, and the lines that hold it.

        Arrays below 64 KiB are left out.
        """
        self._closed("memory")
        return memory.Timeline(self._changes)

    @cached_property
    def machine(self) -> Machine:
        """The most that this machine reaches: as told to ``ef.profile``, or measured now."""
        gigaflops, gigabytes = self._told
        if gigaflops is not None and gigabytes is not None:
            return Machine(gigaflops, gigabytes)
        found = measured()
        return Machine(gigaflops or found.gigaflops, gigabytes or found.gigabytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for chrome://tracing or ui.perfetto.dev, in the JSON form of such events.

        ``path`` is a file, which is written whole or not at all. There is a track for each thread,
        with calls inside each other, and one for memory. Raises ProfileError while the profile is
        open, and FileFormatError where the file cannot be written.
        """
        self._closed("save")
        write_profile(self, path)

    def _closed(self, how: str) -> list[log.Event]:
        if self._events is None:
            raise ProfileError(
                "there is nothing to show before the profile has ended",
                op=how,
                hint="leave the with statement first, or call stop()",
            )
        return self._events

    def __str__(self) -> str:
        return repr(self) if self._events is None else table_text(self)

    def __repr__(self) -> str:
        if self._events is None:
            return f"<Profile, {'open' if self.is_open else 'not begun'}>"
        return f"<Profile of {self.seconds * 1e3:.3f} ms, {len(self._events):,} calls>"


def _refused(words: str, argument: str, expected: str, op: str = "profile") -> ArgumentError:
    return ArgumentError(words, op=op, argument=argument, expected=expected)


def profile(gigaflops: float | None = None, gigabytes: float | None = None) -> Profile:
    """A context that sees what runs in it: eager ops, captured steps, in all threads.

    Inside each other, an inner profile sees its own, an outer one all. ``gigaflops`` and
    ``gigabytes`` are the most that the machine reaches, in billions of float32 operations and of
    bytes a second, for the shares in the table; they are measured once where they are not told.
    Raises ArgumentError for rates that are no positive numbers.

    >>> x = ef.ones((256, 256))
    >>> with ef.profile() as p:
    ...     y = ef.tanh(x @ x)
    >>> sorted(row.name for row in p.by("op"))
    ['matmul', 'tanh']
    >>> p
    <Profile of ... ms, 2 calls>
    """
    return Profile(gigaflops, gigabytes)
