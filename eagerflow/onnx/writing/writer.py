"""Writer: ONNX nodes by calls, ``w.Conv(x, k, strides=[1, 1])``, under free names.

Rules of ops (the fact ``onnx``) take a writer, a Symbol for each argument, and the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from eagerflow.capture.trace import trace
from eagerflow.dims import Dim, DimLike
from eagerflow.dtypes import (
    NARROW,
    UNSIGNED_INTEGERS,
    DType,
    as_dtype,
    bfloat16,
    float32,
    is_complex,
)
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.names import FreeNames
from eagerflow.onnx.package import onnx_package
from eagerflow.onnx.writing.decomposition import LIBRARY
from eagerflow.onnx.writing.recurrent import network
from eagerflow.spec import TensorSpec, normalize_axes


class Symbol:
    """A tensor of an ONNX graph: its name, its dtype, and its shape if known."""

    __slots__ = ("dtype", "name", "shape")

    def __init__(self, name: str, dtype: DType, shape: tuple[DimLike, ...] | None = None) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        assert self.shape is not None, "symbols of arguments have shapes"
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<Symbol {self.name}>"


class Initializers:
    """The constants of a model, without duplicates."""

    def __init__(self, names: FreeNames) -> None:
        self.names = names
        self.arrays: dict[str, Any] = {}
        self.narrow: dict[str, Symbol] = {}
        """The tensors before widening, which suffice for some ops."""
        self._known: dict[Any, str] = {}

    def named(self, array: Any, base: str) -> str:
        """The name of a constant; equal small ones are reused."""
        key = array.dtype, array.shape, array.tobytes() if array.nbytes < 1024 else id(array)
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = self.names.take(base)
            self.arrays[name] = array
        return name


class GraphWriter(Protocol):
    """The interface for writing graphs, which also knows the used values."""

    used: set[Any]

    def write(self, writer: Writer, graph: Graph, given: Sequence[Symbol]) -> list[Symbol]:
        """Append the nodes of a graph for some inputs, and return its outputs."""

    def decompose(self, graph: Graph) -> Graph:
        """A graph of ops that have operators."""


class Writer:
    """Appends nodes to ``nodes``; ``note`` becomes the metadata of new nodes."""

    def __init__(self, initializers: Initializers, opset: int, graphs: GraphWriter) -> None:
        self.onnx, self.graphs = onnx_package(), graphs
        self.decompose = graphs.decompose
        self.names, self.initializers, self.opset = initializers.names, initializers, opset
        self.nodes: list[Any] = []
        self.xp = LIBRARY  # the array library for bodies of ops
        self.label = "node"  # the prefix of names
        self.note: dict[str, str] = {}
        self.results: tuple[Any, ...] = ()  # the values to be computed
        self.sizes: dict[str, Callable[[], Symbol]] = {}  # reads each named dimension
        self._dims: dict[str, Symbol] = {}
        self.shapes: dict[str, Symbol] = {}  # of inner tensors, for readers of the model

    def __getattr__(self, operator: str) -> Callable[..., Any]:
        if not operator[:1].isupper():
            raise AttributeError(operator)
        return partial(self.node, operator)

    def node(
        self,
        operator: str,
        *inputs: Symbol | None,
        dtype: Any = None,
        dtypes: Sequence[Any] = (),
        **attributes: Any,
    ) -> Any:
        """Append a node; returns its output, of the first input's dtype or ``dtype``, or one for
        each of ``dtypes``.
        """
        kinds = dtypes or [next(x.dtype for x in inputs if x) if dtype is None else dtype]
        made = [Symbol(self.names.take(self.label), as_dtype(kind)) for kind in kinds]
        names = ["" if x is None else x.name for x in inputs]
        while names and not names[-1]:
            names.pop()
        node = self.onnx.helper.make_node(
            operator,
            names,
            [y.name for y in made],
            self.names.take(f"{self.label}/{operator}"),
            **{name: value for name, value in attributes.items() if value is not None},
        )
        for key, value in self.note.items():
            entry = node.metadata_props.add()
            entry.key, entry.value = key, value
        self.nodes.append(node)
        return tuple(made) if dtypes else made[0]

    # Constants -----------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: Any = None) -> Symbol:
        """A known number, or an array of numbers."""
        array = np.asarray(value, dtype if dtype is None else as_dtype(dtype))
        name = self.initializers.named(array, f"{self.label}/constant")
        return Symbol(name, array.dtype, array.shape)

    def value_of(self, x: Symbol) -> Any:
        """The array of a symbol, or None if it is not known."""
        return self.initializers.arrays.get(x.name)

    def integers(self, numbers: Iterable[int]) -> Symbol:
        """A vector of int64, for axes and sizes."""
        return self.constant(np.array([*numbers], np.int64))

    def shape(self, dims: Sequence[DimLike]) -> Symbol:
        """A vector of sizes, some of which may be named dimensions."""
        if not any(isinstance(dim, Dim) for dim in dims):
            return self.integers(dims)  # type: ignore[arg-type]
        parts = [self.integers([d]) if not isinstance(d, Dim) else self.size(d) for d in dims]
        return self.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]

    def number(self, dim: DimLike) -> Symbol:
        """One size, as a scalar."""
        if not isinstance(dim, Dim):
            return self.constant(dim, "int64")
        return self.Squeeze(self.size(dim), self.integers([0]))

    def size(self, dim: Dim) -> Symbol:
        """A vector with the single size of a dimension."""
        found = self._dims.get(repr(dim))
        if found is None:
            found = self._dims[repr(dim)] = self._sum(dim)
        return found

    def _sum(self, dim: Dim) -> Symbol:
        total: Symbol | None = None
        for monomial, factor in dim._terms.items():
            term = self.integers([factor]) if factor != 1 or not monomial else None
            for atom in monomial:
                own = self._atom(dim, atom)
                term = own if term is None else self.Mul(term, own)
            assert term is not None
            total = term if total is None else self.Add(total, term)
        assert total is not None, "a Dim has terms"
        return total

    def _atom(self, dim: Dim, atom: str) -> Symbol:
        if atom in dim._quotients:
            # Sizes are nonnegative, so that ONNX's quotient, rounded towards 0, is the same.
            upper, lower = (self.shape([part]) for part in dim._quotients[atom])
            return self.Div(upper, lower)
        return self.sizes[atom]()

    # Graphs inside of nodes ----------------------------------------------------------------------

    def within(self) -> Writer:
        """A writer of a subgraph of a later node, which sees all existing tensors."""
        inner = Writer(self.initializers, self.opset, self.graphs)
        inner.label, inner.note, inner.sizes = self.label, self.note, self.sizes
        inner.results = self.results
        inner._dims = self._dims.copy()
        return inner

    def inline(self, graph: Graph, given: Sequence[Symbol]) -> list[Symbol]:
        """Append the nodes of a graph for these inputs; its outputs."""
        before = self.label, self.note, self.results
        found = self.graphs.write(self, graph, given)
        self.label, self.note, self.results = before
        return found

    def traced(self, f: Callable[..., Any], *given: Symbol) -> Any:
        """Append the ops that a function calls; returns its result, or a tuple of them."""
        specs = [TensorSpec(x.shape or (), x.dtype) for x in given]
        found = self.inline(self.decompose(trace(f, *specs)), given)
        return found[0] if len(found) == 1 else tuple(found)

    def is_used(self, result: int) -> bool:
        """Whether any of the results to be computed is used."""
        return self.results[result] in self.graphs.used

    def recurrent(self, cell: str, given: Sequence[Any], reverse: bool) -> Any:
        """The results of a recurrent cell's op."""
        return network(self, cell, given, reverse)

    def inputs(self, values: Iterable[Any]) -> list[Symbol]:
        """New symbols for the inputs of a subgraph, with the types of these values."""
        return [Symbol(self.names.take(f"{self.label}/{v.name}"), v.dtype, v.shape) for v in values]

    def graph(self, name: str, inputs: Sequence[Symbol], outputs: Sequence[Symbol]) -> Any:
        """The written nodes, as a graph of their own."""
        helper = self.onnx.helper
        made = {name for node in self.nodes for name in node.output}
        ends = []
        for x in outputs:  # outer or repeated tensors get a name of their own
            x = x if x.name in made else self.Identity(x)
            made.discard(x.name)
            ends.append(x)
        infos = [[self.info(x) for x in row] for row in (inputs, ends)]
        within = self.infos_but({x.name for x in ends})
        return helper.make_graph(self.nodes, name, *infos, value_info=within)

    def infos_but(self, names: Collection[str]) -> list[Any]:
        """Names, dtypes and shapes of the nodes' results, except for some names."""
        made = {name for node in self.nodes for name in node.output}.difference(names)
        return [self.info(x) for name, x in self.shapes.items() if name in made]

    def info(self, x: Symbol) -> Any:
        """Name, dtype and shape of a tensor, if known."""
        shape = None
        if x.shape is not None:
            shape = [str(d) if isinstance(d, Dim) else d for d in x.shape]
        return self.onnx.helper.make_tensor_value_info(x.name, tensor_type(x.dtype), shape)

    def branch(self, graph: Graph, given: Sequence[Symbol]) -> Any:
        """A branch of an If that computes a graph without inputs."""
        inner = self.within()
        return inner.graph(graph.name, [], inner.inline(graph, given))

    # Common forms --------------------------------------------------------------------------------

    def new(self, name: str, dtype: Any, shape: tuple[int, ...]) -> Symbol:
        """A new symbol for the input of a subgraph."""
        return Symbol(self.names.take(f"{self.label}/{name}"), as_dtype(dtype), shape)

    def cast(self, x: Symbol, dtype: Any) -> Symbol:
        """A tensor in another dtype; itself if it has that dtype."""
        wanted = as_dtype(dtype)
        if x.dtype == wanted:
            return x
        made = self.Cast(x, dtype=wanted, to=tensor_type(wanted))
        return Symbol(made.name, wanted, x.shape)

    def reshaped(self, x: Symbol, shape: tuple[int, ...]) -> Symbol:
        """A tensor in another shape; of a constant another constant."""
        if x.shape == shape:
            return x
        known = self.array_of(x)
        if known is not None:
            return self.constant(known.reshape(shape))
        made = self.Reshape(x, self.integers(shape))
        return Symbol(made.name, x.dtype, shape)

    def unpacked(self, packed: Symbol, integers: Any) -> Symbol:
        """4-bit numbers as int8; ``integers`` are those of a constant."""
        shape = integers.shape
        name = self.initializers.named(integers.astype("int4"), packed.name)
        narrow = Symbol(name, np.dtype("int4"), shape)
        wide = self.cast(narrow, "int8")
        self.initializers.narrow[wide.name] = narrow
        return Symbol(wide.name, wide.dtype, shape)

    def array_of(self, x: Symbol) -> Any:
        """The numbers of a constant; None for other tensors."""
        return self.initializers.arrays.get(x.name)

    def narrow(self, x: Symbol) -> Symbol:
        """A tensor before it was widened."""
        return self.initializers.narrow.get(x.name, x)

    def computable(self, x: Symbol, uint64: bool = False) -> Symbol:
        """A tensor in the dtype of operators' computations, as in our kernels."""
        return x if uint64 and x.dtype == np.uint64 else self.cast(x, computed(x.dtype))

    def wide(self, x: Symbol) -> Symbol:
        """The argument of a sum or a product in the dtype of the result, or in a wider one."""
        return self.cast(x, computed(self.results[0].dtype))

    def either(self, truth: Symbol, a: Symbol, b: Symbol) -> Symbol:
        """A selection between two tensors; ONNX Runtime lacks it for uint64."""
        kind = np.dtype("int64") if a.dtype == np.uint64 else a.dtype
        found = self.Where(truth, self.cast(a, kind), self.cast(b, kind), dtype=kind)
        return self.cast(found, a.dtype)

    def truth(self, x: Symbol) -> Symbol:
        """1 where a tensor is not 0, else 0."""
        if x.dtype != "bool":
            x = self.cast(x, "bool")
        return self.cast(x, "int32")

    def axes(self, axis: Any) -> Symbol:
        """One or several axes in ONNX's form."""
        return self.integers(axis if isinstance(axis, tuple) else (axis,))

    def index(self, x: Symbol) -> Symbol:
        """Integers as indices of operators."""
        return x if x.dtype in ("int32", "int64") else self.cast(x, "int64")

    def flat(self, x: Symbol) -> Symbol:
        """A flattened tensor."""
        return self.Reshape(x, self.integers([-1]))

    def reduce(self, operator: str, x: Symbol, axis: Any, keepdims: bool) -> Symbol:
        """A reduction along some axes, or along all of them."""
        # On empty tensors, ONNX Runtime supports only nonnegative axes.
        axes = normalize_axes(axis, x.ndim)
        if x.dtype == "bool":
            x = self.cast(x, "int32")
        # Empty axes mean none, and not all.
        return self.node(
            operator, x, self.axes(axes), keepdims=int(keepdims), noop_with_empty_axes=1
        )

    def position(self, operator: str, x: Symbol, axis: int | None, keepdims: bool) -> Symbol:
        """The index of an extreme along an axis, or among all elements."""
        if x.dtype == "bool":
            x = self.cast(x, "int32")
        if axis is not None:
            return self.node(operator, x, axis=axis, keepdims=int(keepdims), dtype="int64")
        found = self.node(operator, self.flat(x), axis=0, keepdims=0, dtype="int64")
        return self.Reshape(found, self.shape(self.results[0].shape)) if keepdims else found

    # Images: ONNX has channels in front of space ------------------------------------------------

    def channels_first(self, x: Symbol) -> Symbol:
        """Images as channels-first."""
        return self.Transpose(x, perm=(0, x.ndim - 1, *range(1, x.ndim - 1)))

    def channels_last(self, x: Symbol, rank: int) -> Symbol:
        """Images as channels-last."""
        return self.Transpose(x, perm=(0, *range(2, rank), 1))

    def filters_first(self, x: Symbol) -> Symbol:
        """Filters in the order output channels, input channels, windows."""
        return self.Transpose(x, perm=(x.ndim - 1, x.ndim - 2, *range(x.ndim - 2)))

    def window(self, windows: Sequence[Any]) -> dict[str, Any]:
        """The attributes of windows' positions; see ``primitives.windows``."""
        behind = [(v.out - 1) * v.stride + v.extent - v.size - v.before for v in windows]
        return {
            "kernel_shape": [v.kernel for v in windows],
            "strides": [v.stride for v in windows],
            "dilations": [v.dilation for v in windows],
            "pads": [v.before for v in windows] + [max(n, 0) for n in behind],
        }

    def joined(self, arrays: Sequence[Symbol], axis: int | None) -> Symbol:
        """Concatenated tensors."""
        parts = [self.flat(x) for x in arrays] if axis is None else arrays
        if len(parts) == 1:
            return parts[0]
        return self.Concat(*parts, axis=axis or 0)

    def parts(self, x: Symbol, sizes: Sequence[int], axis: int) -> tuple[Symbol, ...]:
        """A tensor split along an axis."""
        if len(sizes) < 2:
            return (x,) * len(sizes)
        found = self.Split(x, self.integers(sizes), axis=axis, dtypes=[x.dtype] * len(sizes))
        return tuple(found)

    def filled(self, number: Any, shape: Any = None, dtype: Any = None) -> Symbol:
        """A constant tensor, by default like the result."""
        own = self.results[0]
        kind = own.dtype if dtype is None else as_dtype(dtype)
        dims = own.shape if shape is None else shape
        # ConstantOfShape's types before opset 20.
        own_kind = kind if self.opset >= 20 or kind != bfloat16 else float32
        value = self.onnx.numpy_helper.from_array(np.array([number], own_kind))
        made = self.ConstantOfShape(self.shape(dims), dtype=own_kind, value=value)
        return self.cast(Symbol(made.name, own_kind, tuple(dims)), kind)

    def summed(
        self, operator: str, indices: Symbol, updates: Symbol, shape: Any, **more: Any
    ) -> Symbol:
        """Zeros of a shape with updates added at indices."""
        given = self.computable(updates)
        zeros = self.filled(0, shape, given.dtype)
        return self.node(operator, zeros, self.index(indices), given, reduction="add", **more)

    def evaluated(self, f: Callable[..., Any], **attributes: Any) -> Symbol:
        """The result of a function without arguments, as a constant."""
        return self.constant(f(**attributes | {"device": None}).numpy())


def computed(dtype: DType) -> DType:
    """The dtype in which operators compute a dtype: ONNX Runtime supports few of them."""
    if dtype in NARROW:
        return np.dtype("float32")
    if dtype.kind in "biu" and dtype.itemsize < 4:
        return np.dtype("int32")
    if dtype in UNSIGNED_INTEGERS:
        return np.dtype("int64")
    return dtype


def tensor_type(dtype: Any) -> int:
    """ONNX's number of a dtype; CaptureError for a complex one."""
    if is_complex(np.dtype(dtype)):
        raise CaptureError("ONNX has no operators for complex numbers", op="export_onnx")
    return int(onnx_package().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
