"""Batch normalization: with the statistics of the batch, or with given ones."""

from __future__ import annotations

from functools import partial
from typing import Any

from eagerflow import primitives
from eagerflow.dtypes import FLOATS
from eagerflow.errors import ShapeError
from eagerflow.op import Into, Missing
from eagerflow.ops.elementwise.precision import in_float32
from eagerflow.ops.family import Batch, as_operand, as_operands, define, elements
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.nn.normalization import check_epsilon, gradient_rules
from eagerflow.ops.operands import floating
from eagerflow.ops.reductions.statistics import mean as mean_over
from eagerflow.ops.reductions.statistics import reduced_count
from eagerflow.ops.reductions.sums import sum
from eagerflow.spec import Array, Namespace, TensorSpec, normalize_axis
from eagerflow.tensor import Tensor

__all__ = ["batch_norm"]


def batch_norm(
    x: Any,
    scale: Any = None,
    offset: Any = None,
    mean: Any = None,
    variance: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """Each channel brought to mean 0 and variance 1, then scaled and shifted.

    ``x`` is a real tensor with channels along ``axis`` (default: the last); other arguments have
    one element for each channel, and ``scale`` and ``offset`` are optional. Without ``mean`` and
    ``variance``, as in training, those of the batch are used: the mean and the biased variance over
    all other axes, through which gradients pass. The result is ``(y, mean, variance)`` with y = (x
    - mean) / sqrt(variance + epsilon) * scale + offset. Raises ShapeError where a shape does not
    fit, or only one statistic is given. Source: Ioffe and Szegedy, "Batch normalization", 2015.

    >>> y, mean, variance = ef.batch_norm(ef.tensor([[1.0, 10.0], [3.0, 30.0]]), epsilon=0.0)
    >>> y, mean
    (Tensor([[-1., -1.],
            [ 1.,  1.]], shape=(2, 2), float32, cpu:0), Tensor([ 2., 20.], float32, cpu:0))
    """
    if mean is None and variance is None:
        found: tuple[Any, Any, Any] = batch_norm_training(
            x, scale, offset, axis=axis, epsilon=epsilon
        )
        return found
    if mean is None or variance is None:
        raise ShapeError(
            "one statistic is given without the other",
            op="batch_norm",
            argument="variance" if variance is None else "mean",
            expected="both mean and variance, or neither",
        )
    return _with_given(x, scale, offset, mean, variance, axis, epsilon)


def _with_given(
    x: Any, scale: Any, offset: Any, mean: Any, variance: Any, axis: int, epsilon: float
) -> tuple[Any, Any, Any]:
    x, mean, variance = [floating(p) for p in as_operands(x, mean, variance)]
    scale, offset = (None if p is None else as_operand(p, x) for p in (scale, offset))
    own = {"mean": mean, "variance": variance, "scale": scale, "offset": offset}
    try:
        at = _check(x, axis, epsilon, **own)
    except ShapeError as error:
        error.op = "batch_norm"
        raise
    factor = (variance + epsilon) ** -0.5
    if scale is not None:
        factor = factor * scale
    shift = -mean * factor
    if offset is not None:
        shift = shift + offset
    return x * _spread(factor, x, at) + _spread(shift, x, at), mean, variance


def _channels(x: Any, axis: int) -> tuple[int, tuple[int, ...], tuple[Any, ...]]:
    """The axis of channels, all other axes, and the shape of one element for each channel."""
    at = normalize_axis(axis, x.ndim)
    axes = tuple(i for i in range(x.ndim) if i != at)
    return at, axes, tuple(n if i == at else 1 for i, n in enumerate(x.shape))


def _spread(parameter: Any, x: Any, at: int) -> Any:
    """One element per channel in a shape that broadcasts to ``x``."""
    if at == x.ndim - 1:
        return parameter
    return parameter.reshape(_channels(x, at)[2])


def _check(x: Any, axis: int, epsilon: float, **parameters: Any) -> int:
    """The axis of channels; ShapeError where a parameter does not have an element for each."""
    at = normalize_axis(axis, x.ndim)
    for name, parameter in parameters.items():
        if parameter is not None and parameter.shape != (x.shape[at],):
            raise ShapeError(
                f"{name} has shape {parameter.shape}",
                argument=name,
                expected=f"shape {(x.shape[at],)}, an element for each channel",
            )
    check_epsilon(epsilon)
    return at


# Training ----------------------------------------------------------------------------------------


def _training_spec(
    x: TensorSpec,
    scale: TensorSpec | None = None,
    offset: TensorSpec | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> tuple[TensorSpec, ...]:
    at = _check(x, axis, epsilon, scale=scale, offset=offset)
    channel = x.like((x.shape[at],))
    return x, channel, channel


def _training_rules(
    g: Any, y: Any, x: Any, scale: Any, offset: Any, axis: int, epsilon: float
) -> tuple[Any, ...]:
    of_x, of_scale, of_offset = batch_norm_gradient(x, *g, scale, axis=axis, epsilon=epsilon)
    return (
        of_x,
        None if scale is None else of_scale,
        None if offset is None else of_offset,
    )


def _batched(whole: int) -> Batch:
    """The batching rule of an op whose first ``whole`` arguments have the shape of x.

    A batch of examples becomes more channels, since channels are independent of each other.
    """

    def batch(
        call: Any, args: Any, batched: Any, size: int, /, axis: int, epsilon: float
    ) -> tuple[Any, ...]:
        at = normalize_axis(axis, args[0].ndim - batched[0])
        axes = [at if i < whole else 0 for i in range(len(args))]
        more = {"axis": at, "epsilon": epsilon}
        found: tuple[Any, ...] = call_merged(call, args, batched, size, axes, (at, 0, 0), **more)
        return found

    return Batch(batch)


def _into(*given: Any, back: bool, axis: int, epsilon: float) -> Into | None:
    """The kernel that writes the results in place; None if machine code does not support it."""
    at = normalize_axis(axis, len(given[0].shape))
    native = primitives.batch_normalization.native(*given, at=at, epsilon=epsilon, back=back)
    return None if native is None else Into(None, native)


@define(
    "rows",
    dtypes=FLOATS,
    infer=_training_spec,
    outputs=3,
    overrides={
        "numpy": lambda xp, x, scale, offset, axis, epsilon: (
            primitives.batch_normalization.training(
                x, scale, offset, normalize_axis(axis, x.ndim), epsilon
            )
        )
    },
    into=partial(_into, back=False),
    vjp=_training_rules,
    saves="x scale",
    batch=_batched(1),
    split=Missing("mean and variance have the channels along another axis than y"),
    cost=lambda *specs, **attributes: elements(*specs, flops=8),
)
def batch_norm_training(
    xp: Namespace,
    x: Array,
    scale: Array = None,
    offset: Array = None,
    /,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Any:
    """Batch normalization with the statistics of the batch: ``(y, mean, variance)``.

    ``x`` is a real tensor with channels along ``axis``, ``scale`` and ``offset`` (default:
    none) have one element for each. Raises ShapeError for mismatched shapes.

    >>> float(ef.batch_norm(ef.tensor([[1.0], [3.0]]))[2][0])
    1.0
    """
    _, axes, shape = _channels(x, axis)
    center = xp.mean(x, axis=axes)
    moved = x - xp.reshape(center, shape)
    variance = xp.mean(moved * moved, axis=axes)
    factor = 1 / xp.sqrt(variance + epsilon)
    y = moved * xp.reshape(factor if scale is None else factor * scale, shape)
    return y if offset is None else y + xp.reshape(offset, shape), center, variance


# The gradient ------------------------------------------------------------------------------------


def _gradient_spec(
    x: TensorSpec,
    g: TensorSpec,
    g_mean: TensorSpec,
    g_variance: TensorSpec,
    scale: TensorSpec | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> tuple[TensorSpec, ...]:
    if g.shape != x.shape:
        raise ShapeError("the shapes of x and g differ", expected="equal shapes")
    at = _check(x, axis, epsilon, g_mean=g_mean, g_variance=g_variance, scale=scale)
    channel = x.like((x.shape[at],))
    return x, channel, channel


def _gradient_rules(
    c: Any,
    _: Any,
    x: Any,
    g: Any,
    g_mean: Any,
    g_variance: Any,
    scale: Any,
    axis: int,
    epsilon: float,
) -> tuple[Any, ...]:
    at, axes, _ = _channels(x, axis)
    placed = None if scale is None else _spread(scale, x, at)
    c_x = c[0]
    spread = c_x, _spread(c[1], x, at), _spread(c[2], x, at)
    of_x, of_g, pulled = gradient_rules(spread, x, g, placed, axes, epsilon, True)
    count = reduced_count(x, axes)
    level = mean_over(c_x, axis=axes, keepdims=True)
    of_x = of_x + _spread(g_variance, x, at) * (c_x - level) * 2 / count
    deviation = x - mean_over(x, axis=axes, keepdims=True)
    return (
        of_x,
        of_g,
        mean_over(c_x, axis=axes),
        mean_over(c_x * deviation, axis=axes) * 2,
        None if scale is None else sum(g * pulled, axis=axes),
    )


@define(
    "rows",
    dtypes=FLOATS,
    infer=_gradient_spec,
    outputs=3,
    overrides={
        "numpy": lambda xp, *arrays, axis, epsilon: primitives.batch_normalization.gradient(
            *arrays, at=normalize_axis(axis, arrays[0].ndim), epsilon=epsilon
        )
    },
    into=partial(_into, back=True),
    vjp=in_float32(_gradient_rules),
    saves="x g g_variance scale",
    batch=_batched(2),
    cost=lambda *specs, **attributes: elements(*specs, flops=15),
)
def batch_norm_gradient(
    xp: Namespace,
    x: Array,
    g: Array,
    g_mean: Array,
    g_variance: Array,
    scale: Array = None,
    /,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Any:
    """The gradients of batch_norm_training, from those of its three results.

    ``x`` and ``g`` are real tensors of one shape, all others have one element for each channel
    along ``axis``. There are three results: the gradients with respect to x, scale and offset.
    Raises ShapeError where a shape does not fit.

    >>> ef.grad(lambda x: ef.batch_norm(x, epsilon=1.0)[0][0, 0])(ef.tensor([[1.0], [-1.0]]))
    Tensor([[ 0.1768],
            [-0.1768]], shape=(2, 1), float32, cpu:0)
    """
    at, axes, shape = _channels(x, axis)
    count = x.size // (x.shape[at] or 1) or 1
    moved = x - xp.mean(x, axis=axes, keepdims=True)
    factor = 1 / xp.sqrt(xp.mean(moved * moved, axis=axes, keepdims=True) + epsilon)
    h = moved * factor
    u = g if scale is None else g * xp.reshape(scale, shape)
    of_x = u - h * xp.mean(u * h, axis=axes, keepdims=True) - xp.mean(u, axis=axes, keepdims=True)
    slope = moved * xp.reshape(g_variance, shape) * (2 / count)
    of_x = of_x * factor + slope + xp.reshape(g_mean, shape) / count
    return of_x, xp.sum(g * h, axis=axes), xp.sum(g, axis=axes)
