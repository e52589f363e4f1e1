"""Validation of all rules for graphs; for graphs from files and from new passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from eagerflow.dims import Dim
from eagerflow.dtypes import FLOAT8, STANDARD
from eagerflow.errors import CaptureError, EagerflowError, printable, short_repr
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Cell, Node, Value
from eagerflow.graph.text import type_text
from eagerflow.graph.walk import named_bodies, returned
from eagerflow.handlers import raised_here
from eagerflow.op import MAX_DEPTH, REQUIRED, Op, ops
from eagerflow.ops.attributes import unfit
from eagerflow.spec import TensorSpec

_SCALARS = frozenset({bool, int, float, complex})
_ATTRIBUTES = _SCALARS | {str, type(None), type(Ellipsis), Dim}
_DTYPES = STANDARD | FLOAT8


@graph_method
def check(self: Graph) -> None:
    """See ``Graph.check``."""
    waiting: list[tuple[str, Graph]] = [("", self)]
    checked: set[int] = set()
    while waiting:
        where, graph = waiting.pop()
        if id(graph) in checked:
            continue
        checked.add(id(graph))
        _Check(graph, where).run()
        for node in graph.nodes:
            waiting += [
                (f"{where}{node.name}.{name}: ", body)
                for name, body in named_bodies(node.attributes)
            ]


class _Check:
    """The check of one graph: the values known so far, and the rules."""

    def __init__(self, graph: Graph, where: str) -> None:
        self.graph = graph
        self.where = where  # the node of this body
        self.known: set[Value] = set()
        self.names: set[str] = set()

    def run(self) -> None:
        graph = self.graph
        for value in graph.all_outputs():
            if type(value) is not Value:
                self.fail(f"an output or an assigned value is {short_repr(value)}")
        self._named("inputs", graph.inputs.names, len(graph.inputs))
        for value in graph.inputs:
            self._add(value, "an input")
            self._given(value, f"input {value.name}")
        self._named("Variables", [cell.name for cell in graph.cells], len(graph.cells))
        for cell in graph.cells:
            self._cell(cell)
        for value in graph.constants:
            self._constant(value)
        for node in graph.nodes:
            self._node(node)
        self._outputs()
        for cell in graph.cells:
            if cell.assigned is not None:
                self._assigned(cell)

    def fail(self, problem: str, node: Node | None = None, **more: Any) -> NoReturn:
        subject = self.graph.name if node is None else f"{node.name} = {_op_name(node)}(...)"
        at = None if node is None else node.place or None
        raise CaptureError(printable(f"{self.where}{subject}: {problem}"), at=at, **more)

    # Values ----------------------------------------------------------------------------------

    def _add(self, value: Any, what: str, node: Node | None = None) -> None:
        """Add a value that exists from here on."""
        if type(value) is not Value:
            self.fail(f"{what} is {short_repr(value)}", node, expected="a Value")
        if not isinstance(value.name, str) or not value.name:
            self.fail(f"{what} has the name {short_repr(value.name)}", node, expected="a text")
        if value in self.known:
            self.fail(f"{value.name} is made twice", node, expected="each value made once")
        if value.name in self.names:
            self.fail(
                f"the name {value.name!r} is taken", node, expected="a name of its own for each"
            )
        sizes = value.shape
        if type(sizes) is not tuple or not all(_is_size(x) for x in sizes):
            self.fail(
                f"{value.name} has the shape {short_repr(sizes)}",
                node,
                expected="a tuple of sizes, which are numbers from 0 on or ef.Dim",
            )
        if not isinstance(value.dtype, np.dtype) or value.dtype not in _DTYPES:
            self.fail(f"{value.name} has the dtype {short_repr(value.dtype)}", node)
        if value.device is not None and not isinstance(value.device, str):
            self.fail(f"{value.name} is to be on {short_repr(value.device)}", node)
        self.known.add(value)
        self.names.add(value.name)

    def _named(self, what: str, names: Sequence[Any], count: int) -> None:
        if len(names) != count or len(set(names)) != count:
            self.fail(f"its {what} do not have a name each", received=", ".join(map(str, names)))

    def _given(self, value: Value, what: str) -> None:
        if value.constant is not None or value.node is not None:
            self.fail(f"the {what} is a constant, or a node makes it")

    def _constant(self, value: Value) -> None:
        self._add(value, "a constant")
        held = value.constant
        shape, dtype = getattr(held, "shape", None), getattr(held, "dtype", None)
        if value.node is not None or shape != value.shape or dtype != value.dtype:
            self.fail(
                f"the constant {value.name} does not match its array",
                received=_described(held),
                expected=type_text(value),
            )

    def _cell(self, cell: Cell) -> None:
        self._add(cell.value, f"the value of Variable {cell.name}")
        variable = cell.variable
        self._given(cell.value, f"value of Variable {cell.name}")
        if variable is not None and not _same(variable, cell.value):
            self.fail(
                f"Variable {cell.name} is not as the graph says",
                received=_described(variable),
                expected=type_text(cell.value),
            )
        if cell.name != cell.value.name and cell.name in self.names:
            self.fail(f"the name {cell.name!r} of a Variable is taken")

    def _assigned(self, cell: Cell) -> None:
        value = cell.assigned
        assert value is not None
        if value not in self.known:
            self.fail(f"the new value of Variable {cell.name} is not a value of the graph: {value}")
        if not _same(value, cell.value):
            self.fail(
                f"the value assigned to Variable {cell.name} does not match it",
                value.node,
                received=f"{value.name}: {type_text(value)}",
                expected=type_text(cell.value),
            )

    def _outputs(self) -> None:
        graph = self.graph
        self._named("outputs", graph.outputs.names, len(graph.outputs))
        for name, value in zip(graph.outputs.names, graph.outputs, strict=True):
            if value not in self.known:
                self.fail(f"the output {name} is not a value of the graph: {short_repr(value)}")
        if [x for x in graph.results if type(x) is Value] != list(returned(graph)):
            self.fail("the values in its result are not its first outputs")
        leaves = None if graph.structure is None else _leaves(graph.structure)
        if leaves is not None and leaves != len(graph.results):
            self.fail(f"its result has {len(graph.results)} leaves, and its structure {leaves}")

    # Nodes -----------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        op = node.op
        if not isinstance(op, Op) or ops.get(op.name) is not op:
            self.fail(f"there is no op {_op_name(node)!r}", node, expected="a registered op")
        if not isinstance(node.name, str) or not node.name:
            self.fail(f"it has the name {short_repr(node.name)}", node, expected="a text")
        if node.device is not None and not isinstance(node.device, str):
            self.fail(f"it is to run on {short_repr(node.device)}", node)
        self._arguments(node, op)
        self._attributes(node, op)
        self._results(node, op)

    def _arguments(self, node: Node, op: Op) -> None:
        count, least = len(node.inputs), len(op.data) - op.variadic
        if count < least or (count > least and not op.variadic):
            self.fail(
                f"it has {count} inputs",
                node,
                expected=f"{'at least ' if op.variadic else ''}{least}: {', '.join(op.data)}",
            )
        for i, x in enumerate(node.inputs):
            argument = op.argument(i)
            if type(x) is Value:
                if x not in self.known:
                    self.fail(
                        f"{argument} is {x.name}, which does not exist yet",
                        node,
                        expected="an input, a constant, a Variable's value, or one made before",
                    )
                if x.dtype not in op.allowed(i):
                    allowed = ", ".join(sorted(t.name for t in op.allowed(i)))
                    self.fail(
                        f"{argument} has a dtype that the op does not take",
                        node,
                        received=f"{x.name}: {type_text(x)}",
                        expected=f"one of {allowed}",
                    )
            elif x is None:
                if i not in op.optional:
                    self.fail(f"{argument} is missing", node)
            elif type(x) not in _SCALARS:
                self.fail(f"{argument} is {short_repr(x)}", node, expected="a Value or a number")
        if not op.on_tensors:
            self._promoted(node, op)

    def _promoted(self, node: Node, op: Op) -> None:
        """Check that operands of a promoting op have one dtype: conversions are separate nodes."""
        last = len(op.data) - 1
        together = [
            (i, x)
            for i, x in enumerate(node.inputs)
            if type(x) is Value and (i in op.together or (op.variadic and i >= last))
        ]
        if len({op.allowed(i) for i, _ in together}) == 1 < len({x.dtype for _, x in together}):
            self.fail(
                "its inputs have different dtypes",
                node,
                received=", ".join(f"{x.name}: {type_text(x)}" for _, x in together),
                hint="a node astype before it",
            )

    def _attributes(self, node: Node, op: Op) -> None:
        given = node.attributes
        if not isinstance(given, dict):
            self.fail(f"its attributes are {short_repr(given)}", node, expected="a dict")
        strange = [name for name in given if name not in op.attributes]
        missing = [name for name in op.attributes if name not in given]
        if strange or missing:
            self.fail(
                "its attributes are not those of the op",
                node,
                received=", ".join(map(str, given)) or "none",
                expected=", ".join(op.attributes) or "none",
            )
        for name, value in given.items():
            if value is REQUIRED:
                self.fail(f"the attribute {name} is not given", node)
            bad = _not_plain(value)
            if bad is not None:
                self.fail(
                    f"the attribute {name} holds {bad}",
                    node,
                    expected="numbers, texts, dtypes, None, slices, graphs, or tuples of these",
                )
        found = unfit(op, given)
        if found is not None:
            name, words = found
            self.fail(
                f"the attribute {name} is not valid for the op",
                node,
                received=short_repr(given[name]),
                expected=words,
            )

    def _results(self, node: Node, op: Op) -> None:
        for i, value in enumerate(node.outputs):
            self._add(value, f"output {i}", node)
            if value.node is not node or value.index != i or value.constant is not None:
                self.fail(f"{value.name} does not say that it is output {i} of this node", node)
        inferred = self._inferred(node, op)
        said = tuple((v.shape, v.dtype) for v in node.outputs)
        if said != tuple((s.shape, s.dtype) for s in inferred):
            self.fail(
                "its outputs are not those of the op",
                node,
                received=", ".join(f"{v.name}: {type_text(v)}" for v in node.outputs) or "none",
                expected=", ".join([type_text(x) for x in inferred]),
            )

    def _inferred(self, node: Node, op: Op) -> tuple[TensorSpec, ...]:
        specs = [x.spec if type(x) is Value else x for x in node.inputs]
        try:
            found = op.infer(*specs, **node.attributes)
        except raised_here(EagerflowError) as error:
            self.fail(
                f"the op refuses its inputs: {error.problem}",
                node,
                received=_inputs_text(node),
                expected=error.expected,
                hint=error.hint,
            )
        except raised_here(Exception) as error:  # attributes from a file may be of any kind
            self.fail(
                f"the op cannot take its inputs and attributes: {short_repr(error)}",
                node,
                received=_inputs_text(node),
            )
        return found if type(found) is tuple else (found,)


def _inputs_text(node: Node) -> str:
    return ", ".join(
        f"{node.op.argument(i)} {type_text(x) if type(x) is Value else repr(x)}"
        for i, x in enumerate(node.inputs)
    )


def _op_name(node: Node) -> str:
    return str(getattr(node.op, "name", node.op))


def _is_size(size: Any) -> bool:
    return isinstance(size, Dim) or (type(size) is int and size >= 0)


def _same(one: Any, other: Value) -> bool:
    return tuple(one.shape) == other.shape and one.dtype == other.dtype


def _described(held: Any) -> str:
    return type_text(held) if hasattr(held, "shape") and hasattr(held, "dtype") else repr(held)


def _leaves(structure: Any) -> int:
    """The number of leaves of a nest; not recursive, as it may come from a file."""
    count, waiting = 0, [structure]
    while waiting:
        part = waiting.pop()
        count += part.container is None
        waiting += part.children
    return count


def _not_plain(value: Any) -> str | None:
    """The part of an attribute that cannot be hashed, printed and saved; None if all can."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if type(part) in _ATTRIBUTES or isinstance(part, np.dtype | Graph):
            continue
        if hasattr(type(part), "not_saved"):  # reported when the graph is saved
            continue
        if depth > MAX_DEPTH:
            return "tuples in each other, too deep"
        children = _children(part)
        if children is None:
            return f"a {type(part).__name__}"
        waiting += [(child, depth + 1) for child in children]
    return None


def _children(part: Any) -> Iterator[Any] | None:
    if type(part) is tuple:
        return iter(part)
    return iter((part.start, part.stop, part.step)) if type(part) is slice else None
