"""Graph: a captured program as plain data, in single-assignment form.

A Graph lists typed Values and the Nodes that make them, in an order in which each node comes
after what it reads. It is pure: the Variables that a program reads are inputs of its own, and
what it assigns are outputs of its own, which whoever replays it commits. What can be done with
graphs (printing, gradients, saving, running) is attached by the modules of ``capture``, as ops
attach themselves to Tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn

from eagerflow.dims import product
from eagerflow.dtypes import DType
from eagerflow.errors import CaptureError, SessionError, printable
from eagerflow.op import Op
from eagerflow.spec import TensorSpec
from eagerflow.tree import Structure, register, unflatten

__all__ = ["Cell", "Graph", "Node", "Value", "Values", "graph_method", "place_of", "source_of"]

Source = tuple[str, int, str]
"""A place in somebody's code: file, line, and the name of the function."""


class Value:
    """One tensor of a graph: an input, a constant, a Variable's value, or a result of a node.

    While a graph is traced, a Value stands in Tensors in place of an array.
    """

    __slots__ = ("constant", "device", "dtype", "index", "name", "node", "owner", "shape")
    __array_ufunc__ = None

    def __init__(
        self,
        name: str,
        shape: tuple[Any, ...],
        dtype: DType,
        owner: Any = None,
        node: Node | None = None,
        index: int = 0,
        constant: Any = None,
        device: str | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.owner = owner  # the trace that it belongs to
        self.node = node
        self.index = index
        self.constant = constant  # a Tensor, where the value is known
        self.device = device  # where it has to be, if that was said

    @property
    def size(self) -> Any:
        """Number of elements."""
        return product(self.shape)

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype, with the name."""
        return TensorSpec(self.shape, self.dtype, self.name, self.device)

    def like(self, node: Node | None = None, name: str | None = None, shape: Any = None) -> Value:
        """A value of its own, of this ``node``, with the same facts but for those given."""
        return Value(
            self.name if name is None else name,
            self.shape if shape is None else shape,
            self.dtype,
            self.owner,
            node,
            self.index,
            self.constant,
            self.device,
        )

    def refuse(self, how: str) -> NoReturn:
        """Raise the error of code that wants the number behind this value."""
        if self.owner is None:
            raise CaptureError(f"{how} needs a number, and {self.name} is a value of a graph")
        error: CaptureError = self.owner.refusal(self, how)
        raise error

    def __repr__(self) -> str:
        return printable(f"<Value {self.name}: {TensorSpec(self.shape, self.dtype)}>")


class Node:
    """One call of an op in a graph.

    ``inputs`` are Values, Python numbers, and None for arguments left out; ``origin`` is the
    place in the user's code, a Source or a code object with an instruction in it; ``device`` is
    where the node has to run, if that was said.
    """

    __slots__ = ("attributes", "device", "inputs", "name", "op", "origin", "outputs")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Any, ...],
        attributes: dict[str, Any],
        name: str,
        origin: Any = None,
        device: str | None = None,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attributes = attributes
        self.name = name
        self.origin = origin
        self.device = device
        self.outputs: tuple[Value, ...] = ()

    @property
    def source(self) -> Source | None:
        """The user's file, line and function that this call comes from, where that is known."""
        return None if self.origin is None else source_of(self.origin)

    @property
    def place(self) -> str:
        """``file:line in function``, as errors say it; empty where it is not known."""
        return "" if self.origin is None else place_of(self.origin)

    def values(self) -> Iterator[Value]:
        """The inputs that are Values."""
        return (x for x in self.inputs if type(x) is Value)

    def like(
        self,
        inputs: tuple[Any, ...] | None = None,
        attributes: dict[str, Any] | None = None,
        name: str | None = None,
        shapes: Iterable[Any] | None = None,
    ) -> Node:
        """A node with the same facts but for those given, and with results of its own."""
        made = Node(
            self.op,
            self.inputs if inputs is None else inputs,
            self.attributes if attributes is None else attributes,
            self.name if name is None else name,
            self.origin,
            self.device,
        )
        given = repeat(None) if shapes is None else shapes
        labels = (v.name for v in self.outputs)
        if name is not None:
            labels = (name + label.removeprefix(self.name) for label in labels)
        made.outputs = tuple(
            [v.like(made, label, s) for v, label, s in zip(self.outputs, labels, given)]  # noqa: B905
        )
        return made

    @property
    def scope(self) -> str:
        """The named scopes that the node was made in, joined by ``/``."""
        return self.name.rpartition("/")[0]

    def __repr__(self) -> str:
        given = ", ".join(x.name if type(x) is Value else repr(x) for x in self.inputs)
        return printable(f"<Node {self.name} = {self.op.name}({given})>")


def source_of(origin: Any) -> Source:
    """The Source that an origin is, or that a code object and an instruction in it stand for."""
    if isinstance(origin[0], str):
        place: Source = origin
        return place
    code, instruction = origin
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return code.co_filename, line, code.co_name
    return code.co_filename, code.co_firstlineno, code.co_name


def place_of(origin: Any) -> str:
    """An origin as errors say it."""
    return "{}:{} in {}".format(*source_of(origin))


class Cell:
    """A Variable of a graph: its value on entry, and the one that it is to have afterwards."""

    __slots__ = ("assigned", "name", "value", "variable")

    def __init__(self, name: str, variable: Any, value: Value) -> None:
        self.name = name
        self.variable = variable
        self.value = value
        self.assigned: Value | None = None

    def replaced(self, new: Mapping[Value, Value]) -> Cell:
        """The cell with ``new`` values in place of its own; itself where nothing changes."""
        assigned = self.assigned
        if self.value not in new and assigned not in new:
            return self
        made = Cell(self.name, self.variable, new.get(self.value, self.value))
        made.assigned = None if assigned is None else new.get(assigned, assigned)
        return made

    def __repr__(self) -> str:
        return printable(f"<Cell {self.name}{'' if self.assigned is None else ', assigned'}>")


class Values(tuple[Value, ...]):
    """Values in order, each with a name: ``values[0]``, ``values["loss"]``, ``values.names``."""

    names: tuple[str, ...]

    def __new__(cls, values: Iterable[Value], names: Iterable[str] | None = None) -> Values:
        """The values, named as they are or otherwise."""
        made = super().__new__(cls, values)
        made.names = tuple(v.name for v in made) if names is None else tuple(names)
        return made

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise SessionError(
                    f"there is no {key!r} here", expected="one of " + ", ".join(self.names)
                )
            return super().__getitem__(self.names.index(key))
        return super().__getitem__(key)

    def replaced(self, new: Mapping[Value, Value], names: Iterable[str] | None = None) -> Values:
        """These values with ``new`` ones in place of some, under the same names or others."""
        return Values([new.get(v, v) for v in self], self.names if names is None else names)

    def __reduce__(self) -> Any:
        return Values, (tuple(self), self.names)


register(Values, lambda values: ((), values), lambda keys, items: tuple(items))


class Graph:
    """A captured program: typed, pure, readable, and saved without any code in it.

    ``inputs`` and ``outputs`` are named Values, ``nodes`` the calls in an order in which they
    can run, ``cells`` the Variables read and assigned. ``argument_structure`` and ``structure``
    are the nests of the arguments and of the result; ``results`` are the result's leaves, Values
    and plain Python objects. Graphs are made by ``ef.capture.trace``, ``ef.function`` and
    ``ef.capture.load``.

    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec((3,), "float32"))
    >>> [node.name for node in graph.nodes], graph.inputs.names, graph.outputs.names
    (['tanh', 'multiply'], ('x',), ('output',))
    """

    def __init__(
        self,
        name: str,
        inputs: Values,
        nodes: Iterable[Node],
        outputs: Values,
        cells: Iterable[Cell] = (),
        argument_structure: Structure | None = None,
        structure: Structure | None = None,
        results: tuple[Any, ...] | None = None,
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.nodes = tuple(nodes)
        self.outputs = outputs
        self.cells = tuple(cells)
        self.argument_structure = argument_structure
        self.structure = structure
        self.results: tuple[Any, ...] = tuple(outputs) if results is None else results
        self.cache: dict[Any, Any] = {}  # what follows from the graph: see graph/cache.py
        self.rewrites: Any = None  # the Report of the passes that made it, if any did

    if TYPE_CHECKING:  # what the modules of capture attach

        def __getattr__(self, name: str) -> Any: ...

    @property
    def variables(self) -> dict[str, Any]:
        """The Variables that the program reads or assigns, by their names in the graph."""
        return {cell.name: cell.variable for cell in self.cells}

    @property
    def constants(self) -> tuple[Value, ...]:
        """The values known from the start that nodes or outputs use, in order of use."""
        used = [v for node in self.nodes for v in node.values()] + self.all_outputs()
        return tuple(dict.fromkeys(v for v in used if v.constant is not None))

    def all_outputs(self) -> list[Value]:
        """What must be computed: outputs, and the values that Variables are to have."""
        return [*self.outputs, *(c.assigned for c in self.cells if c.assigned is not None)]

    def all_inputs(self) -> list[Value]:
        """What is given: the inputs, and the values of Variables on entry."""
        return [*self.inputs, *(cell.value for cell in self.cells)]

    def like(
        self,
        nodes: Iterable[Node],
        new: Mapping[Value, Value],
        name: str | None = None,
        inputs: Iterable[str] | None = None,
        outputs: Iterable[str] | None = None,
    ) -> Graph:
        """A graph of these nodes, with ``new`` values in place of some that it takes and gives.

        ``inputs`` and ``outputs`` are other names for these.
        """
        made: Graph = object.__new__(type(self))  # a subclass may be made of other arguments
        Graph.__init__(
            made,
            self.name if name is None else name,
            self.inputs.replaced(new, inputs),
            nodes,
            self.outputs.replaced(new, outputs),
            [cell.replaced(new) for cell in self.cells],
            self.argument_structure,
            self.structure,
            tuple([new.get(x, x) if type(x) is Value else x for x in self.results]),
        )
        return made

    def nest(self, outputs: Iterable[Any]) -> Any:
        """The result's nest with these in place of the outputs."""
        found = iter(outputs)
        leaves = [next(found) if type(x) is Value else x for x in self.results]
        if self.structure is None:
            return leaves[0] if len(leaves) == 1 else tuple(leaves)
        return unflatten(self.structure, leaves)

    def __repr__(self) -> str:
        given = ", ".join(f"{n}: {v.spec}" for n, v in zip(self.inputs.names, self.inputs))  # noqa: B905
        return printable(f"<Graph {self.name}({given}), {len(self.nodes)} nodes>")


def graph_method(f: Callable[..., Any]) -> Callable[..., Any]:
    """Attach a function of a graph to the class of graphs, under its name."""
    setattr(Graph, f.__name__, f)
    return f
