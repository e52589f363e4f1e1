"""Activation functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.configured import from_config
from eagerflow.tensor import Tensor

__all__ = ["gelu", "get", "leaky_relu", "linear"]


def linear(x: TensorLike) -> Tensor:
    """The values as they are.

    >>> ef.nn.activations.linear(ef.tensor([1.0, -2.0]))
    Tensor([ 1., -2.], float32, cpu:0)
    """
    return x


def gelu(x: TensorLike, approximate: bool = False) -> Tensor:
    """``ef.gelu`` with Keras's default, the exact form; this is what the name ``"gelu"`` means.

    ``x`` is a real tensor; ``approximate=True`` takes the tanh form. Raises DTypeError for
    complex.

    >>> ef.nn.activations.gelu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.1587,  1.9545], float32, cpu:0)
    """
    return ops.gelu(x, approximate)


def leaky_relu(x: TensorLike, negative_slope: float = 0.2) -> Tensor:
    """``ef.leaky_relu`` with Keras's default slope; this is what ``"leaky_relu"`` means.

    ``x`` is a real tensor; ``negative_slope`` multiplies what is below 0. Raises DTypeError for
    complex.

    >>> ef.nn.activations.leaky_relu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.2,  2. ], float32, cpu:0)
    """
    return ops.leaky_relu(x, negative_slope)


_NAMES = (
    "elu exp hard_sigmoid hard_silu log_sigmoid log_softmax mish relu relu6 selu sigmoid silu "
    "softmax softplus softsign tanh"
)


def _table() -> dict[str, Any]:
    found = {name: getattr(ops, name) for name in _NAMES.split()}
    found |= {"swish": found["silu"], "hard_swish": found["hard_silu"], "exponential": found["exp"]}
    found |= {"linear": linear, "gelu": gelu, "leaky_relu": leaky_relu}
    return found | {"ef.gelu": ops.gelu, "ef.leaky_relu": ops.leaky_relu}


def get(identifier: Any) -> Any:
    """The function that a name or a callable stands for; None is ``linear``.

    Names mean what they mean in Keras 3: ``"gelu"`` is the exact form and ``"leaky_relu"`` has
    the slope 0.2, where ``ef.gelu`` and ``ef.leaky_relu`` have PyTorch's and JAX's defaults.

    >>> ef.nn.activations.get("relu")(ef.tensor([1.0, -2.0]))
    Tensor([1., 0.], float32, cpu:0)
    """
    return (
        linear if identifier is None else from_config("activation", identifier, _table(), callable)
    )


ActivationLike = Annotated[str | Callable[..., Any] | None, get]
"""A function of a tensor, or its name; None is ``linear``."""
