"""Rows of a profile: ops, steps of plans and calls, from events.

The writer of an event passes a *site*, which can describe it later: so nothing is computed
while a program runs. Nested calls are separated: a row has the time of its calls
without that of nested calls, so that all rows together are the time in which anything ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from eagerflow.devices import Device
from eagerflow.errors import printable
from eagerflow.graph.costs import nbytes, stated_cost
from eagerflow.graph.ir import Node, Source, Value
from eagerflow.graph.text import line_name
from eagerflow.handlers import raised_here
from eagerflow.op import Op
from eagerflow.profiling.log import Event
from eagerflow.provenance import line_of
from eagerflow.spec import TensorSpec, known_spec

EAGER = "(eager)"
UNKNOWN = "(unknown)"


class Facts(NamedTuple):
    """A site's description of a call; ``flops`` and ``bytes`` follow from its ops' facts.

    ``region`` is the kernel of a plan. A site with ``is_call`` encloses other calls, and is
    no kernel itself. Without a ``place`` or a ``device`` it inherits that of the enclosing call. An
    event may stand for several ``calls``.
    """

    name: str
    place: str = ""
    result: str = ""
    region: str = EAGER
    device: str = ""
    flops: float = 0
    bytes: float = 0
    is_call: bool = False
    calls: int = 1


class Site:
    """The origin of an event."""

    def facts(self, detail: Any) -> Facts:
        """The description of an event, from data recorded for the single call."""
        raise NotImplementedError


class Row(NamedTuple):
    """A group of calls: their number, and total seconds, operations and bytes."""

    name: str
    calls: int
    seconds: float
    flops: float = 0
    bytes: float = 0
    result: str = ""
    place: str = ""

    @property
    def gigaflops(self) -> float:
        """Billions of operations per second."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gigabytes(self) -> float:
        """Billions of bytes per second."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


# Sites of eager code -----------------------------------------------------------------------------


@lru_cache(4096)
def place_of_code(code: Any, at: int) -> str:
    """``file:line`` of an instruction."""
    return printable(line_name((*line_of(code, at), "")))


class OpSite(Site):
    """Calls of an op's kernel in eager code."""

    def __init__(self, op: Op, device: Device) -> None:
        self.op, self.device = op, device

    def facts(self, detail: Any) -> Facts:
        """The op, with its facts for arguments like these."""
        code, at, given, attributes = detail
        flops, size, result = self._cost(given, attributes)
        place = place_of_code(code, at)
        return Facts(self.op.name, place, result, EAGER, str(self.device), flops, size)

    def _cost(self, given: list[Any], attributes: dict[str, Any]) -> tuple[float, float, str]:
        """Operations and bytes by the op's facts, and its result."""
        specs = [_spec(x, self.device) for x in given]
        try:
            data, bound = self.op.bind(tuple(specs), attributes)
            cost = self.op.cost(*data, **bound)
            found = self.op.infer(*data, **bound)
            return float(cost.flops), float(cost.bytes), _result(found)
        except raised_here(Exception):  # sizes that depend on values, or other attributes
            return 0.0, float(sum(_bytes(x) for x in specs)), ""


class GradientSite(Site):
    """Derivatives of an op, computed in one pass, that no op stands for."""

    def __init__(self, op: Op) -> None:
        self.op = op

    @staticmethod
    @cache
    def of(op: Op) -> GradientSite:
        """The site for the gradient of an op."""
        return GradientSite(op)

    def facts(self, detail: Any) -> Facts:
        """The op that this is the gradient of, at its line; the operations are unknown."""
        code, at, given = detail
        (shape, dtype), *_ = given
        size = sum(_bytes(_spec(x, None)) for x in [given[0], *given])  # including the result
        place, result = place_of_code(code, at), f"{dtype.name}{shape}"
        return Facts(f"gradient of {self.op.name}", place, result, EAGER, "", 0, size)


def _spec(x: Any, device: Any) -> Any:
    return known_spec(*x, device) if type(x) is tuple and len(x) == 2 and _is_spec(x) else x


def _is_spec(x: Any) -> bool:
    return type(x[0]) is tuple and hasattr(x[1], "itemsize")


def _bytes(x: Any) -> float:
    if not isinstance(x, TensorSpec):
        return 0.0
    try:
        return float(x.size * x.dtype.itemsize)
    except raised_here(TypeError):  # a named size
        return 0.0


def _result(found: Any) -> str:
    first, *more = found if isinstance(found, tuple | list) else (found,)
    return f"{first.dtype.name}{tuple(first.shape)}" + (f" and {len(more)} more" if more else "")


# Sites of plans ----------------------------------------------------------------------------------


def step_name(step: Any) -> str:
    """The op of a step that is a node; else its own name."""
    if isinstance(step, Node):
        return step.op.name
    return getattr(step, "name", None) or type(step).__name__.lower()


def step_source(step: Any) -> Source | None:
    """The place of a step in the user's code; of a region, that of its last node."""
    node = step.nodes[-1] if getattr(step, "nodes", ()) else step
    return node.source if isinstance(node, Node) else None


def step_place(step: Any) -> str:
    """The user's line of a step, in short form."""
    source = step_source(step)
    return "" if source is None else printable(line_name(source))


def step_facts(step: Any) -> Facts:
    """The facts of a step of a plan, or of an object in place of one."""
    nodes = [step] if isinstance(step, Node) else getattr(step, "nodes", ())
    costs = [stated_cost(node) for node in nodes]
    flops = sum(cost.flops for cost in costs)
    ends = *getattr(step, "inputs", ()), *getattr(step, "outputs", ())
    values = {v for v in ends if type(v) is Value}
    made = [v for v in getattr(step, "outputs", ()) if type(v) is Value]
    moves = any(cost.flops or cost.bytes for cost in costs)  # views do not
    size = sum(nbytes(x) for x in values) if moves else 0
    return _of_plan(
        Facts(step_name(step), step_place(step), _result(made) if made else "", "", "", flops, size)
    )


def _of_plan(facts: Facts) -> Facts:
    return facts._replace(region=f"{facts.name} at {facts.place or UNKNOWN}")


def joined(found: Sequence[Facts], name: str = "") -> Facts:
    """Several steps as one call: their totals, at the line of the last one."""
    if len(found) == 1 and not name:
        return found[0]
    names = list(dict.fromkeys(facts.name for facts in found))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    name = name or " + ".join(names[:3]) + more
    flops, size = sum(facts.flops for facts in found), sum(facts.bytes for facts in found)
    return _of_plan(found[-1]._replace(name=name, flops=flops, bytes=size))


# Rows --------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """One event: its facts, device, and seconds without those of nested events."""

    event: Event
    facts: Facts
    device: str
    seconds: float


KEYS: dict[str, Callable[[Part], str]] = {
    "op": lambda part: part.facts.name,
    "line": lambda part: part.facts.place or UNKNOWN,
    "region": lambda part: part.facts.region,
    "thread": lambda part: part.event.thread.name,
    "device": lambda part: part.device,
}


def parts_of(events: Iterable[Event], device: str) -> list[Part]:
    """Events with their own times, thread by thread, nested ones after enclosing ones.

    ``device`` is the default for events without a device.
    """
    known: dict[Any, Facts] = {}
    threads: dict[int, list[Event]] = {}
    for event in events:
        threads.setdefault(event.thread.number, []).append(event)
    found: list[Part] = []
    for own in threads.values():
        # If two start together, the longer one encloses the other.
        own.sort(key=lambda event: (event.begin, -event.end))
        around: list[tuple[int, int]] = []  # end, and index in the result
        inner = [0] * len(own)
        first = len(found)
        for event in own:
            while around and around[-1][0] <= event.begin:
                around.pop()
            facts, there = _known_facts(known, event.site, event.detail), device
            if around:
                outer = found[around[-1][1]]
                facts, there = _inside(facts, outer.facts), outer.device
            there = facts.device or there
            taken = event.end - event.begin
            if around:
                inner[around[-1][1] - first] += taken
            around.append((event.end, len(found)))
            found.append(Part(event, facts, there, taken * 1e-9))
        for i, within in enumerate(inner):
            if within:
                part = found[first + i]
                found[first + i] = part._replace(seconds=part.seconds - within * 1e-9)
    return found


def _inside(facts: Facts, outer: Facts) -> Facts:
    """The facts of a nested call."""
    if facts.place or not outer.place:
        return facts
    found = facts._replace(place=outer.place)
    return found if facts.region == EAGER else _of_plan(found)


def _known_facts(known: dict[Any, Facts], site: Any, detail: Any) -> Facts:
    """A site's description of a call, cached for equal calls."""
    try:
        key = id(site), _hashed(detail)
        found = known.get(key)
    except raised_here(TypeError):  # a part of it is not hashable
        return cast("Facts", site.facts(detail))
    if found is None:
        found = known[key] = site.facts(detail)
    return found


def _hashed(x: Any) -> Any:
    if type(x) is tuple or type(x) is list:
        return tuple([_hashed(part) for part in x])
    if type(x) is dict:
        return tuple([(key, _hashed(value)) for key, value in x.items()])
    return (type(x), x) if type(x) in (bool, int, float) else x


def grouped(parts: Iterable[Part], key: Callable[[Part], Any]) -> list[Row]:
    """Rows of the parts with one key each, the longest first; their name is the key.

    A row has a result and a place if these are the same in all of its calls.
    """
    groups: dict[Any, list[Part]] = {}
    for part in parts:
        groups.setdefault(key(part), []).append(part)
    rows = []
    for name, own in groups.items():
        results = {part.facts.result for part in own}
        places = {part.facts.place for part in own}
        rows.append(
            Row(
                name if isinstance(name, str) else own[0].facts.name,
                sum(part.facts.calls for part in own),
                sum(part.seconds for part in own),
                sum(part.facts.flops for part in own),
                sum(part.facts.bytes for part in own),
                results.pop() if len(results) == 1 else "",
                places.pop() if len(places) == 1 else "",
            )
        )
    return sorted(rows, key=lambda row: -row.seconds)
