"""Activation functions, with the names and defaults of Keras 3.

Where ``ef`` has the function as an op with the same defaults, it is that op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.nn.arguments import TensorLike
from eagerflow.nn.configured import from_config
from eagerflow.tensor import Tensor

__all__ = [
    "celu",
    "elu",
    "exponential",
    "gelu",
    "get",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "swish",
    "tanh",
    "tanh_shrink",
    "threshold",
]


def __dir__() -> list[str]:
    return sorted(__all__)


celu = ops.celu
elu = ops.elu
exponential = ops.exp
glu = ops.glu
hard_shrink = ops.hard_shrink
hard_sigmoid = ops.hard_sigmoid
hard_silu = hard_swish = ops.hard_silu
hard_tanh = ops.hard_tanh
log_sigmoid = ops.log_sigmoid
log_softmax = ops.log_softmax
mish = ops.mish
relu6 = ops.relu6
selu = ops.selu
sigmoid = ops.sigmoid
silu = swish = ops.silu
soft_shrink = ops.soft_shrink
softmax = ops.softmax
softplus = ops.softplus
softsign = ops.softsign
sparse_plus = ops.sparse_plus
sparse_sigmoid = ops.sparse_sigmoid
sparsemax = ops.sparsemax
squareplus = ops.squareplus
tanh = ops.tanh
tanh_shrink = ops.tanh_shrink


def linear(x: TensorLike) -> Tensor:
    """The values as they are.

    >>> ef.nn.activations.linear(ef.tensor([1.0, -2.0]))
    Tensor([ 1., -2.], float32, cpu:0)
    """
    return x


# Units of straight pieces -------------------------------------------------------------------------


def relu(
    x: TensorLike,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> Tensor:
    """Each element that is above ``threshold``, up to ``max_value``, and 0 for other elements.

    Elements up to the threshold become ``negative_slope`` times their distance to it. With the
    defaults this is ``ef.relu``. ``x`` is a real tensor; raises DTypeError for complex.

    >>> ef.nn.activations.relu(ef.tensor([-1.0, 2.0, 8.0]), 0.1, max_value=6.0)
    Tensor([-0.1,  2. ,  6. ], float32, cpu:0)
    """
    if max_value is None and threshold == 0:
        return ops.leaky_relu(x, negative_slope) if negative_slope else ops.relu(x)
    above = x if max_value is None else ops.minimum(x, max_value)
    below: Any = 0.0
    if negative_slope:
        below = ops.multiply(ops.subtract(x, threshold), negative_slope)
    return ops.where(ops.greater(x, threshold), above, below)


def leaky_relu(x: TensorLike, negative_slope: float = 0.2) -> Tensor:
    """``ef.leaky_relu`` with Keras's default slope; the name ``"leaky_relu"`` refers to it.

    ``x`` is a real tensor; ``negative_slope`` multiplies negative elements. Raises DTypeError for
    complex.

    >>> ef.nn.activations.leaky_relu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.2,  2. ], float32, cpu:0)
    """
    return ops.leaky_relu(x, negative_slope)


def threshold(x: TensorLike, threshold: float, default_value: float) -> Tensor:
    """Each element that is above ``threshold``, and ``default_value`` for other elements.

    >>> ef.nn.activations.threshold(ef.tensor([0.5, 2.0]), 1.0, -1.0)
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return ops.threshold(x, threshold, default_value)


def gelu(x: TensorLike, approximate: bool = False) -> Tensor:
    """``ef.gelu`` with Keras's default, the exact form; the name ``"gelu"`` refers to it.

    ``x`` is a real tensor; ``approximate=True`` takes the tanh form. Raises DTypeError for
    complex.

    >>> ef.nn.activations.gelu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.1587,  1.9545], float32, cpu:0)
    """
    return ops.gelu(x, approximate)


# By name ------------------------------------------------------------------------------------------

_TABLE: dict[str, Any] = {
    name: function for name, function in globals().items() if name in __all__ and name != "get"
}
# The plain op: without another function around it.
_TABLE |= {"relu": ops.relu, "exp": ops.exp}
_TABLE |= {"ef.gelu": ops.gelu, "ef.leaky_relu": ops.leaky_relu}


def get(identifier: Any) -> Any:
    """Return the function for a name or a callable; None is ``linear``.

    Names have the meaning of Keras 3: ``"gelu"`` is the exact form and ``"leaky_relu"`` has the
    slope 0.2, where ``ef.gelu`` and ``ef.leaky_relu`` have PyTorch's and JAX's defaults.

    >>> ef.nn.activations.get("relu")(ef.tensor([1.0, -2.0]))
    Tensor([1., 0.], float32, cpu:0)
    """
    return linear if identifier is None else from_config("activation", identifier, _TABLE, callable)


ActivationLike = Annotated[str | Callable[..., Any] | None, get]
"""A function of a tensor, or its name; None is ``linear``."""
