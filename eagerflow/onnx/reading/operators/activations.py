"""The activations of recurrent layers, selected by attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from eagerflow import ops
from eagerflow.onnx.reading.calls import Call


class _Activation(NamedTuple):
    """A function of x and optional parameters alpha and beta, with their defaults."""

    function: Callable[..., Any]
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS = {
    "affine": _Activation(lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "elu": _Activation(lambda x, alpha: ops.elu(x, alpha=alpha), 1.0),
    "hardsigmoid": _Activation(lambda x, alpha, beta: ops.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "leakyrelu": _Activation(lambda x, alpha: ops.leaky_relu(x, negative_slope=alpha), 0.01),
    "relu": _Activation(ops.relu),
    "scaledtanh": _Activation(lambda x, alpha, beta: alpha * ops.tanh(beta * x), 1.0, 1.0),
    "sigmoid": _Activation(ops.sigmoid),
    "softplus": _Activation(ops.softplus),
    "softsign": _Activation(ops.softsign),
    "tanh": _Activation(ops.tanh),
    "thresholdedrelu": _Activation(lambda x, alpha: ops.where(x > alpha, x, 0), 1.0),
}


def activation(
    call: Call, name: str, alphas: list[float], betas: list[float]
) -> Callable[[Any], Any]:
    """The activation of this name; removes its parameters from the two lists."""
    found = _ACTIVATIONS.get(name.lower())
    if found is None:
        call.refuse(f"there is no activation {name!r}")
    numbers = [
        given.pop(0) if given else default
        for given, default in ((alphas, found.alpha), (betas, found.beta))
        if default is not None
    ]
    function = found.function
    return (lambda x: function(x, *numbers)) if numbers else function
