"""The activation functions of ``keras.ops.nn``."""

import eagerflow as ef
from eagerflow.keras.backend.numpy_elementwise import tanh
from eagerflow.keras.backend.operands import floating, unary

__all__ = [
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
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
    "tanh",
    "tanh_shrink",
    "threshold",
]

hard_sigmoid = unary("hard_sigmoid", "floats")
hard_silu = unary("hard_silu", "floats")
hard_tanh = unary("hard_tanh", "floats")
log_sigmoid = unary("log_sigmoid", "floats")
relu = unary("relu", "numbers")
relu6 = unary("relu6", "floats")
selu = unary("selu", "floats")
sigmoid = unary("sigmoid", "floats")
silu = unary("silu", "floats")
softplus = unary("softplus", "floats")
softsign = unary("softsign", "floats")
sparse_plus = unary("sparse_plus", "floats")
sparse_sigmoid = unary("sparse_sigmoid", "floats")
tanh_shrink = unary("tanh_shrink", "floats")


def squareplus(x, b=4):
    return ef.squareplus(floating(x), b)


def soft_shrink(x, threshold=0.5):
    return ef.soft_shrink(floating(x), threshold)


def hard_shrink(x, threshold=0.5):
    return ef.hard_shrink(floating(x), threshold)


def threshold(x, threshold, default_value):
    return ef.threshold(floating(x), threshold, default_value)


def leaky_relu(x, negative_slope=0.2):
    return ef.leaky_relu(floating(x), negative_slope=negative_slope)


def elu(x, alpha=1.0):
    return ef.elu(floating(x), alpha=alpha)


def celu(x, alpha=1.0):
    return ef.celu(floating(x), alpha=alpha)


def gelu(x, approximate=True):
    return ef.gelu(floating(x), approximate=bool(approximate))


def glu(x, axis=-1):
    x = floating(x)
    if x.shape[axis] % 2:
        raise ValueError(
            f"axis size must be divisible by 2. Received: x.shape={x.shape} with axis={axis}"
        )
    return ef.glu(x, axis=axis)


def softmax(x, axis=-1):
    return _over(ef.softmax, floating(x), axis)


def log_softmax(x, axis=-1):
    return _over(ef.log_softmax, floating(x), axis)


def _over(normalized, x, axis):
    """A function along one axis, several, or (None) all."""
    if isinstance(axis, int):
        return normalized(x, axis=axis)
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in axis]
    kept = [a for a in range(x.ndim) if a not in axes]
    order = (*kept, *axes)
    moved = ef.permute_dims(x, order)
    rows = ef.reshape(moved, (*moved.shape[: len(kept)], -1))
    found = ef.reshape(normalized(rows, axis=-1), moved.shape)
    return ef.permute_dims(found, tuple(order.index(a) for a in range(x.ndim)))


def sparsemax(x, axis=-1):
    return ef.sparsemax(floating(x), axis=axis)
