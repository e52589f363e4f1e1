"""Segments that write an event for each step while a profile is open.

A segment stays one call of machine code: dedicated jobs record times between its steps
(``stamps``). Its steps are neither run separately nor reordered. A chain, whose steps
run interleaved, is one event. Each step of a loop is one event as well, the sum over all
iterations, and these events are consecutive; but not if an iteration is so short that reading
the clock would matter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.codegen.llvm import stamps
from eagerflow.codegen.region import Region
from eagerflow.dispatch import internal
from eagerflow.plan.loops import Iterations, NativeLoop
from eagerflow.plan.segments import Arrays, Layout, NativeCall, Segment, SegmentStep
from eagerflow.profiling import log
from eagerflow.profiling.kernels import origin
from eagerflow.profiling.log import clock
from eagerflow.profiling.rows import Facts, Site, joined, place_of_code, step_facts


class Aside(Site):
    """Work outside of steps, by its name in tables."""

    def __init__(self, name: str) -> None:
        self.name = name

    def facts(self, detail: Any) -> Facts:
        """Its name."""
        return Facts(self.name, is_call=True)


PREPARING = Aside("(preparing the profile)")
"""Overhead of a profile when a plan first runs under one."""
LEAVING = Aside("(waiting for threads that help)")


class StepsSite(Site):
    """Steps of a segment that run together; mostly one."""

    def __init__(self, steps: Sequence[Any], arrays: Sequence[Arrays]) -> None:
        self._parts = [
            (step, *(_sizes(row) if isinstance(step, Region) else (0, 0)))
            for step, row in zip(steps, arrays, strict=True)
        ]

    def facts(self, detail: Any) -> Facts:
        """All of them as one, at their line, or at the line of the call."""
        whole = joined(
            [
                _region_facts(step, *sizes) if isinstance(step, Region) else step_facts(step)
                for step, *sizes in self._parts
            ]
        )
        return whole if detail is None else whole._replace(place=place_of_code(*detail))


class LoopSite(Site):
    """A loop with separate events for its steps."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def facts(self, detail: Any) -> Facts:
        """The loop, without the work of its steps."""
        return step_facts(self.node)._replace(flops=0, bytes=0, is_call=True)


class IterationsSite(Site):
    """A step of a loop, summed over all iterations."""

    def __init__(self, step: Any, count: int) -> None:
        self.step, self.count = step, count

    def facts(self, detail: Any) -> Facts:
        """The step, this many times."""
        found, count = step_facts(self.step), self.count
        return found._replace(calls=count, flops=count * found.flops, bytes=count * found.bytes)


def _sizes(row: Arrays) -> tuple[int, int]:
    """Bytes of all arrays, and elements of the largest one."""
    return sum(a.nbytes for a in row), max(a.size for a in row)


def _region_facts(region: Region, size: int, elements: int) -> Facts:
    """A region that belongs to no node of a graph: one operation for each statement."""
    return Facts(region.name, flops=len(region.body) * elements, bytes=size)


class StampedLayout(Layout):
    """A segment for arrays of certain strides, with times recorded after each step."""

    def __init__(
        self, steps: Sequence[SegmentStep], natives: list[NativeCall | None], rows: Sequence[Arrays]
    ) -> None:
        self._steps, self._rows = steps, rows
        self._sites: list[Site] = []
        self._loops: dict[int, _Inside] = {}  # by the number of a site
        self._stamps = stamps.Stamps(len(steps))
        super().__init__(steps, natives, rows)
        self._rows = ()

    def _new_jobs(self, native: NativeCall, number: int) -> list[Any] | None:
        if not isinstance(native, NativeLoop) or _is_short(native.loop):
            return super()._new_jobs(native, number)
        inside = self._loops[len(self._sites)] = _Inside(native.loop)
        return native.new_jobs(number, self._start, inside.laps)

    def _added(self, numbers: Sequence[int]) -> None:
        own = [self._steps[i].step for i in numbers]
        if len(self._sites) in self._loops:
            self._sites.append(LoopSite(own[0]))
        else:
            self._sites.append(StepsSite(own, [self._rows[i] for i in numbers]))
        if self._waiting.run:
            stamp = self._stamps.job()
            self._waiting.held.append(stamp)
            self._waiting.run += stamp.run
        else:
            self.parts.append(_Note(self._stamps.note()))

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Run all steps, and write an event for each."""
        caller = sys._getframe(_FRAMES_TO_CALLER)
        # Otherwise it is a plan, whose steps know their lines.
        detail = origin(caller) if internal[caller.f_code.co_filename] else None
        self._stamps.reset()
        for inside in self._loops.values():
            inside.laps.reset()
        begin = clock()
        super().run(rows)
        for number, end in enumerate(self._stamps.read()):
            end = max(begin, end)
            log.write(begin, end, self._sites[number], detail)
            if number in self._loops:
                self._loops[number].write(begin, end)
            begin = end
        log.write(begin, clock(), LEAVING)


MIN_WATCHED_WORK = 20_000
"""Operations and bytes of a step of a loop, on average, that take about a microsecond."""


def _is_short(loop: Iterations) -> bool:
    """Whether the cost of reading the clock would matter for a step of a loop."""
    found = [step_facts(own.step) for own in loop.steps]
    return sum(facts.flops + facts.bytes for facts in found) < MIN_WATCHED_WORK * len(found)


class _Inside:
    """The steps of a loop, in the order in which their times are recorded."""

    def __init__(self, loop: Iterations) -> None:
        self.laps = stamps.Laps(len(loop.steps))
        self._sites = [IterationsSite(own.step, loop.count) for own in loop.steps]

    def write(self, begin: int, end: int) -> None:
        """Write an event for each, consecutively."""
        for number, taken in zip(self.laps.steps, self.laps.read(begin), strict=True):
            until = min(begin + max(taken, 0), end)
            log.write(begin, until, self._sites[number])
            begin = until


class _Note:
    """A time recorded between parts of a segment."""

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note

    def take(self, rows: tuple[tuple[Any, ...], ...]) -> int:
        """Do nothing: there are no arrays."""
        return 0

    def run(self, rows: tuple[tuple[Any, ...], ...]) -> None:
        """Record the time."""
        self._note()


class StampedSegment(Segment):
    """A segment that writes events."""

    layout = StampedLayout

    def __init__(self, plain: Segment) -> None:
        super().__init__(plain.steps)
        self._natives = plain._natives

    def layout_for(self, rows: tuple[tuple[Any, ...], ...]) -> Layout:
        """The same, as an event of the profile."""
        begin = clock()
        found = super().layout_for(rows)
        log.write(begin, clock(), PREPARING)
        return found


_FRAMES_TO_CALLER = 3  # from a layout's run: the segment's call, the timed one, and its caller
run_segment = Segment.__call__


def timed_segment(self: Segment, rows: tuple[tuple[Any, ...], ...]) -> None:
    """The call of a segment while there is a profile."""
    if isinstance(self, StampedSegment):
        run_segment(self, rows)
    elif stamps.can_stamp():
        if self.stamped is None:
            self.stamped = StampedSegment(self)
        run_segment(self.stamped, rows)
    else:
        begin = clock()
        run_segment(self, rows)
        log.write(begin, clock(), StepsSite([own.step for own in self.steps], rows))
