"""Costs of a graph: operations, bytes moved, and memory, from the facts of ops.

Named sizes give polynomials. Not all ops state their cost in a form that
polynomials pass through, so each polynomial is compared with the cost at two choices of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

from eagerflow.dims import Dim
from eagerflow.errors import ShapeError, printable
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.sizes import concrete
from eagerflow.graph.text import aligned_columns, bytes_text, line_name
from eagerflow.graph.walk import bodies_of, inside_out
from eagerflow.handlers import raised_here
from eagerflow.op import Cost, spec_of

_MAX_SHOWN_ROWS = 20  # of the table
_PROBE_SIZES = (1_009, 2_003)  # values of named sizes for comparisons


class NodeCost(NamedTuple):
    """The cost of one node: operations, bytes read and written, bytes of its results."""

    name: str
    op: str
    family: str
    scope: str
    flops: Any
    bytes: Any
    made: Any
    place: str


class Costs:
    """The costs of a graph; prints as a table with the heaviest nodes first.

    ``flops`` and ``bytes`` are totals, ``peak`` the peak memory of values, of
    which ``held`` is for inputs, Variables and constants. ``nodes`` lists a NodeCost for each
    node, ``ops``, ``families`` and ``scopes`` give the Cost of each. All numbers are integers,
    or polynomials (``ef.Dim``) of named sizes.

    >>> spec = ef.TensorSpec(("batch", 3), "float32")
    >>> costs = ef.capture.trace(lambda x: ef.tanh(x) @ x.T, spec).costs()
    >>> costs.flops, costs.ops["matmul"].flops
    (6*batch*batch + 3*batch, 6*batch*batch)
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int]) -> None:
        self.name = graph.name
        self.sizes = dict(sizes)
        found = _walked(graph)
        self.nodes: list[NodeCost] = found.nodes
        self.flops: Any = sum(n.flops for n in self.nodes)
        self.bytes: Any = sum(n.bytes for n in self.nodes)
        self.held: Any = found.held
        peak = found.held + found.scratch
        inside = isinstance(peak, Dim) and names_of(peak) <= set(self.sizes)  # sizes of a body
        self.peak: Any = peak.evaluate(self.sizes) if inside else peak

    @property
    def ops(self) -> dict[str, Cost]:
        """Cost by op, the one with the most operations first."""
        return self._by(lambda n: n.op)

    @property
    def families(self) -> dict[str, Cost]:
        """Cost by family of ops, the one with the most operations first."""
        return self._by(lambda n: n.family)

    @property
    def scopes(self) -> dict[str, Cost]:
        """Cost by scope, including nested scopes, the heaviest first."""
        found: dict[str, Cost] = {}
        for scope, cost in self._by(lambda n: n.scope).items():
            parts = scope.split("/") if scope else [""]
            for depth in range(1, min(len(parts), 16) + 1):
                name = "/".join(parts[:depth])
                found[name] = _sum(found.get(name), cost)
        return _sorted(found)

    def _by(self, key: Callable[[NodeCost], str]) -> dict[str, Cost]:
        found: dict[str, Cost] = {}
        for node in self.nodes:
            found[key(node)] = _sum(found.get(key(node)), node)
        return _sorted(found)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        lines = [
            f"costs of {self.name}" + (f" for {given}" if given else ""),
            f"  {_count(self.flops)} operations, {bytes_text(self.bytes)} moved",
            f"  {bytes_text(self.peak)} at the peak, of which {bytes_text(self.held)} "
            "for inputs, variables and constants",
        ]
        heaviest = sorted(self.nodes, key=_weight)[:_MAX_SHOWN_ROWS]
        rows = [self._row(n, f"{n.name} ({n.op})", n.place) for n in heaviest]
        title = "node" if len(rows) == len(self.nodes) else f"node (heaviest of {len(self.nodes)})"
        lines += _table(title, "line", rows)
        for title, costs in (("op", self.ops), ("scope", self.scopes)):
            if len(costs) > 1:
                shown = list(costs.items())[:_MAX_SHOWN_ROWS]
                rows = [self._row(cost, name or "(none)", "") for name, cost in shown]
                lines += _table(title, "", rows)
        return "\n".join([printable(x) for x in lines])

    def _row(self, cost: Cost | NodeCost, name: str, place: str) -> tuple[str, ...]:
        total = _number(self.flops)
        share = f"{_number(cost.flops) / total:.1%}" if total else "-"
        return _count(cost.flops), share, bytes_text(cost.bytes), name, place

    def __repr__(self) -> str:
        return printable(
            f"<Costs of {self.name}: {_count(self.flops)} operations, "
            f"{bytes_text(self.bytes)} moved, {bytes_text(self.peak)} at the peak>"
        )


@graph_method
def costs(self: Graph, sizes: Mapping[str, int] | None = None, **named: int) -> Costs:
    """See ``Graph.costs``."""
    known = dict(sizes or {}, **named)
    return Costs(concrete(self, known) if known else self, known)


# Walking -----------------------------------------------------------------------------------------


class _Found(NamedTuple):
    nodes: list[NodeCost]
    held: Any  # bytes of inputs, Variables and constants
    scratch: Any  # peak bytes of results of nodes


def _walked(graph: Graph) -> _Found:
    """The costs of a graph, after those of the bodies in it."""
    known: dict[int, _Found] = {}

    def look(one: Graph, bodies: dict[int, Graph]) -> Graph:
        known[id(one)] = _one(one, known)
        return one

    inside_out(graph, look)
    return known[id(graph)]


def _one(graph: Graph, known: dict[int, _Found]) -> _Found:
    nodes: list[NodeCost] = []
    scratch: list[Any] = []
    uses: list[list[Value]] = []
    roots: dict[Value, Value] = {}  # by view: the value with its memory
    places: dict[Any, str] = {}
    for node in graph.nodes:
        cost = _cost(node)
        inside: Any = 0
        for body in bodies_of(node.attributes):  # the cost of a body is included in the op's cost
            inside = _larger(inside, known[id(body)].scratch)
        scratch.append(inside)
        first = node.inputs[0] if node.inputs else None
        if type(first) is Value and not node.op.variadic and _is_free(cost):
            roots |= dict.fromkeys(node.outputs, roots.get(first, first))
        if node.origin not in places:
            places[node.origin] = "" if node.source is None else line_name(node.source)
        made = sum(nbytes(v) for v in node.outputs if v not in roots)
        facts = node.name, node.op.name, node.op.family, node.scope
        nodes.append(NodeCost(*facts, cost.flops, cost.bytes, made, places[node.origin]))
        used = (roots.get(v, v) for v in (*node.outputs, *node.values()))
        uses.append([v for v in used if v.node is not None])
    held = sum(nbytes(x) for x in [*graph.all_inputs(), *graph.constants])
    kept = {roots.get(v, v) for v in graph.all_outputs()}
    return _Found(nodes, held, peak_bytes(uses, kept, scratch))


def peak_bytes(
    uses: Sequence[Iterable[Value]], kept: Container[Value], scratch: Sequence[Any] = ()
) -> Any:
    """The peak bytes of values, each from the first step that uses it to the last.

    ``uses`` are the values that each step reads and makes, ``kept`` those that are never freed,
    ``scratch`` the additional bytes of each step.
    """
    last = {value: i for i, used in enumerate(uses) for value in used}
    now: Any = 0
    most: Any = 0
    alive: set[Value] = set()
    for i, used in enumerate(uses):
        values = dict.fromkeys(used)
        now = now + sum(nbytes(v) for v in values if v not in alive)
        alive.update(values)
        most = _larger(most, now + (scratch[i] if scratch else 0))
        now = now - sum(nbytes(v) for v in values if last[v] == i and v not in kept)
    return most


def nbytes(value: Value) -> Any:
    """The bytes of a value; a polynomial of named sizes."""
    return value.size * value.dtype.itemsize


def _is_free(cost: Cost) -> bool:
    return type(cost.bytes) is int and type(cost.flops) is int and not (cost.bytes or cost.flops)


# Costs of one node -------------------------------------------------------------------------------


def _cost(node: Node) -> Cost:
    """The cost stated by the op; polynomials for named sizes."""
    names = sorted(names_of((*(v.shape for v in node.values()), *node.attributes.values())))
    if not names:
        return stated_cost(node)
    probes = [{name: probe + 2 * i for i, name in enumerate(names)} for probe in _PROBE_SIZES]
    truth = [_attempt(node, methodcaller("evaluate", probe)) for probe in probes]
    for replace in (None, lambda size: Size(size.evaluate(probes[0]), size)):
        found = _polynomials(_attempt(node, replace))
        if found is not None and all(
            cost is not None and tuple(_at(part, probe) for part in found) == tuple(cost)
            for probe, cost in zip(probes, truth, strict=True)
        ):
            return found
    raise ShapeError(
        f"the cost of {node.name} is not a polynomial in its sizes",
        op=node.op.name,
        at=node.place or None,
        hint=f"graph.costs({', '.join(f'{n}=32' for n in names)})",
    )


def _attempt(node: Node, replace: Callable[[Dim], Any] | None) -> Cost | None:
    try:
        return stated_cost(node, replace)
    except raised_here(Exception):  # a rule that compares sizes, or needs numbers
        return None


def stated_cost(node: Node, replace: Callable[[Dim], Any] | None = None) -> Cost:
    """The cost that a node's op states for it, with each named size replaced."""
    given = list(node.inputs)
    for i, x in enumerate(given):
        if type(x) is Value:
            given[i] = spec = spec_of(x)  # the constructor would convert all sizes to plain numbers
            if replace is not None:
                spec.shape = _replaced(spec.shape, replace)
    attributes = node.attributes
    if replace is not None:
        attributes = {name: _replaced(value, replace) for name, value in attributes.items()}
    cost: Cost = node.op.cost(*given, **attributes)
    return cost


def _replaced(item: Any, replace: Callable[[Dim], Any]) -> Any:
    if type(item) is tuple:
        return tuple(_replaced(part, replace) for part in item)
    if type(item) is slice:
        return slice(*(_replaced(part, replace) for part in (item.start, item.stop, item.step)))
    return replace(item) if isinstance(item, Dim) else item


def names_of(item: Any) -> set[str]:
    """The names in a size, including those in quotients, or in a tuple or slice of sizes."""
    found: set[str] = set()
    waiting = [item]
    while waiting:
        part = waiting.pop()
        if type(part) is tuple:
            waiting += part
        elif type(part) is slice:
            waiting += (part.start, part.stop, part.step)
        elif isinstance(part, Dim):
            for atom in {atom for monomial in part._terms for atom in monomial}:
                if atom in part._quotients:
                    waiting += part._quotients[atom]
                else:
                    found.add(atom)
    return found


class Size(int):
    """A number that remembers the polynomial that it stands for."""

    dim: Any

    def __new__(cls, number: int, dim: Any) -> Size:
        """A number with its polynomial."""
        made = super().__new__(cls, number)
        made.dim = dim
        return made


def _arithmetic(name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(int, name)

    def method(self: Size, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        dim = self.dim
        symbols = getattr(type(dim), name)(dim, getattr(other, "dim", other))
        return Size(plain(self, other), symbols)

    return method


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__floordiv__"):
    setattr(Size, _name, _arithmetic(_name))


def _polynomials(cost: Cost | None) -> Cost | None:
    return cost and Cost(*(getattr(part, "dim", part) for part in cost))


def _at(part: Any, sizes: Mapping[str, int]) -> Any:
    return part.evaluate(sizes) if isinstance(part, Dim) else part


# Text --------------------------------------------------------------------------------------------


def _number(size: Any) -> float:
    """A number to compare by, also for a polynomial."""
    if not isinstance(size, Dim):
        return float(size)
    return float(size.evaluate(dict.fromkeys(names_of(size), _PROBE_SIZES[0])))


def _larger(one: Any, other: Any) -> Any:
    return one if _number(one) >= _number(other) else other


def _sum(one: Cost | None, other: Cost | NodeCost) -> Cost:
    one = one or Cost(0, 0)
    return Cost(one.flops + other.flops, one.bytes + other.bytes)


def _weight(cost: Cost | NodeCost) -> tuple[float, float]:
    return -_number(cost.flops), -_number(cost.bytes)


def _sorted(found: dict[str, Cost]) -> dict[str, Cost]:
    return dict(sorted(found.items(), key=lambda item: _weight(item[1])))


def _count(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else str(number)


def _table(title: str, last: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows below an empty line and a head."""
    if not rows:
        return []
    head = ("operations", "share", "bytes", title, last)
    return ["", *(f"  {line}" for line in aligned_columns((head, *rows), ">>><<"))]
