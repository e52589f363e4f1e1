"""Plans that write an event for each step while a profile is open.

The program of a plan runs unchanged, with names bound to timed functions; segments are
in ``stamped``.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from eagerflow.devices import Device, device_of
from eagerflow.plan.device_segments import DeviceSegment, start
from eagerflow.plan.in_place import Commit, Update
from eagerflow.plan.lowering import Program
from eagerflow.plan.plan import Plan
from eagerflow.plan.profiled_segments import PREPARING, StepsSite, run_segment, timed_segment
from eagerflow.plan.segments import Segment
from eagerflow.profiling import device_events, log
from eagerflow.profiling.kernels import origin
from eagerflow.profiling.log import clock
from eagerflow.profiling.memory import watch
from eagerflow.profiling.rows import (
    Facts,
    Site,
    joined,
    place_of_code,
    step_facts,
    step_name,
    step_place,
)
from eagerflow.provenance import line_of

UPDATES = "updates of Variables"


# Segments on devices -----------------------------------------------------------------------------

_run_device_segment = DeviceSegment.__call__


def _timed_device_segment(self: DeviceSegment, rows: Any) -> None:
    """Start the steps one by one, as a recording does not show them separately."""
    for own, row in zip(self.steps, rows, strict=True):
        place = device_of(row[-1])
        if place is None or not place.backend.marks:
            start(own, row)
        else:
            device_events.start(place, StepsSite([own.step], [row]), None, start, own, row)


# Programs ----------------------------------------------------------------------------------------


class CallSite(Site):
    """Runs of a plan, which enclose its steps."""

    def __init__(self, plan: Plan) -> None:
        self.name, self.device = plan.graph.name, str(plan.device)

    def facts(self, detail: Any) -> Facts:
        """The name of the graph, and the line of its call."""
        place = place_of_code(*detail)
        return Facts(f"call of {self.name}", place, device=self.device, is_call=True)


class BuffersSite(Site):
    """The memory of a plan for its steps' results."""

    def __init__(self, name: str) -> None:
        self.name = name

    def facts(self, detail: Any) -> Facts:
        """The name of the graph, and the line of its call."""
        return Facts(f"buffers of {self.name}", place_of_code(*detail))


class LineSite(Site):
    """Calls of one name in the program of a plan."""

    def __init__(self, program: Program, name: str, thing: Any) -> None:
        self.places, self.name = program.places, name.lstrip("_")
        self.is_aside = isinstance(thing, Update)  # only prepares its kernel
        if self.is_aside:
            self.name += " made ready"

    def facts(self, detail: Any) -> Facts:
        """The step of the calling line."""
        step = self.places[line_of(*detail)[1] - 1]
        if step is None:
            return Facts(self.name)
        if self.name.startswith(step_name(step)) and not self.is_aside:
            return step_facts(step)
        return Facts(self.name, step_place(step))  # helpers of the step, such as a check of labels


class UpdatesSite(Site):
    """The end of a run, in which Variables are overwritten."""

    def __init__(self, commit: Commit) -> None:
        self.steps = [update.step for update in commit.updates]

    def facts(self, detail: Any) -> Facts:
        """All of them as one."""
        return joined([step_facts(step) for step in self.steps], UPDATES)


def _timed_step(thing: Callable[..., Any], site: LineSite, place: Device) -> Callable[..., Any]:
    """A function of a program that writes an event for each call."""

    def begin_there(*args: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        detail = frame.f_code, frame.f_lasti
        return device_events.start(place, site, detail, partial(thing, *args, **named))

    def call(*args: Any, **named: Any) -> Any:
        begin = clock()
        found = thing(*args, **named)
        end = clock()
        frame = sys._getframe(1)
        log.write(begin, end, site, (frame.f_code, frame.f_lasti))
        return found

    return begin_there if place.backend.marks else call


def _timed_names(plan: Plan) -> dict[str, Any]:
    """The objects bound to the names of a plan's program if its steps write events."""
    program = plan._program
    names: dict[str, Any] = {}
    for name, thing in program.globals.items():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename == plan.file:
            thing = FunctionType(thing.__code__, names)
        elif name.startswith("_") and callable(thing) and not isinstance(thing, _SEGMENTS):
            thing = _timed_step(thing, LineSite(program, name, thing), plan.device)
        names[name] = thing
    return names


_SEGMENTS = (Segment, DeviceSegment)


def _timed_plan(plan: Plan) -> Plan:
    """The same plan, in the same memory, with a function whose steps write events."""
    if plan.timed is None:
        begin = clock()
        made = copy.copy(plan)
        made._function = _timed_names(plan)["replay"]
        plan.timed = made
        log.write(begin, clock(), PREPARING)
    return plan.timed


_run_plan = Plan.run


def _timed_run(self: Plan, arrays: Sequence[Any], *more: Any) -> tuple[Any, ...]:
    begin = clock()
    made = _timed_plan(self)
    found = _run_plan(made, arrays, *more)
    end = clock()
    site, detail = CallSite(self), origin(sys._getframe(1))
    log.write(begin, end, site, detail)
    watch(found, end, site, detail)
    for frame in self._frames[-1:]:
        watch(frame.buffers[:1], end, BuffersSite(site.name), detail)
    return found


def _timed_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of commits that writes an event for each call."""

    def call(self: Commit, *args: Any) -> None:
        begin = clock()
        method(self, *args)
        log.write(begin, clock(), UpdatesSite(self))

    return call


PLANS = log.Forms(
    (Plan, "run", _run_plan, _timed_run),
    (Segment, "__call__", run_segment, timed_segment),
    (DeviceSegment, "__call__", _run_device_segment, _timed_device_segment),
    (Commit, "run", Commit.run, _timed_method(Commit.run)),
    (Commit, "replace", Commit.replace, _timed_method(Commit.replace)),
)
