"""History: the traces of a function in words, for ``explain``."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from eagerflow import tree
from eagerflow.dims import symbolic
from eagerflow.dispatch import user_frame
from eagerflow.display import summary
from eagerflow.dtypes import NUMERIC
from eagerflow.errors import printable
from eagerflow.graph.graph import Graph
from eagerflow.runtime.clock_cache import ClockCache
from eagerflow.spec import TensorSpec

TOLD = 64  # number of traces kept; earlier ones are only counted
MANY = 5  # traces that differ in sizes alone, for which there is a warning
SHOWN = 3  # number of changed arguments shown by explain
NUMBERS = frozenset({int, float, complex, *(dtype.type for dtype in NUMERIC)})


class Argument(NamedTuple):
    """One leaf of the arguments as text; ``long`` includes devices."""

    name: str
    short: str
    long: str
    spec: TensorSpec | None = None
    """Of a tensor or an array."""


class Told(NamedTuple):
    """One trace as text, without references to its graph or arguments."""

    arguments: tuple[Argument, ...]
    reason: str
    nodes: int
    seconds: float
    unwatched: tuple[str, ...] = ()
    """Calls that cannot be compared, with their places."""

    @property
    def signature(self) -> str:
        """The arguments, as ``explain`` shows them."""
        return f"({', '.join(argument.short for argument in self.arguments)})"


def described(
    leaves: Sequence[Any], places: Sequence[int], names: Sequence[str]
) -> tuple[Argument, ...]:
    """Arguments as text; the leaves at ``places`` are inputs."""
    found = []
    for i, (x, name) in enumerate(zip(leaves, names, strict=True)):
        short = long = summary(x)
        spec = None
        if type(x) in NUMBERS and i in places:
            short = long = type(x).__name__
        elif i in places:
            spec = TensorSpec(x.shape, x.dtype)
            short = str(spec)
            if not x.dtype.isnative:
                short = long = f"{short} with swapped bytes"
        found.append(Argument(name, short, long, spec))
    return tuple(found)


def _differ_in_sizes(one: tuple[Argument, ...], two: tuple[Argument, ...]) -> bool:
    """Whether two traces have the same arguments but for the sizes of tensors."""
    return len(one) == len(two) and all(
        a.name == b.name
        and (
            a.long == b.long
            if a.spec is None or b.spec is None
            else (a.spec.dtype, len(a.spec.shape)) == (b.spec.dtype, len(b.spec.shape))
        )
        for a, b in zip(one, two, strict=True)
    )


def _is_free(arguments: tuple[Argument, ...]) -> bool:
    """Whether a trace has sizes without a number."""
    return any(a.spec is not None and symbolic(a.spec.shape) for a in arguments)


class _Code(str):
    """Python code in a nest; its repr is the code."""

    def __repr__(self) -> str:
        return str(self)


def _advice(name: str, alike: list[tuple[Argument, ...]], structure: tree.Structure) -> str:
    """Which sizes have changed, and the signature with which one graph serves all."""
    changing: dict[tuple[Any, ...], str] = {}  # the sizes of all traces, and their name
    axes: list[str] = []
    specs: list[Any] = []
    for column in zip(*alike, strict=True):
        known = [argument.spec for argument in column if argument.spec is not None]
        shape: list[Any] = []
        for axis, values in enumerate(zip(*[spec.shape for spec in known], strict=True)):
            varies = len(set(values)) > 1
            shape.append(changing.setdefault(values, f"n{len(changing)}") if varies else values[0])
            axes += [f"axis {axis} of {column[0].name!r}"] if varies else []
        text = f'ef.TensorSpec({tuple(shape)}, "{known[0].dtype}")' if known else "None"
        specs.append(_Code(text))
    args, kwargs = tree.unflatten(structure, specs)
    signature = "" if kwargs else f"={list(args)}"
    return (
        f"{name!r} was traced for {len(alike)} sizes of {' and '.join(axes)}, and each trace costs "
        "as much as many calls; one graph serves all sizes: "
        f"@ef.function(input_signature{signature})"
    )


def refusal(error: Exception) -> str:
    """Why no graph with free sizes could be traced, and where."""
    place = getattr(error, "at", None)
    return str(error).split("\n")[0] + (f" ({place})" if place else "")


class History:
    """The number of traces, and the last of them as text."""

    def __init__(self) -> None:
        self.count = 0
        self.last: deque[Told] = deque(maxlen=TOLD)
        self.refused: str | None = None  # why a graph with free sizes was not traced
        self._has_advised = False

    def add(
        self,
        graph: Graph,
        arguments: tuple[Argument, ...],
        reason: str | None,
        seconds: float,
        unwatched: Sequence[str] = (),
    ) -> Told:
        """Add a trace; the default ``reason`` is the change of its arguments."""
        why = reason or self._reason(arguments)
        told = Told(arguments, why, len(graph.nodes), seconds, tuple(unwatched))
        self.count += 1
        self.last.append(told)
        return told

    def advise(self, name: str, structure: tree.Structure) -> None:
        """Warn once, at the user's line, of many traces that differ in sizes alone."""
        if self._has_advised or self.count < MANY:
            return
        latest = self.last[-1].arguments
        sized = {told.arguments for told in self.last if not _is_free(told.arguments)}
        alike = [arguments for arguments in sized if _differ_in_sizes(arguments, latest)]
        if len(alike) >= MANY:
            self._has_advised = True
            frame = user_frame(sys._getframe(1))
            text = _advice(name, alike, structure)
            if self.refused is not None:
                text += f", but a trace with free sizes failed: {self.refused}"
            place = frame.f_code.co_filename, frame.f_lineno
            warnings.warn_explicit(text, UserWarning, *place)

    def _reason(self, arguments: tuple[Argument, ...]) -> str:
        """The change of the arguments since the most similar earlier trace."""
        if not self.count:
            return "the first call"
        names = [a.name for a in arguments]
        best: list[tuple[Argument, Argument]] | None = None
        for told in reversed(self.last):
            if [a.name for a in told.arguments] == names:
                pairs = zip(told.arguments, arguments, strict=True)
                unlike = [(a, b) for a, b in pairs if a.long != b.long]
                if best is None or len(unlike) < len(best):
                    best = unlike
        if best is None:
            return "another nest of arguments"
        words = [
            f"{b.name} changed from "
            + (f"{a.short} to {b.short}" if a.short != b.short else f"{a.long} to {b.long}")
            for a, b in best[:SHOWN]
        ]
        more = [f"{len(best) - SHOWN} more"] if len(best) > SHOWN else []
        return ", ".join(words + more) or "another object, or another current device"

    def text(self, name: str, graphs: ClockCache[Any], plans: Sequence[ClockCache[Any]]) -> str:
        """The text of all traces; ``graphs`` and ``plans`` know which were dropped since."""
        count = self.count
        lines = [f"{name} was traced {count} time{'s' * (count != 1)}"]
        first = count - len(self.last) + 1
        if first > 1:
            lines.append(f"  (the last {len(self.last)} are listed)")
        for i, told in enumerate(self.last, first):
            lines.append(
                f"  {i}. {told.signature}: {told.reason}; {told.nodes} nodes, "
                f"{told.seconds * 1e3:.1f} ms"
            )
            if told.unwatched:
                lines.append(f"     not watched: {', '.join(told.unwatched)}")
        dropped = sum(p.dropped for p in plans)
        for number, what, bound in (
            (graphs.dropped, "graph", graphs.bound),
            (dropped, "plan", plans[0].bound if plans else 0),
        ):
            if number:
                lines.append(
                    f"  {number} {what}{'s' * (number != 1)} that had not been used lately "
                    f"{'were' if number != 1 else 'was'} dropped: at most {bound} are kept "
                    "(max_graphs)"
                )
        if self.refused is not None:
            lines.append(f"  sizes that vary have graphs of their own: {self.refused}")
        return "\n".join([printable(x) for x in lines])
