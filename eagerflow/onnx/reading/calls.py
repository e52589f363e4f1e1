"""What an operator's function gets and may ask: the call, values that are known, and sizes.

A function of an operator is registered under its ONNX name. Inputs come in the order of the
schema, None where they are left out; attributes come by name, with the defaults that the schema of
the model's opset gives. Where an attribute became an input in a later version, both have one
parameter, which then is a Python value or a Tensor::

    @operator("Clip")
    def clip(call, x, min=None, max=None):
        ...

It gives one Tensor, or a tuple of them for the outputs in order (None for those left out); a
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
"""The domain of ONNX's own operators, which files also call ``ai.onnx``."""
PREVIEW = "ai.onnx.preview"
TRAINING = "ai.onnx.preview.training"
LEARNING = "ai.onnx.ml"


class NotKnown(Exception):  # noqa: N818 - it asks for a value, and is no error of a user
    """A number is needed that follows from inputs of the model; ``names`` are theirs.

    ``names`` is empty where it follows from what a loop hands to its body. ``of_shapes`` says that
    it is a size that is known by name alone.
    """

    def __init__(self, names: Iterable[str], of_shapes: bool = False) -> None:
        self.names = frozenset(names)
        self.of_shapes = of_shapes
        super().__init__(", ".join(sorted(self.names)))


class Refused(Exception):  # noqa: N818 - collected, and raised as one error of all nodes
    """A node that cannot be expressed, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SizeVector:
    """Sizes of traced tensors as ONNX computes with them: int64, some known by name alone.

    ``sizes`` is a NumPy object array of ints and Dims with at most one axis.
    """

    __slots__ = ("sizes",)

    def __init__(self, sizes: Any) -> None:
        self.sizes = np.array(sizes, dtype=object)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor that this stands for."""
        return self.sizes.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the tensor that this stands for."""
        return np.dtype("int64")

    def __repr__(self) -> str:
        return f"<SizeVector {self.sizes.tolist()}>"


def as_sizes(sizes: Any) -> Any:
    """Numbers and Dims as a tensor where all are numbers, else as a SizeVector."""
    found = np.array(sizes, dtype=object)
    if any(isinstance(size, Dim) for size in found.flat):
        return SizeVector(found)
    return as_tensor(found.astype("int64"))


class Call:
    """One node of a model, as the function of its operator sees it.

    ``version`` is the opset version of the node's domain, ``node`` the NodeProto, ``outputs`` says
    of each output that the node lists whether it has a name.
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
        """Whether the node uses the output of this number."""
        return index < len(self.outputs) and self.outputs[index]

    def graph(self, name: str) -> Any:
        """The subgraph of this name, as a function from its inputs to a list of its outputs."""
        if name not in self._graphs:
            self.refuse(f"the attribute {name} is missing")
        return self._graphs[name]

    def refuse(self, reason: str) -> NoReturn:
        """Raise what says why the node cannot be imported; the importer lists all such nodes."""
        raise Refused(reason)


# Values that are known --------------------------------------------------------------------------


def is_known(x: Any) -> bool:
    """Whether the number behind a Tensor, a SizeVector, a list or a Python value is known."""
    if isinstance(x, SizeVector):
        return not any(isinstance(size, Dim) for size in x.sizes.flat)
    if isinstance(x, list | tuple):
        return all(is_known(part) for part in x)
    return type(x) is not Tensor or type(x._array) is x._kind.array_type


def known(x: Any) -> Any:
    """The NumPy array of a value, NotKnown where it follows from inputs; None stays None."""
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
    """The values of a tensor of one axis, or of an attribute, as a Python list; None stays None."""
    return None if x is None else np.atleast_1d(known(x)).tolist()


def known_number(x: Any) -> Any:
    """The one number of a tensor, or of an attribute, as Python's; None stays None."""
    return None if x is None else known(x).reshape(()).item()


def sizes(x: Any) -> Shape:
    """A shape from an attribute or a tensor of sizes, in which Dims may be."""
    if isinstance(x, SizeVector):
        return tuple(np.atleast_1d(x.sizes).tolist())
    return tuple(known_list(x))


def size(x: Any) -> DimLike:
    """One size from a tensor or an attribute, which may be a Dim."""
    (found,) = sizes(x)
    return found


def origins(tensors: Iterable[Any]) -> set[str]:
    """The names of the model's inputs that traced tensors follow from."""
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
        elif not getattr(value.owner, "lifts", False):  # else a loop hands it to its body
            names.add(value.name)
    return names


# Operators --------------------------------------------------------------------------------------


class Operator(NamedTuple):
    """The function of an operator.

    ``takes_sizes`` says that it handles SizeVectors itself, ``pure`` that it gives the same for the
    same inputs, so that it may be computed while a model is imported.
    """

    function: Callable[..., Any]
    takes_sizes: bool
    pure: bool


OPERATORS: dict[tuple[str, str], Operator] = {}
"""All operators that can be read, by domain and name."""


def operator(
    *names: str, domain: str = ONNX, takes_sizes: bool = False, pure: bool = True
) -> Callable[[Any], Any]:
    """The decorator that registers the function of one operator or of several.

    Unless it ``takes_sizes``, a SizeVector reaches it as an ordinary int64 Tensor. What draws
    random numbers is not ``pure``.
    """

    def register(function: Any) -> Any:
        for name in names:
            assert (domain, name) not in OPERATORS, name
            OPERATORS[domain, name] = Operator(function, takes_sizes, pure)
        return function

    return register
