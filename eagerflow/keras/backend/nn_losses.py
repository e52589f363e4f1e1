"""Losses, class numbers, normalization and attention of ``keras.ops.nn``."""

import math

import numpy as np
from keras.src.backend import epsilon as smallest

import eagerflow as ef
from eagerflow.keras.backend.nn_activations import log_softmax
from eagerflow.keras.backend.operands import axes_of, floating, promoted
from eagerflow.keras.backend.tensors import cast, convert_to_tensor
from eagerflow.keras.sparse import at_places, summed

__all__ = [
    "batch_normalization",
    "binary_crossentropy",
    "categorical_crossentropy",
    "dot_product_attention",
    "moments",
    "multi_hot",
    "one_hot",
    "psnr",
    "sparse_categorical_crossentropy",
]

# Class numbers ------------------------------------------------------------------------------------


def one_hot(x, num_classes, axis=-1, dtype=None, sparse=False):
    x = convert_to_tensor(x)
    x = x if "int" in x.dtype.name else cast(x, "int32")
    axis = axis + x.ndim + 1 if axis < 0 else axis
    if sparse:
        return _sparse_one_hot(x, num_classes, axis, dtype or "float32")
    line = (1,) * axis + (num_classes,) + (1,) * (x.ndim - axis)
    classes = ef.reshape(ef.arange(num_classes, dtype=x.dtype), line)
    return cast(ef.equal(ef.expand_dims(x, axis=axis), classes), dtype or "float32")


def _sparse_one_hot(x, num_classes, axis, dtype):
    """One value for each element, 0 for classes that do not exist."""
    shape = (*x.shape[:axis], num_classes, *x.shape[axis:])
    after = math.prod(x.shape[axis:])
    known = ef.logical_and(ef.greater_equal(x, 0), ef.less(x, num_classes))
    number = cast(ef.reshape(ef.where(known, x, 0), (-1,)), "int64")
    place = ef.arange(math.prod(x.shape), dtype="int64")
    place = (place // after * num_classes + number) * after + place % after
    return at_places(cast(ef.reshape(known, (-1,)), dtype), place, shape)


def multi_hot(x, num_classes, axis=-1, dtype=None, sparse=False):
    x = convert_to_tensor(x)
    along = 1 if x.ndim > 1 else 0
    if sparse:
        found = one_hot(x, num_classes, axis, "int32", sparse=True)
        found = summed(ef.sum, found, along).coalesced()
        return found.with_values(cast(ef.greater(found.values, 0), dtype or "float32"))
    return ef.max(one_hot(cast(x, "int32"), num_classes, axis=axis, dtype=dtype), axis=along)


# Cross-entropies ----------------------------------------------------------------------------------


def categorical_crossentropy(target, output, from_logits=False, axis=-1):
    target, output = _same_shape(target, output)
    if not target.ndim:
        raise ValueError(
            "Arguments `target` and `output` must be at least rank 1. "
            f"Received: target.shape={target.shape}, output.shape={output.shape}"
        )
    if from_logits:
        return ef.softmax_cross_entropy(output, target, axis=axis)
    return ef.negative(ef.sum(ef.multiply(target, _logs(output, axis)), axis=axis))


def _same_shape(target, output):
    target, output = promoted(convert_to_tensor(target), floating(output))
    if target.shape != output.shape:
        raise ValueError(
            "Arguments `target` and `output` must have the same shape. "
            f"Received: target.shape={target.shape}, output.shape={output.shape}"
        )
    return target, output


def _logs(output, axis):
    """The logarithms of probabilities that need not sum to 1."""
    shares = ef.divide(output, ef.sum(output, axis=axis, keepdims=True))
    return ef.log(ef.clip(shares, smallest(), 1.0 - smallest()))


def sparse_categorical_crossentropy(target, output, from_logits=False, axis=-1):
    target, output = cast(target, "int32"), floating(output)
    if target.ndim == output.ndim and target.shape[-1] == 1:
        target = ef.squeeze(target, axis=-1)
    if not output.ndim:
        raise ValueError(
            f"Argument `output` must be at least rank 1. Received: output.shape={output.shape}"
        )
    at = axis % output.ndim
    if target.shape != output.shape[:at] + output.shape[at + 1 :]:
        raise ValueError(
            "Arguments `target` and `output` must have the same shape up until the last "
            f"dimension: target.shape={target.shape}, output.shape={output.shape}"
        )
    if from_logits:
        logs = log_softmax(output, axis=axis)
    else:
        logs = _logs(output, axis)
    marked = one_hot(target, output.shape[axis], axis=axis, dtype=output.dtype)
    return ef.negative(ef.sum(ef.multiply(marked, logs), axis=axis))


def binary_crossentropy(target, output, from_logits=False):
    target, output = _same_shape(target, output)
    if from_logits:
        return ef.sigmoid_cross_entropy(output, target)
    output = ef.clip(output, smallest(), 1.0 - smallest())
    hit = ef.multiply(target, ef.log(output))
    miss = ef.multiply(ef.subtract(1.0, target), ef.log(ef.subtract(1.0, output)))
    return ef.negative(ef.add(hit, miss))


def psnr(x1, x2, max_val):
    x1, x2 = promoted(convert_to_tensor(x1), convert_to_tensor(x2), also=(float,))
    if x1.shape != x2.shape:
        raise ValueError(
            f"Input shapes {x1.shape} and {x2.shape} must match for PSNR calculation. "
        )
    error = ef.mean(ef.square(ef.subtract(x1, x2)))
    peak = ef.multiply(ef.log10(convert_to_tensor(max_val, x2.dtype)), 20)
    return ef.subtract(peak, ef.multiply(ef.log10(error), 10))


# Normalization ------------------------------------------------------------------------------------


def moments(x, axes, keepdims=False, synchronized=False):
    if synchronized:
        raise NotImplementedError(
            "Argument synchronized=True is not supported with the eagerflow backend."
        )
    x, axes = floating(x), axes_of(axes)
    wide = cast(x, "float32") if x.dtype.itemsize < 4 else x
    mean = ef.mean(wide, axis=axes, keepdims=keepdims)
    variance = ef.var(wide, axis=axes, keepdims=keepdims)
    if wide is x:
        return mean, variance
    largest = float(np.finfo(np.float16).max)
    return tuple(cast(ef.clip(found, -largest, largest), x.dtype) for found in (mean, variance))


def batch_normalization(x, mean, variance, axis, offset=None, scale=None, epsilon=1e-3):
    x = convert_to_tensor(x)
    line = [1] * x.ndim
    line[axis] = -1

    def along(values):
        return ef.reshape(convert_to_tensor(values), tuple(line))

    factor = ef.rsqrt(ef.add(along(variance), epsilon))
    factor = factor if scale is None else ef.multiply(factor, along(scale))
    shift = ef.negative(ef.multiply(along(mean), factor))
    shift = shift if offset is None else ef.add(shift, along(offset))
    return ef.add(*promoted(ef.multiply(*promoted(x, factor)), shift))


# Attention ----------------------------------------------------------------------------------------


def dot_product_attention(
    query,
    key,
    value,
    bias=None,
    mask=None,
    scale=None,
    is_causal=False,
    flash_attention=None,
    attn_logits_soft_cap=None,
):
    # flash_attention requests a memory-efficient algorithm: ours is one where applicable.
    query, key, value = promoted(*(convert_to_tensor(x) for x in (query, key, value)))
    if any(x.ndim != 4 for x in (query, key, value)):
        raise ValueError(
            "`dot_product_attention` only supports 4D inputs. Received: "
            f"query.shape={query.shape}, key.shape={key.shape}, value.shape={value.shape}."
        )
    mask = None if mask is None else cast(mask, "bool")
    if bias is not None:
        bias = cast(bias, query.dtype)
        mask = bias if mask is None else ef.where(mask, bias, -float("inf"))
    q, k, v = (ef.swapaxes(x, 1, 2) for x in (query, key, value))
    scale = None if scale is None else float(scale)
    found = ef.dot_product_attention(q, k, v, mask, is_causal=bool(is_causal), scale=scale)
    return ef.swapaxes(found, 1, 2)
