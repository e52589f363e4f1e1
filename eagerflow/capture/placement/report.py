"""The bill of a partition: pieces, cut bytes, time and memory, before anything runs; and after."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.capture.placement.cutting import Division, Piece
from eagerflow.capture.placement.placement import _bytes as in_bytes
from eagerflow.capture.placement.placement import _seconds as in_seconds
from eagerflow.fusion.groups import fuse
from eagerflow.graph.ir import Graph, Value

__all__ = ["Bill", "Comparison", "bill_of", "predicted"]

WORTH = 0.95  # of one device's time, from which on several are said to be worth it


class Bill(NamedTuple):
    """What a partition costs, by the model of costs.

    ``seconds`` is the time of a run, ``one`` that on the fastest device alone, ``alone`` which
    that is; ``work`` are seconds of work of each device, ``peak`` the most bytes at once.
    """

    pieces: dict[str, int]
    cut_bytes: int
    cuts: int
    seconds: float
    one: float
    alone: str
    work: dict[str, float]
    peak: dict[str, int]

    @property
    def worth(self) -> bool:
        """Whether the devices together are faster than one of them."""
        return self.seconds < WORTH * self.one

    def __str__(self) -> str:
        lines = [
            f"  {_several(sum(self.pieces.values()), 'piece')}, {_several(self.cuts, 'value')} "
            f"sent, {in_bytes(self.cut_bytes)} in all",
            f"  {in_seconds(self.seconds)} predicted, {in_seconds(self.one)} on {self.alone} alone",
        ]
        for name, work in self.work.items():
            busy = work / self.seconds if self.seconds else 0.0
            lines.append(
                f"  {name}: {_several(self.pieces[name], 'piece')}, {in_seconds(work)} of work "
                f"({busy:.0%} busy), {in_bytes(self.peak[name])} at the peak"
            )
        if len(self.work) == 1:
            lines.append("  one device: there is nothing to win")
        elif self.worth:
            lines.append(f"  worth it: {self.one / self.seconds:.2f} times as fast as one device")
        else:
            lines.append(f"  not worth it: {self.alone} alone would do")
        return "\n".join(lines)


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def predicted(pieces: Sequence[Piece], seconds: Sequence[float], model: CostModel) -> float:
    """Seconds of a run, if each device takes its ready piece with the most work behind it."""
    waits = [len(p.after) for p in pieces]
    follows: list[list[int]] = [[] for _ in pieces]
    for p in pieces:
        for before in p.after:
            follows[before].append(p.number)
    arrivals = [0.0] * len(pieces)
    free: dict[Any, float] = {p.device: 0.0 for p in pieces}
    heap: list[tuple[float, float, int]] = []  # by the time at which it could begin
    for p in pieces:
        if not waits[p.number]:
            heappush(heap, (0.0, -p.priority, p.number))
    crowd = model.crowd if len(free) > 1 else 1.0
    last = 0.0
    while heap:
        at, priority, number = heappop(heap)
        own = pieces[number]
        begin = max(arrivals[number], max(free.values()) if own.alone else free[own.device])
        if begin > at:  # somebody else has the device until then
            heappush(heap, (begin, priority, number))
            continue
        end = begin + seconds[number] * (1.0 if own.alone else crowd)
        for place in free if own.alone else (own.device,):
            free[place] = end
        last = max(last, end)
        for k in follows[number]:
            # What waits for the piece before it on its own device is woken by nobody else.
            moved = 0.0 if pieces[k].device is own.device else model.latency
            arrivals[k] = max(arrivals[k], end + moved)
            waits[k] -= 1
            if not waits[k]:
                heappush(heap, (max(arrivals[k], free[pieces[k].device]), -pieces[k].priority, k))
    return last + (model.run if len(pieces) > 1 else 0.0)


def _peak(division: Division, pieces: Sequence[Piece], place: int, held: Sequence[Value]) -> int:
    """The most bytes of values on a device: what it holds from the start, makes and receives."""
    sizes: dict[Value, int] = {v: v.size * v.dtype.itemsize for v in held}
    steps: list[tuple[list[Value], list[Value]]] = []
    for piece in pieces:
        for step in piece.steps:
            given = [x for x in step.inputs if type(x) is Value and x.constant is None]
            steps.append((given, list(step.outputs)))
    kept = {v for v in division.graph.all_outputs() if division.places.get(v) == place}
    kept |= {next(c.sent.values()) for c in division.cuts}
    last: dict[Value, int] = {}
    for at, (given, made) in enumerate(steps):
        for v in (*given, *made):
            last[v] = at
    now = sum(sizes.values())
    most = now
    ending: dict[int, list[Value]] = {}
    for v, at in last.items():
        if v not in kept and v not in sizes:
            ending.setdefault(at, []).append(v)
    seen = set(sizes)
    for at, (given, made) in enumerate(steps):
        for v in (*given, *made):
            if v not in seen:
                seen.add(v)
                now += v.size * v.dtype.itemsize
        most = max(most, now)
        now -= sum(v.size * v.dtype.itemsize for v in ending.get(at, ()))
    return int(most)


def bill_of(graph: Graph, division: Division, model: CostModel, devices: Sequence[Any]) -> Bill:
    """The bill of a graph in pieces."""
    pieces = division.pieces
    seconds = [p.seconds(model) for p in pieces]
    names = [str(d) for d in devices]
    own = {name: [p for p in pieces if str(p.device) == name] for name in names}
    work = dict.fromkeys(names, 0.0)
    for p, taken in zip(pieces, seconds, strict=True):
        work[str(p.device)] += taken
    exact = any(p.exact for p in pieces)
    steps = graph.nodes if exact else fuse(graph)
    ones = {name: sum(model.step(s, name) for s in steps) for name in names}
    alone = min(names, key=lambda name: ones[name])
    entries = division.graph.all_inputs()
    peak = {
        name: _peak(division, own[name], k, [v for v in entries if division.places[v] == k])
        for k, name in enumerate(names)
    }
    return Bill(
        {name: len(own[name]) for name in names},
        sum(c.bytes for c in division.cuts),
        len(division.cuts),
        predicted(pieces, seconds, model),
        ones[alone],
        alone,
        work,
        peak,
    )


class Comparison(NamedTuple):
    """Predicted and measured seconds of a partition, of each piece, and of the whole."""

    pieces: list[tuple[str, float, float]]
    predicted: float
    measured: float
    runs: int

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else float("inf")

    def __str__(self) -> str:
        rows = [("", "predicted", "measured")]
        rows += [(name, in_seconds(p), in_seconds(m)) for name, p, m in self.pieces]
        rows.append(("whole run", in_seconds(self.predicted), in_seconds(self.measured)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows
        ]
        lines.append(
            f"  measured / predicted: {self.ratio:.2f}, median of {self.runs} "
            f"run{'s' * (self.runs != 1)}"
        )
        return "\n".join(lines)
