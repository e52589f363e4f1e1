"""Graphs from graphs: subsets, compositions, and renamed graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from eagerflow import tree
from eagerflow.dims import Dim
from eagerflow.errors import ArgumentError, CaptureError, SessionError, short_repr
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.names import FreeNames, value
from eagerflow.graph.sizes import Sizes, with_sizes
from eagerflow.graph.text import type_text
from eagerflow.graph.walk import all_values, needed, renewed
from eagerflow.masks import masks_among, masks_of_inputs

# Pruning -----------------------------------------------------------------------------------------


@graph_method
def prune(self: Graph, outputs: Any, assignments: bool = False) -> Graph:
    """See ``Graph.prune``."""
    leaves, structure = tree.flatten(outputs)
    values = [value(self, leaf) for leaf in leaves]
    wanted = {v for v in values if v.node is not None}
    cells = [Cell(c.name, c.variable, c.value) for c in self.cells]
    if assignments:
        for cell, old in zip(cells, self.cells, strict=True):
            cell.assigned = old.assigned
    wanted |= {c.assigned for c in cells if c.assigned is not None}
    nodes = needed(self.nodes, wanted)
    used = {v for node in nodes for v in node.values()} | set(values) | wanted
    given = [(n, v) for n, v in zip(self.inputs.names, self.inputs, strict=True) if v in used]
    whole = len(given) == len(self.inputs)
    labels = _labels(self, leaves, values, structure)
    return Graph(
        self.name,
        Values([v for _, v in given], [n for n, _ in given]),
        nodes,
        Values(values, labels),
        [c for c in cells if c.value in used or c.assigned is not None],
        self.argument_structure if whole else None,
        structure,
    )


def _labels(graph: Graph, leaves: list[Any], values: list[Value], structure: Any) -> list[str]:
    """Names of outputs: the keys of a dict, else the requested names."""
    if structure.container is not None and structure.keys and len(structure.keys) == len(leaves):
        keys = FreeNames()
        return [keys.take(str(key)) for key in structure.keys]  # 1 and "1" are two keys
    known = dict(zip(graph.outputs, graph.outputs.names, strict=True))
    labels = [
        known.get(v, v.name) if type(leaf) is Value else str(leaf)
        for leaf, v in zip(leaves, values, strict=True)
    ]
    free = FreeNames().take
    return [free(label) for label in labels]


@graph_method
def signature(self: Graph, name: str) -> Graph:
    """See ``Graph.signature``."""
    if name not in self.signatures:
        raise ArgumentError(
            f"there is no signature {short_repr(name)}",
            op=self.name,
            argument="signature",
            expected="one of " + ", ".join(self.signatures) if self.signatures else "no signature",
        )
    return prune(self, dict(self.signatures[name]))


# Copies ------------------------------------------------------------------------------------------


class _Copy:
    """New nodes for those with changed inputs or names; the others are kept."""

    def __init__(self, taken: Iterable[str] = (), scope: str = "") -> None:
        self.new: dict[Value, Value] = {}
        self.free = FreeNames(taken).take
        self._scope = f"{scope}/" if scope else ""

    def inside(self, name: str) -> str:
        """A free name within the scope."""
        return self.free(self._scope + name)

    def named(self, old: Value, name: str) -> Value:
        """The value under a name; unchanged if it is its own."""
        if name == old.name:
            return old
        made = self.new[old] = old.like(None, name)
        return made

    def node(self, node: Node) -> Node:
        """The node with replaced inputs, under a free name."""
        return renewed(node, self.new, name=self.inside(node.name))


@graph_method
def rename(
    self: Graph,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Graph:
    """See ``Graph.rename``."""
    inputs, outputs = dict(inputs or {}), dict(outputs or {})
    _refuse_unknown(self, inputs, self.inputs.names, "input")
    _refuse_unknown(self, outputs, self.outputs.names, "output")
    given = [inputs.get(n, n) for n in self.inputs.names]
    copy = _Copy()
    results = [outputs.get(n, n) for n in self.outputs.names]
    _refuse_taken(self, given, _labels_inside(self))
    _refuse_taken(self, results, set())
    for label, before, v in zip(given, self.inputs.names, self.inputs, strict=True):
        if label != before:
            copy.named(v, label)
    nodes = [copy.node(node) for node in self.nodes]
    return self.like(nodes, copy.new, name or self.name, given, results)


def _labels_inside(graph: Graph) -> set[str]:
    """Names of nodes and of all values but inputs."""
    inputs = set(graph.inputs)
    return {v.name for v in all_values(graph) if v not in inputs} | {n.name for n in graph.nodes}


def _refuse_unknown(graph: Graph, asked: Iterable[str], known: Iterable[str], what: str) -> None:
    names = list(known)
    for name in asked:
        if name not in names:
            close = get_close_matches(name, names, 1)
            raise SessionError(
                f"{graph.name} has no {what} {name!r}",
                expected="one of " + ", ".join(names),
                hint=f"did you mean {close[0]!r}?" if close else None,
            )


def _refuse_taken(graph: Graph, labels: list[str], others: set[str]) -> None:
    seen = set(others)
    for label in labels:
        if label in seen:
            raise _taken(graph, label)
        seen.add(label)


def _taken(graph: Graph, name: str) -> CaptureError:
    return CaptureError(f"the name {name!r} is taken in {graph.name}")


# Composition -------------------------------------------------------------------------------------


@graph_method
def compose(
    self: Graph,
    other: Graph,
    feeds: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
    scope: str = "",
) -> Graph:
    """See ``Graph.compose``."""
    feeds = _feeds(self, other, feeds)
    fed = {name: value(self, source) for name, source in feeds.items()}
    fed |= _masks_fed(self, other, fed)
    other = _fitted(other, fed)
    copy = _Copy(_labels_inside(self) | {v.name for v in self.inputs}, scope)
    shared = dict(zip(self.inputs.names, self.inputs, strict=True))
    inputs, names = list(self.inputs), list(self.inputs.names)
    for name, v in zip(other.inputs.names, other.inputs, strict=True):
        if name in fed or name in shared:
            source = fed[name] if name in fed else shared[name]
            _refuse_misfit(other, name, v, self, source)
            copy.new[v] = source
        else:
            if copy.free(name) != name:
                raise _taken(self, name)
            inputs.append(copy.named(v, name))
            names.append(name)
    cells = _merged(self, other, copy)
    for v in other.constants:
        copy.named(v, copy.inside(v.name))
    nodes = [*self.nodes, *(copy.node(node) for node in other.nodes)]
    for cell, assigned in cells:
        cell.assigned = copy.new.get(assigned, assigned) if assigned is not None else cell.assigned
    results, labels = other.outputs.replaced(copy.new), list(other.outputs.names)
    kept = [(name, value(self, name)) for name in keep]
    _refuse_taken(self, labels + [n for n, _ in kept], set())
    leaves = tuple(copy.new.get(x, x) if type(x) is Value else x for x in other.results)
    structure = other.structure
    if kept:
        nest = dict.fromkeys([*labels, *(n for n, _ in kept)])
        leaves = (*results, *(v for _, v in kept))
        structure = tree.flatten(nest)[1]
    return Graph(
        f"{self.name}_{other.name}",
        Values(inputs, names),
        nodes,
        Values([*results, *(v for _, v in kept)], [*labels, *(n for n, _ in kept)]),
        [cell for cell, _ in cells],
        self.argument_structure if len(inputs) == len(self.inputs) else None,
        structure,
        leaves,
    )


def _feeds(graph: Graph, other: Graph, feeds: Mapping[str, str] | None) -> dict[str, str]:
    """The input of ``other`` for each value, by name; CaptureError if it is ambiguous."""
    if feeds is not None:
        _refuse_unknown(other, feeds, other.inputs.names, "input")
        return dict(feeds)
    same = [name for name in other.inputs.names if name in graph.outputs.names]
    if same:
        return {name: name for name in same}
    if len(graph.outputs) == 1 == len(other.inputs):
        return {other.inputs.names[0]: graph.outputs.names[0]}
    raise CaptureError(
        f"no output of {graph.name} has the name of an input of {other.name}",
        received=f"outputs {', '.join(graph.outputs.names)}; "
        f"inputs {', '.join(other.inputs.names)}",
        hint="graph.compose(other, {'input': 'output'})",
    )


def _masks_fed(graph: Graph, other: Graph, fed: Mapping[str, Value]) -> dict[str, Value]:
    """Masks of the values fed to ``other``, for its inputs; CaptureError if it takes none."""
    have, take = masks_among(graph.results, graph.structure), masks_of_inputs(other)
    names = dict(zip(other.inputs, other.inputs.names, strict=True))
    found = {}
    for v, name in names.items():
        mask = have.get(fed.get(name))
        if mask is None:
            continue
        if v not in take:
            raise CaptureError(
                f"the input {name} of {other.name} is for tensors without a mask",
                received=f"{fed[name].name} of {graph.name}, which has one",
                hint=f"trace {other.name} with such a tensor, or give x * 1, which has no mask",
            )
        if names[take[v]] not in fed:
            found[names[take[v]]] = mask
    return found


def _fitted(other: Graph, fed: Mapping[str, Value]) -> Graph:
    """``other`` with the values of its named dimensions from the shapes of its inputs."""
    sizes = Sizes()
    for name, v in zip(other.inputs.names, other.inputs, strict=True):
        if name in fed and len(v.shape) == len(fed[name].shape):
            for own, size in zip(v.shape, fed[name].shape, strict=True):
                if isinstance(own, Dim) and repr(own).isidentifier():
                    sizes.setdefault(repr(own), size)
    fitted: Graph = with_sizes(other, sizes)
    return fitted


def _refuse_misfit(other: Graph, name: str, wanted: Value, graph: Graph, source: Value) -> None:
    if wanted.shape != source.shape or wanted.dtype != source.dtype:
        raise CaptureError(
            f"the input {name} of {other.name} does not match the value it is given",
            received=f"{source.name} of {graph.name}: {type_text(source)}",
            expected=f"{name}: {type_text(wanted)}",
        )


def _merged(graph: Graph, other: Graph, copy: _Copy) -> list[tuple[Cell, Value | None]]:
    """The Variables of both graphs, and the second's assignments; shared ones are merged."""
    found: list[tuple[Cell, Value | None]] = []
    mine: dict[int, tuple[int, Cell]] = {}
    for cell in graph.cells:
        made = Cell(cell.name, cell.variable, cell.value)
        made.assigned = cell.assigned
        if cell.variable is not None:
            mine[id(cell.variable)] = len(found), made
        found.append((made, None))
    for cell in other.cells:
        if id(cell.variable) in mine:
            at, first = mine[id(cell.variable)]
            copy.new[cell.value] = first.value if first.assigned is None else first.assigned
            found[at] = first, cell.assigned
        else:
            name = copy.inside(cell.name)
            found.append((Cell(name, cell.variable, copy.named(cell.value, name)), cell.assigned))
    return found
