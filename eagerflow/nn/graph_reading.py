"""Reconstruction of symbolic inputs and outputs from configurations of graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eagerflow import tree
from eagerflow.convert import as_tensor
from eagerflow.dims import Dim
from eagerflow.dtypes import as_dtype
from eagerflow.errors import ArgumentError, short_repr
from eagerflow.graph.names import FreeNames
from eagerflow.graph.plain import decode_plain
from eagerflow.graph.sizes import is_symbolic as has_size
from eagerflow.nn.arguments import is_count
from eagerflow.nn.configuration import layer_from
from eagerflow.nn.configured import find
from eagerflow.nn.policy import dtype_policy
from eagerflow.nn.symbols import is_symbolic, symbol
from eagerflow.op import ops
from eagerflow.tensor import Tensor
from eagerflow.variable import Variable

__all__ = ["PARTS", "arguments_from", "graph_ends"]

PARTS = ("inputs", "layers", "calls", "outputs", "arguments", "variables")
"""The configuration of a model from symbolic tensors, besides its options."""

_NESTED = ("spec", "tuple", "dict", "tensor", "constant", "variable")
_PLAIN = ("dtype", "slice", "float", "complex", "ellipsis", "dim")


def graph_ends(config: Mapping[str, Any], model: str) -> tuple[Any, Any]:
    """The symbolic inputs and outputs that the configuration of a graph leads to.

    Raises ArgumentError for invalid configurations, and the errors of layers and ops.
    """
    return _Reader(config, model).ends()


def arguments_from(config: Mapping[str, Any], model: str) -> tuple[Any, Any]:
    """The arguments of a call, with symbolic tensors of any batch size in place of specs."""
    reader = _Reader({}, model)
    return reader._value(config["args"]), reader._dict(config["kwargs"])


class _Reader:
    """Calls layers and ops on symbolic tensors, according to a configuration."""

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
        self._require(isinstance(calls, list | tuple), calls, "not a list of calls")
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
        self._require(
            isinstance(call, Mapping), call, "not a call", '{"layer": ..., "inputs": ...}'
        )
        if "op" in call:
            found = self._op(call)
            base = str(call["op"])
        else:
            base = call.get("layer")
            self._require(
                base in self.layers, base, "not a layer", "one of " + ", ".join(self.layers)
            )
            if "inputs" in call:
                args, kwargs = [self._tensors(call["inputs"])], {}
            else:
                args, kwargs = self._value(call["args"]), call.get("kwargs", {})
            found = self.layers[base](*args, **{k: self._value(v) for k, v in kwargs.items()})
        self._keep(tree.flatten(found)[0], call.get("name"), base)

    def _op(self, call: Mapping[str, Any]) -> Any:
        self._require(isinstance(call["op"], str), call["op"], "not a name of an op")
        op = find("op", call["op"], ops)
        args = self._value(call.get("args", []))
        attributes = {k: self._value(v) for k, v in call.get("attributes", {}).items()}
        # Other ops would compute immediately, and sizes from a file may be large.
        known = not any(is_symbolic(x) for x in args) and not any(
            has_size(x) for x in attributes.values()
        )
        self._require(not known, call, "a call without a tensor that the inputs lead to")
        return op.call(*args, **attributes)

    def _tensors(self, nest: Any) -> Any:
        """A nest of tensors, from one of names."""
        if isinstance(nest, str):
            self._require(
                nest in self.tensors, nest, "no tensor", "one of " + ", ".join(self.tensors)
            )
            return self.tensors[nest]
        if isinstance(nest, list):
            return [self._tensors(item) for item in nest]
        self._require(isinstance(nest, Mapping), nest, "not tensors")
        if set(nest) == {"tuple"}:
            return tuple([self._tensors(x) for x in nest["tuple"]])
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
        kind, inner = next(iter(found.items()), ("", None))
        known = len(found) == 1 and kind in (*_NESTED, *_PLAIN)
        self._require(known, found, "not a value", "a key of " + ", ".join((*_NESTED, *_PLAIN)))
        if kind in _PLAIN:
            return decode_plain({kind: inner}, self._no_graph)
        make: Callable[[Any], Any] = getattr(self, f"_{kind}")
        return make(inner)

    def _no_graph(self, number: int) -> Any:
        self._require(False, number, "a configuration cannot hold graphs")

    def _tensor(self, name: str) -> Any:
        return self._tensors(name)

    def _variable(self, name: str) -> Any:
        self._require(name in self.variables, name, "not a variable")
        return self.variables[name]

    def _constant(self, found: Mapping[str, Any]) -> Tensor:
        numbers = np.array(_numbers(found["values"]), as_dtype(found["dtype"]))
        return as_tensor(numbers.reshape(found["shape"]))

    def _spec(self, found: Any) -> Any:
        return _input("inputs", found, self.model)

    def _tuple(self, items: Any) -> Any:
        return tuple([self._value(x) for x in items])

    def _dict(self, items: Mapping[str, Any]) -> Any:
        return {key: self._value(item) for key, item in items.items()}


def _input(name: str, given: Any, model: str) -> Any:
    """A symbolic tensor for the inputs of a model, from the arguments of ``Input``."""
    if not isinstance(given, Mapping) or ("shape" in given) == ("batch_shape" in given):
        raise ArgumentError(
            f"{short_repr(given)} does not describe an input",
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


def _numbers(values: Any) -> Any:
    """Nested lists with numbers in place of their texts."""
    if isinstance(values, list):
        return [_numbers(item) for item in values]
    return float(values) if isinstance(values, str) else values
