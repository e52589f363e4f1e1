"""The interface of operator functions: the call, constant values, and sizes.

A function of an operator is registered under its ONNX name. Inputs are positional, in the order of
the schema, None if omitted; attributes are keyword arguments, with the defaults of the schema for
the model's opset. Where an attribute became an input in a later version, both share a parameter,
which is a Python value or a Tensor::

    @operator("Clip")
    def clip(call, x, min=None, max=None):
        ...

It returns one Tensor, or a tuple of them for the outputs in order (None for omitted ones); a
sequence is a list of Tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from eagerflow.convert import as_tensor
from eagerflow.dims import Dim, DimLike, Shape
from eagerflow.dtypes import DType
from eagerflow.graph.ir import Value
from eagerflow.tensor import Tensor

ONNX = ""
"""The domain of ONNX's own operators, also called ``ai.onnx`` in files."""
TRAINING = "ai.onnx.preview.training"
LEARNING = "ai.onnx.ml"


class NotKnown(Exception):  # noqa: N818 - it asks for a value, and is no error of a user
    """A required number depends on inputs of the model, which ``names`` lists.

    ``names`` is empty if it depends on values that a loop passes to its body. ``of_shapes`` means
    that it is a size known by name only.
    """

    def __init__(self, names: Iterable[str], of_shapes: bool = False) -> None:
        self.names = frozenset(names)
        self.of_shapes = of_shapes
        super().__init__(", ".join(sorted(self.names)))


class Refused(Exception):  # noqa: N818 - collected, and raised as one error of all nodes
    """A node that cannot be expressed, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SizeVector:
    """Sizes of traced tensors in ONNX's computations: int64, possibly named dimensions.

    ``sizes`` is a NumPy object array of ints and Dims with at most one axis.
    """

    __slots__ = ("sizes",)

    def __init__(self, sizes: Any) -> None:
        self.sizes = np.array(sizes, dtype=object)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the represented tensor."""
        return self.sizes.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the represented tensor."""
        return np.dtype("int64")

    def __repr__(self) -> str:
        return f"<SizeVector {self.sizes.tolist()}>"


def as_sizes(sizes: Any) -> Any:
    """Numbers and Dims as a tensor if all are numbers, otherwise as a SizeVector."""
    found = np.array(sizes, dtype=object)
    if any(isinstance(size, Dim) for size in found.flat):
        return SizeVector(found)
    return as_tensor(found.astype("int64"))


class Call:
    """One node of a model, for the function of its operator.

    ``version`` is the opset version of the node's domain, ``node`` the NodeProto, ``outputs`` has
    for each listed output whether it has a name.
    """

    __slots__ = ("_graphs", "node", "outputs", "version")

    def __init__(
        self, node: Any, version: int, graphs: Mapping[str, Callable[..., list[Any]]]
    ) -> None:
        self.node = node
        self.version = version
        self.outputs = tuple(bool(name) for name in node.output)
        self._graphs = graphs

    def wants(self, index: int) -> bool:
        """Whether the output at this index is used."""
        return index < len(self.outputs) and self.outputs[index]

    def graph(self, name: str) -> Any:
        """The subgraph of this name, as a function from its inputs to a list of its outputs."""
        if name not in self._graphs:
            self.refuse(f"the attribute {name} is missing")
        return self._graphs[name]

    def refuse(self, reason: str) -> NoReturn:
        """Raise the reason that the node cannot be imported; the importer lists all such nodes."""
        raise Refused(reason)


# Values that are known --------------------------------------------------------------------------


def is_known(x: Any) -> bool:
    """Whether the value of a Tensor, a SizeVector, a list or a Python number is known."""
    if isinstance(x, SizeVector):
        return not any(isinstance(size, Dim) for size in x.sizes.flat)
    if isinstance(x, list | tuple):
        return all(is_known(part) for part in x)
    return type(x) is not Tensor or type(x._array) is x._kind.array_type


def known(x: Any) -> Any:
    """The NumPy array of a value, NotKnown if it depends on inputs; None stays None."""
    if x is None:
        return None
    if isinstance(x, SizeVector):
        if not is_known(x):
            raise NotKnown((), of_shapes=True)
        return x.sizes.astype("int64")
    if type(x) is not Tensor:
        return np.asarray(x)
    if not is_known(x):
        raise NotKnown(origins([x]))
    return x.numpy()


def known_list(x: Any) -> Any:
    """The values of a 1-d tensor or of an attribute, as a Python list; None stays None."""
    return None if x is None else np.atleast_1d(known(x)).tolist()


def known_number(x: Any) -> Any:
    """The element of a one-element tensor, or an attribute, as a Python number; None stays None."""
    return None if x is None else known(x).reshape(()).item()


def sizes(x: Any) -> Shape:
    """A shape from an attribute or a tensor of sizes; it may contain Dims."""
    if isinstance(x, SizeVector):
        return tuple(np.atleast_1d(x.sizes).tolist())
    return tuple(known_list(x))


def size(x: Any) -> DimLike:
    """One size from a tensor or an attribute; it may be a Dim."""
    (found,) = sizes(x)
    return found


def origins(tensors: Iterable[Any]) -> set[str]:
    """The names of the model's inputs that traced tensors depend on."""
    names: set[str] = set()
    seen: set[Value] = set()
    waiting = [t._array for t in tensors if type(t) is Tensor and type(t._array) is Value]
    while waiting:
        value = waiting.pop()
        if value in seen or value.constant is not None:
            continue
        seen.add(value)
        if value.node is not None:
            waiting.extend(value.node.values())
            continue
        outer = [t for t, v in getattr(value.owner, "captured", {}).values() if v is value]
        if outer:
            waiting.extend(t._array for t in outer if type(t._array) is Value)
        elif not getattr(value.owner, "lifts", False):  # otherwise a loop passes it to its body
            names.add(value.name)
    return names


# Operators --------------------------------------------------------------------------------------


class Operator(NamedTuple):
    """The function of an operator, with its properties.

    ``takes_sizes`` means that it handles SizeVectors itself, ``pure`` that its result depends only
    on the inputs, so that it can be folded during the import.
    """

    function: Callable[..., Any]
    takes_sizes: bool
    pure: bool


OPERATORS: dict[tuple[str, str], Operator] = {}
"""All supported operators, by domain and name."""


def operator(
    *names: str, domain: str = ONNX, takes_sizes: bool = False, pure: bool = True
) -> Callable[[Any], Any]:
    """Decorator that registers the function of one or several operators.

    Unless it ``takes_sizes``, a SizeVector is passed as an ordinary int64 Tensor. Functions that
    draw random numbers are not ``pure``.
    """

    def register(function: Any) -> Any:
        for name in names:
            assert (domain, name) not in OPERATORS, name
            OPERATORS[domain, name] = Operator(function, takes_sizes, pure)
        return function

    return register
