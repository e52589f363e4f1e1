"""``ef.profile()``: the time of everything that runs, by op, line and device."""

from __future__ import annotations

import os

from eagerflow.devices import current_device
from eagerflow.display import html
from eagerflow.errors import ProfileError
from eagerflow.guard import ScopeGuard
from eagerflow.profiling import device_events, kernels, log, memory
from eagerflow.profiling.device_events import started
from eagerflow.profiling.log import clock, events, here
from eagerflow.profiling.results import Results
from eagerflow.profiling.table import table_text
from eagerflow.profiling.trace import write_profile

__all__ = ["Profile", "profile"]

for _switch in (kernels.Kernels(), memory.Memory(), device_events.DeviceEvents()):
    log.offer(_switch)


class Profile(Results, ScopeGuard):
    """A record of everything that ran while it was open, in all threads; made by ``ef.profile``.

    It is a context, or starts with ``start()`` and ends with ``stop()``; once only. Prints as a
    table: rows of the ops of eager code and of the steps of captured code, by the user's lines,
    with their time, operations, bytes, and shares of the machine's peak. ``by`` groups by other
    keys, ``save`` writes a trace. ``seconds`` is the time from start to end.
    """

    def __init__(
        self, gigaflops: float | None = None, gigabytes: float | None = None, runs: int = 1
    ) -> None:
        super().__init__(gigaflops, gigabytes, runs)
        # Numbers of events, device works, memory changes, and omitted calls at the start.
        self._first: tuple[int, int, int, int] | None = None

    # Opening and closing -------------------------------------------------------------------------

    def acquire(self) -> None:
        """Start; ProfileError if it has started before."""
        if self.begin:
            raise ProfileError(
                "this profile has begun before", op="profile", hint="ef.profile() makes a new one"
            )
        self._device, self.thread = str(current_device()), here.thread
        count = log.begin(self)
        self._first = count, len(started), len(memory.changes), log.left_out()
        self.begin = clock()

    def release(self) -> Exception | None:
        """End; later entries of the log belong to other profiles."""
        first = self._first
        if first is not None:
            end = clock()
            found = [log.Event(*event) for event in events[first[0] :]]
            found += device_events.ended(started[first[1] :])
            changes = [memory.Change(*change) for change in memory.changes[first[2] :]]
            self.left_out = log.left_out() - first[3]
            begin = self.begin or end
            self._changes = [c for c in changes if begin <= c.since and c.time <= end]
            self._events = [event.within(begin, end) for event in found]
            self.end = end
            self._first = None
        log.end(self)
        return None

    def start(self) -> Profile:
        """Start without a ``with`` statement; returns the profile itself.

        >>> p = ef.profile().start()
        >>> y = ef.ones(3) + 1.0
        >>> p.stop().by("op")[0].calls
        1
        """
        try:
            self.acquire()
        except ProfileError:
            raise
        except BaseException:  # Ctrl-C: there is no other holder that could end it
            self.release()
            raise
        return self

    def stop(self) -> Profile:
        """End; ProfileError if it has not started, or has ended."""
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
        """Whether it has started and not ended."""
        return self._first is not None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for chrome://tracing or ui.perfetto.dev, in the JSON form of such events.

        ``path`` is a file, which is written atomically. There is a track for each thread,
        with nested calls, and one for memory. Raises ProfileError while the profile is
        open, and FileFormatError if the file cannot be written.
        """
        self._closed("save")
        write_profile(self, path)

    def _repr_html_(self) -> str:
        return html(self, "profiles")

    def __str__(self) -> str:
        return repr(self) if self._events is None else table_text(self)

    def __repr__(self) -> str:
        if self._events is None:
            return f"<Profile, {'open' if self.is_open else 'not begun'}>"
        return f"<Profile of {self.seconds * 1e3:.3f} ms, {len(self._events):,} calls>"


def profile(gigaflops: float | None = None, gigabytes: float | None = None) -> Profile:
    """A context that profiles everything that runs in it: eager ops, captured steps, all threads.

    If nested, an inner profile covers its own block, an outer one all. ``gigaflops`` and
    ``gigabytes`` are the peak rates of the machine, in billions of float32 operations and of
    bytes per second, for the shares in the table; they are measured once by default.
    Raises ArgumentError for rates that are not positive numbers.

    >>> x = ef.ones((256, 256))
    >>> with ef.profile() as p:
    ...     y = ef.tanh(x @ x)
    >>> sorted(row.name for row in p.by("op"))
    ['matmul', 'tanh']
    >>> p
    <Profile of ... ms, 2 calls>
    """
    return Profile(gigaflops, gigabytes)
