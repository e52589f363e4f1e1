"""Models as configurations: plain dicts that can be written as JSON or YAML, and back.

A layer is ``{"class_name": "Dense", "config": {"units": 8}}``, or where it is written by hand
``{"Dense": {"units": 8}}``. A model from symbolic tensors has these parts:

===========  ====================================================================================
``inputs``   by name, the arguments of ``Input``; or ``batch_shape``, in which None is any size
``layers``   by name, each once, however often it is called
``calls``    ``{"layer": name, "inputs": tensors}`` or ``{"op": name, "args": [...]}``, in an order
             in which they can run; ``name`` is that of the result
``outputs``  names of tensors
===========  ====================================================================================

``inputs`` of a call and ``outputs`` are the name of a tensor, or lists and dicts of names. A call
with other arguments has ``args`` and ``kwargs``, in which ``{"tensor": name}`` is a tensor,
``{"constant": ...}`` one with given values, ``{"variable": name}`` one of ``variables``, and
``{"tuple": [...]}`` and ``{"dict": {...}}`` are nests. No code is executed: ops and layers are
looked up by name, and users' classes are passed as ``custom_objects``.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import Any

from eagerflow.errors import ArgumentError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.nn.configured import Unsaved, find, with_custom_objects
from eagerflow.nn.layer import Layer, layer_classes
from eagerflow.variable import Variable

__all__ = ["clone_model", "model_from_config", "model_from_json"]

_ON_DEMAND = {"GPT": "eagerflow.nn.networks"}
"""Where classes are that are loaded when a configuration names them."""


def registered(layer: Any) -> str:
    """The name under which ``layer_classes`` has a layer's class."""
    return next(name for name, cls in layer_classes.items() if cls is type(layer))


def described(layer: Any) -> dict[str, Any]:
    """A layer as ``{"class_name", "config"}``."""
    return {"class_name": registered(layer), "config": layer.get_config()}


def missing_in(config: Any, path: str = "") -> str | None:
    """The position at which a configuration only has a value's text; None if complete."""
    if isinstance(config, Unsaved):
        return f"{path} = {short_repr(config)}"
    items: Any = ()
    if isinstance(config, Mapping):
        items = config.items()
    elif isinstance(config, list | tuple):
        items = enumerate(config)
    found = (missing_in(item, f"{path}.{key}" if path else str(key)) for key, item in items)
    return next(filter(None, found), None)


def layer_from(found: Any, name: str | None = None) -> Any:
    """The layer that ``{"class_name", "config"}`` or ``{class: arguments}`` describes.

    ``name`` is its name unless its arguments have one.
    """
    if not isinstance(found, Mapping) or not (
        set(found) == {"class_name", "config"} or (len(found) == 1 and "class_name" not in found)
    ):
        raise ArgumentError(
            f"{short_repr(found)} does not describe a layer",
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
    if cls in _ON_DEMAND:
        importlib.import_module(_ON_DEMAND[cls])
    return find("layer", cls, layer_classes).from_config(own)


CustomObjects = Mapping[str, Any] | None
"""Classes and functions of users, by the names that configurations have for them."""


def model_from_config(config: Mapping[str, Any], custom_objects: CustomObjects = None) -> Any:
    """A new model from a configuration, a plain dict, for example from a YAML file.

    ``config`` is ``{"class_name", "config"}`` or ``{class: arguments}``, in the form that
    ``get_config`` returns and ``eagerflow/nn/configuration.py`` describes; ``custom_objects`` has
    classes and functions from outside of ``ef.nn`` by name. Raises ArgumentError for invalid
    configurations and unknown classes, and the errors of layers.

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
    """A new model from the result of ``model.to_json()``; arguments as for ``model_from_config``.

    >>> model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2)])
    >>> ef.nn.model_from_json(model.to_json()).count_params()
    10
    """
    try:
        config = json.loads(text)
    except raised_here(TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"the text is not JSON: {error}",
            op="model_from_json",
            expected="a text that to_json returned",
        ) from None
    return model_from_config(config, custom_objects)


def clone_model(model: Any) -> Any:
    """A new model of new layers like those of ``model``, with newly initialized weights.

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
            "an argument is an object that a configuration cannot hold",
            op=op,
            received=missing,
            hint="define get_config and from_config in the class that takes it",
        )
    return found


def to_json(model: Any, **options: Any) -> str:
    """See ``Model.to_json``."""
    return json.dumps(whole_config(model, "to_json"), **options)
