"""Export: graphs as ONNX models, for ONNX Runtime and others to run and train.

Each node becomes the operators in the fact ``onnx`` of its op, or those of the ops in its body
(``decomposition``). Variables that the graph assigns become inputs with initial values, and outputs
that end in ``/next``; a program that runs the model feeds these back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from eagerflow.capture.control.silence import without_prints
from eagerflow.capture.subject import graph_of
from eagerflow.dims import Dim
from eagerflow.dtypes import is_complex
from eagerflow.errors import CaptureError, EagerflowError
from eagerflow.files.atomic import as_path, write_whole
from eagerflow.graph.check import check
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import FreeNames
from eagerflow.graph.walk import nodes_within
from eagerflow.onnx.package import PRODUCER, onnx_package
from eagerflow.onnx.writing.decomposition import decomposed
from eagerflow.onnx.writing.operators import UINT64, check_opset, has_operator, is_empty
from eagerflow.onnx.writing.writer import Initializers, Symbol, Writer, tensor_type
from eagerflow.op import Onnx
from eagerflow.recorder import with_recorder
from eagerflow.runtime.collector import young

IR_VERSION = 10
OPSET = 21
EXTERNAL_BYTES = 1 << 30  # larger weights go to a file beside the model
MIN_EXTERNAL_BYTES = 1 << 10  # if each is at least so large
DATA_SUFFIX = ".data"
MOVERS = frozenset({"shape", "indexing", "creation", "control", "communication", "quantization"})
"""Families of ops with operators for every dtype."""


class _Exporter:
    """Writes graphs and their bodies."""

    def __init__(self, opset: int, names: FreeNames) -> None:
        self.initializers = Initializers(names)
        self.opset = opset
        self.symbols: dict[Value, Symbol] = {}
        self.used: set[Value] = set()

    def decompose(self, graph: Graph) -> Graph:
        """A graph of ops that have operators."""
        return decomposed(graph, partial(has_operator, opset=self.opset))

    def write(self, writer: Writer, graph: Graph, given: Sequence[Symbol]) -> list[Symbol]:
        """Append the nodes of a graph with given inputs; returns its results."""
        self.symbols.update(zip(graph.all_inputs(), given, strict=True))
        self.used.update(graph.all_outputs(), *(node.values() for node in graph.nodes))
        for value in graph.constants:
            name = self.initializers.named(value.constant.numpy(), value.name)
            self.symbols[value] = Symbol(name, value.dtype, value.shape)
        for node in graph.nodes:
            try:
                self._node(writer, node)
            except EagerflowError as error:
                error.at = error.at or node.place or None
                raise
        return [self.symbols[v] for v in graph.all_outputs()]

    def _node(self, writer: Writer, node: Node) -> None:
        writer.label = node.name
        writer.note, writer.results = _metadata(node), node.outputs
        rule = node.op.onnx
        given = self._inputs(writer, node)
        made = self._outputs(writer, node, rule, given)
        for value, symbol in zip(node.outputs, made, strict=True):
            symbol = writer.cast(symbol, value.dtype)
            known = self.symbols[value] = Symbol(symbol.name, value.dtype, value.shape)
            writer.shapes[symbol.name] = known

    def _inputs(self, writer: Writer, node: Node) -> list[Symbol | None]:
        """The symbols of a node's inputs; numbers become constants of the other operand's dtype."""
        meeting = [x for i, x in enumerate(node.inputs) if i in node.op.together]
        like = next((x.dtype for x in meeting if type(x) is Value), node.outputs[0].dtype)
        found: list[Symbol | None] = []
        for x in node.inputs:
            if type(x) is Value:
                found.append(self.symbols[x])
            else:
                found.append(None if x is None else writer.constant(x, like))
        return found

    def _outputs(
        self, writer: Writer, node: Node, rule: Any, given: list[Symbol | None]
    ) -> Sequence[Symbol]:
        if node.op.family not in MOVERS:
            direct = isinstance(rule, Onnx) and rule.name in UINT64
            given = [None if x is None else writer.computable(x, direct) for x in given]
        if is_empty(node):  # unsupported by runtimes
            return [writer.filled(0, v.shape, v.dtype) for v in node.outputs]
        rule = getattr(rule, "rule", None) or rule
        if isinstance(rule, Onnx):
            named = {rule.attributes.get(k, k): v for k, v in node.attributes.items()}
            made = writer.node(rule.name, *given, **named)
        else:
            made = rule(writer, *given, **node.attributes)
        return made if isinstance(made, tuple) else (made,)


def _metadata(node: Node) -> dict[str, str]:
    """A node's metadata for readers of the model: scope and line."""
    found = {"op": node.op.name}
    if node.scope:
        found["scope"] = node.scope
    if node.place:
        found["source"] = node.place
    return found


# Models ------------------------------------------------------------------------------------------


def export_onnx(
    graph: Any,
    path: str | os.PathLike[str],
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
    allow_random: bool = True,
    initial: str | os.PathLike[str] | None = None,
) -> None:
    """Write a graph, a captured function or a model into a file as an ONNX model.

    ``graph`` is a Graph, an ``ef.function`` with one graph, or an ``ef.nn`` model, whose prediction
    is written for any batch size. ``path`` is a file name; weights of a gigabyte and more go into a
    second file beside it. ``opset`` is the version of ONNX's operators, 18 to 26, ``ir_version``
    that of the format. Names of inputs and outputs are kept, but an output with the name of an
    input or a Variable, which ONNX does not allow, becomes ``<name>/output``. The metadata of each
    node have its op, its scope, and the user's line. Variables that the graph assigns are inputs
    with their current values, and outputs ``<variable>/next``. Some runtimes, such as ONNX
    Runtime's for JavaScript, support no inputs with values: with ``initial``, a second file name,
    the inputs have none, and the model in that file returns the values by name. Random numbers are
    those that eagerflow draws from the same state; without ``allow_random`` they are refused. Needs
    the package onnx. Raises ArgumentError for another ``opset``, and CaptureError, with the user's
    line, for an op that ONNX cannot express or that is refused.

    >>> from tempfile import TemporaryDirectory
    >>> graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, ef.TensorSpec(("n", 3), "float32"))
    >>> with TemporaryDirectory() as folder:
    ...     ef.capture.export_onnx(graph, f"{folder}/model.onnx")
    """
    name, alone = as_path(path), initial is None
    found = without_prints(graph_of(graph, "export_onnx"))
    check_opset(opset)
    for node in nodes_within(found):
        _refuse(node, allow_random)
    with young():  # everything is built before anything is written
        files = {name: with_recorder(None, _model, found, opset, ir_version, name, alone)}
        if initial is not None:
            file = as_path(initial)
            files[file] = with_recorder(None, _initial, found, opset, ir_version, file)
        for file, (model, data) in files.items():
            _write(file, model, data)


def _write(path: str, model: Any, data: list[bytes]) -> None:
    if data:
        write_whole(path + DATA_SUFFIX, data)
    write_whole(path, [model.SerializeToString()])


def _refuse(node: Node, allow_random: bool) -> None:
    """CaptureError for ops without operators, and for unwanted ones."""
    reason, hint = "", None
    if any(is_complex(v.dtype) for v in (*node.values(), *node.outputs)):
        reason = "ONNX has no operators for complex numbers"
    elif node.op.family == "random" and not allow_random:
        reason, hint = "it is random", "allow_random=True"
    if reason:
        raise CaptureError(reason, op=node.op.name, at=node.place or None, hint=hint)


def _model(
    graph: Graph, opset: int, ir_version: int, path: str, alone: bool
) -> tuple[Any, list[bytes]]:
    """The model of a graph, and its external data; ``alone``: with initial values."""
    check(graph)
    graph = graph.optimized("exact", final=True)
    graph = decomposed(graph, partial(has_operator, opset=opset))
    held = [cell for cell in graph.cells if cell.assigned is None]
    changed = [cell for cell in graph.cells if cell.assigned is not None]
    names = FreeNames([*graph.inputs.names, *(cell.name for cell in graph.cells)])
    ends = _output_names(graph, names)
    exporter = _Exporter(opset, names)
    writer = Writer(exporter.initializers, opset, exporter)
    given = [
        Symbol(name, v.dtype, v.shape)
        for name, v in zip(graph.inputs.names, graph.inputs, strict=True)
    ]
    _teach_sizes(writer, given)
    cells = [Symbol(c.name, c.value.dtype, c.value.shape) for c in graph.cells]
    made = exporter.write(writer, graph, [*given, *cells])
    _name_outputs(writer, made, ends)
    _drop_unread(writer, {*ends})
    helper = writer.onnx.helper
    weights = {cell.name: cell.variable.numpy() for cell in (*held, *(changed if alone else ()))}
    tensors, data = _tensors(weights | exporter.initializers.arrays, os.path.basename(path))
    outputs = [
        writer.info(Symbol(name, v.dtype, v.shape))
        for name, v in zip(ends, graph.all_outputs(), strict=True)
    ]
    own = {cell.name for cell in changed}
    inputs = [writer.info(x) for x in (*given, *(x for x in cells if x.name in own))]
    within = writer.infos_but({info.name for info in outputs})
    body = helper.make_graph(writer.nodes, graph.name, inputs, outputs, tensors, value_info=within)
    return _model_of(body, opset, ir_version), data


def _output_names(graph: Graph, free: FreeNames) -> list[str]:
    """The names of the model's outputs, distinct from inputs and Variables as ONNX requires."""
    changed = [f"{cell.name}/next" for cell in graph.cells if cell.assigned is not None]
    for name in changed:
        if free.take(name) != name:
            raise CaptureError(
                f"the new value of a Variable has the name of an input or a Variable, {name!r}",
                op="export_onnx",
                hint="give the Variable another name",
            )
    taken = set(free)
    kept = {name: free.take(name) for name in graph.outputs.names if name not in taken}
    names = [kept.get(name) or free.take(f"{name}/output") for name in graph.outputs.names]
    return names + changed


def _initial(graph: Graph, opset: int, ir_version: int, path: str) -> tuple[Any, list[bytes]]:
    """A model without inputs: the values of the Variables that a graph assigns, by name."""
    helper = onnx_package().helper
    cells = [cell for cell in graph.cells if cell.assigned is not None]
    values = {f"{cell.name}/initial": cell.variable.numpy() for cell in cells}
    tensors, data = _tensors(values, os.path.basename(path))
    nodes = [
        helper.make_node("Identity", [value], [cell.name], f"{cell.name}/Identity")
        for value, cell in zip(values, cells, strict=True)
    ]
    outputs = [
        helper.make_tensor_value_info(c.name, tensor_type(c.value.dtype), c.value.shape)
        for c in cells
    ]
    body = helper.make_graph(nodes, f"{graph.name}_initial", [], outputs, tensors)
    return _model_of(body, opset, ir_version), data


def _model_of(body: Any, opset: int, ir_version: int) -> Any:
    helper = onnx_package().helper
    model = helper.make_model(
        body, ir_version=ir_version, opset_imports=[helper.make_opsetid("", opset)]
    )
    model.producer_name = PRODUCER
    return model


def _teach_sizes(writer: Writer, given: Sequence[Symbol]) -> None:
    """Tell the writer from which inputs it can read named dimensions."""
    for x in given:
        for axis, size in enumerate(x.shape or ()):
            if isinstance(size, Dim) and str(size).isidentifier():
                writer.sizes.setdefault(str(size), partial(_size_of, writer, x, axis))


def _size_of(writer: Writer, x: Symbol, axis: int) -> Symbol:
    return writer.Shape(x, start=axis, end=axis + 1, dtype="int64")


def _name_outputs(writer: Writer, made: Sequence[Symbol], ends: Sequence[str]) -> None:
    """Name the outputs: those of nodes are renamed, others are copied."""
    nodes = {name for node in writer.nodes for name in node.output}
    new: dict[str, str] = {}
    for symbol, name in zip(made, ends, strict=True):
        if symbol.name in nodes and symbol.name not in new:
            new[symbol.name] = name
        else:
            source = new.get(symbol.name, symbol.name)
            node = writer.onnx.helper.make_node("Identity", [source], [name], f"{name}/Identity")
            writer.nodes.append(node)
    for node in writer.nodes:
        _rename(node, new)


def _rename(node: Any, new: dict[str, str]) -> None:
    """Rename tensors in a node and in its subgraphs."""
    for names in (node.input, node.output):
        for i, name in enumerate(names):
            if name in new:
                names[i] = new[name]
    for attribute in node.attribute:
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for part in inner.node:
                _rename(part, new)
            for info in inner.output:
                info.name = new.get(info.name, info.name)


def _drop_unread(writer: Writer, ends: set[str]) -> None:
    """Remove casts and constants that turned out to be unused."""
    held = writer.initializers
    read = ends | {name for node in writer.nodes for name in _read(node)}
    writer.nodes[:] = [
        node for node in writer.nodes if node.output[0] in read or node.output[0] not in held.narrow
    ]
    read = {name for node in writer.nodes for name in _read(node)}
    held.arrays = {name: array for name, array in held.arrays.items() if name in read}


def _read(node: Any) -> Iterator[str]:
    """The tensors that a node and its subgraphs read."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for part in inner.node:
                yield from _read(part)


def _tensors(arrays: dict[str, Any], file: str) -> tuple[list[Any], list[bytes]]:
    """Arrays as ONNX's tensors; large ones are stored in a file beside the model."""
    onnx = onnx_package()
    outside = sum(a.nbytes for a in arrays.values()) >= EXTERNAL_BYTES
    tensors, data, offset = [], [], 0
    for name, array in arrays.items():
        array = np.asarray(array, order="C")
        if not outside or array.nbytes < MIN_EXTERNAL_BYTES:
            tensors.append(onnx.numpy_helper.from_array(array, name))
            continue
        tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=tensor_type(array.dtype))
        tensor.data_location = onnx.TensorProto.EXTERNAL
        content = onnx.numpy_helper.from_array(array).raw_data  # 4-bit numbers in pairs
        place = {"location": file + DATA_SUFFIX, "offset": offset, "length": len(content)}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        data.append(content)
        offset += len(content)
    return tensors, data
