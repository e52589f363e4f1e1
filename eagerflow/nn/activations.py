"""Activation functions by name."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.nn.lookup import from_config

__all__ = ["get", "linear"]


def linear(x: Any) -> Any:
    """The values as they are.

    >>> ef.nn.activations.linear(ef.tensor([1.0, -2.0]))
    Tensor([ 1., -2.], float32, cpu:0)
    """
    return x


_NAMES = (
    "elu exp gelu hard_sigmoid hard_silu leaky_relu log_sigmoid log_softmax mish relu relu6 selu "
    "sigmoid silu softmax softplus softsign tanh"
)


def _table() -> dict[str, Any]:
    found = {name: getattr(ops, name) for name in _NAMES.split()}
    return found | {"linear": linear, "swish": found["silu"], "exponential": found["exp"]}


def get(identifier: Any) -> Any:
    """The function that a name or a callable stands for; None is ``linear``.

    >>> ef.nn.activations.get("relu")(ef.tensor([1.0, -2.0]))
    Tensor([1., 0.], float32, cpu:0)
    """
    return (
        linear if identifier is None else from_config("activation", identifier, _table(), callable)
    )
