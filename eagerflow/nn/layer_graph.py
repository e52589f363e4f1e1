"""Models from symbolic tensors: calls of ops and layers on ``Input`` become nodes of a graph.

``graph_between`` traverses from outputs to inputs and returns a Graph as in ``ef.capture``, in
which a call of a layer is a node like that of an op; ``run`` computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eagerflow import tree
from eagerflow.errors import ArgumentError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.run import interpret
from eagerflow.graph.sizes import Sizes, bind, with_sizes
from eagerflow.graph.sizes import is_symbolic as has_size
from eagerflow.nn.arguments import Nest
from eagerflow.nn.symbols import VariableRead, is_symbolic, symbols
from eagerflow.op import Op, custom_op
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable
from eagerflow.visitors import secluded

__all__ = [
    "LayerCall",
    "LayerGraph",
    "call_layer",
    "call_of",
    "graph_between",
    "layer_of",
    "run",
]


# Calls of layers ----------------------------------------------------------------------------------


class LayerCall:
    """How a node calls a layer: with the arguments as they were, but for the tensors in them.

    ``structure`` is the nest of the positional and the named arguments, ``leaves`` its leaves,
    where ``TENSOR`` marks tensors; ``results`` is the nest of the layer's results. ``masks`` are
    symbolic tensors like the masks of the results, by index.
    """

    def __init__(self, layer: Any, structure: Any, leaves: list[Any], results: Any) -> None:
        self.layer = layer
        self.structure = structure
        self.leaves = leaves
        self.results = results
        self.masks: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"masks": {}}  # of use only while models are made

    def arguments(self, operands: Iterable[Any]) -> Any:
        """Positional and named arguments, with ``operands`` in place of the tensors."""
        given = iter(operands)
        leaves = [next(given) if leaf is TENSOR else leaf for leaf in self.leaves]
        return tree.unflatten(self.structure, leaves)

    def __call__(self, *operands: Any, **shown: Any) -> Any:
        """Call the layer; the attributes shown in listings are in the nest of arguments already."""
        args, kwargs = self.arguments(operands)
        found = tree.flatten_up_to(self.results, self.layer(*args, **kwargs))
        return tuple(found) if len(found) > 1 else found[0]


class TENSOR:
    """Marks a tensor among the arguments of a LayerCall; the class itself, never an object."""


def call_layer(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
    """Symbolic tensors like ``outputs``, which hang on a node that calls the layer."""
    leaves, structure = tree.flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, Tensor | Variable)]
    inputs = [secluded(symbols, symbols.value_of, _current(x)) for x in tensors]
    found, results = tree.flatten(outputs)
    marked = [TENSOR if isinstance(x, Tensor | Variable) else x for x in leaves]
    op = _layer_op(LayerCall(layer, structure, marked, results))
    specs = tuple(TensorSpec(x.shape, x.dtype) for x in found)
    shown = {k: v for k, v in kwargs.items() if isinstance(v, int | float | str)}
    made = symbols.results(op, tuple(inputs), shown, specs, layer.name)
    return tree.unflatten(results, made)


def _layer_op(call: LayerCall) -> Op:
    """The op of a node that calls a layer."""
    facts = custom_op(type(call.layer).__name__, call)
    return facts.replaced(family="layer", kernel=call, call=call)


def _current(x: Any) -> Any:
    return x.value if isinstance(x, Variable) else x


# Graphs -------------------------------------------------------------------------------------------


def _nodes_before(
    outputs: Iterable[Value], inputs: set[Value]
) -> tuple[list[Node], dict[Any, int]]:
    """The nodes that outputs are computed by, each after its inputs, and when each was met."""
    met: dict[Any, int] = {}
    done: dict[Node, None] = {}
    for output in outputs:
        waiting: list[tuple[Any, Iterator[Any] | None]] = [(output, None)]
        while waiting:
            value, rest = waiting.pop()
            node = None if value in inputs else value.node
            if node is None or node in done:
                continue
            if rest is None:
                met.setdefault(node, len(met))
                rest = iter(list(node.values()))
            following = next(rest, None)
            if following is None:
                done[node] = None
            else:
                waiting += [(value, rest), (following, None)]
    return list(done), met


def in_order(outputs: Iterable[Value], inputs: Iterable[Value]) -> list[Node]:
    """The nodes between inputs and outputs: the farther from the outputs, the earlier.

    The order is that of Keras's models, so that weights have the same order. All calls of a layer
    have the depth of its deepest call.
    """
    ends = set(inputs)
    nodes, met = _nodes_before(outputs, ends)
    depths: dict[Any, int] = {}
    of_owner: dict[Any, int] = {}
    first: dict[Any, int] = {}
    for node in nodes:
        owner = owner_of(node)
        first[owner] = min(met[node], first.get(owner, met[node]))
    for node in reversed(nodes):
        owner = owner_of(node)
        depth = max(depths.get(node, 0), of_owner.get(owner, 0))
        depths[node] = of_owner[owner] = depth
        for value in node.values():
            if value not in ends and value.node is not None:
                depths[value.node] = max(depth + 1, depths.get(value.node, 0))
    return sorted(nodes, key=lambda n: (-depths[n], first[owner_of(n)], met[n]))


def layer_of(node: Node) -> Any:
    """The layer that a node calls; None for an op."""
    return node.op.kernel.layer if isinstance(node.op.kernel, LayerCall) else None


def call_of(tensor: Tensor) -> Any:
    """The LayerCall that makes a symbolic tensor; None if no layer does."""
    node = tensor._array.node
    return node.op.kernel if node is not None and layer_of(node) is not None else None


def owner_of(node: Node) -> Any:
    """The layer that a node calls, or the node itself."""
    return layer_of(node) or node


class LayerGraph(Graph):
    """A graph that calls layers. Copies, also pickled ones, have layers of their own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Whether an op takes a size that depends on the inputs.
        given = (a for node in self.nodes for a in node.attributes.values())
        self.asks_sizes = any(has_size(x) for x in given)

    def __reduce__(self) -> Any:
        numbers: dict[Value, int] = {}
        given = [_row(v, numbers) for v in [*self.all_inputs(), *self.constants]]
        rows = []
        for node in self.nodes:
            inputs = [(numbers[x], None) if type(x) is Value else (-1, x) for x in node.inputs]
            op = node.op.kernel if layer_of(node) else node.op
            made = [_row(v, numbers) for v in node.outputs]
            rows.append((op, inputs, node.attributes, node.name, made))
        ends = [numbers[v] for v in self.outputs]
        variables = [cell.variable for cell in self.cells]
        structures = self.argument_structure, self.structure
        return _rebuilt, (self.name, given, len(self.inputs), variables, rows, ends, structures)


def _row(value: Value, numbers: dict[Value, int]) -> tuple[Any, ...]:
    numbers[value] = len(numbers)
    return value.name, value.shape, value.dtype, value.constant


def _rebuilt(
    name: str, given: Any, inputs: int, variables: Any, rows: Any, ends: Any, structures: Any
) -> LayerGraph:
    """The graph behind a LayerGraph."""

    def value(row: Any, node: Node | None = None, index: int = 0) -> Value:
        label, shape, dtype, constant = row
        values.append(Value(label, shape, dtype, symbols, node, index, constant))
        return values[-1]

    values: list[Value] = []
    for row in given:
        value(row)
    nodes = []
    for op, operands, attributes, label, made in rows:
        facts = _layer_op(op) if isinstance(op, LayerCall) else op
        node = Node(
            facts, tuple(values[i] if i >= 0 else x for i, x in operands), attributes, label
        )
        node.outputs = tuple([value(row, node, i) for i, row in enumerate(made)])
        nodes.append(node)
    cells = [
        Cell(v.name, variable, v)
        for v, variable in zip(values[inputs : inputs + len(variables)], variables, strict=True)
    ]
    results = Values([values[i] for i in ends])
    return LayerGraph(name, Values(values[:inputs]), nodes, results, cells, *structures)


def graph_between(inputs: Nest, outputs: Nest, name: str) -> Graph:
    """The graph that computes ``outputs`` from ``inputs``, nests of symbolic tensors.

    Raises ArgumentError for objects other than symbolic tensors, and if outputs depend on an input
    that is not given.
    """
    given, argument_structure = _values(inputs, "inputs", name)
    wanted, structure = _values(outputs, "outputs", name)
    nodes = in_order(wanted, given)
    names = FreeNames()
    new: dict[Value, Value] = {}
    for value in given:
        new[value] = value.like(None, names.take(value.name.partition(":")[0]))
    cells: dict[int, Cell] = {}
    copies = []
    for node in nodes:
        for value in node.values():
            if value not in new:
                new[value] = _from_outside(value, names, cells, name, node)
        label = names.take(node.name)
        copy = node.like(tuple([new.get(x, x) for x in node.inputs]), None, label)
        new.update(zip(node.outputs, copy.outputs, strict=True))
        copies.append(copy)
    for value in wanted:
        if value not in new:
            new[value] = _from_outside(value, names, cells, name, None)
    return LayerGraph(
        name,
        Values([new[v] for v in given]),
        copies,
        Values([new[v] for v in wanted]),
        cells.values(),
        argument_structure,
        structure,
    )


def _values(nest: Nest, argument: str, name: str) -> tuple[list[Value], Any]:
    leaves, structure = tree.flatten(nest)
    for leaf in leaves:
        if not is_symbolic(leaf):
            raise ArgumentError(
                f"a {type(leaf).__name__} is not a symbolic tensor",
                op=name,
                argument=argument,
                expected="the result of ef.nn.Input(shape), or of layers and ops on it",
            )
    return [leaf._array for leaf in leaves], structure


def _from_outside(
    value: Value, names: FreeNames, cells: dict[int, Cell], name: str, node: Node | None
) -> Value:
    """A value that no node between inputs and outputs computes: a constant, or a Variable's."""
    if value.constant is not None:
        return value.like(None, names.take("constant"))
    if isinstance(value.owner, VariableRead):
        variable = value.owner.variable
        cell = cells.get(id(variable))
        if cell is None:
            label = names.take(variable.name)
            cell = cells[id(variable)] = Cell(label, variable, value.like(None, label))
        return cell.value
    raise ArgumentError(
        f"the outputs depend on {value.name!r}, which is not an input",
        op=name,
        argument="inputs",
        received=f"{value.name}: {value.spec}" + (f", used by {node.name!r}" if node else ""),
        hint=f"ef.nn.Model([..., {value.name}], outputs)",
    )


def run(graph: LayerGraph, inputs: Nest) -> Any:
    """The outputs of a graph of layers on ``inputs``, in their nest."""
    leaves = _matched(graph, inputs)
    current = [cell.variable.value for cell in graph.cells]
    found = interpret(_with_sizes(graph, leaves), [*leaves, *current])
    return graph.nest(found)


def _with_sizes(graph: LayerGraph, leaves: list[Any]) -> Graph:
    """The graph with the sizes of these inputs, if an op takes sizes that depend on them.

    Inputs that do not fit are refused by the layers.
    """
    if not graph.asks_sizes:
        return graph
    sizes = Sizes()
    for value, x in zip(graph.inputs, leaves, strict=True):
        bind(sizes, value.shape, tuple(x.shape))
    found: Graph = with_sizes(graph, sizes)
    return found


def _matched(graph: Graph, inputs: Nest) -> list[Any]:
    """A value for each input of the graph: by name if both are dicts, otherwise in order."""
    names = graph.inputs.names
    if isinstance(inputs, dict):
        if set(names) <= set(inputs):
            return [inputs[n] for n in names]
        wanted = graph.argument_structure
        keys = sorted(map(str, wanted.keys)) if wanted and wanted.container is dict else names
        if sorted(map(str, inputs)) != list(keys):
            missing = [n for n in keys if n not in inputs]
            raise ArgumentError(
                f"there is no input {missing[0]!r} among them" if missing else "too many inputs",
                op=graph.name,
                argument="inputs",
                received=", ".join(map(repr, inputs)),
                expected=", ".join(map(repr, names)),
            )
    leaves = tree.flatten(inputs)[0]
    if len(leaves) != len(names):
        raise ArgumentError(
            f"{len(leaves)} inputs for a model of {len(names)}",
            op=graph.name,
            argument="inputs",
            expected=", ".join(f"{v.name}: {v.spec}" for v in graph.inputs),
        )
    return leaves
