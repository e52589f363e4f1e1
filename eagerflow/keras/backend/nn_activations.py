"""The activation functions of ``keras.ops.nn``."""

import eagerflow as ef
from eagerflow.keras.backend.numpy_elementwise import tanh
from eagerflow.keras.backend.operands import floating, unary
from eagerflow.keras.backend.tensors import convert_to_tensor

hard_sigmoid = unary("hard_sigmoid", "floats")
hard_silu = unary("hard_silu", "floats")
log_sigmoid = unary("log_sigmoid", "floats")
relu = unary("relu", "numbers")
relu6 = unary("relu6", "floats")
selu = unary("selu", "floats")
sigmoid = unary("sigmoid", "floats")
silu = unary("silu", "floats")
softplus = unary("softplus", "floats")
softsign = unary("softsign", "floats")


def sparse_sigmoid(x):
    return ef.clip(ef.add(ef.multiply(floating(x), 0.5), 0.5), 0.0, 1.0)


def sparse_plus(x):
    x = floating(x)
    middle = ef.multiply(ef.square(ef.add(x, 1)), 0.25)
    return ef.where(ef.less_equal(x, -1), 0, ef.where(ef.less(x, 1), middle, x))


def squareplus(x, b=4):
    x = floating(x)
    return ef.multiply(ef.add(x, ef.sqrt(ef.add(ef.square(x), b))), 0.5)


def tanh_shrink(x):
    x = floating(x)
    return ef.subtract(x, ef.tanh(x))


def soft_shrink(x, threshold=0.5):
    x = floating(x)
    return ef.subtract(x, ef.clip(x, -threshold, threshold))


def hard_shrink(x, threshold=0.5):
    x = floating(x)
    return ef.where(ef.greater(ef.abs(x), threshold), x, 0)


def threshold(x, threshold, default_value):
    x = floating(x)
    return ef.where(ef.greater(x, threshold), x, default_value)


def hard_tanh(x):
    return ef.clip(floating(x), -1, 1)


def leaky_relu(x, negative_slope=0.2):
    return ef.leaky_relu(floating(x), negative_slope=negative_slope)


def elu(x, alpha=1.0):
    return ef.elu(floating(x), alpha=alpha)


def celu(x, alpha=1.0):
    x = floating(x)
    low = ef.multiply(ef.expm1(ef.divide(ef.minimum(x, 0), alpha)), alpha)
    return ef.add(ef.maximum(x, 0), low)


def gelu(x, approximate=True):
    return ef.gelu(floating(x), approximate=bool(approximate))


def glu(x, axis=-1):
    x = floating(x)
    if x.shape[axis] % 2:
        raise ValueError(
            f"axis size must be divisible by 2. Received: x.shape={x.shape} with axis={axis}"
        )
    values, gates = ef.split(x, 2, axis=axis)
    return ef.multiply(values, ef.sigmoid(gates))


def softmax(x, axis=-1):
    return _over(ef.softmax, floating(x), axis)


def log_softmax(x, axis=-1):
    return _over(ef.log_softmax, floating(x), axis)


def _over(normalized, x, axis):
    """A function of one axis, of several, or (None) of all."""
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
    x = floating(x)
    ordered = ef.sort(x, axis=axis, descending=True)
    sums = ef.cumulative_sum(ordered, axis=axis)
    line = [1] * x.ndim
    line[axis] = -1
    rank = ef.reshape(ef.arange(1, x.shape[axis] + 1, dtype=x.dtype), tuple(line))
    inside = ef.greater(ef.multiply(ordered, rank), ef.subtract(sums, 1))
    count = ef.sum(ef.astype(inside, x.dtype), axis=axis, keepdims=True)
    total = ef.sum(ef.where(inside, ordered, 0), axis=axis, keepdims=True)
    return ef.maximum(ef.subtract(x, ef.divide(ef.subtract(total, 1), count)), 0)
