"""Links and steps fitted to a few measurements, for predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eagerflow.cluster.simulation.collectives import all_reduce, require_algorithm
from eagerflow.cluster.simulation.machines import Link, Machines, require_number
from eagerflow.cluster.simulation.workload import Workload
from eagerflow.errors import ArgumentError


class Calibration(NamedTuple):
    """Fitted values: a ``link`` between tasks, a step, and how tasks slow each other down.

    A step takes ``overhead`` seconds, ``example`` seconds for each example, and ``update``;
    ``crowd`` has the slowdown by numbers of tasks. A step of several tasks
    takes an additional ``run`` seconds, and ``task`` seconds for each of them.
    """

    link: Link
    overhead: float
    example: float
    update: float
    crowd: dict[int, float]
    run: float = 0.0
    task: float = 0.0

    def machines(self, count: int) -> Machines:
        """This number of tasks, as machines of one device each."""
        known = sorted(self.crowd)
        factor = np.interp(count, known, [self.crowd[n] for n in known])
        crowd = float(max(factor, 1.0))
        return Machines(count, link=self.link, crowd=crowd, run=self.run, task=self.task)

    def workload(self, work: Workload, batch: float) -> Workload:
        """The step with the measured times, for this number of examples on one device."""
        return replace(
            work,
            batch=batch,
            compute_seconds=self.overhead + self.example * batch,
            overhead=self.overhead,
            update=self.update,
            activations=work.activations * batch / work.batch,
            boundary=work.boundary * batch / work.batch,
            cuts=[c._replace(size=c.size * batch / work.batch) for c in work.cuts],
        )


def calibrated(
    *,
    transfers: Sequence[tuple[float, float]] = (),
    all_reduces: Sequence[tuple[float, int, float]] = (),
    steps: Sequence[tuple[float, float]],
    together: Sequence[tuple[int, float]] = (),
    runs: Sequence[tuple[int, float]] = (),
    update: float = 0.0,
    algorithm: str = "ring",
    bus: bool = False,
) -> Calibration:
    """Links and steps from measurements, by least squares of relative errors.

    ``transfers`` are (bytes, seconds) of messages one way, ``all_reduces`` (bytes, tasks, seconds)
    of sums by ``algorithm``; at least two of both kinds together. On a ``bus``, tasks share the
    bandwidth. ``steps`` are (examples, seconds) of the whole step of one task that runs alone, of
    which ``update`` seconds are the optimizer's; a single one gives no overhead. ``together`` are
    (tasks, slowdown) relative to that step: for this number of tasks that run it in parallel,
    without sending. ``runs`` are (tasks, seconds) of a nearly empty step over this
    number of tasks; a single one only gives a time for each task. Raises ArgumentError for too few
    measurements, and for invalid numbers.

    >>> found = ef.cluster.calibrated(
    ...     transfers=[(4e3, 5e-5), (4e6, 1e-3)],
    ...     steps=[(16, 0.02), (32, 0.035)],
    ...     together=[(2, 1.1)],
    ... )
    >>> round(found.link.bandwidth / 1e9, 2), round(found.overhead, 4), found.machines(2).crowd
    (4.21, 0.005, 1.1)
    """
    require_algorithm("calibrated", algorithm)
    rows = [(1.0, size, seconds) for size, seconds in transfers]
    unit = [Link(1.0, 1e300, bus), Link(0.0, 1.0, bus)]  # one counts messages, the other bytes
    for size, tasks, seconds in all_reduces:
        require_number("calibrated", "all_reduces", tasks, 2, count=True)
        messages, moved = (
            all_reduce(algorithm, size, Machines(tasks, link=one)).seconds for one in unit
        )
        rows.append((messages, moved, seconds))
    latency, inverse = _fitted("transfers", rows, least=2)
    largest = max((moved for _, moved, _ in rows), default=0.0)
    if inverse * largest <= 1e-9 * latency:  # zero up to rounding
        raise ArgumentError(
            "larger messages took no longer",
            op="calibrated",
            argument="transfers",
            expected="messages of which some are large enough to show a bandwidth",
        )
    require_number("calibrated", "update", update)
    alone = [(1.0, batch, seconds - update) for batch, seconds in steps]
    overhead, example = _fitted("steps", alone, least=1)
    crowd = {1: 1.0}
    for tasks, times in together:
        require_number("calibrated", "together", tasks, 1, count=True)
        require_number("calibrated", "together", times, beyond=True)
        crowd[tasks] = times
    run, task = _fitted("runs", [(1.0, *row) for row in runs], least=1) if runs else (0.0, 0.0)
    link = Link(latency, 1 / inverse, bus)
    return Calibration(link, overhead, example, update, crowd, run, task)


def _fitted(
    name: str, rows: Sequence[tuple[float, float, float]], least: int
) -> tuple[float, float]:
    """Two nonnegative factors with which the first columns of rows sum to the last."""
    if len(rows) < least:
        raise ArgumentError(
            "there are too few measurements",
            op="calibrated",
            argument=name,
            received=f"{len(rows)}",
            expected=f"at least {least}",
        )
    for row in rows:
        for number in row[1:]:
            require_number("calibrated", name, number, beyond=True)
    table = np.array(rows)
    scaled = table[:, :2] / table[:, 2:]  # each row should be 1
    one = np.ones(len(rows))
    best: tuple[float, tuple[float, float]] | None = None
    for kept in ([0, 1], [1], [0]) if len(rows) > 1 else ([1],):
        found = np.zeros(2)
        found[kept] = np.linalg.lstsq(scaled[:, kept], one, rcond=None)[0]
        error = float(((scaled @ found - 1) ** 2).sum())
        if (found >= 0).all() and (best is None or error < best[0]):
            best = error, (float(found[0]), float(found[1]))
    assert best is not None  # one factor of positive numbers is positive
    return best[1]
