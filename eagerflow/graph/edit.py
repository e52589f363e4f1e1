"""Graphs from graphs: what some values need alone, two in a row, and with other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from eagerflow import tree
from eagerflow.dims import Dim
from eagerflow.errors import CaptureError, SessionError
from eagerflow.graph.concrete import concrete
from eagerflow.graph.costs import names_of
from eagerflow.graph.ir import Cell, Graph, Node, Value, Values, graph_method
from eagerflow.graph.text import type_text
from eagerflow.graph.walks import nested, own_values

__all__ = ["compose", "prune", "rename", "value"]

_HINTS = 3


# Looking up --------------------------------------------------------------------------------------


@graph_method
def value(self: Graph, name: str | Value) -> Value:
    """The value of this name: an output, an input, a Variable's value on entry, or any other.

    Outputs of nodes have the node's name, or where there are several ``name:0``, ``name:1`` ...
    Raises SessionError, with names that look alike, where there is none.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
    >>> graph.value("tanh"), graph.value("output")
    (<Value tanh: float32(3,)>, <Value multiply: float32(3,)>)
    """
    known = self.learned.get("values by name")
    if known is None:
        known = self.learned["values by name"] = _names(self)
    if type(name) is Value:
        if known.get(name.name) is name or any(v is name for v in own_values(self)):
            return name
        raise SessionError(f"{name.name} is a value of another graph than {self.name}")
    found: Value | None = known.get(str(name))
    if found is None:
        several = [n for n in (f"{name}:{i}" for i in range(_HINTS)) if n in known]
        inside = [n for n in known if n.endswith(f"/{name}")][:_HINTS]
        close = several or inside or get_close_matches(str(name), known, _HINTS)
        raise SessionError(
            f"there is no value {name!r} in {self.name}",
            expected="a name of " + ", ".join([*self.inputs.names, *self.outputs.names][:8]),
            hint=f"did you mean {' or '.join(map(repr, close))}?" if close else "print(graph)",
        )
    return found


def _names(graph: Graph) -> dict[str, Value]:
    """All names; where two things have one, an output goes before an input, and so on."""
    found: dict[str, Value] = {}
    for names, values in (
        (graph.outputs.names, graph.outputs),
        (graph.inputs.names, graph.inputs),
        ([c.name for c in graph.cells], [c.value for c in graph.cells]),
    ):
        for name, known in zip(names, values, strict=True):
            found.setdefault(name, known)
    for known in own_values(graph):
        found.setdefault(known.name, known)
    return found


# Less --------------------------------------------------------------------------------------------


@graph_method
def prune(self: Graph, outputs: Any, assignments: bool = False) -> Graph:
    """A graph that computes these values alone; what they do not need is not in it.

    ``outputs`` is a name, a Value, or a nest of them, and becomes the nest of the result. Inputs
    and Variables that are not needed are dropped, and so is what is assigned, unless
    ``assignments`` says to keep it. Raises SessionError for names that the graph does not have.

    >>> spec = ef.TensorSpec((3,), "float32")
    >>> graph = ef.capture.trace(lambda x, y: {"a": ef.tanh(x), "b": x * y}, spec, spec)
    >>> graph.prune("a")
    <Graph lambda(x: float32(3,)), 1 nodes>
    """
    leaves, structure = tree.flatten(outputs)
    values = [value(self, leaf) for leaf in leaves]
    wanted = {v for v in values if v.node is not None}
    cells = [Cell(c.name, c.variable, c.value) for c in self.cells]
    if assignments:
        for cell, old in zip(cells, self.cells, strict=True):
            cell.assigned = old.assigned
    wanted |= {c.assigned for c in cells if c.assigned is not None}
    needed = _needed(self.nodes, wanted)
    used = {v for node in needed for v in node.values()} | set(values) | wanted
    given = [(n, v) for n, v in zip(self.inputs.names, self.inputs, strict=True) if v in used]
    whole = len(given) == len(self.inputs)
    labels = _labels(self, leaves, values, structure)
    return Graph(
        self.name,
        Values([v for _, v in given], [n for n, _ in given]),
        needed,
        Values(values, labels),
        [c for c in cells if c.value in used or c.assigned is not None],
        self.argument_structure if whole else None,
        structure,
    )


def _needed(nodes: tuple[Node, ...], wanted: Iterable[Value]) -> list[Node]:
    """The nodes that these values need, in their order."""
    waiting = set(wanted)
    found = []
    for node in reversed(nodes):
        if not waiting.isdisjoint(node.outputs):
            found.append(node)
            waiting.update(node.values())
    return found[::-1]


def _labels(graph: Graph, leaves: list[Any], values: list[Value], structure: Any) -> list[str]:
    """Names of outputs: the keys of a dict, else the names that were asked for."""
    if structure.container is not None and structure.keys and len(structure.keys) == len(leaves):
        return [str(key) for key in structure.keys]
    known = dict(zip(graph.outputs, graph.outputs.names, strict=True))
    labels = [
        known.get(v, v.name) if type(leaf) is Value else str(leaf)
        for leaf, v in zip(leaves, values, strict=True)
    ]
    taken: set[str] = set()
    return [_free(label, taken) for label in labels]


def _free(name: str, taken: set[str]) -> str:
    """``name``, or the first of ``name_1``, ``name_2`` ... that is free, taken from now on."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


# Copies ------------------------------------------------------------------------------------------


class _Copy:
    """New nodes for those that read, or are named, something else; the others stay."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.new: dict[Value, Value] = {}
        self.taken = set(taken)
        self._numbers: dict[str, int] = {}

    def free(self, name: str) -> str:
        """A name that nothing in the graph has, taken from now on."""
        found, number = name, self._numbers.get(name, 0)
        while found in self.taken:
            number += 1
            found = f"{name}_{number}"
        self._numbers[name] = number
        self.taken.add(found)
        return found

    def named(self, old: Value, name: str) -> Value:
        """The value under a name; itself where that is its own."""
        if name == old.name:
            return old
        made = self.new[old] = Value(
            name, old.shape, old.dtype, None, None, old.index, old.constant, old.device
        )
        return made

    def node(self, node: Node) -> Node:
        """The node with what was found in place of its inputs, under a free name."""
        name = self.free(node.name)
        self.taken.update(v.name for v in node.outputs if len(node.outputs) > 1)
        inputs = tuple([self.new.get(x, x) if type(x) is Value else x for x in node.inputs])
        if name == node.name and all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return node
        made = Node(node.op, inputs, node.attributes, name, node.origin, node.device)
        outputs = []
        for old in node.outputs:
            label = name + old.name.removeprefix(node.name)
            value = Value(label, old.shape, old.dtype, None, made, old.index, None, old.device)
            self.new[old] = value
            outputs.append(value)
        made.outputs = tuple(outputs)
        return made

    def values(self, values: Values) -> Values:
        """The values with what stands in their place."""
        return Values([self.new.get(v, v) for v in values], values.names)


@graph_method
def rename(
    self: Graph,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Graph:
    """The graph with other names for inputs, for outputs, or for itself.

    ``inputs`` and ``outputs`` map old names to new ones. Raises SessionError for a name that the
    graph does not have, and CaptureError for one that is taken.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x), ef.TensorSpec((3,), "float32"), name="f")
    >>> graph.rename({"x": "image"}, {"output": "score"}, "model")
    <Graph model(image: float32(3,)), 1 nodes>
    """
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
    cells = [_copied(c, copy) for c in self.cells]
    leaves = tuple(copy.new.get(x, x) if type(x) is Value else x for x in self.results)
    return Graph(
        name or self.name,
        Values(copy.values(self.inputs), given),
        nodes,
        Values(copy.values(self.outputs), results),
        cells,
        self.argument_structure,
        self.structure,
        leaves,
    )


def _labels_inside(graph: Graph) -> set[str]:
    """Names of nodes and of all values but inputs."""
    inputs = set(graph.inputs)
    return {v.name for v in own_values(graph) if v not in inputs} | {n.name for n in graph.nodes}


def _copied(cell: Cell, copy: _Copy) -> Cell:
    assigned = None if cell.assigned is None else copy.new.get(cell.assigned, cell.assigned)
    if assigned is cell.assigned:
        return cell
    made = Cell(cell.name, cell.variable, cell.value)
    made.assigned = assigned
    return made


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
            raise CaptureError(f"the name {label!r} is taken in {graph.name}")
        seen.add(label)


# More --------------------------------------------------------------------------------------------


@graph_method
def compose(
    self: Graph,
    other: Graph,
    feeds: Mapping[str, str] | None = None,
    keep: Iterable[str] = (),
) -> Graph:
    """The graph that runs this one, then ``other`` on its outputs.

    ``feeds`` maps inputs of ``other`` to names of values of this graph; without it, outputs go
    to the inputs of the same names, or the only output to the only input. Inputs that are fed by
    nothing stay inputs; one name in both graphs is one input. What this graph assigns to
    Variables, ``other`` reads. The result is that of ``other``; ``keep`` names values of this
    graph that become outputs too. Raises CaptureError where shapes or dtypes do not fit.

    >>> spec = ef.TensorSpec((3,), "float32")
    >>> first = ef.capture.trace(lambda x: {"y": ef.tanh(x)}, spec, name="first")
    >>> second = ef.capture.trace(lambda y: y * 2.0, spec, name="second")
    >>> print(first.compose(second).text(lines=False))
    graph first_second(x: float32[3]):
      tanh:     float32[3] = tanh(x)
      multiply: float32[3] = multiply(tanh, 2.0)
    <BLANKLINE>
      return
        output = multiply
    """
    feeds = _feeds(self, other, feeds)
    fed = {name: value(self, source) for name, source in feeds.items()}
    other = _fitted(other, fed)
    copy = _Copy(_labels_inside(self) | {v.name for v in self.inputs})
    shared = dict(zip(self.inputs.names, self.inputs, strict=True))
    inputs, names = list(self.inputs), list(self.inputs.names)
    for name, v in zip(other.inputs.names, other.inputs, strict=True):
        if name in fed or name in shared:
            source = fed[name] if name in fed else shared[name]
            _refuse_misfit(name, v, source)
            copy.new[v] = source
        else:
            _refuse_taken(self, [name], copy.taken)
            inputs.append(copy.named(v, copy.free(name)))
            names.append(name)
    cells = _merged(self, other, copy)
    for v in other.constants:
        copy.named(v, copy.free(v.name))
    nodes = [*self.nodes, *(copy.node(node) for node in other.nodes)]
    for cell, assigned in cells:
        cell.assigned = copy.new.get(assigned, assigned) if assigned is not None else cell.assigned
    results, labels = copy.values(other.outputs), list(other.outputs.names)
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
    """Which input of ``other`` gets which value, by name; CaptureError if it is not clear."""
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


def _fitted(other: Graph, fed: Mapping[str, Value]) -> Graph:
    """``other`` with the sizes that its named dimensions get from what it is fed with."""
    sizes: dict[str, Any] = {}
    for name, v in zip(other.inputs.names, other.inputs, strict=True):
        if name in fed and len(v.shape) == len(fed[name].shape):
            for own, size in zip(v.shape, fed[name].shape, strict=True):
                if isinstance(own, Dim) and repr(own) in names_of(own):
                    sizes.setdefault(repr(own), size)
    names = {
        n for v in own_values(other) for s in v.shape if isinstance(s, Dim) for n in names_of(s)
    }
    sizes = {n: sizes.get(n, Dim(n)) for n in names}
    if all(isinstance(size, Dim) and repr(size) == n for n, size in sizes.items()):
        return other
    made = concrete(other, sizes)
    waiting = [made]
    while waiting:  # some sizes may be named still
        graph = waiting.pop()
        graph.learned.pop("symbolic", None)
        waiting += [body for node in graph.nodes for _, body in nested(node)]
    return made


def _refuse_misfit(name: str, wanted: Value, source: Value) -> None:
    if wanted.shape != source.shape or wanted.dtype != source.dtype:
        raise CaptureError(
            f"the input {name} does not fit what it is fed with",
            received=f"{source.name}: {type_text(source)}",
            expected=type_text(wanted),
        )


def _merged(graph: Graph, other: Graph, copy: _Copy) -> list[tuple[Cell, Value | None]]:
    """The Variables of both graphs, and what the second assigns; one that both have is one."""
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
            name = copy.free(cell.name)
            found.append((Cell(name, cell.variable, copy.named(cell.value, name)), cell.assigned))
    return found
