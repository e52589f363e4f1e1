"""Profiles: where the time of a plan goes, step by step."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError, printable
from eagerflow.graph.costs import nbytes, stated_cost
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.text import aligned_columns
from eagerflow.plan.device_segments import DeviceSegment
from eagerflow.plan.segments import Segment

MAX_SHOWN_STEPS = 30  # in a table
Key = tuple[int, int]
"""A line of the program, and the number of a step in the segment that the line calls."""
UPDATES: Key = (0, 0)


class StepTime(NamedTuple):
    """What a step takes, and what it does by the facts of its ops: operations, bytes moved.

    ``calls`` is how often it runs; the other numbers are of all calls together.
    """

    name: str
    result: str
    place: str
    calls: int
    seconds: float
    flops: float = 0
    bytes: float = 0


class Profile:
    """The time of each step of a plan, the longest one first, as medians of some rounds.

    ``steps`` lists a StepTime for each; ``seconds`` is the time of the plan as it runs otherwise,
    where neighbouring steps are one call. What steps take one by one is somewhat more.
    """

    def __init__(self, name: str, steps: Sequence[StepTime], seconds: float) -> None:
        self.name = name
        self.steps = sorted(steps, key=lambda step: -step.seconds)
        self.seconds = seconds

    @property
    def step_seconds(self) -> float:
        """The times of all steps together."""
        return sum(step.seconds for step in self.steps)

    def __str__(self) -> str:
        head = ("ms", "share", "calls", "GFLOP/s", "GB/s", "step", "result", "line")
        rows = [head, *map(self._row, self.steps[:MAX_SHOWN_STEPS])]
        lines = aligned_columns(rows, ">>>>><<<")
        left = self.steps[MAX_SHOWN_STEPS:]
        if left:
            lines.append(f"and {len(left)} more: {sum(s.seconds for s in left) * 1e3:.3f} ms")
        lines.append(
            f"{self.name}: {self.seconds * 1e3:.3f} ms; one by one, {len(self.steps)} steps take "
            f"{self.step_seconds * 1e3:.3f} ms"
        )
        return printable("\n".join(lines), "\n")

    __repr__ = __str__

    def _row(self, step: StepTime) -> tuple[str, ...]:
        rates = (f"{n / step.seconds / 1e9:.1f}" if n else "" for n in (step.flops, step.bytes))
        share = f"{step.seconds / self.step_seconds:.0%}"
        return (
            f"{step.seconds * 1e3:.3f}",
            share,
            str(step.calls),
            *rates,
            step.name,
            step.result,
            step.place,
        )


class Stopwatch:
    """Notes how long the calls of a program take that is run with what it ``wraps``.

    ``wait`` returns when all that was started has been done.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self.steps: dict[Key, Any] = {}
        """The step of a segment; what else a line does, the plan knows."""
        self._times: defaultdict[Key, list[list[float]]] = defaultdict(list)
        self._round: defaultdict[Key, list[float]] = defaultdict(list)

    def wraps(self, thing: Any) -> Any:
        """A function of a program that is timed when it is called; a segment step by step."""

        def call(*args: Any, **named: Any) -> Any:
            return self.time((sys._getframe(1).f_lineno, 0), thing, *args, **named)

        return self._by_steps(thing) if isinstance(thing, Segment | DeviceSegment) else call

    def _by_steps(self, segment: Segment | DeviceSegment) -> Callable[..., Any]:
        alone = segment.alone()

        def call(rows: Sequence[Any]) -> None:
            line = sys._getframe(1).f_lineno
            for number, (step, own) in enumerate(alone):
                self.steps[line, number] = step
                self.time((line, number), own, (rows[number],))

        return call

    def time(self, key: Key, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Make a call whose time is noted."""
        begin = perf_counter()
        found = call(*args, **named)
        self._wait()
        self._round[key].append(perf_counter() - begin)
        return found

    def measure(self, rounds: int, plain: Callable[[], None], timed: Callable[[], None]) -> float:
        """Run a program so often, in turn as it is and with what is timed; the seconds of it."""
        if rounds < 1:
            raise ArgumentError(
                f"{rounds} rounds measure nothing",
                op="profile",
                argument="rounds",
                expected="1 at least",
            )
        wholes = []
        for number in range(-1, rounds):  # the first one prepares what comes later
            begin = perf_counter()
            plain()
            self._wait()
            wholes.append(perf_counter() - begin)
            self._round.clear()
            timed()
            for key, times in self._round.items() if number >= 0 else ():
                self._times[key].append(times)
        return median(wholes[1:])

    def medians(self) -> dict[Key, tuple[int, float]]:
        """How often each call is made in a run, and the seconds of all of them."""
        return {key: (len(times[0]), median(map(sum, times))) for key, times in self._times.items()}


def step_time(step: Any, where: str, calls: int, seconds: float) -> StepTime:
    """The row of a step of a plan, or of what stands for one."""
    nodes = [step] if isinstance(step, Node) else getattr(step, "nodes", ())
    flops = sum(stated_cost(node).flops for node in nodes)
    values = {v for v in (*step.inputs, *step.outputs) if type(v) is Value}
    name = step.op.name if isinstance(step, Node) else step.name
    made = [v for v in step.outputs if type(v) is Value]
    result = f"{made[0].dtype.name}{made[0].shape}" if made else ""
    result += f" and {len(made) - 1} more" if len(made) > 1 else ""
    size = sum(map(nbytes, values))
    return StepTime(name, result, where, calls, seconds, calls * flops, calls * size)
