"""Opset 6: conversion of nodes to the semantics of version 7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow import ops
from eagerflow.onnx.reading.attributes import Schema, schema_of
from eagerflow.onnx.reading.calls import Refused
from eagerflow.onnx.reading.model import OLDEST

Form = tuple[list[Any], dict[str, Any]]
"""Inputs and attributes of a node."""


def _broadcast(given: list[Any], attributes: dict[str, Any]) -> Form:
    """With ``broadcast``, axes of the second input matched those of the first from ``axis`` on."""
    rest = {key: x for key, x in attributes.items() if key not in ("axis", "broadcast")}
    axis = attributes.get("axis")
    if not attributes["broadcast"] or axis is None:
        return given, rest
    a, b = given
    axis = axis + a.ndim if axis < 0 else axis
    behind = a.ndim - axis - b.ndim
    if behind < 0:
        raise Refused(f"the axis {axis} for inputs of {a.ndim} and {b.ndim} axes")
    return [a, ops.reshape(b, (*b.shape, *(1,) * behind))], rest


def _channels(given: list[Any], attributes: dict[str, Any]) -> Form:
    """Slopes were aligned with the channels."""
    x, slope = given
    if slope.ndim == 1 and slope.shape[0] != 1:
        slope = ops.reshape(slope, (*slope.shape, *(1,) * max(x.ndim - 2, 0)))
    return [x, slope], attributes


def _without(*names: str) -> Callable[..., Form]:
    """Remove attributes with default semantics."""

    def fewer(given: list[Any], attributes: dict[str, Any]) -> Form:
        return given, {key: x for key, x in attributes.items() if key not in names}

    return fewer


def _tested(given: list[Any], attributes: dict[str, Any]) -> Form:
    """Inference was marked by an attribute."""
    if not attributes["is_test"]:
        raise Refused("training, in its form of opset 6")
    return _without("is_test")(given, attributes)


_PAIRS = "Add Sub Mul Div Pow And Or Xor Equal Greater Less".split()
_FORMS: dict[str, Callable[..., Form]] = {
    **dict.fromkeys(_PAIRS, _broadcast),
    "AveragePool": _without(),
    "BatchNormalization": _tested,
    "Dropout": _tested,
    "Gemm": _without("broadcast"),
    "PRelu": _channels,
}


def form_of(name: str, schema: Schema | None, version: int) -> Callable[..., Form]:
    """The conversion of an older node to version 7; Refused if there is none."""
    later, six = schema_of("", name, OLDEST), schema_of("", name, OLDEST - 1)
    if schema is not None and later is not None and later.since == schema.since:
        return _without()
    if schema is None or six is None or six.since != schema.since or name not in _FORMS:
        raise Refused(f"its form of opset {version}")
    return _FORMS[name]
