"""Cost reports of partitions: pieces, sent bytes, time and memory, before and after a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eagerflow.capture.placement.cost_model import CostModel
from eagerflow.capture.placement.cutting import Division, Piece
from eagerflow.capture.placement.schedule import list_schedule
from eagerflow.devices import Device
from eagerflow.fusion.groups import fuse
from eagerflow.graph.costs import nbytes, peak_bytes
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value
from eagerflow.graph.text import aligned_columns, bytes_text, seconds_text

WORTHWHILE_RATIO = 0.95  # largest time relative to one device that counts as worthwhile


class CostReport(NamedTuple):
    """The predicted costs of a partition.

    ``seconds`` is the time of a run, ``one`` that on the fastest single device, ``alone`` that
    device; ``work`` is the seconds of work of each device, ``peak`` the peak number of bytes.
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
        return self.seconds < WORTHWHILE_RATIO * self.one

    def __str__(self) -> str:
        lines = [
            f"  {_several(sum(self.pieces.values()), 'piece')}, {_several(self.cuts, 'value')} "
            f"sent, {bytes_text(self.cut_bytes, '.4g')} in all",
            f"  {seconds_text(self.seconds)} predicted, {seconds_text(self.one)} on "
            f"{self.alone} alone",
        ]
        for name, work in self.work.items():
            busy = work / self.seconds if self.seconds else 0.0
            lines.append(
                f"  {name}: {_several(self.pieces[name], 'piece')}, {seconds_text(work)} of work "
                f"({busy:.0%} busy), {bytes_text(self.peak[name], '.4g')} at the peak"
            )
        if len(self.work) == 1:
            lines.append("  one device: there is nothing to win")
        elif self.worth:
            lines.append(f"  worth it: {self.one / self.seconds:.2f} times as fast as one device")
        else:
            lines.append(f"  not worth it: {self.alone} alone is enough")
        return "\n".join(lines)


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def predicted(
    pieces: Sequence[Piece], step_seconds: Sequence[Sequence[float]], model: CostModel
) -> float:
    """Seconds of a run in which each device runs its ready piece with the most remaining work."""
    numbers = {place: k for k, place in enumerate(dict.fromkeys(p.device for p in pieces))}
    alone = {p.number for p in pieces if p.alone}
    crowd = model.crowd if len(numbers) > 1 else 1.0
    remaining = [p.remaining(own) for p, own in zip(pieces, step_seconds, strict=True)]
    follows: list[dict[int, float]] = [{} for _ in pieces]
    for p in pieces:
        for before, values in p.waits.items():
            # Only other devices need a notification of a piece's end, or of its published values.
            told = pieces[before].device is not p.device
            early = min(remaining[before].get(v, 0.0) for v in values)
            early *= 1.0 if before in alone else crowd
            follows[before][p.number] = model.latency * told - early
    found = list_schedule(
        [numbers[p.device] for p in pieces],
        [sum(own) * (1.0 if i in alone else crowd) for i, own in enumerate(step_seconds)],
        [p.priority for p in pieces],
        follows,
        [0.0] * len(pieces),
        alone,
    )
    return found.seconds + (model.run if len(pieces) > 1 else 0.0)


def _peak(division: Division, pieces: Sequence[Piece], device: int) -> int:
    """The peak bytes of values on a device: initial, computed and received ones."""
    graph, places = division.graph, division.places
    held = {v for v in graph.all_inputs() if places[v] == device}
    kept = {v for v in graph.all_outputs() if places.get(v) == device}
    kept |= {c.given for c in division.cuts}
    uses = [
        [
            x
            for x in (*step.inputs, *step.outputs)
            if type(x) is Value and x.constant is None and x not in held
        ]
        for piece in pieces
        for step in piece.steps
    ]
    return int(sum(nbytes(x) for x in held) + peak_bytes(uses, kept))


def cost_report(
    graph: Graph, division: Division, model: CostModel, devices: Sequence[Device]
) -> CostReport:
    """The predicted costs of a graph in pieces."""
    pieces = division.pieces
    step_seconds = [p.step_seconds(model) for p in pieces]
    names = [str(d) for d in devices]
    own = {name: [p for p in pieces if str(p.device) == name] for name in names}
    work = dict.fromkeys(names, 0.0)
    for p, taken in zip(pieces, step_seconds, strict=True):
        work[str(p.device)] += sum(taken)
    exact = any(p.exact for p in pieces)
    steps = graph.nodes if exact else fuse(graph)
    ones = {name: sum(model.step(s, name) for s in steps) for name in names}
    alone = min(names, key=ones.__getitem__)
    return CostReport(
        {name: len(own[name]) for name in names},
        sum(c.bytes for c in division.cuts),
        len(division.cuts),
        predicted(pieces, step_seconds, model),
        ones[alone],
        alone,
        work,
        {name: _peak(division, own[name], k) for k, name in enumerate(names)},
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
        rows += [(name, seconds_text(p), seconds_text(m)) for name, p, m in self.pieces]
        rows.append(("whole run", seconds_text(self.predicted), seconds_text(self.measured)))
        lines = [f"  {line}" for line in aligned_columns(rows, "<>>")]
        lines.append(
            f"  measured / predicted: {self.ratio:.2f}, median of {self.runs} "
            f"run{'s' * (self.runs != 1)}"
        )
        return "\n".join(lines)
