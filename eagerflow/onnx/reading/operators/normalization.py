"""Normalization over batches, examples, groups and windows of channels."""

from __future__ import annotations

from typing import Any

from eagerflow import ops
from eagerflow.dtypes import NARROW, promote
from eagerflow.onnx.reading.calls import Call, operator
from eagerflow.onnx.reading.element_types import dtype_of
from eagerflow.onnx.reading.operators.limits import check_steps

# Batches -----------------------------------------------------------------------------------------


@operator("BatchNormalization")
def batch_normalization(
    call: Call,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    spatial: int = 1,
) -> Any:
    """Batch normalization, with given statistics or, in training, those of the batch.

    Before version 14, a node with additional outputs is in training mode.
    """
    if not spatial:
        call.refuse("statistics for each place (spatial=0)")
    trains = training_mode if call.version >= 14 else any(call.outputs[1:])
    if not trains:
        y, _, _ = ops.batch_norm(x, scale, bias, mean, variance, axis=1, epsilon=epsilon)
        return ops.astype(y, x.dtype)
    y, batch_mean, batch_variance = ops.batch_norm(x, scale, bias, axis=1, epsilon=epsilon)
    running = [
        ops.astype(old * momentum + new * (1 - momentum), old.dtype)
        for old, new in ((mean, batch_mean), (variance, batch_variance))
    ]
    made = (ops.astype(y, x.dtype), *running)
    return made if call.version >= 14 else (*made, batch_mean, batch_variance)


# Examples and groups -----------------------------------------------------------------------------


@operator("InstanceNormalization")
def instance_normalization(
    call: Call, x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5
) -> Any:
    """Instance normalization."""
    return ops.group_norm(x, x.shape[1], scale, bias, axis=1, epsilon=epsilon)


@operator("GroupNormalization")
def group_normalization(
    call: Call,
    x: Any,
    scale: Any,
    bias: Any,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """Group normalization; before version 21 with one scale and bias for each group."""
    if call.version < 21:
        each = x.shape[1] // num_groups
        scale, bias = (ops.repeat(t, each, axis=0) for t in (scale, bias))
    wide = _stashed(x, stash_type)
    y = ops.group_norm(wide, num_groups, scale, bias, axis=1, epsilon=epsilon)
    return ops.astype(y, x.dtype)


def _stashed(x: Any, stash_type: int) -> Any:
    """``x`` in the dtype of computations; kernels compute narrow floats in float32 anyway."""
    dtype = promote(x.dtype, dtype_of(stash_type))
    return x if x.dtype in NARROW and dtype.name == "float32" else ops.astype(x, dtype)


def _behind(call: Call, x: Any, axis: int) -> tuple[int, ...]:
    if not -x.ndim <= axis < x.ndim:
        call.refuse(f"the tensor of {x.ndim} axes has no axis {axis}")
    return tuple(range(axis % x.ndim, x.ndim))


@operator("LayerNormalization")
def layer_normalization(
    call: Call,
    x: Any,
    scale: Any,
    bias: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """Layer normalization over the axes from ``axis`` on; also the mean and 1 / deviation."""
    axes = _behind(call, x, axis)
    wide = _stashed(x, stash_type)
    fits = scale.shape == x.shape[axes[0] :] and (bias is None or bias.shape == scale.shape)
    if fits and scale.dtype == wide.dtype:
        y = ops.astype(ops.layer_norm(wide, scale, bias, axis=axes, epsilon=epsilon), x.dtype)
    else:
        y = ops.astype(ops.layer_norm(wide, axis=axes, epsilon=epsilon), x.dtype) * scale
        y = y if bias is None else y + bias
    if not (call.wants(1) or call.wants(2)):
        return y
    wide = ops.astype(x, dtype_of(stash_type))
    mean = ops.mean(wide, axis=axes, keepdims=True)
    variance = ops.mean(ops.square(wide - mean), axis=axes, keepdims=True)
    return y, mean, ops.rsqrt(variance + epsilon)


@operator("RMSNormalization")
def rms_normalization(
    call: Call,
    x: Any,
    scale: Any,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """Each example divided by its root mean square over the axes from ``axis`` on."""
    axes = _behind(call, x, axis)
    wide = _stashed(x, stash_type)
    if scale.shape == x.shape[axes[0] :] and scale.dtype == wide.dtype:
        return ops.astype(ops.rms_norm(wide, scale, axis=axes, epsilon=epsilon), x.dtype)
    return ops.astype(ops.rms_norm(wide, axis=axes, epsilon=epsilon), x.dtype) * scale


@operator("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, x: Any, *, axes: Any = (0, 2, 3)) -> Any:
    """Normalization to mean 0 and deviation 1 over axes."""
    axes = tuple(axes)
    rest = x - ops.mean(x, axis=axes, keepdims=True)
    return rest / (ops.sqrt(ops.mean(ops.square(rest), axis=axes, keepdims=True)) + 1e-9)


# Norms -------------------------------------------------------------------------------------------


@operator("LpNormalization")
def lp_normalization(call: Call, x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """Vectors along an axis divided by their 1-norm or 2-norm; zeros stay zeros."""
    if p not in (1, 2):
        call.refuse(f"the {p}-norm")
    norm = ops.vector_norm(x, axis=axis, keepdims=True, ord=p)
    return x / ops.where(norm == 0, 1, norm)


@operator("LRN")
def local_response_normalization(
    call: Call, x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Any:
    """Each element divided by a power of the mean square of neighboring channels."""
    if not isinstance(x.shape[1], int):
        call.refuse("an unknown number of channels")
    before = (size - 1) // 2
    # A window that is wider than all channels covers all of them.
    sides = min(before, x.shape[1]), min(size - 1 - before, x.shape[1])
    check_steps(call, sum(sides))
    around = [(0, 0)] * x.ndim
    around[1] = sides
    squares = ops.pad(ops.square(x), tuple(around))
    total = squares[:, : x.shape[1]]
    for first in range(1, sum(sides) + 1):
        total = total + squares[:, first : first + x.shape[1]]
    return x / (bias + (alpha / size) * total) ** beta
