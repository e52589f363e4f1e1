"""Gradients of graphs: a larger graph, made by the same tape and rules as eager gradients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from eagerflow import provenance, tree
from eagerflow.capture.control.silence import silent
from eagerflow.capture.trace import Trace
from eagerflow.dispatch import record
from eagerflow.errors import GradientError
from eagerflow.graph.graph import Graph, graph_method
from eagerflow.graph.ir import Value, Values
from eagerflow.graph.names import FreeNames, find_value
from eagerflow.op import ops
from eagerflow.scopes import scope
from eagerflow.tape import GradientTape
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable


class Extension(Trace):
    """A trace that extends an existing graph; the graph's nodes are unchanged."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.name)
        self.graph = graph
        self.nodes = list(graph.nodes)
        self.cells = {id(cell.variable): cell for cell in graph.cells}
        self.tensors: dict[Value, Tensor] = {}
        for value in (*graph.all_inputs(), *graph.constants):
            self.adopt(value)
        for node in graph.nodes:
            for value in node.outputs:
                self.adopt(value)
            if all(value.name != node.name for value in node.outputs):  # as for multiple results
                self.unique(node.name)

    def adopt(self, value: Value) -> None:
        """Register a value of the graph with this trace."""
        self.adopted.add(value)
        self.unique(value.name)
        if value.constant is None:
            self.tensors[value] = self.symbol(value)
        else:
            self.tensors[value] = value.constant
            self._constants[id(value.constant)] = value

    def summed_gradients(
        self,
        targets: Sequence[Value],
        groups: Sequence[Sequence[Value]],
        weights: Sequence[Tensor] | None = None,
        unconnected: str = "none",
    ) -> list[Any]:
        """The sum of gradients for each group of sources; None or ``unconnected`` where none flow.

        ``weights`` are the gradients of the targets.
        """
        tape = GradientTape(persistent=True)
        with self:
            with tape:
                self._show_nodes(tape, {v for group in groups for v in group})
            ends = [self.tensors[v] for v in targets]
            sources = [[self.tensors[v] for v in group] for group in groups]
            flat = [source for group in sources for source in group]
            grads = iter(tape.gradient(ends, flat, weights, unconnected="none"))
            found: list[Any] = []
            for group in sources:
                parts = [g for g in (next(grads) for _ in group) if g is not None]
                with scope("gradient"):
                    found.append(reduce(ops["add"].call, parts) if parts else None)
                if not parts and unconnected == "raise":
                    reason = tape.why(ends[0], group[0])
                    if reason == provenance.NOT_RECORDED:
                        reason = "no path of the graph leads from it to the target"
                    raise provenance.unconnected(group[0], reason)
                if not parts and unconnected != "none":
                    found[-1] = tape.gradient(ends, group[0], unconnected=unconnected)
            tape.reset()
        return found

    def _show_nodes(self, tape: GradientTape, wanted: set[Value]) -> None:
        """Show the graph's nodes to the tape, as if they were called now."""
        tensors = self.tensors
        for value in (*self.graph.all_inputs(), *self.graph.constants):
            if value in wanted:
                tape.watch(tensors[value])
        for node in self.graph.nodes:
            args = tuple([tensors[x] if type(x) is Value else x for x in node.inputs])
            found = tuple([tensors[v] for v in node.outputs])
            out = found if node.op.outputs != 1 or len(found) != 1 else found[0]
            here = node.origin
            if here and isinstance(here[0], str):
                here = here, None
            record(tape._entries.append, node.op, args, node.attributes, out, here)
            for value in node.outputs:
                if value in wanted:
                    tape.watch(tensors[value])


@graph_method
def gradient(self: Graph, targets: Any, sources: Any, unconnected: str = "raise") -> Graph:
    """See ``Graph.gradient``."""
    extension = Extension(self)
    wanted = [find_source(self, name, True) for name in tree.flatten(sources)[0]]
    reads = {v: (v, *more) for v, more in rereads(self).items()}
    goals = [find_source(self, name) for name in tree.flatten(targets)[0]]
    if not goals or not wanted:
        raise GradientError("a gradient needs targets and sources", op="graph.gradient")
    groups = [reads.get(v, (v,)) for v in wanted]
    found = extension.summed_gradients(goals, groups, unconnected=unconnected)
    pairs = [(v, g) for v, g in zip(wanted, found, strict=True) if g is not None]
    values = [extension.value_of(g) for _, g in pairs]
    free = FreeNames(self.outputs.names)  # the graph may have gradients already
    names = [free.take(f"gradient/{_name(self, v)}") for v, _ in pairs]
    outputs = Values((*self.outputs, *values), (*self.outputs.names, *names))
    new: dict[Value, Value] = {}
    named = tree.flatten(dict(zip(outputs.names, outputs, strict=True)))[1]
    return Graph(
        self.name,
        self.inputs,
        [*self.nodes, *silent(extension.nodes[len(self.nodes) :], new)],
        outputs.replaced(new),
        self.cells,
        self.argument_structure,
        named,
    )


def rereads(graph: Graph) -> dict[Value, list[Value]]:
    """Map values of Variables on entry to values read after the graph assigned the Variable.

    The gradient by a Variable is the sum over all values that it had when it was read.
    """
    found: dict[Value, list[Value]] = {}
    names = {cell.name: cell.value for cell in graph.cells}
    for node in graph.nodes:
        if node.op.name == "stop_gradient":
            name, _, which = node.name.rpartition("/read")
            if name in names and (not which or which[1:].isdigit()):
                found.setdefault(names[name], []).append(node.outputs[0])
    return found


def _name(graph: Graph, value: Value) -> str:
    given = graph.inputs
    return given.names[given.index(value)] if value in given else value.name


def find_source(graph: Graph, name: Any, inputs_first: bool = False) -> Value:
    """The Value for a name, a Value or a Variable; SessionError if there is none."""
    if type(name) is Value:
        return name
    if not isinstance(name, Variable):
        return find_value(graph, name, inputs_first)
    for cell in graph.cells:
        if cell.variable is name:
            return cell.value
    raise GradientError(
        "the graph does not read this Variable",
        argument=name.name,
        op=graph.name,
        expected="one of " + ", ".join(graph.variables),
    )
