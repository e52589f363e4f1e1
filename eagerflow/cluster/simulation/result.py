"""Results of a simulation: a table, the bottleneck by name, a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from eagerflow import extras
from eagerflow.cluster.simulation.machines import Machines
from eagerflow.cluster.simulation.step import COMPUTE, Step
from eagerflow.graph.text import aligned_columns, bytes_text, seconds_text
from eagerflow.notebook.plots import page_colours
from eagerflow.notebook.views import html

MILLION = 1_000_000
_TICKS = 8
_SHOWN_PART = 0.0005  # of the time; shorter parts are not listed


class Estimate(NamedTuple):
    """A step on some machines, as predicted.

    ``seconds`` is its time, ``parts`` that time by cause, ``throughput`` examples per
    second, ``speedup`` that relative to one device, ``efficiency`` the speed-up over the number
    of devices (above 1 if these divide the update of the weights as well), ``cost`` the price
    of a million examples, ``memory`` bytes of a device, ``traffic`` those that the
    busiest machine sends in a step, by link, ``algorithm`` the exchange if there is a choice.
    """

    machines: int
    devices: int
    seconds: float
    parts: Mapping[str, float]
    throughput: float
    speedup: float
    efficiency: float
    cost: float
    memory: float
    traffic: Mapping[str, float]
    algorithm: str = ""

    @classmethod
    def of(cls, step: Step, machines: Machines, one: float) -> Estimate:
        """A step on these machines; one device processes ``one`` examples per second."""
        seconds = step.seconds
        throughput = step.examples / seconds
        hours = MILLION / throughput / 3600 if throughput else math.inf
        price = (machines.count + step.servers) * machines.price
        return cls(
            machines.count,
            machines.devices,
            seconds,
            {name: part for name, part in step.parts.items() if part > 0},
            throughput,
            throughput / one,
            throughput / one / machines.devices,
            price * hours if price else 0.0,
            step.memory,
            step.traffic,
            step.algorithm,
        )

    @property
    def bottleneck(self) -> str:
        """The largest part of the time."""
        return max(self.parts, key=self.parts.__getitem__)

    @property
    def loss(self) -> str:
        """The largest part of the time besides computing; empty if there is none."""
        others = {name: part for name, part in self.parts.items() if name != COMPUTE}
        return max(others, key=others.__getitem__, default="")


class Simulation:
    """The result of ``simulate``: ``rows`` for rising numbers of machines, ``last`` for all.

    Prints as a table; ``plot`` draws it.

    >>> work = ef.cluster.Workload(compute_seconds=0.2, gradients=[1e7] * 10, batch=32)
    >>> found = ef.cluster.simulate(work, ef.cluster.Machines(4))
    >>> [row.machines for row in found.rows]
    [1, 2, 4]
    """

    def __init__(self, name: str, method: str, machines: Machines, rows: list[Estimate]) -> None:
        self.name, self.method, self.machines, self.rows = name, method, machines, rows

    @property
    def last(self) -> Estimate:
        """The step on all machines."""
        return self.rows[-1]

    @property
    def worth(self) -> bool:
        """Whether all machines process more examples per second than one of them."""
        return self.last.throughput > self.rows[0].throughput

    def table(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """The head and the rows of the table, as text."""
        priced = self.machines.price > 0
        head = ["machines", "devices", "step", "examples/s", "speed-up", "efficiency"]
        head += ["price of 1M"] * priced + ["most lost to"]
        rows = [
            (
                f"{row.machines:,}",
                f"{row.devices:,}",
                step_text(row.seconds),
                f"{row.throughput:,.4g}" if row.throughput < 1000 else f"{row.throughput:,.0f}",
                _ratio(row.speedup),
                f"{row.efficiency:.0%}",
                *([f"{row.cost:.4g}"] * priced),
                row.loss or "-",
            )
            for row in self.rows
        ]
        return head, rows

    def __str__(self) -> str:
        head, rows = self.table()
        lines = [f"simulation of {self.name}: {self.method}", ""]
        table = aligned_columns([tuple(head), *rows], ">" * (len(head) - 1) + "<")
        lines += [f"  {line}".rstrip() for line in table]
        lines += ["", *self._details()]
        return "\n".join(lines)

    def _details(self) -> list[str]:
        """The last row in full: parts of the time, memory, traffic, whether it is worth it."""
        last, first = self.last, self.rows[0]
        by = f", algorithm {last.algorithm}" if last.algorithm and last.devices > 1 else ""
        lines = [f"  a step of {machines_text(last.machines)}{by}: {step_text(last.seconds)}"]
        lines += [f"    {line}" for line in parts_lines(last)]
        lines.append(f"  memory of a device: {memory_text(last.memory, self.machines.memory)}")
        sent = [f"{bytes_text(size)} over the {name}" for name, size in last.traffic.items()]
        lines += [f"  traffic of a machine: {', '.join(sent)}"] * bool(sent)
        lines.append(f"  bottleneck: {last.bottleneck}")
        if len(self.rows) > 1:
            faster = last.throughput / first.throughput
            words = machines_text(first.machines)
            lines.append(
                f"  worth it: {_ratio(faster)} times as fast as {words}"
                if self.worth
                else f"  not worth it: {words} would do"
            )
        return lines

    def __repr__(self) -> str:
        last = self.last
        return (
            f"<Simulation of {self.name}: {machines_text(last.machines)}, "
            f"{step_text(last.seconds)} a step, {last.efficiency:.0%} efficient>"
        )

    def _repr_html_(self) -> str:
        return html(self, "simulations")

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw speed-up and parts of the time over numbers of devices, into a picture file.

        ``path`` ends in ``.png``, ``.svg`` or ``.pdf``. The picture is transparent, in colours for
        light and dark pages, unless matplotlib has a style with colours. Raises MissingExtraError
        if matplotlib is not installed.
        """
        figures = extras.load("matplotlib.figure", "plot", "Simulation.plot")
        with page_colours("Simulation.plot"):
            figure = figures.Figure(figsize=(10.5, 3.8), layout="constrained")
            left, right = figure.subplots(1, 2)
            self._draw_speedup(left)
            self._draw_parts(right)
            figure.suptitle(f"{self.name}: {self.method}")
            figure.savefig(path, dpi=120)

    def _draw_speedup(self, axes: Any) -> None:
        devices = [row.devices for row in self.rows]
        axes.plot(devices, devices, color="0.5", linestyle="--", label="ideal")
        axes.plot(devices, [row.speedup for row in self.rows], marker="o", label="predicted")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        every = -(-len(devices) // _TICKS)
        ticks = devices[::-1][::every]
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axes.set_yticks(ticks, [f"{n:,}" for n in ticks])
        axes.minorticks_off()
        axes.set(xlabel="devices", ylabel="times one device", title="speed-up")
        axes.grid(alpha=0.3)
        axes.legend()

    def _draw_parts(self, axes: Any) -> None:
        """Bars of the parts of a step's time, for each number of machines."""
        rows = [row for row in self.rows if math.isfinite(row.seconds)]
        places = range(len(rows))
        below = [0.0] * len(rows)
        for name in part_names(rows):
            own = [row.parts.get(name, 0.0) / row.seconds for row in rows]
            axes.bar(places, own, bottom=below, label=name, width=0.75)
            below = [a + b for a, b in zip(below, own, strict=True)]
        every = -(-len(rows) // _TICKS)
        ticks = places[::-1][::every]
        axes.set_xticks(ticks, [f"{rows[i].machines:,}" for i in ticks])
        axes.set(xlabel="machines", ylabel="share of a step", ylim=(0, 1))
        axes.set_title("where the time goes")
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


# Text --------------------------------------------------------------------------------------------


def _ratio(times: float) -> str:
    return f"{times:.2f}" if times < 100 else f"{times:,.0f}"


def step_text(seconds: float) -> str:
    """The time of a step, which may be infinite."""
    return seconds_text(seconds) if math.isfinite(seconds) else "never ends"


def machines_text(count: int) -> str:
    """A number of machines in words."""
    return f"{count:,} machine{'s' * (count != 1)}" if count > 1 else "one machine"


def memory_text(size: float, limit: float | None) -> str:
    """Bytes of a device, and whether they fit."""
    if limit is None:
        return bytes_text(size)
    words = f"{bytes_text(size)} of {bytes_text(limit)}"
    return words if size <= limit else f"{words}: it does not fit"


def part_names(rows: Sequence[Estimate]) -> list[str]:
    """The parts of the time that are significant in any row, in the order of steps."""
    every = dict.fromkeys(name for row in rows for name in row.parts)
    return [n for n in every if any(shown(row, row.parts.get(n, 0.0)) for row in rows)]


def shown(row: Estimate, part: float) -> bool:
    """Whether a part of the time is worth a line."""
    return part > _SHOWN_PART * row.seconds or math.isinf(part)


def parts_lines(row: Estimate) -> Iterable[str]:
    """The parts of a step's time, a line each, the longest first."""
    parts = sorted(row.parts.items(), key=lambda item: -item[1])
    cells = [
        (name, step_text(part), f"{part / row.seconds:.1%}" if math.isfinite(part) else "")
        for name, part in parts
        if shown(row, part)
    ]
    return aligned_columns(cells, "<>>")
