"""Activation functions, with the names and defaults of Keras 3.

Where ``ef`` has the function as an op with the same defaults, it is that op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from eagerflow import ops
from eagerflow.display import summary
from eagerflow.errors import ShapeError
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

elu = ops.elu
exponential = ops.exp
hard_sigmoid = ops.hard_sigmoid
hard_silu = hard_swish = ops.hard_silu
log_sigmoid = ops.log_sigmoid
log_softmax = ops.log_softmax
mish = ops.mish
relu6 = ops.relu6
selu = ops.selu
sigmoid = ops.sigmoid
silu = swish = ops.silu
softmax = ops.softmax
softplus = ops.softplus
softsign = ops.softsign
tanh = ops.tanh


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
    """Each element that is above ``threshold``, up to ``max_value``, and 0 for the others.

    What is not above the threshold gives ``negative_slope`` times its distance to that. With the
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
    """``ef.leaky_relu`` with Keras's default slope; this is what ``"leaky_relu"`` means.

    ``x`` is a real tensor; ``negative_slope`` multiplies what is below 0. Raises DTypeError for
    complex.

    >>> ef.nn.activations.leaky_relu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.2,  2. ], float32, cpu:0)
    """
    return ops.leaky_relu(x, negative_slope)


def threshold(x: TensorLike, threshold: float, default_value: float) -> Tensor:
    """Each element that is above ``threshold``, and ``default_value`` for the others.

    >>> ef.nn.activations.threshold(ef.tensor([0.5, 2.0]), 1.0, -1.0)
    Tensor([-1.,  2.], float32, cpu:0)
    """
    return ops.where(ops.greater(x, threshold), x, default_value)


def hard_tanh(x: TensorLike) -> Tensor:
    """Each element, cut off at -1 and 1.

    >>> ef.nn.activations.hard_tanh(ef.tensor([-2.0, 0.5, 2.0]))
    Tensor([-1. ,  0.5,  1. ], float32, cpu:0)
    """
    return ops.clip(x, -1.0, 1.0)


def hard_shrink(x: TensorLike, threshold: float = 0.5) -> Tensor:
    """Each element that is farther than ``threshold`` from 0, and 0 for the others.

    >>> ef.nn.activations.hard_shrink(ef.tensor([-2.0, 0.25, 2.0]))
    Tensor([-2.,  0.,  2.], float32, cpu:0)
    """
    return ops.where(ops.greater(ops.abs(x), threshold), x, 0.0)


def soft_shrink(x: TensorLike, threshold: float = 0.5) -> Tensor:
    """Each element moved toward 0 by ``threshold``, at most up to 0.

    >>> ef.nn.activations.soft_shrink(ef.tensor([-2.0, 0.25, 2.0]))
    Tensor([-1.5,  0. ,  1.5], float32, cpu:0)
    """
    return ops.subtract(x, ops.clip(x, -threshold, threshold))


def sparse_sigmoid(x: TensorLike) -> Tensor:
    """A line from 0 at -1 to 1 at 1, and flat beyond.

    >>> ef.nn.activations.sparse_sigmoid(ef.tensor([-2.0, 0.5, 2.0]))
    Tensor([0.  , 0.75, 1.  ], float32, cpu:0)
    """
    return ops.clip(ops.multiply(ops.add(x, 1.0), 0.5), 0.0, 1.0)


# Smooth units -------------------------------------------------------------------------------------


def gelu(x: TensorLike, approximate: bool = False) -> Tensor:
    """``ef.gelu`` with Keras's default, the exact form; this is what the name ``"gelu"`` means.

    ``x`` is a real tensor; ``approximate=True`` takes the tanh form. Raises DTypeError for
    complex.

    >>> ef.nn.activations.gelu(ef.tensor([-1.0, 2.0]))
    Tensor([-0.1587,  1.9545], float32, cpu:0)
    """
    return ops.gelu(x, approximate)


def celu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """Exponential linear unit of slope 1 at 0: alpha·(exp(x / alpha) - 1) for negative numbers.

    Source: Barron, arXiv:1704.07483.

    >>> ef.nn.activations.celu(ef.tensor([-1.0, 2.0]), 0.5)
    Tensor([-0.4323,  2.    ], float32, cpu:0)
    """
    bent = ops.multiply(ops.elu(ops.divide(x, alpha)), alpha)
    return ops.where(ops.greater(x, 0.0), x, bent)


def squareplus(x: TensorLike, b: float = 4.0) -> Tensor:
    """Smooth form of max(x, 0) without exponentials: (x + sqrt(x² + b)) / 2.

    Source: Barron, arXiv:2112.11687.

    >>> ef.nn.activations.squareplus(ef.tensor([0.0, 3.0, -1000.0]))
    Tensor([1.0000e+00, 3.3028e+00, 1.0000e-03], float32, cpu:0)
    """
    root = ops.sqrt(ops.add(ops.multiply(x, x), b))
    above = ops.multiply(ops.add(x, root), 0.5)
    below = ops.divide(b / 2, ops.add(root, ops.abs(x)))  # the same, without cancellation
    return ops.where(ops.greater_equal(x, 0.0), above, below)


def sparse_plus(x: TensorLike) -> Tensor:
    """0 up to -1, x from 1 on, and the parabola (x + 1)² / 4 between them.

    >>> ef.nn.activations.sparse_plus(ef.tensor([-2.0, 0.0, 2.0]))
    Tensor([0.  , 0.25, 2.  ], float32, cpu:0)
    """
    above = ops.maximum(ops.add(x, 1.0), 0.0)
    return ops.where(ops.less(x, 1.0), ops.multiply(ops.multiply(above, above), 0.25), x)


def tanh_shrink(x: TensorLike) -> Tensor:
    """Each element less its hyperbolic tangent.

    >>> ef.nn.activations.tanh_shrink(ef.tensor([0.0, 2.0]))
    Tensor([0.   , 1.036], float32, cpu:0)
    """
    return ops.subtract(x, ops.tanh(x))


# Functions of rows --------------------------------------------------------------------------------


def glu(x: TensorLike, axis: int = -1) -> Tensor:
    """The first half along ``axis``, times the sigmoid of the second.

    Raises ShapeError where there are no two halves. Source: Dauphin et al., arXiv:1612.08083.

    >>> ef.nn.activations.glu(ef.tensor([2.0, 4.0, 0.0, 0.0]))
    Tensor([1., 2.], float32, cpu:0)
    """
    if isinstance(x.shape[axis], int) and x.shape[axis] % 2:
        raise ShapeError(
            f"{x.shape[axis]} elements have no two halves",
            op="glu",
            argument="x",
            received=summary(x),
            expected=f"an even size along axis {axis}",
        )
    values, gates = ops.split(x, 2, axis)
    return ops.multiply(values, ops.sigmoid(gates))


def sparsemax(x: TensorLike, axis: int = -1) -> Tensor:
    """The nearest point to each vector that is a distribution; small elements become 0.

    Source: Martins and Astudillo, arXiv:1602.02068.

    >>> ef.nn.activations.sparsemax(ef.tensor([2.0, 1.5, -1.0]))
    Tensor([0.75, 0.25, 0.  ], float32, cpu:0)
    """
    falling = ops.sort(x, axis=axis, descending=True)
    sums = ops.cumulative_sum(falling, axis=axis)
    ranks = ops.cumulative_sum(ops.ones_like(falling), axis=axis)
    inside = ops.greater(ops.add(ops.multiply(falling, ranks), 1.0), sums)
    total = ops.sum(ops.where(inside, falling, 0.0), axis=axis, keepdims=True)
    number = ops.sum(inside.astype(falling.dtype), axis=axis, keepdims=True)
    return ops.relu(ops.subtract(x, ops.divide(ops.subtract(total, 1.0), number)))


# By name ------------------------------------------------------------------------------------------

_TABLE: dict[str, Any] = {
    name: function for name, function in globals().items() if name in __all__ and name != "get"
}
# The plain op: without another function around it.
_TABLE |= {"relu": ops.relu, "exp": ops.exp}
_TABLE |= {"ef.gelu": ops.gelu, "ef.leaky_relu": ops.leaky_relu}


def get(identifier: Any) -> Any:
    """The function that a name or a callable stands for; None is ``linear``.

    Names mean what they mean in Keras 3: ``"gelu"`` is the exact form and ``"leaky_relu"`` has
    the slope 0.2, where ``ef.gelu`` and ``ef.leaky_relu`` have PyTorch's and JAX's defaults.

    >>> ef.nn.activations.get("relu")(ef.tensor([1.0, -2.0]))
    Tensor([1., 0.], float32, cpu:0)
    """
    return linear if identifier is None else from_config("activation", identifier, _TABLE, callable)


ActivationLike = Annotated[str | Callable[..., Any] | None, get]
"""A function of a tensor, or its name; None is ``linear``."""
