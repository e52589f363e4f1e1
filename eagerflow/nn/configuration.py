"""Models as configurations: plain dicts, which JSON and YAML can hold, and models made of these.

A layer is ``{"class_name": "Dense", "config": {"units": 8}}``, or for those who write it by hand
``{"Dense": {"units": 8}}``. A model from symbolic tensors has these parts:

===========  ====================================================================================
``inputs``   by name, the arguments of ``Input``; or ``batch_shape``, in which None is any size
``layers``   by name, each once, however often it is called
``calls``    ``{"layer": name, "inputs": tensors}`` or ``{"op": name, "args": [...]}``, in an order
             in which they can run; ``name`` is that of the result
``outputs``  names of tensors
===========  ====================================================================================

``inputs`` of a call and ``outputs`` are the name of a tensor, or lists and dicts of names. A call
with more than tensors has ``args`` and ``kwargs``, in which ``{"tensor": name}`` stands for a
tensor, ``{"constant": ...}`` for one whose values are given, ``{"variable": name}`` for one of
``variables``, and ``{"tuple": [...]}`` and ``{"dict": {...}}`` for nests. Nothing of it is code:
ops and layers are looked up by their names, and classes of users are given as ``custom_objects``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value
from eagerflow.graph.names import FreeNames
from eagerflow.nn.arguments import is_count
from eagerflow.nn.configured import Unsaved, find, with_custom_objects
from eagerflow.nn.functional import layer_of
from eagerflow.nn.layer import Layer, layer_classes
from eagerflow.nn.policy import dtype_policy
from eagerflow.nn.symbols import is_symbolic, symbol
from eagerflow.op import ops
from eagerflow.spec import TensorSpec
from eagerflow.tensor import Tensor
from eagerflow.tree import Structure
from eagerflow.variable import Variable

__all__ = ["clone_model", "model_from_config", "model_from_json"]

MAX_CONSTANT = 4096  # elements of a constant that a configuration holds
PARTS = ("inputs", "layers", "calls", "outputs", "arguments", "variables")
"""What the configuration of a model from symbolic tensors has beside its options."""

_KINDS = (
    "spec",
    "tuple",
    "dict",
    "tensor",
    "constant",
    "variable",
    "dtype",
    "slice",
    "float",
    "ellipsis",
)


class _Reference(NamedTuple):
    """A tensor of a graph, by how it is come by and its name there."""

    kind: str
    name: Any


# From layers to configurations --------------------------------------------------------------------


def registered(layer: Any) -> str:
    """The name under which ``layer_classes`` has a layer's class."""
    return next(name for name, cls in layer_classes.items() if cls is type(layer))


def described(layer: Any) -> dict[str, Any]:
    """A layer as ``{"class_name", "config"}``."""
    return {"class_name": registered(layer), "config": layer.get_config()}


def missing_in(config: Any, path: str = "") -> str | None:
    """Where a configuration has no more than the text of a value; None where it is whole."""
    if isinstance(config, Unsaved):
        return f"{path} = {short_repr(config)}"
    items: Any = ()
    if isinstance(config, Mapping):
        items = config.items()
    elif isinstance(config, list | tuple):
        items = enumerate(config)
    found = (missing_in(item, f"{path}.{key}" if path else str(key)) for key, item in items)
    return next(filter(None, found), None)


def graph_config(graph: Graph) -> dict[str, Any]:
    """The configuration of a graph of layers and ops; ArgumentError where it has none."""
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
                f"{node.op.name!r} is a function of your own, which no configuration can hold",
                op=model,
                received=f"node {node.name!r}",
                hint="a Layer whose call does this",
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
    """The short form of a tensor, or of a list or dict of such; None where there is none."""
    if isinstance(nest, _Reference):
        return nest.name if nest.kind == "tensor" else None
    if type(nest) is list and nest:
        found = [_names(item) for item in nest]
        return found if all(type(name) is str for name in found) else None
    return None


def _nest(structure: Structure | None, leaves: list[Any], model: str) -> Any:
    """A nest of references, or of names, with names in the place of tensors where it can be."""
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
    if isinstance(value, Dim):
        raise _refusal(f"the size {value}, which is known by name only,", model)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": repr(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    if isinstance(value, slice):
        return {"slice": [_plain(end, model) for end in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if type(value) is tuple:
        return {"tuple": [_plain(item, model) for item in value]}
    if type(value) is list:
        return [_plain(item, model) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": _plain_items(value, model)}
    raise _refusal(f"a {type(value).__name__} among the arguments of a call", model)


def _plain_items(items: Mapping[str, Any], model: str) -> dict[str, Any]:
    return {key: _plain(item, model) for key, item in items.items()}


def _refusal(what: str, model: str) -> ArgumentError:
    return ArgumentError(f"{what} cannot stand in a configuration", op=model)


def _constant(value: Value, model: str) -> dict[str, Any]:
    array = value.constant.numpy()
    if array.size > MAX_CONSTANT or array.dtype.kind == "c":
        raise ArgumentError(
            "a constant is too much for a configuration",
            op=model,
            received=f"{value.name}: {value.spec}",
            expected=f"at most {MAX_CONSTANT:,} real numbers",
            hint="a Layer that keeps them in add_weight(..., trainable=False)",
        )
    values = array.tolist() if array.dtype.kind in "biuf" else array.astype("float64").tolist()
    return {"dtype": value.dtype.name, "shape": list(array.shape), "values": _finite(values)}


def _finite(values: Any) -> Any:
    """Nested lists of numbers, with texts in place of infinities and what is no number."""
    if isinstance(values, list):
        return [_finite(item) for item in values]
    return values if np.isfinite(values) else repr(values)


def _numbers(values: Any) -> Any:
    """Nested lists with numbers again in place of the texts."""
    if isinstance(values, list):
        return [_numbers(item) for item in values]
    return float(values) if isinstance(values, str) else values


def _shape(value: Value) -> list[Any]:
    """The sizes of an input; those that ``Input`` names by itself are None."""
    usual = ["batch", *(f"{value.name}_dim{i}" for i in range(1, len(value.shape)))]
    return [
        None if str(size) == name else size if isinstance(size, int) else str(size)
        for size, name in zip(value.shape, usual, strict=False)
    ]


# From configurations to layers --------------------------------------------------------------------


def layer_from(found: Any, name: str | None = None) -> Any:
    """The layer that ``{"class_name", "config"}`` or ``{class: arguments}`` describes.

    ``name`` is what it is called where its arguments do not say so.
    """
    if not isinstance(found, Mapping) or not (
        set(found) == {"class_name", "config"} or (len(found) == 1 and "class_name" not in found)
    ):
        raise ArgumentError(
            f"{short_repr(found)} describes no layer",
            op="model_from_config",
            expected='{"class_name": "Dense", "config": {"units": 8}}, or {"Dense": {"units": 8}}',
        )
    short = len(found) == 1
    cls, config = next(iter(found.items())) if short else (found["class_name"], found["config"])
    if not isinstance(cls, str) or not (config is None or isinstance(config, Mapping)):
        raise ArgumentError(
            f"{short_repr(config)} are no arguments", op="model_from_config", expected="a dict"
        )
    own = dict(config or {})
    if name is not None and own.get("name") is None:
        own["name"] = name
    cls = "InputLayer" if cls == "Input" else "Model" if cls == "Functional" else cls
    return find("layer", cls, layer_classes).from_config(own)


def graph_ends(config: Mapping[str, Any], model: str) -> tuple[Any, Any]:
    """The symbolic inputs and outputs that the configuration of a graph leads to.

    Raises ArgumentError for what is not as it should be, and the errors of layers and ops.
    """
    return _Reader(config, model).ends()


def arguments_config(arguments: tuple[Any, Any], model: str) -> dict[str, Any]:
    """Positional and named arguments of a call, with specs in place of tensors."""
    args, kwargs = arguments
    return {"args": _plain(list(args), model), "kwargs": _plain_items(kwargs, model)}


def arguments_from(config: Mapping[str, Any], model: str) -> tuple[Any, Any]:
    """The arguments of a call, with symbolic tensors of any batch size in place of specs."""
    reader = _Reader({}, model)
    return reader._value(config["args"]), reader._dict(config["kwargs"])


class _Reader:
    """Calls layers and ops on symbolic tensors, as a configuration says."""

    def __init__(self, config: Mapping[str, Any], model: str) -> None:
        self.config = config
        self.model = model
        self.tensors: dict[str, Any] = {}
        self.layers: dict[str, Any] = {}
        self.variables: dict[str, Variable] = {}
        self.names = FreeNames()

    def ends(self) -> tuple[Any, Any]:
        """Inputs and outputs."""
        for name, given in self._section("inputs").items():
            self._keep([_input(name, given, self.model)], name)
        for name, given in self._section("layers").items():
            self.layers[name] = layer_from(given, name)
        for name, given in self._section("variables").items():
            shape, dtype, trainable = (given[key] for key in ("shape", "dtype", "trainable"))
            zeros = np.zeros([int(size) for size in shape], as_dtype(dtype))
            self.variables[name] = Variable(zeros, name, trainable=bool(trainable))
        calls = self.config.get("calls", ())
        self._require(isinstance(calls, list | tuple), calls, "no list of calls")
        for call in calls:
            self._call(call)
        inputs = list(self._section("inputs"))
        usual = inputs[0] if len(inputs) == 1 else inputs
        given = self._tensors(self.config.get("arguments", usual))
        return given, self._tensors(self.config.get("outputs"))

    def _require(self, ok: bool, found: Any, wrong: str, expected: str | None = None) -> None:
        if not ok:
            raise ArgumentError(f"{short_repr(found)}: {wrong}", op=self.model, expected=expected)

    def _section(self, name: str) -> Mapping[str, Any]:
        found = self.config.get(name, {})
        named = isinstance(found, Mapping) and all(isinstance(key, str) for key in found)
        self._require(named, found, f"no {name} by name")
        section: Mapping[str, Any] = found
        return section

    def _keep(self, made: list[Any], name: str | None, base: str = "") -> None:
        """Know tensors by the name of the call that made them."""
        label = self.names.take(base) if name is None else name
        self._require(isinstance(label, str) and label not in self.tensors, label, "a name twice")
        if name is not None:
            self.names.take(label)
        labels = [label] if len(made) == 1 else [f"{label}:{i}" for i in range(len(made))]
        self.tensors |= dict(zip(labels, made, strict=True))

    def _call(self, call: Any) -> None:
        self._require(isinstance(call, Mapping), call, "no call", '{"layer": ..., "inputs": ...}')
        if "op" in call:
            found = self._op(call)
            base = str(call["op"])
        else:
            base = call.get("layer")
            self._require(base in self.layers, base, "no layer", "one of " + ", ".join(self.layers))
            if "inputs" in call:
                args, kwargs = [self._tensors(call["inputs"])], {}
            else:
                args, kwargs = self._value(call["args"]), call.get("kwargs", {})
            found = self.layers[base](*args, **{k: self._value(v) for k, v in kwargs.items()})
        self._keep(tree.flatten(found)[0], call.get("name"), base)

    def _op(self, call: Mapping[str, Any]) -> Any:
        self._require(isinstance(call["op"], str), call["op"], "no name of an op")
        op = find("op", call["op"], ops)
        args = self._value(call.get("args", []))
        # Others compute at once, and what a file says may be large.
        self._require(
            any(map(is_symbolic, args)), call, "a call without a tensor that the inputs lead to"
        )
        return op.call(*args, **{k: self._value(v) for k, v in call.get("attributes", {}).items()})

    def _tensors(self, nest: Any) -> Any:
        """A nest of tensors, from one of names."""
        if isinstance(nest, str):
            self._require(
                nest in self.tensors, nest, "no tensor", "one of " + ", ".join(self.tensors)
            )
            return self.tensors[nest]
        if isinstance(nest, list):
            return [self._tensors(item) for item in nest]
        self._require(isinstance(nest, Mapping), nest, "no tensors")
        if set(nest) == {"tuple"}:
            return tuple(map(self._tensors, nest["tuple"]))
        if len(nest) == 1 and set(nest) <= {"tensor", "constant", "variable"}:
            return self._value(nest)
        own = nest["dict"] if set(nest) == {"dict"} else nest
        return {key: self._tensors(item) for key, item in own.items()}

    def _value(self, found: Any) -> Any:
        """An argument or an attribute, from the form that JSON holds."""
        if isinstance(found, list | tuple):
            return [self._value(item) for item in found]
        if not isinstance(found, Mapping):
            return found
        known = len(found) == 1 and next(iter(found)) in _KINDS
        self._require(known, found, "no value", "one of the keys " + ", ".join(_KINDS))
        ((kind, inner),) = found.items()
        make: Callable[[Any], Any] = getattr(self, f"_{kind}")
        return make(inner)

    def _tensor(self, name: str) -> Any:
        return self._tensors(name)

    def _variable(self, name: str) -> Any:
        self._require(name in self.variables, name, "no variable")
        return self.variables[name]

    def _constant(self, found: Mapping[str, Any]) -> Tensor:
        dtype = as_dtype(found["dtype"])
        numbers = np.array(_numbers(found["values"])).astype(dtype)
        return as_tensor(numbers.reshape(found["shape"]))

    def _spec(self, found: Any) -> Any:
        return _input("inputs", found, self.model)

    def _tuple(self, items: Any) -> Any:
        return tuple(map(self._value, items))

    def _dict(self, items: Mapping[str, Any]) -> Any:
        return {key: self._value(item) for key, item in items.items()}

    def _dtype(self, name: Any) -> Any:
        return as_dtype(name)

    def _slice(self, ends: Any) -> Any:
        return slice(*map(self._value, ends))

    def _float(self, text: Any) -> float:
        return float(text)

    def _ellipsis(self, _: Any) -> Any:
        return Ellipsis


def _input(name: str, given: Any, model: str) -> Any:
    """A symbolic tensor for the inputs of a model, from the arguments of ``Input``."""
    if not isinstance(given, Mapping) or ("shape" in given) == ("batch_shape" in given):
        raise ArgumentError(
            f"{short_repr(given)} describes no input",
            op=model,
            argument=name,
            expected='{"shape": [4]}, perhaps with "batch_size" and "dtype"',
        )
    sizes = given.get("batch_shape")
    if sizes is None:
        sizes = [given.get("batch_size"), *given["shape"]]
    for size in sizes:
        if not (size is None or isinstance(size, str) or is_count(size, 0)):
            raise ArgumentError(
                f"{short_repr(size)} is no size", op=model, argument=name, expected="an integer"
            )
    named = [Dim(size) if isinstance(size, str) else size for size in sizes]
    return symbol(named, given.get("dtype") or dtype_policy().variable_dtype, name)


# Models -------------------------------------------------------------------------------------------


CustomObjects = Mapping[str, Any] | None
"""Classes and functions of users, by the names that configurations have for them."""


def model_from_config(config: Mapping[str, Any], custom_objects: CustomObjects = None) -> Any:
    """A new model from a configuration, a plain dict, which may come from a YAML file.

    ``config`` is ``{"class_name", "config"}`` or ``{class: arguments}``, with the form that
    ``get_config`` gives and ``eagerflow/nn/configuration.py`` describes; ``custom_objects`` has
    classes and functions that are not of ``ef.nn``, by their names. Raises ArgumentError for
    what describes no model and for classes that are not known, and the errors of layers.

    >>> model = ef.nn.model_from_config(
    ...     {
    ...         "Sequential": {
    ...             "layers": [
    ...                 {"Input": {"shape": [4]}},
    ...                 {"Dense": {"units": 8, "activation": "relu"}},
    ...                 {"Dense": {"units": 1}},
    ...             ]
    ...         }
    ...     }
    ... )
    >>> model.count_params()
    49
    >>> model = ef.nn.model_from_config(
    ...     {
    ...         "Model": {
    ...             "inputs": {"x": {"shape": [4]}},
    ...             "layers": {"hidden": {"Dense": {"units": 4}}},
    ...             "calls": [
    ...                 {"layer": "hidden", "inputs": "x"},
    ...                 {"op": "add", "args": [{"tensor": "x"}, {"tensor": "hidden"}]},
    ...             ],
    ...             "outputs": "add",
    ...         }
    ...     }
    ... )
    >>> model(ef.ones((2, 4))).shape
    (2, 4)
    """
    return with_custom_objects(custom_objects or {}, layer_from, config)


def model_from_json(text: str, custom_objects: CustomObjects = None) -> Any:
    """A new model from what ``model.to_json()`` gives; arguments as for ``model_from_config``.

    >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2)])
    >>> ef.nn.model_from_json(model.to_json()).count_params()
    10
    """
    try:
        config = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"the text is no JSON: {error}", op="model_from_json", expected="what to_json gives"
        ) from None
    return model_from_config(config, custom_objects)


def clone_model(model: Any) -> Any:
    """A new model of new layers like those of ``model``, with first values of weights of their own.

    Variables that ops read keep their values. Raises ArgumentError where ``model`` has no
    configuration.

    >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2, name="out")])
    >>> clone = ef.nn.clone_model(model)
    >>> clone.layers[0].name, clone.layers[0] is model.layers[0]
    ('out', False)
    """
    config = whole_config(model, "clone_model")
    classes = {registered(layer): type(layer) for layer in model.walk() if isinstance(layer, Layer)}
    clone = model_from_config(config, classes)
    for own, new in zip(_read_by(model), _read_by(clone), strict=True):
        new.assign(own.value)
    return clone


def _read_by(model: Any) -> list[Variable]:
    """The Variables that ops of a model's graphs read."""
    graphs = [getattr(layer, "graph", None) for layer in model.walk()]
    return [cell.variable for graph in graphs if graph is not None for cell in graph.cells]


def whole_config(model: Any, op: str) -> dict[str, Any]:
    """A model as ``{"class_name", "config"}``; ArgumentError where a part has no configuration."""
    found = described(model)
    missing = missing_in(found["config"])
    if missing is not None:
        raise ArgumentError(
            "an argument is an object that no configuration can hold",
            op=op,
            received=missing,
            hint="get_config and from_config of your own in the class that takes it",
        )
    return found


def to_json(model: Any, **options: Any) -> str:
    """See ``Model.to_json``."""
    return json.dumps(whole_config(model, "to_json"), **options)
