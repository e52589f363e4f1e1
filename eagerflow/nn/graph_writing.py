"""Graphs of layers and ops as configurations; ``configuration`` describes their form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import FreeNames
from eagerflow.graph.plain import encode_plain
from eagerflow.handlers import raised_here
from eagerflow.nn.configuration import described
from eagerflow.nn.layer_graph import layer_of
from eagerflow.op import ops
from eagerflow.spec import TensorSpec
from eagerflow.tree import Structure

__all__ = ["arguments_config", "graph_config"]

MAX_CONSTANT = 4096  # elements of a constant that a configuration holds


class _Reference(NamedTuple):
    """A tensor of a graph, by its origin and its name there."""

    kind: str
    name: Any


def graph_config(graph: Graph) -> dict[str, Any]:
    """The configuration of a graph of layers and ops; ArgumentError if it has none."""
    constants = {value: _constant(value, graph.name) for value in graph.constants}
    references = {value: _Reference("tensor", value.name) for value in graph.inputs}
    references |= {cell.value: _Reference("variable", cell.name) for cell in graph.cells}
    references |= {value: _Reference("constant", plain) for value, plain in constants.items()}
    layers: dict[str, dict[str, Any]] = {}
    keys: dict[int, str] = {}
    names = FreeNames()
    calls = []
    for node in graph.nodes:
        references |= {value: _Reference("tensor", value.name) for value in node.outputs}
        layer = layer_of(node)
        if layer is not None and id(layer) not in keys:
            key = keys[id(layer)] = names.take(layer.name)
            layers[key] = described(layer)
        calls.append(_call(node, layer and keys[id(layer)], references, graph.name))
    inputs: dict[str, Any] = {
        value.name: {"batch_shape": _shape(value), "dtype": value.dtype.name}
        for value in graph.inputs
    }
    config = {
        "inputs": inputs,
        "layers": layers,
        "calls": calls,
        "outputs": _nest(graph.structure, [references[v] for v in graph.outputs], graph.name),
    }
    given = _nest(graph.argument_structure, list(graph.inputs.names), graph.name)
    if given != (next(iter(inputs)) if len(inputs) == 1 else list(inputs)):
        config["arguments"] = given
    if graph.cells:
        config["variables"] = {
            cell.name: {
                "shape": list(cell.variable.shape),
                "dtype": cell.variable.dtype.name,
                "trainable": cell.variable.trainable,
            }
            for cell in graph.cells
        }
    return config


def _call(node: Node, layer: str | None, known: Mapping[Value, Any], model: str) -> dict[str, Any]:
    operands = [known[x] if type(x) is Value else x for x in node.inputs]
    if layer is None:
        if ops.get(node.op.name) is not node.op:
            raise ArgumentError(
                f"{node.op.name!r} is a custom function, which a configuration cannot hold",
                op=model,
                received=f"node {node.name!r}",
                hint="a Layer that does this in its call",
            )
        call: dict[str, Any] = {"op": node.op.name, "args": _plain(operands, model)}
        if node.attributes:
            call["attributes"] = {k: _plain(v, model) for k, v in node.attributes.items()}
    else:
        call_of: Any = node.op.kernel
        args, kwargs = call_of.arguments(operands)
        call = {"layer": layer}
        names = _names(args[0]) if len(args) == 1 and not kwargs else None
        if names is not None:
            call["inputs"] = names
        else:
            call |= {"args": _plain(list(args), model), "kwargs": _plain_items(kwargs, model)}
    return call if node.name in (layer, call.get("op")) else call | {"name": node.name}


def _names(nest: Any) -> Any:
    """The short form of a tensor, or of a list or dict of tensors; None if there is none."""
    if isinstance(nest, _Reference):
        return nest.name if nest.kind == "tensor" else None
    if type(nest) is list and nest:
        found = [_names(item) for item in nest]
        return found if all(type(name) is str for name in found) else None
    return None


def _nest(structure: Structure | None, leaves: list[Any], model: str) -> Any:
    """A nest of references, with plain names in place of tensors where possible."""
    whole = leaves[0] if structure is None else tree.unflatten(structure, leaves)
    if isinstance(whole, dict):
        if all(isinstance(key, str) for key in whole):
            return {key: _short(item, model) for key, item in whole.items()}
        raise _refusal("a dict with keys that are no texts", model)
    return _short(whole, model)


def _short(nest: Any, model: str) -> Any:
    names = nest if isinstance(nest, str) else _names(nest)
    if names is None and type(nest) is list:
        return [_short(item, model) for item in nest]
    if names is None and type(nest) is tuple:
        return {"tuple": [_short(item, model) for item in nest]}
    if names is None and type(nest) is dict:
        return {"dict": {key: _short(item, model) for key, item in nest.items()}}
    return _plain(nest, model) if names is None else names


def _plain(value: Any, model: str) -> Any:
    """An argument or an attribute in the form that JSON holds."""
    if isinstance(value, _Reference):
        return {value.kind: value.name}
    if isinstance(value, TensorSpec):
        known = [size if isinstance(size, int) else None for size in value.shape]
        return {"spec": {"batch_shape": [None, *known[1:]], "dtype": value.dtype.name}}
    if type(value) is tuple:
        return {"tuple": [_plain(item, model) for item in value]}
    if type(value) is list:
        return [_plain(item, model) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": _plain_items(value, model)}
    try:
        return encode_plain(value, _no_number)
    except raised_here(FileFormatError):
        what = f"a {type(value).__name__} among the arguments of a call"
        raise _refusal(what, model) from None


def _no_number(graph: Graph) -> int:
    raise FileFormatError("a configuration cannot hold graphs")


def _plain_items(items: Mapping[str, Any], model: str) -> dict[str, Any]:
    return {key: _plain(item, model) for key, item in items.items()}


def _refusal(what: str, model: str) -> ArgumentError:
    return ArgumentError(f"{what} cannot be part of a configuration", op=model)


def _constant(value: Value, model: str) -> dict[str, Any]:
    array = value.constant.numpy()
    if array.size > MAX_CONSTANT or array.dtype.kind == "c":
        raise ArgumentError(
            "a constant is too large for a configuration",
            op=model,
            received=f"{value.name}: {value.spec}",
            expected=f"at most {MAX_CONSTANT:,} real numbers",
            hint="a Layer that keeps them in add_weight(..., trainable=False)",
        )
    values = array.tolist() if array.dtype.kind in "biuf" else array.astype("float64").tolist()
    return {"dtype": value.dtype.name, "shape": list(array.shape), "values": _finite(values)}


def _finite(values: Any) -> Any:
    """Nested lists of numbers, with texts in place of infinities and NaN."""
    if isinstance(values, list):
        return [_finite(item) for item in values]
    return values if np.isfinite(values) else repr(values)


def arguments_config(arguments: tuple[Any, Any], model: str) -> dict[str, Any]:
    """Positional and named arguments of a call, with specs in place of tensors."""
    args, kwargs = arguments
    return {"args": _plain(list(args), model), "kwargs": _plain_items(kwargs, model)}


def _shape(value: Value) -> list[Any]:
    """The sizes of an input; those with automatic names are None."""
    usual = ["batch", *(f"{value.name}_dim{i}" for i in range(1, len(value.shape)))]
    return [
        None if str(size) == name else size if isinstance(size, int) else str(size)
        for size, name in zip(value.shape, usual, strict=False)
    ]
