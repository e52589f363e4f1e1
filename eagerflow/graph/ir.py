"""Values and Nodes: the elements of graphs, in single-assignment form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from eagerflow.cells import file_name
from eagerflow.dims import product
from eagerflow.dtypes import DType
from eagerflow.errors import CaptureError, SessionError, printable
from eagerflow.op import Op
from eagerflow.spec import TensorSpec
from eagerflow.tree import register

Source = tuple[str, int, str]
"""A place in source code: file, line, and the name of the function."""


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
        self.constant = constant  # a Tensor, if the value is known
        self.device = device  # its device, if given

    @property
    def size(self) -> Any:
        """Number of elements."""
        return product(self.shape)

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype, with the name."""
        return TensorSpec(self.shape, self.dtype, self.name, self.device)

    def like(self, node: Node | None = None, name: str | None = None, shape: Any = None) -> Value:
        """A new value, of this ``node``, with the same facts except those given."""
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
        """Raise the error for code that needs the number behind this value."""
        if self.owner is None:
            raise CaptureError(f"{how} needs a number, and {self.name} is a value of a graph")
        error: CaptureError = self.owner.refusal(self, how)
        raise error

    def hashed(self) -> None:
        """Raise the error for code that uses an argument of a trace as a key."""
        if self.owner is not None and self.node is None and self.constant is None:
            self.owner.refuse_key(self)

    def __repr__(self) -> str:
        return printable(f"<Value {self.name}: {TensorSpec(self.shape, self.dtype)}>")


class Node:
    """One call of an op in a graph.

    ``inputs`` are Values, Python numbers, and None for arguments left out; ``origin`` is the
    place in the user's code, a Source or a code object with an instruction offset; ``device`` is
    the device of the node, if given.
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
        """The user's file, line and function of this call, if known."""
        return None if self.origin is None else source_of(self.origin)

    @property
    def place(self) -> str:
        """``file:line in function``, as in errors; empty if not known."""
        return "" if self.origin is None else place_of(self.origin)

    def values(self) -> Iterator[Value]:
        """The inputs that are Values."""
        return (x for x in self.inputs if type(x) is Value)

    def like(
        self,
        inputs: tuple[Any, ...] | None = None,
        attributes: dict[str, Any] | None = None,
        name: str | None = None,
        shapes: Sequence[Any] | None = None,
    ) -> Node:
        """A node with the same facts except those given, and with new results."""
        made = Node(
            self.op,
            self.inputs if inputs is None else inputs,
            self.attributes if attributes is None else attributes,
            self.name if name is None else name,
            self.origin,
            self.device,
        )
        if name is None and shapes is None:
            made.outputs = tuple([v.like(made) for v in self.outputs])
            return made
        found = []
        for i, v in enumerate(self.outputs):
            label = None if name is None else name + v.name.removeprefix(self.name)
            found.append(v.like(made, label, None if shapes is None else shapes[i]))
        made.outputs = tuple(found)
        return made

    @property
    def scope(self) -> str:
        """The named scopes that the node was made in, joined by ``/``."""
        return self.name.rpartition("/")[0]

    def __repr__(self) -> str:
        given = ", ".join(x.name if type(x) is Value else repr(x) for x in self.inputs)
        return printable(f"<Node {self.name} = {self.op.name}({given})>")


def source_of(origin: Any) -> Source:
    """An origin as a Source, looked up if it is a code object and an instruction."""
    if isinstance(origin[0], str):
        return origin  # type: ignore[no-any-return]
    code, instruction = origin
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return code.co_filename, line, code.co_name
    return code.co_filename, code.co_firstlineno, code.co_name


def place_of(origin: Any) -> str:
    """An origin as text, as in errors."""
    file, line, name = source_of(origin)
    return f"{file_name(file)}:{line} in {name}"


class Cell:
    """A Variable of a graph: its value on entry, and the value assigned to it, if any."""

    __slots__ = ("assigned", "name", "value", "variable")

    def __init__(self, name: str, variable: Any, value: Value) -> None:
        self.name = name
        self.variable = variable
        self.value = value
        self.assigned: Value | None = None

    def replaced(self, new: Mapping[Value, Value]) -> Cell:
        """The cell with ``new`` values in place of its own; itself if nothing changes."""
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
        """The values, with their own names or those given."""
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
        """These values with some replaced by ``new`` ones, under the same names or those given."""
        return Values([new.get(v, v) for v in self], self.names if names is None else names)

    def __reduce__(self) -> Any:
        return Values, (tuple(self), self.names)


register(Values, lambda values: ((), values), lambda keys, items: tuple(items))
