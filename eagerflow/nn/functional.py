"""Models from symbolic tensors: calls of ops and layers on ``Input`` become nodes of a graph.

A symbolic tensor has a shape and a dtype, and hangs on the node that makes it; the node hangs on
its inputs. Nothing else keeps them, so what no model uses goes away. ``graph_between`` walks back
from outputs to inputs and gives a Graph of ``ef.capture``'s kind, in which a call of a layer is a
node like that of an op; ``run`` computes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from eagerflow import tree
from eagerflow.devices import SymbolicKind, current_device
from eagerflow.dims import Dim
from eagerflow.dispatch import check, user_frame
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.graph.names import FreeNames
from eagerflow.graph.run import interpret
from eagerflow.nn.arguments import Nest
from eagerflow.op import Op, custom_op
from eagerflow.recorder import Recorder, with_recorder
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor, new_tensor
from eagerflow.variable import Variable

__all__ = ["LayerCall", "graph_between", "infer", "is_symbolic", "layer_of", "run", "symbol"]


class _Symbols(Recorder):
    """Answers calls on symbolic tensors with more of them; nodes hang on what they make."""

    def __init__(self) -> None:
        self.kinds: dict[Any, SymbolicKind] = {}
        self._variables: WeakValueDictionary[int, _Read] = WeakValueDictionary()

    def tensor(self, value: Value) -> Tensor:
        """The Tensor that stands for a value."""
        key = current_device(), value.dtype
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds.setdefault(key, SymbolicKind(*key, self))
        return new_tensor(value, kind)

    def value_of(self, x: Any) -> Any:
        """What a node's input is: the value of a tensor, or a number as it is."""
        if type(x) is not Tensor:
            return x
        if type(x._array) is Value:
            return x._array
        return Value("constant", x.shape, x.dtype, self, constant=x)

    def call(self, op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
        specs = check(op, args, attributes)
        found = self.results(op, tuple(map(self.value_of, args)), attributes, specs, op.name)
        return found if type(specs) is tuple else found[0]

    def results(
        self, op: Op, inputs: tuple[Any, ...], attributes: dict[str, Any], specs: Any, name: str
    ) -> tuple[Tensor, ...]:
        """What a new node makes, of these specs."""
        frame = user_frame(sys._getframe(1))
        node = Node(op, inputs, attributes, name, (frame.f_code, frame.f_lasti))
        several = specs if type(specs) is tuple else (specs,)
        node.outputs = tuple(
            Value(name if len(several) == 1 else f"{name}:{i}", s.shape, s.dtype, self, node, i)
            for i, s in enumerate(several)
        )
        return tuple(map(self.tensor, node.outputs))

    def read(self, variable: Any) -> Tensor:
        read = self._variables.get(id(variable))
        if read is None or read.variable is not variable:
            read = self._variables[id(variable)] = _Read(variable)
        return self.tensor(Value(variable.name, variable.shape, variable.dtype, read))

    def assign(self, variable: Any, value: Any) -> None:
        raise CaptureError(
            f"{variable.name} cannot be assigned a value that is not known",
            hint="a Layer whose call assigns it",
        )

    def leave(self, tensor: Any, how: str) -> None:
        """What is known may leave."""

    def refusal(self, value: Value, how: str) -> CaptureError:
        """The error of code that wants the number behind a symbolic tensor."""
        return CaptureError(
            f"{how} needs a number, and this tensor stands for the inputs of a model to come",
            received=f"{value.name}: {value.spec}",
            hint="ops of ef on it, or a Layer whose call does this",
        )


class _Read:
    """The owner of values that stand for a Variable."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self.refusal = symbols.refusal


class _Inference(_Symbols):
    """Finds the shapes of what a layer computes; what it assigns stays as it is."""

    def assign(self, variable: Any, value: Any) -> None:
        """Nothing is known to assign."""

    def initial(self, tensor: Any) -> Any:
        raise CaptureError(
            "weights cannot begin with values that are not known", hint="make them in build"
        )


symbols = _Symbols()


def is_symbolic(x: Any) -> bool:
    """Whether ``x`` is a tensor that stands for a model's inputs, or for what they lead to.

    >>> from eagerflow.nn.functional import is_symbolic
    >>> is_symbolic(ef.nn.Input((2,)) * 2.0), is_symbolic(ef.ones(2))
    (True, False)
    """
    return type(x) is Tensor and type(x._kind) is SymbolicKind


def symbol(shape: Sequence[Any], dtype: Any, name: str) -> Tensor:
    """A symbolic tensor that nothing has made: an input. Sizes of None get names."""
    names = [f"{name}_dim{i}" if i else "batch" for i in range(len(shape))]
    sizes = [Dim(n) if s is None else s for n, s in zip(names, shape, strict=True)]
    return symbols.tensor(Value(name, tuple(sizes), as_dtype(dtype), symbols))


def infer(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What ``f`` gives for such arguments, tensors without values; nothing is computed."""
    with _Inference():
        return f(*args, **kwargs)


# Calls of layers ----------------------------------------------------------------------------------


class LayerCall:
    """How a node calls a layer: with the arguments as they were, but for the tensors in them.

    ``structure`` is the nest of the positional and the named arguments, ``leaves`` what stood in
    it, where ``None`` marks tensors; ``results`` is the nest of what the layer returned.
    """

    def __init__(self, layer: Any, structure: Any, leaves: list[Any], results: Any) -> None:
        self.layer = layer
        self.structure = structure
        self.leaves = leaves
        self.results = results

    def arguments(self, operands: Iterable[Any]) -> Any:
        """Positional and named arguments, with ``operands`` in place of the tensors."""
        given = iter(operands)
        leaves = [next(given) if leaf is _TENSOR else leaf for leaf in self.leaves]
        return tree.unflatten(self.structure, leaves)

    def __call__(self, *operands: Any, **shown: Any) -> Any:
        # What a listing shows of the arguments is in their nest already.
        args, kwargs = self.arguments(operands)
        found = tree.flatten_up_to(self.results, self.layer(*args, **kwargs))
        return tuple(found) if len(found) > 1 else found[0]


class _Tensor:
    def __repr__(self) -> str:
        return "a tensor"


_TENSOR = _Tensor()


def call_layer(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a layer makes of symbolic tensors: more of them, which hang on a node for the call."""
    outputs = infer(layer.call, args, kwargs)
    leaves, structure = tree.flatten((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, Tensor | Variable)]
    inputs = [with_recorder(symbols, symbols.value_of, _current(x)) for x in tensors]
    found, results = tree.flatten(outputs)
    marked = [_TENSOR if isinstance(x, Tensor | Variable) else x for x in leaves]
    call = LayerCall(layer, structure, marked, results)
    facts = custom_op(type(layer).__name__, call)
    op = replace(facts, family="layer", kernel=call, call=call, outputs=len(found))
    specs = tuple(TensorSpec(x.shape, x.dtype) for x in found)
    shown = {k: v for k, v in kwargs.items() if isinstance(v, int | float | str)}
    made = symbols.results(op, tuple(inputs), shown, specs, layer.name)
    return tree.unflatten(results, made)


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

    The order is that of Keras's models, so that weights come in the same order. All calls of one
    layer count as its farthest.
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
    """The layer that a node calls; None where it calls an op."""
    return node.op.kernel.layer if isinstance(node.op.kernel, LayerCall) else None


def owner_of(node: Node) -> Any:
    """The layer that a node calls, or the node itself."""
    return layer_of(node) or node


def graph_between(inputs: Nest, outputs: Nest, name: str) -> Graph:
    """The graph that computes ``outputs`` from ``inputs``, nests of symbolic tensors.

    Raises ArgumentError for what is no symbolic tensor, and where outputs depend on an input that
    is not given.
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
    return Graph(
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
                f"a {type(leaf).__name__} is no symbolic tensor",
                op=name,
                argument=argument,
                expected="what ef.nn.Input(shape) gives, or layers and ops make of that",
            )
    return [leaf._array for leaf in leaves], structure


def _from_outside(
    value: Value, names: FreeNames, cells: dict[int, Cell], name: str, node: Node | None
) -> Value:
    """A value that no node between inputs and outputs makes: a constant, or a Variable's."""
    if value.constant is not None:
        return value.like(None, names.take("constant"))
    if isinstance(value.owner, _Read):
        variable = value.owner.variable
        cell = cells.get(id(variable))
        if cell is None:
            label = names.take(variable.name)
            cell = cells[id(variable)] = Cell(label, variable, value.like(None, label))
        return cell.value
    raise ArgumentError(
        f"the outputs depend on {value.name!r}, which is none of the inputs",
        op=name,
        argument="inputs",
        received=f"{value.name}: {value.spec}" + (f", used by {node.name!r}" if node else ""),
        hint=f"ef.nn.Model([..., {value.name}], outputs)",
    )


def run(graph: Graph, inputs: Nest) -> Any:
    """What a graph of layers makes of ``inputs``, in the nest of its outputs."""
    leaves = _matched(graph, inputs)
    current = [cell.variable.value for cell in graph.cells]
    found = interpret(graph, [*leaves, *current])
    return graph.nest(found)


def _matched(graph: Graph, inputs: Nest) -> list[Any]:
    """A value for each input of the graph: by name where both are dicts, else in order."""
    names = graph.inputs.names
    if isinstance(inputs, dict) and set(names) <= set(inputs):
        return [inputs[n] for n in names]
    leaves = tree.flatten(inputs)[0]
    if len(leaves) != len(names):
        raise ArgumentError(
            f"{len(leaves)} inputs for a model of {len(names)}",
            op=graph.name,
            argument="inputs",
            expected=", ".join(f"{v.name}: {v.spec}" for v in graph.inputs),
        )
    return leaves
