"""Convolution: conv, its two gradients, and the transposed convolution.

The three ops belong to one trilinear form: with ``y = conv(x, w)``, the sum of ``g * y`` is
linear in ``x``, ``w`` and ``g``. ``conv_input_gradient`` is its derivative by ``x`` and
``conv_filter_gradient`` the one by ``w``, so each op's gradients are the other two ops.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from eagerflow.display import summary
from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.library.convolution import filter_gradient, forward, input_gradient
from eagerflow.library.windows import per_axis, taps
from eagerflow.op import Missing, Split
from eagerflow.ops.attributes import Padding, Sizes
from eagerflow.ops.family import FLOATS, Batch, as_operands, define
from eagerflow.ops.nn.convolution_samples import (
    conv_errors,
    conv_reference,
    conv_samples,
    filter_errors,
    filter_reference,
    filter_samples,
    input_errors,
    input_reference,
    input_samples,
)
from eagerflow.ops.nn.convolution_shapes import (
    along_axes,
    conv_cost,
    conv_spec,
    conv_windows,
    filter_cost,
    filter_gradient_spec,
    filter_windows,
    input_cost,
    input_gradient_spec,
    input_windows,
    spatial_rank,
)
from eagerflow.ops.shapes.reshaping import broadcast_to, permute_dims, reshape
from eagerflow.spec import TensorSpec

__all__ = ["conv", "conv_filter_gradient", "conv_input_gradient", "conv_transpose"]


# Facts that the three ops share ------------------------------------------------------------------


def _into_channels(x: Any, is_batched: bool, size: int) -> Any:
    """Images of each example of vmap side by side in the channels, one group for each."""
    if not is_batched:
        x = broadcast_to(reshape(x, (1, *x.shape)), (size, *x.shape))
    moved = permute_dims(x, (*range(1, x.ndim - 1), 0, x.ndim - 1))
    return reshape(moved, (*moved.shape[:-2], size * x.shape[-1]))


def _from_channels(y: Any, size: int) -> Any:
    """The inverse of ``_into_channels``."""
    parts = reshape(y, (*y.shape[:-1], size, y.shape[-1] // size))
    return permute_dims(parts, (y.ndim - 1, *range(y.ndim - 1), y.ndim))


def _merged(call: Any, x: Any, w: Any, **attributes: Any) -> Any:
    """Only the images are batched: one larger batch of images."""
    y = call(reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])), w, **attributes)
    return reshape(y, (*x.shape[:2], *y.shape[1:]))


def _batch_images(call: Any, args: Any, batched: Any, size: int, /, **attributes: Any) -> Any:
    if not batched[1]:
        return _merged(call, *args, **attributes)
    return _batch_groups(call, args, batched, size, **attributes)


def _batch_groups(
    call: Any, args: Any, batched: Any, size: int, /, *, groups: int, **attributes: Any
) -> Any:
    wide = [_into_channels(*pair, size) for pair in zip(args, batched, strict=True)]
    return _from_channels(call(*wide, groups=groups * size, **attributes), size)


def _split(images: Split, channels: Callable[[int], list[Split]]) -> Callable[..., list[Split]]:
    """The fact ``split``: along images, and along the last axis where there are no groups."""

    def split(a: TensorSpec, b: TensorSpec, groups: Any = 1, **attributes: Any) -> list[Split]:
        return [images, *(channels(a.ndim - 1) if groups == 1 else ())]

    return split


def _op(**facts: Any) -> Any:
    own = {
        "dtypes": FLOATS,
        "jvp": "multilinear",
        "onnx": Missing("ONNX's Conv has its channels first, so it takes transposes as well"),
        "ulp": 64,  # sums of many products, in an order of the kernel's own
        "trusted": True,  # the kernels look at the shapes themselves
    } | facts
    return define("contraction", **own)


# Kernels -----------------------------------------------------------------------------------------


def _conv_numpy(
    xp: Any, x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    windows = conv_windows(x.shape, w.shape, strides, padding, dilation, groups=groups)
    return forward(x, w, windows, groups)


def _input_numpy(
    xp: Any, g: Any, w: Any, size: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    windows = input_windows(g.shape, w.shape, size, strides, padding, dilation, groups=groups)
    return input_gradient(g, w, windows, groups)


def _filter_numpy(
    xp: Any, x: Any, g: Any, size: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    windows = filter_windows(x.shape, g.shape, size, strides, padding, dilation, groups=groups)
    return filter_gradient(x, g, windows, groups)


def _grouped(xp: Any, x: Any, groups: int) -> Any:
    """(..., channels) as (groups, ..., channels / groups) with the axes between in one."""
    flat = xp.reshape(x, (prod(x.shape[:-1]), groups, x.shape[-1] // groups))
    return xp.permute_dims(flat, (1, 0, 2))


def _ungrouped(xp: Any, y: Any, shape: Any) -> Any:
    return xp.reshape(xp.permute_dims(y, (1, 0, 2)), shape)


# The ops -----------------------------------------------------------------------------------------


@_op(
    infer=conv_spec,
    vjp=(
        lambda g, y, x, w, **more: conv_input_gradient(g, w, size=x.shape[1:-1], **more),
        lambda g, y, x, w, **more: conv_filter_gradient(x, g, size=w.shape[:-2], **more),
    ),
    saves="x w",
    batch=Batch(_batch_images),
    split=_split(
        Split((0, None), 0), lambda n: [Split((None, n), n), Split((n, n - 1), None, "add")]
    ),
    cost=conv_cost,
    samples=conv_samples,
    errors=conv_errors,
    reference=conv_reference,
    overrides={"numpy": _conv_numpy},
)
def conv(
    xp: Any,
    x: Any,
    w: Any,
    /,
    strides: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Any:
    """Convolution of channels-last images, or of signals or volumes, with a bank of filters.

    ``x`` is (batch, *spatial, channels) with one or more spatial axes, ``w`` is
    (*window, channels / groups, filters); the result is (batch, *positions, filters). As
    everywhere in deep learning the window is not flipped. ``strides`` and ``dilation`` are
    integers or one for each spatial axis. ``padding`` is ``"same"`` (as TensorFlow has it:
    ``ceil(size / stride)`` positions, the odd zero at the end), ``"valid"`` (none), or pairs
    (before, after). ``groups`` cuts channels and filters into groups that do not see each
    other; as many groups as channels make a depthwise convolution. Raises ShapeError where
    shapes or attributes do not fit.

    In float32, 3 by 3 windows over many channels use Winograd's F(2x2, 3x3) (Lavin and Gray,
    2015), whose rounding errors are relative to the largest elements nearby.

    >>> x = ef.reshape(ef.arange(9.0), (1, 3, 3, 1))
    >>> ef.conv(x, ef.ones((2, 2, 1, 1)), padding="valid").reshape((2, 2))
    Tensor([[ 8., 12.],
            [20., 24.]], shape=(2, 2), float32, cpu:0)
    """
    windows = conv_windows(x.shape, w.shape, strides, padding, dilation, groups=groups)
    y = xp.zeros((x.shape[0], *(a.out for a in windows), w.shape[-1]), dtype=x.dtype)
    for at, outs, ins in taps(windows):
        shape = y[(*outs, ...)].shape
        part = xp.matmul(_grouped(xp, x[(*ins, ...)], groups), _grouped(xp, w[(*at, ...)], groups))
        y[(*outs, ...)] += _ungrouped(xp, part, shape)
    return y


@_op(
    infer=input_gradient_spec,
    vjp=(
        lambda t, y, g, w, size, **more: conv(t, w, **more),
        lambda t, y, g, w, size, **more: conv_filter_gradient(t, g, size=w.shape[:-2], **more),
    ),
    saves="g w",
    batch=Batch(_batch_images),
    split=_split(
        Split((0, None), 0), lambda n: [Split((None, n - 1), n), Split((n, n), None, "add")]
    ),
    cost=input_cost,
    samples=input_samples,
    errors=input_errors,
    reference=input_reference,
    overrides={"numpy": _input_numpy},
)
def conv_input_gradient(
    xp: Any,
    g: Any,
    w: Any,
    /,
    size: Sizes,
    strides: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Any:
    """Gradient of ``conv`` with respect to its images.

    ``g`` (batch, *positions, filters) weighs the results of ``conv(x, w, ...)``, where ``x``
    has the spatial sizes ``size`` (an integer or one for each axis); the result has the shape
    of ``x``. All else is as in ``conv``. Raises ShapeError where ``g`` is not as large as the
    convolution's result.

    >>> g = ef.ones((1, 2, 2, 1))
    >>> ef.conv_input_gradient(g, ef.ones((2, 2, 1, 1)), size=3, padding="valid").reshape((3, 3))
    Tensor([[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]], shape=(3, 3), float32, cpu:0)
    """
    windows = input_windows(g.shape, w.shape, size, strides, padding, dilation, groups=groups)
    x = xp.zeros((g.shape[0], *(a.size for a in windows), w.shape[-2] * groups), dtype=g.dtype)
    for at, outs, ins in taps(windows):
        back = xp.permute_dims(_grouped(xp, w[(*at, ...)], groups), (0, 2, 1))
        shape = x[(*ins, ...)].shape
        part = xp.matmul(_grouped(xp, g[(*outs, ...)], groups), back)
        x[(*ins, ...)] += _ungrouped(xp, part, shape)
    return x


@_op(
    infer=filter_gradient_spec,
    vjp=(
        lambda t, y, x, g, size, **more: conv_input_gradient(g, t, size=x.shape[1:-1], **more),
        lambda t, y, x, g, size, **more: conv(x, t, **more),
    ),
    saves="x g",
    batch=Batch(_batch_groups),
    split=_split(
        Split((0, 0), None, "add"), lambda n: [Split((n, None), n - 1), Split((None, n), n)]
    ),
    cost=filter_cost,
    samples=filter_samples,
    errors=filter_errors,
    reference=filter_reference,
    overrides={"numpy": _filter_numpy},
)
def conv_filter_gradient(
    xp: Any,
    x: Any,
    g: Any,
    /,
    size: Sizes,
    strides: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Any:
    """Gradient of ``conv`` with respect to its filters.

    ``g`` (batch, *positions, filters) weighs the results of ``conv(x, w, ...)``, where the
    window of ``w`` has the sizes ``size`` (an integer or one for each axis); the result has
    the shape of ``w``. All else is as in ``conv``. Raises ShapeError where ``g`` is not as
    large as the convolution's result.

    >>> x = ef.reshape(ef.arange(9.0), (1, 3, 3, 1))
    >>> g = ef.ones((1, 2, 2, 1))
    >>> ef.conv_filter_gradient(x, g, size=2, padding="valid").reshape((2, 2))
    Tensor([[ 8., 12.],
            [20., 24.]], shape=(2, 2), float32, cpu:0)
    """
    windows = filter_windows(x.shape, g.shape, size, strides, padding, dilation, groups=groups)
    shape = (x.shape[-1] // groups, g.shape[-1])
    w = xp.zeros((*(a.kernel for a in windows), *shape), dtype=x.dtype)
    for at, outs, ins in taps(windows):
        images = xp.permute_dims(_grouped(xp, x[(*ins, ...)], groups), (0, 2, 1))
        part = xp.matmul(images, _grouped(xp, g[(*outs, ...)], groups))
        w[(*at, ...)] = _ungrouped(xp, part, shape)
    return w


def conv_transpose(
    x: Any,
    w: Any,
    strides: Any = 1,
    padding: Any = "same",
    output_padding: Any = None,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Transposed convolution: the linear map whose transpose is ``conv`` with the same weights.

    ``x`` is (batch, *positions, channels); ``w`` is (*window, filters / groups, channels), the
    weights of the ``conv`` that leads back from the result to ``x``, as in Keras. A stride
    of s makes each spatial axis s times as long. Along an axis of n positions, with a window
    that reaches over k elements, the result has n * s elements with ``padding="same"`` and
    (n - 1) * s + max(k, s) with ``"valid"``; pairs (before, after) cut that many elements off
    the (n - 1) * s + k. ``output_padding`` (an integer or one for each axis) replaces the
    first two by (n - 1) * s + k % 2 + output_padding and (n - 1) * s + k + output_padding,
    and is added in the last case. Raises ShapeError where shapes or attributes do not fit.

    >>> x = ef.tensor([1.0, 2.0]).reshape((1, 2, 1))
    >>> ef.conv_transpose(x, ef.ones((2, 1, 1)), strides=2).reshape((-1,))
    Tensor([1., 1., 2., 2.], float32, cpu:0)
    """
    try:
        images, weights = as_operands(x, w)
        rank = spatial_rank(images, "x")
        if weights.ndim != images.ndim or weights.shape[-1] != images.shape[-1]:
            raise ShapeError(
                "w does not fit x",
                argument="w",
                received=f"x {summary(images)}, w {summary(weights)}",
                expected=f"w with {images.ndim} axes, the last of size {images.shape[-1]}",
            )
        more: tuple[int | None, ...] = (None,) * rank
        if output_padding is not None:
            more = per_axis(output_padding, rank, "output_padding", 0)
        sizes = images.shape[1:-1], weights.shape[:-2]
        ends = along_axes(_transposed, *sizes, strides, padding, dilation, more)
    except EagerflowError as error:
        error.op = "conv_transpose"
        raise
    return conv_input_gradient(
        images,
        weights,
        size=tuple(size for size, _ in ends),
        strides=strides,
        padding=tuple(pair for _, pair in ends),
        dilation=dilation,
        groups=groups,
    )


def _transposed(
    n: Any, kernel: int, stride: int, dilation: int, pad: Any, extra: int | None
) -> tuple[Any, tuple[int, int]]:
    """Size of a transposed convolution's result, and the padding of the convolution back."""
    extent = (kernel - 1) * dilation + 1
    if pad == "valid":
        before = 0
        longer = max(extent, stride) if extra is None else extent + extra
    elif pad == "same":
        longer = stride if extra is None else extent % 2 + extra
        # What is cut off is split as JAX and Keras do: the smaller half at the start.
        before = max((extent - longer) // 2, 0)
    else:
        before = pad[0]
        longer = extent - sum(pad) + (extra or 0)
    after = extent - before - longer
    size = (n - 1) * stride + longer
    if -after >= stride:
        raise ShapeError(
            f"output_padding {extra} reaches beyond the last position's stride of {stride}",
            argument="output_padding",
            expected="less than the stride",
        )
    if longer < 1 and isinstance(size, int) and size < 1:
        raise ShapeError(
            f"nothing is left of {n} positions", argument="padding", expected="less padding"
        )
    return size, (before, max(after, 0))
