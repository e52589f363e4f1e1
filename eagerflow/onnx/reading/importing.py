"""import_onnx: an ONNX model as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagerflow.dtypes import is_inexact
from eagerflow.errors import ArgumentError
from eagerflow.graph.graph import Graph
from eagerflow.onnx.reading.model import Model
from eagerflow.onnx.reading.specialized import specialized_graph
from eagerflow.onnx.reading.walk import Facts, imported
from eagerflow.variable import Variable


def trainable_weights(model: Model) -> dict[str, Variable]:
    """Variables for trainable initializers: floats with axes, except statistics."""
    fixed = {
        name
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[3:5]
    }
    found: dict[str, Variable] = {}
    for proto in model.graph.initializer:
        if len(proto.dims) == 0 or proto.name in fixed:
            continue
        array = model.array(proto)
        if is_inexact(array.dtype):
            found[proto.name] = Variable(array, name=proto.name)
    return found


def import_onnx(
    source: Any, values: Mapping[str, Any] | None = None, trainable: bool = False
) -> Graph:
    """The graph of an ONNX model, with the model's names of inputs and outputs.

    ``source`` is a path or the bytes of a file, of opset 6 or later. ``values`` binds inputs to
    arrays, or sequences to lists of them, and removes them from the graph's inputs. Weights are
    constants; with ``trainable=True``, floats that have axes are Variables with the file's names.
    Ops on constants are folded. If shapes depend on the values of inputs, the graph is specialized
    when it runs, and can neither be saved nor differentiated.

    Raises FileFormatError for damaged files and for data outside of the model's folder, and
    ArgumentError with all nodes that cannot be imported. Needs the extra ``onnx``.

    >>> import onnx.parser
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["" : 21]>
    ...     net (float[n, 3] x, float[3, 2] w) => (float[n, 2] y) { y = MatMul(x, w) }''')
    >>> graph = ef.capture.import_onnx(model.SerializeToString())
    >>> graph.inputs.names, graph.outputs["y"].shape
    (('x', 'w'), (n, 2))
    """
    model = Model(source)
    bound = dict(values or {})
    unknown = set(bound) - {info.name for info in model.graph.input}
    if unknown:
        raise ArgumentError(
            f"the model has no input {min(unknown)!r}",
            op="import_onnx",
            argument="values",
            expected="one of " + ", ".join(info.name for info in model.graph.input),
        )
    variables = trainable_weights(model) if trainable else {}
    facts = Facts(bound, {})
    found = imported(model, facts, variables)
    if found.graph is not None:
        return found.graph
    if variables:
        raise ArgumentError(
            "weights cannot be trained where shapes depend on the values of inputs",
            op="import_onnx",
            argument="trainable",
            received=", ".join(sorted(found.needs.names)) or "sizes that are known by name",
            hint="values={name: array} binds inputs",
        )
    return specialized_graph(model, facts, found)
