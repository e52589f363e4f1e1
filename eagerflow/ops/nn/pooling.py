"""Pooling: the maximum or the mean of each window of an image, and their gradients.

``max_pool_gradient`` sends a value for each window to where its maximum is, and
``max_pool_gather`` fetches from there; each is the other's transpose. ``avg_pool_gradient``
is the transpose of ``avg_pool``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from eagerflow import primitives
from eagerflow.dims import product
from eagerflow.errors import CaptureError, ShapeError
from eagerflow.op import Into, Onnx
from eagerflow.ops.attributes import Padding, Sizes
from eagerflow.ops.family import FLOATS, Batch, Cost, Split, define
from eagerflow.ops.nn.batching import call_merged
from eagerflow.primitives.windows import (
    Window,
    Windows,
    along_axes,
    differ,
    output_size,
    per_axis,
    sizes_of,
    spatial_rank,
    window_of,
)
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["avg_pool", "avg_pool_gradient", "max_pool", "max_pool_gather", "max_pool_gradient"]

_shape = attrgetter("shape")

# Shapes ------------------------------------------------------------------------------------------


class Operands(NamedTuple):
    """The specs of the pooled tensor and of the result."""

    x: TensorSpec
    y: TensorSpec


def _along_axes(
    one: Callable[..., Any],
    x: TensorSpec,
    window: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> tuple[Any, ...]:
    """``one(size, window, stride, dilation, padding, ceil_mode)`` of each spatial axis."""
    sizes = per_axis(window, spatial_rank(x, "x"), "window")
    steps = sizes if strides is None else strides
    more = (ceil_mode,) * len(sizes)
    return along_axes(one, x.shape[1:-1], sizes, steps, padding, dilation, more)


def _positions(
    size: Any, kernel: int, stride: int, dilation: int, pad: Any, ceil_mode: bool
) -> Any:
    """Offsets of a window that are inside the input at some position."""
    extent = (kernel - 1) * dilation + 1
    if isinstance(pad, str):
        before, after = 0, 0
    else:
        before, after = pad
        if max(pad) >= extent or (max(pad) and isinstance(size, int) and size < dilation):
            raise ShapeError(
                f"with padding {pad} a window of {extent} can lie beside the input",
                argument="padding",
                expected="less padding than the window has elements",
            )
    if not ceil_mode or pad == "same":
        return output_size(size, kernel, stride, dilation, pad)
    out = output_size(size, kernel, stride, dilation, (before, after + stride - 1))
    if after + stride <= extent:  # otherwise a window would start beyond the input
        return out
    if not isinstance(out, int):
        raise CaptureError(
            f"an axis has a size that is not known, {size}",
            argument="ceil_mode",
            expected="strides no larger than the window",
        )
    return out - ((out - 1) * stride >= size + before)


def of_input(x: TensorSpec, **where: Any) -> Operands:
    spatial = _along_axes(_positions, x, **where)
    return Operands(x, x.like((*x.shape[:1], *spatial, *x.shape[-1:])))


def _check_result(g: TensorSpec, y: TensorSpec) -> None:
    if differ(g.shape, y.shape):
        raise ShapeError(
            f"g has shape {g.shape}, pooling gives {y.shape}",
            argument="g",
            expected="a g with the shape of the pooling's result",
        )


def _of_gradient(x: TensorSpec, g: TensorSpec, **where: Any) -> Operands:
    found = of_input(x.like(), **where)
    _check_result(g, found.y)
    return found


def _of_tangent(x: TensorSpec, t: TensorSpec, **where: Any) -> Operands:
    found = of_input(x, **where)
    if differ(t.shape, x.shape):
        raise ShapeError(
            f"t has shape {t.shape}, x has {x.shape}", argument="t", expected="equal shapes"
        )
    return found


def _of_result(g: TensorSpec, *, size: Any, **where: Any) -> Operands:
    x = g.like((*g.shape[:1], *sizes_of(size, max(g.ndim - 2, 0)), *g.shape[-1:]))
    return _of_gradient(x, g, **where)


@lru_cache(1024, typed=True)
def _windows(
    operands: Callable[..., Operands],
    window: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    *shapes: Any,
    **size: Any,
) -> Windows:
    """The windows for arguments of these shapes, which ``operands`` checks."""
    where = {"window": window, "strides": strides, "padding": padding}
    where |= {"dilation": dilation, "ceil_mode": ceil_mode}
    x, _ = operands(*(TensorSpec(shape, "float32") for shape in shapes), **size, **where)
    return _along_axes(_trimmed, x, **where)


def _trimmed(*column: Any) -> Window:
    """A window without the elements that are outside of the input at all positions.

    So kernels can iterate over the elements, however large the user's window is.
    """
    out = _positions(*column)
    size, kernel, stride, dilation, pad, _ = column
    if pad == "same":
        w = window_of(*column[:-1])
    else:
        w = Window(size, kernel, stride, dilation, 0 if pad == "valid" else pad[0], out)
    first = max(0, -(((out - 1) * stride - w.before) // dilation))
    last = min(kernel, (w.before + size - 1) // dilation + 1)
    return w._replace(kernel=max(last - first, 1), before=w.before - first * dilation)


# Facts that all five share -----------------------------------------------------------------------


def _cost(*specs: Any, window: Any, **attributes: Any) -> Cost:
    elements = math.prod(window) if isinstance(window, tuple) else window ** (specs[0].ndim - 2)
    moved = sum((spec.size * spec.dtype.itemsize for spec in specs), start=0)
    return Cost(specs[-1].size * elements, moved * 2)


def _split(*specs: Any, **attributes: Any) -> list[Split]:
    count, last = len(specs), specs[0].ndim - 1
    return [Split((0,) * count, 0), Split((last,) * count, last)]


def _batched(call: Any, args: Any, batched: Any, size: int, /, **attributes: Any) -> Any:
    return call_merged(call, args, batched, size, (0,) * len(args), (0,), **attributes)


def _pooled(w: Any, windows: Windows, x: Any, operator: str, **more: Any) -> Any:
    return w.node(operator, w.channels_first(x), **w.window(windows) | more)


def _places_of_largest(w: Any, windows: Windows, x: Any) -> Any:
    """Where the largest element of each window is, in a row of all elements, channels first."""
    _, at = _pooled(w, windows, x, "MaxPool", dtypes=(x.dtype, "int64"))
    return at


def _max_operator(operands: Any, w: Any, x: Any, **where: Any) -> Any:
    windows = _windows(operands, *where.values(), x.shape)
    return w.channels_last(_pooled(w, windows, x, "MaxPool"), x.ndim)


def _max_gradient_operator(operands: Any, w: Any, x: Any, g: Any, **where: Any) -> Any:
    at = _places_of_largest(w, _windows(operands, *where.values(), x.shape, g.shape), x)
    first = w.channels_first(x)
    zeros = w.filled(0, (product(x.shape),), x.dtype)
    flat = w.ScatterElements(
        zeros, w.flat(at), w.flat(w.channels_first(g)), axis=0, reduction="add"
    )
    return w.channels_last(w.Reshape(flat, w.Shape(first, dtype="int64")), x.ndim)


def _max_gather_operator(operands: Any, w: Any, x: Any, t: Any, **where: Any) -> Any:
    at = _places_of_largest(w, _windows(operands, *where.values(), x.shape, t.shape), x)
    found = w.Gather(w.flat(w.channels_first(t)), at, axis=0)
    return w.channels_last(found, x.ndim)


def _mean_operator(operands: Any, w: Any, x: Any, **where: Any) -> Any:
    """A mean, or a sum over all elements of spread windows, which older versions lack."""
    windows = _windows(operands, *where.values(), x.shape)
    if all(v.dilation == 1 for v in windows):
        found = _pooled(w, windows, x, "AveragePool", dilations=None)
        return w.channels_last(found, x.ndim)
    ones, channels = _ones(w, windows, x)
    total = w.Conv(w.channels_first(x), ones, **w.window(windows), group=channels)
    total = w.channels_last(total, x.ndim)
    return w.Div(total, w.constant(_counts(windows), x.dtype))


def _ones(w: Any, windows: Windows, x: Any) -> Any:
    """Filters that add all elements of a window, channel by channel, and their number."""
    channels = x.shape[-1]
    return w.constant(np.ones((channels, 1, *(v.kernel for v in windows))), x.dtype), channels


def _counts(windows: Windows) -> Any:
    """The number of input elements under each position, with an axis for the channels."""
    return functools.reduce(np.multiply.outer, [primitives.pooling.seen(x) for x in windows])[
        ..., None
    ]


def _mean_gradient_operator(operands: Any, w: Any, g: Any, *, size: Any, **where: Any) -> Any:
    """Each window's gradient is distributed over its elements."""
    windows = _windows(operands, *where.values(), g.shape, size=size)
    share = w.Div(g, w.constant(_counts(windows), g.dtype))
    share.shape = g.shape
    ones, channels = _ones(w, windows, g)
    rest = [v.size + v.before - (v.out - 1) * v.stride - v.extent for v in windows]
    more = w.window(windows) | {"output_padding": [max(n, 0) for n in rest], "group": channels}
    return w.channels_last(w.ConvTranspose(w.channels_first(share), ones, **more), g.ndim)


def _op(
    operands: Callable[..., Operands],
    result: str,
    operator: tuple[str, Callable[..., Any]],
    kernel: str = "",
    **facts: Any,
) -> Any:
    """The decorator of an op that computes ``result``, x or y.

    ``operator`` is ONNX's name and rule; ``kernel`` names a separate NumPy kernel in
    ``primitives.pooling``, if there is one.
    """

    def on_numpy(xp: Any, *arrays: Any, **where: Any) -> Any:
        windows = _windows(operands, *where.values(), *map(_shape, arrays))
        return getattr(primitives.pooling, kernel)(*arrays, windows)

    def into(*specs: Any, **where: Any) -> Into | None:
        windows = _windows(operands, *where.values(), *map(_shape, specs))
        find = getattr(primitives.pooling, f"native_{kernel}", None)
        native = None if find is None else find(*specs, windows)
        return None if native is None else Into(None, native)

    if kernel:
        facts |= {"overrides": {"numpy": on_numpy}, "into": into}
    return define(
        "contraction",
        dtypes=FLOATS,
        infer=lambda *specs, **where: getattr(operands(*specs, **where), result),
        batch=Batch(_batched),
        split=_split,
        cost=_cost,
        onnx=Onnx(operator[0], rule=partial(operator[1], operands)),
        trusted=True,  # the kernels look at the shapes themselves
        threaded=False,
        version=2,
        since={"dilation": 2, "ceil_mode": 2},
        **facts,
    )


# The ops -----------------------------------------------------------------------------------------


@_op(
    of_input,
    "y",
    ("MaxPool", _max_operator),
    "max_pool",
    vjp=(lambda g, y, x, **more: max_pool_gradient(x, g, **more),),
    jvp=lambda tangents, y, x, **more: max_pool_gather(x, tangents[0], **more),
    saves="x",
)
def max_pool(
    xp: Namespace,
    x: Array,
    /,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Array:
    """Largest element of each window of channels-last images, signals or volumes.

    ``x`` is (batch, *spatial, channels), ``window`` an integer or one for each spatial axis,
    ``strides`` likewise (None: the window). ``padding`` is ``"valid"`` (none), ``"same"`` (as in
    TensorFlow: ``ceil(size / stride)`` positions), or pairs (before, after); padding is never the
    maximum. ``dilation`` is the step from one element of a window to the next. With ``ceil_mode`` a
    remainder after the last stride has a window, as in PyTorch. The gradient goes to the largest
    element, of equal ones to the first. Raises ShapeError where shapes or attributes do not fit.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0]).reshape((1, 4, 1))
    >>> ef.max_pool(x, 2).reshape((-1,))
    Tensor([5., 4.], float32, cpu:0)
    """
    windows = _windows(of_input, window, strides, padding, dilation, ceil_mode, x.shape)
    return primitives.pooling.portable_max_pool(xp, x, windows)


@_op(
    _of_gradient,
    "x",
    ("MaxPool", _max_gradient_operator),
    "max_pool_gradient",
    vjp=(None, lambda t, y, x, g, **more: max_pool_gather(x, t, **more)),
    jvp=lambda tangents, y, x, g, **more: (
        None if tangents[1] is None else max_pool_gradient(x, tangents[1], **more)
    ),
    saves="x",
)
def max_pool_gradient(
    xp: Namespace,
    x: Array,
    g: Array,
    /,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Array:
    """Gradient of ``max_pool``: for each window its element of ``g``, where the maximum is.

    ``x`` is the pooled tensor; ``g`` has the shape of ``max_pool(x, window, ...)`` and the result
    that of ``x``. Where windows overlap, the elements are added. Raises ShapeError where ``g`` has
    another shape.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0]).reshape((1, 4, 1))
    >>> ef.max_pool_gradient(x, ef.ones((1, 2, 1)), 2).reshape((-1,))
    Tensor([0., 1., 0., 1.], float32, cpu:0)
    """
    windows = _windows(
        _of_gradient, window, strides, padding, dilation, ceil_mode, x.shape, g.shape
    )
    return primitives.pooling.portable_max_pool_gradient(xp, x, g, windows)


@_op(
    _of_tangent,
    "y",
    ("MaxPool", _max_gather_operator),
    "max_pool_gather",
    vjp=(None, lambda g, y, x, t, **more: max_pool_gradient(x, g, **more)),
    jvp=lambda tangents, y, x, t, **more: (
        None if tangents[1] is None else max_pool_gather(x, tangents[1], **more)
    ),
    saves="x",
)
def max_pool_gather(
    xp: Namespace,
    x: Array,
    t: Array,
    /,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Array:
    """Elements of ``t`` from where each window of ``x`` has its maximum.

    ``t`` has the shape of ``x`` and the result that of ``max_pool(x, window, ...)``; with
    ``t`` a tangent of ``x`` it is the tangent of the maxima. Raises ShapeError where the
    shapes differ.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0]).reshape((1, 4, 1))
    >>> ef.max_pool_gather(x, ef.arange(4.0).reshape((1, 4, 1)), 2).reshape((-1,))
    Tensor([1., 3.], float32, cpu:0)
    """
    windows = _windows(_of_tangent, window, strides, padding, dilation, ceil_mode, x.shape, t.shape)
    return primitives.pooling.portable_max_pool_gather(xp, x, t, windows)


@_op(
    of_input,
    "y",
    ("AveragePool", _mean_operator),
    "avg_pool",
    vjp=(lambda g, y, x, **more: avg_pool_gradient(g, size=x.shape[1:-1], **more),),
    jvp="linear",
)
def avg_pool(
    xp: Namespace,
    x: Array,
    /,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Array:
    """Mean of each window of channels-last images, signals or volumes.

    ``x`` is (batch, *spatial, channels), ``window`` an integer or one for each spatial axis,
    ``strides`` likewise (None: the window). ``padding`` is ``"valid"`` (none), ``"same"`` (as in
    TensorFlow: ``ceil(size / stride)`` positions), or pairs (before, after); only
    elements of ``x`` count, padding does not; ``dilation`` and ``ceil_mode`` are as in
    ``max_pool``. Raises ShapeError where shapes or attributes do not fit.

    >>> x = ef.tensor([1.0, 5.0, 2.0, 4.0, 7.0]).reshape((1, 5, 1))
    >>> ef.avg_pool(x, 2, padding="same").reshape((-1,))
    Tensor([3., 3., 7.], float32, cpu:0)
    """
    windows = _windows(of_input, window, strides, padding, dilation, ceil_mode, x.shape)
    return primitives.pooling.portable_avg_pool(xp, x, windows)


@_op(
    _of_result,
    "x",
    ("ConvTranspose", _mean_gradient_operator),
    vjp=(lambda t, y, g, size, **more: avg_pool(t, **more),),
    jvp="linear",
)
def avg_pool_gradient(
    xp: Namespace,
    g: Array,
    /,
    size: Sizes,
    window: Sizes,
    strides: Sizes = None,
    padding: Padding = "valid",
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> Array:
    """Gradient of ``avg_pool``: each element of ``g``, shared by the elements of its window.

    ``size`` are the spatial sizes of the pooled tensor (an integer or one for each axis); the rest
    is as in ``avg_pool``. Raises ShapeError where ``g`` does not have the shape of the pooling's
    result.

    >>> g = ef.tensor([2.0, 4.0]).reshape((1, 2, 1))
    >>> ef.avg_pool_gradient(g, 3, window=2, padding="same").reshape((-1,))
    Tensor([1., 1., 4.], float32, cpu:0)
    """
    windows = _windows(
        _of_result, window, strides, padding, dilation, ceil_mode, g.shape, size=size
    )
    return primitives.pooling.portable_avg_pool_gradient(xp, g, windows)
