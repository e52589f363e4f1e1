"""Convolution: conv, its two gradients, and the transposed convolution.

The three ops belong to one trilinear form: with ``y = conv(x, w)``, the sum of ``g * y`` is
linear in ``x``, ``w`` and ``g``. ``conv_input_gradient`` is its derivative by ``x`` and
``conv_filter_gradient`` the one by ``w``, so each op's gradients are the other two ops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from eagerflow import primitives
from eagerflow.dims import product
from eagerflow.display import summary
from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.op import Cost, Into, Onnx, Split
from eagerflow.ops.attributes import Padding, Sizes
from eagerflow.ops.family import INEXACT, Batch, as_operands, define
from eagerflow.ops.nn.batching import call_merged
from eagerflow.ops.reductions.accumulation import conjugate
from eagerflow.primitives.windows import (
    Windows,
    along_axes,
    differ,
    output_size,
    per_axis,
    put,
    sizes_of,
    spatial_rank,
    taps,
    window_of,
)
from eagerflow.spec import Array, Namespace, TensorSpec
from eagerflow.tensor import Tensor

__all__ = ["conv", "conv_filter_gradient", "conv_input_gradient", "conv_transpose"]


class Operands(NamedTuple):
    """The specs of images, filters and results; each of the three ops gets two of them."""

    x: TensorSpec
    w: TensorSpec
    y: TensorSpec


def _check_kernel(kernel: tuple[Any, ...], argument: str) -> None:
    """Refuse windows without elements."""
    if any(isinstance(k, int) and k < 1 for k in kernel):
        raise ShapeError(
            f"a window of shape {kernel} has no elements", argument=argument, expected="at least 1"
        )


def _check_groups(channels: Any, filters: Any, groups: Any) -> None:
    (count,) = per_axis(groups, 1, "groups")
    if not isinstance(groups, int):
        raise ShapeError(f"{groups!r} is no number", argument="groups", expected="an integer")
    for what, number in (("input", channels), ("output", filters)):
        if isinstance(number, int) and number % count:
            raise ShapeError(
                f"{count} groups do not divide {number} {what} channels",
                argument="groups",
                expected="a divisor of the input and the output channels",
            )


def _check_rank(a: TensorSpec, b: TensorSpec, names: tuple[str, str], expected: str) -> None:
    if a.ndim != b.ndim:
        other, argument = names
        raise ShapeError(
            f"{argument} has {b.ndim} axes, {other} has {a.ndim}",
            argument=argument,
            expected=expected,
        )


def _check_positions(g: TensorSpec, out: tuple[Any, ...]) -> None:
    if differ(g.shape[1:-1], out):
        raise ShapeError(
            f"g has the spatial sizes {g.shape[1:-1]}, the convolution gives {out}",
            argument="g",
            expected="a g with the shape of the convolution's result",
        )


def of_conv(x: TensorSpec, w: TensorSpec, *, groups: Any, **where: Any) -> Operands:
    """The operands of ``conv`` for these images and filters."""
    spatial_rank(x, "x")
    layout = "(*window, input channels / groups, output channels), as many axes as x"
    _check_rank(x, w, ("x", "w"), layout)
    _check_kernel(w.shape[:-2], "w")
    _check_groups(x.shape[-1], w.shape[-1], groups)
    channels, taken = x.shape[-1], w.shape[-2] * groups
    if differ((channels,), (taken,)):
        raise ShapeError(
            f"x has {channels} channels, the weights take {taken}",
            argument="w",
            expected=f"w with shape (*window, {channels // groups}, output channels)",
        )
    out = along_axes(output_size, x.shape[1:-1], w.shape[:-2], **where)
    return Operands(x, w, x.like((x.shape[0], *out, w.shape[-1])))


def _of_input_gradient(
    g: TensorSpec, w: TensorSpec, *, size: Any = None, groups: Any, **where: Any
) -> Operands:
    sizes = sizes_of(size, spatial_rank(g, "g"))
    _check_rank(g, w, ("g", "w"), "as many axes as g")
    _check_groups(0, 0, groups)
    x = g.like((g.shape[0], *sizes, w.shape[-2] * groups))
    found = of_conv(x, w, groups=groups, **where)
    if differ(g.shape[-1:], w.shape[-1:]):
        raise ShapeError(
            f"g has {g.shape[-1]} channels, the weights give {w.shape[-1]}",
            argument="g",
            expected=f"g with {w.shape[-1]} channels",
        )
    _check_positions(g, found.y.shape[1:-1])
    return found._replace(y=g)


def _of_filter_gradient(
    x: TensorSpec, g: TensorSpec, *, size: Any = None, groups: Any, **where: Any
) -> Operands:
    kernel = sizes_of(size, spatial_rank(x, "x"))
    _check_rank(x, g, ("x", "g"), "as many axes as x")
    _check_kernel(kernel, "size")
    _check_groups(x.shape[-1], g.shape[-1], groups)
    if differ(x.shape[:1], g.shape[:1]):
        raise ShapeError(
            f"x has {x.shape[0]} examples, g has {g.shape[0]}",
            argument="g",
            expected="the same number",
        )
    _check_positions(g, along_axes(output_size, x.shape[1:-1], kernel, **where))
    return Operands(x, x.like((*kernel, x.shape[-1] // groups, g.shape[-1])), g)


@lru_cache(1024, typed=True)
def windows_for(
    operands: Callable[..., Operands],
    a: Any,
    b: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    size: Any = None,
) -> Windows:
    """The windows for arguments of two shapes, which ``operands`` checks.

    The checks and the arithmetic of one combination of shapes and attributes are done once.
    """
    where = {"strides": strides, "padding": padding, "dilation": dilation}
    specs = TensorSpec(a, "float32"), TensorSpec(b, "float32")
    more = {} if size is None else {"size": size}
    x, w, _ = operands(*specs, **more, groups=groups, **where)
    return along_axes(window_of, x.shape[1:-1], w.shape[:-2], **where)


# Facts that the three ops share ------------------------------------------------------------------


def batch_images(call: Any, args: Any, batched: Any, size: int, /, **attributes: Any) -> Any:
    """One larger batch of images where the filters are the same for all."""
    if batched[1]:
        return _batch_groups(call, args, batched, size, **attributes)
    return call_merged(call, args, batched, size, (0, None), (0,), **attributes)


def _batch_groups(
    call: Any, args: Any, batched: Any, size: int, /, *, groups: int, **attributes: Any
) -> Any:
    """Images of each example side by side in the channels, one group for each."""
    last = args[0].ndim - batched[0] - 1
    more = {"groups": groups * size} | attributes
    return call_merged(call, args, batched, size, (last, last), (last,), **more)


def _split(images: Split, channels: Callable[[int], list[Split]]) -> Callable[..., list[Split]]:
    """The fact ``split``: along images, and along the last axis without groups."""

    def split(a: TensorSpec, b: TensorSpec, groups: Any = 1, **attributes: Any) -> list[Split]:
        return [images, *(channels(a.ndim - 1) if groups == 1 else ())]

    return split


def _cost(operands: Operands, groups: int) -> Cost:
    """Positions times window times channels times filters, for each of the three ops."""
    x, w, y = operands
    work = product((x.shape[0], *y.shape[1:-1], *w.shape[:-2], x.shape[-1] // groups, w.shape[-1]))
    moved = sum((spec.size * spec.dtype.itemsize for spec in operands), start=0)
    return Cost(work * 2, moved)


def _conv_operator(w: Any, x: Any, k: Any, *, groups: int, **where: Any) -> Any:
    """The rule of ONNX, which is channels-first."""
    windows = windows_for(of_conv, x.shape, k.shape, groups=groups, **where)
    y = w.Conv(w.channels_first(x), w.filters_first(k), group=groups, **w.window(windows))
    return w.channels_last(y, x.ndim)


def _input_operator(w: Any, g: Any, k: Any, *, groups: int, size: Any, **where: Any) -> Any:
    windows = windows_for(_of_input_gradient, g.shape, k.shape, groups=groups, size=size, **where)
    more = w.window(windows)
    # Elements that no window reaches are zeros at the end.
    rest = [v.size + v.before - (v.out - 1) * v.stride - v.extent for v in windows]
    more["output_padding"] = [max(n, 0) for n in rest]
    x = w.ConvTranspose(w.channels_first(g), w.filters_first(k), group=groups, **more)
    return w.channels_last(x, g.ndim)


def _filter_operator(w: Any, x: Any, g: Any, *, groups: int, size: Any, **where: Any) -> Any:
    """The images and the gradients as a convolution over examples, for each group."""
    windows = windows_for(_of_filter_gradient, x.shape, g.shape, groups=groups, size=size, **where)
    behind = [v.extent + (v.out - 1) * v.stride - v.size - v.before for v in windows]
    turned = (x.ndim - 1, 0, *range(1, x.ndim - 1))  # channels, examples, space
    found = []
    for own, gradients in zip(
        w.parts(x, [x.shape[-1] // groups] * groups, -1),
        w.parts(g, [g.shape[-1] // groups] * groups, -1),
        strict=True,
    ):
        if min(behind) < 0:  # rows and columns that no window reaches
            ends = [v.size + min(n, 0) for v, n in zip(windows, behind, strict=True)]
            begins = w.integers([0] * len(ends))
            own = w.Slice(own, begins, w.integers(ends), w.integers(spatial(x)))
        k = w.Conv(
            w.Transpose(own, perm=turned),
            w.Transpose(gradients, perm=turned),
            strides=[v.dilation for v in windows],
            dilations=[v.stride for v in windows],
            pads=[v.before for v in windows] + [max(n, 0) for n in behind],
        )
        found.append(w.Transpose(k, perm=(*range(2, x.ndim), 0, 1)))
    return w.joined(found, x.ndim - 1)


def of_some(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for nonempty arrays: for empty ones, sums are 0, and ONNX Runtime never ends."""

    def written(w: Any, a: Any, b: Any, **attributes: Any) -> Any:
        return w.filled(0) if 0 in (*a.shape, *b.shape) else rule(w, a, b, **attributes)

    return written


def spatial(x: Any) -> range:
    """The axes of images between examples and channels."""
    return range(1, x.ndim - 1)


def _op(
    operands: Callable[..., Operands],
    result: str,
    kernel: str,
    operator: Onnx,
    **facts: Any,
) -> Any:
    """The decorator of the op that computes ``result``, one of x, w and y, from the other two.

    ``kernel`` names NumPy's in ``primitives.convolution``, ``operator`` is ONNX's.
    """

    def on_numpy(
        xp: Any,
        a: Any,
        b: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        size: Any = None,
    ) -> Any:
        more = strides, padding, dilation, groups, size
        windows = windows_for(operands, a.shape, b.shape, *more)
        return getattr(primitives.convolution, kernel)(a, b, windows, groups)

    def into(a: Any, b: Any, groups: int, **where: Any) -> Into | None:
        windows = windows_for(operands, a.shape, b.shape, groups=groups, **where)
        native = getattr(primitives.convolution, f"native_{kernel}")(a, b, windows, groups)
        return None if native is None else Into(None, native)

    return define(
        "contraction",
        into=into,
        dtypes=INEXACT,
        infer=lambda *specs, **attributes: getattr(operands(*specs, **attributes), result),
        jvp="multilinear",
        cost=lambda *specs, **attributes: _cost(
            operands(*specs, **attributes), attributes["groups"]
        ),
        onnx=operator,
        overrides={"numpy": on_numpy},
        ulp=64,  # sums of many products, in an order of the kernel's own
        trusted=True,  # the kernels look at the shapes themselves
        **facts,
    )


def _grouped(xp: Namespace, x: Any, groups: int) -> Any:
    """(..., channels) as (groups, ..., channels / groups) with the axes between in one."""
    flat = xp.reshape(x, (prod(x.shape[:-1]), groups, x.shape[-1] // groups))
    return xp.permute_dims(flat, (1, 0, 2))


def _ungrouped(xp: Namespace, y: Any, shape: Any) -> Any:
    return xp.reshape(xp.permute_dims(y, (1, 0, 2)), shape)


# The ops -----------------------------------------------------------------------------------------


@_op(
    of_conv,
    "y",
    "forward",
    Onnx("Conv", rule=of_some(_conv_operator)),
    vjp=(
        lambda g, y, x, w, **more: conv_input_gradient(g, conjugate(w), size=x.shape[1:-1], **more),
        lambda g, y, x, w, **more: conv_filter_gradient(conjugate(x), g, size=w.shape[:-2], **more),
    ),
    saves="x w",
    batch=Batch(batch_images),
    split=_split(
        Split((0, None), 0), lambda n: [Split((None, n), n), Split((n, n - 1), None, "add")]
    ),
)
def conv(
    xp: Namespace,
    x: Array,
    w: Array,
    /,
    strides: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Convolution of channels-last images, or of signals or volumes, with a bank of filters.

    ``x`` and ``w`` hold floats or complex numbers. ``x`` is (batch, *spatial, channels) with one or
    more spatial axes, ``w`` is (*window, channels / groups, filters); the result is (batch,
    *positions, filters). As everywhere in deep learning the window is not flipped. ``strides`` and
    ``dilation`` are integers or one for each spatial axis. ``padding`` is ``"same"`` (as in
    TensorFlow: ``ceil(size / stride)`` positions, the odd zero at the end), ``"valid"`` (none), or
    pairs (before, after). ``groups`` splits channels and filters into independent groups; as many
    groups as channels make a depthwise convolution. Raises ShapeError for mismatched shapes or
    attributes.

    In float32, 3 by 3 windows over many channels use Winograd's F(2x2, 3x3) (Lavin and Gray,
    2015), whose rounding errors are relative to the largest elements nearby.

    >>> x = ef.reshape(ef.arange(9.0), (1, 3, 3, 1))
    >>> ef.conv(x, ef.ones((2, 2, 1, 1)), padding="valid").reshape((2, 2))
    Tensor([[ 8., 12.],
            [20., 24.]], shape=(2, 2), float32, cpu:0)
    """
    windows = windows_for(of_conv, x.shape, w.shape, strides, padding, dilation, groups)
    y = xp.zeros((x.shape[0], *(a.out for a in windows), w.shape[-1]), dtype=x.dtype)
    for at, outs, ins in taps(windows):
        shape = y[(*outs, ...)].shape
        part = xp.matmul(_grouped(xp, x[(*ins, ...)], groups), _grouped(xp, w[(*at, ...)], groups))
        y = put(y, (*outs, ...), y[(*outs, ...)] + _ungrouped(xp, part, shape))
    return y


@_op(
    _of_input_gradient,
    "x",
    "input_gradient",
    Onnx("ConvTranspose", rule=of_some(_input_operator)),
    vjp=(
        lambda t, y, g, w, size, **more: conv(t, conjugate(w), **more),
        lambda t, y, g, w, size, **more: conv_filter_gradient(
            t, conjugate(g), size=w.shape[:-2], **more
        ),
    ),
    saves="g w",
    batch=Batch(batch_images),
    split=_split(
        Split((0, None), 0), lambda n: [Split((None, n - 1), n), Split((n, n), None, "add")]
    ),
)
def conv_input_gradient(
    xp: Namespace,
    g: Array,
    w: Array,
    /,
    size: Sizes,
    strides: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Gradient of ``conv`` with respect to its images.

    ``g`` (batch, *positions, filters) weighs the results of ``conv(x, w, ...)``, where ``x`` has
    the spatial sizes ``size`` (an integer or one for each axis); the result has the shape of ``x``.
    The rest is as in ``conv``. Raises ShapeError if ``g`` does not have the shape of the
    convolution's result.

    >>> g = ef.ones((1, 2, 2, 1))
    >>> ef.conv_input_gradient(g, ef.ones((2, 2, 1, 1)), size=3, padding="valid").reshape((3, 3))
    Tensor([[1., 2., 1.],
            [2., 4., 2.],
            [1., 2., 1.]], shape=(3, 3), float32, cpu:0)
    """
    where = strides, padding, dilation, groups, size
    windows = windows_for(_of_input_gradient, g.shape, w.shape, *where)
    x = xp.zeros((g.shape[0], *(a.size for a in windows), w.shape[-2] * groups), dtype=g.dtype)
    for at, outs, ins in taps(windows):
        back = xp.permute_dims(_grouped(xp, w[(*at, ...)], groups), (0, 2, 1))
        shape = x[(*ins, ...)].shape
        part = xp.matmul(_grouped(xp, g[(*outs, ...)], groups), back)
        x = put(x, (*ins, ...), x[(*ins, ...)] + _ungrouped(xp, part, shape))
    return x


@_op(
    _of_filter_gradient,
    "w",
    "filter_gradient",
    Onnx("Conv", rule=of_some(_filter_operator)),
    vjp=(
        lambda t, y, x, g, size, **more: conv_input_gradient(
            conjugate(g), t, size=x.shape[1:-1], **more
        ),
        lambda t, y, x, g, size, **more: conv(conjugate(x), t, **more),
    ),
    saves="x g",
    batch=Batch(_batch_groups),
    split=_split(
        Split((0, 0), None, "add"), lambda n: [Split((n, None), n - 1), Split((None, n), n)]
    ),
)
def conv_filter_gradient(
    xp: Namespace,
    x: Array,
    g: Array,
    /,
    size: Sizes,
    strides: Sizes = 1,
    padding: Padding = "same",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Array:
    """Gradient of ``conv`` with respect to its filters.

    ``g`` (batch, *positions, filters) weighs the results of ``conv(x, w, ...)``, where the window
    of ``w`` has the sizes ``size`` (an integer or one for each axis); the result has the shape of
    ``w``. The rest is as in ``conv``. Raises ShapeError if ``g`` does not have the shape of the
    convolution's result.

    >>> x = ef.reshape(ef.arange(9.0), (1, 3, 3, 1))
    >>> g = ef.ones((1, 2, 2, 1))
    >>> ef.conv_filter_gradient(x, g, size=2, padding="valid").reshape((2, 2))
    Tensor([[ 8., 12.],
            [20., 24.]], shape=(2, 2), float32, cpu:0)
    """
    where = strides, padding, dilation, groups, size
    windows = windows_for(_of_filter_gradient, x.shape, g.shape, *where)
    shape = (x.shape[-1] // groups, g.shape[-1])
    w = xp.zeros((*(a.kernel for a in windows), *shape), dtype=x.dtype)
    for at, outs, ins in taps(windows):
        images = xp.permute_dims(_grouped(xp, x[(*ins, ...)], groups), (0, 2, 1))
        part = xp.matmul(images, _grouped(xp, g[(*outs, ...)], groups))
        w = put(w, (*at, ...), _ungrouped(xp, part, shape))
    return w


def conv_transpose(
    x: Any,
    w: Any,
    strides: Any = 1,
    padding: Any = "same",
    output_padding: Any = None,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Transposed convolution: the transpose of the linear map ``conv`` with the same weights.

    ``x`` is (batch, *positions, channels); ``w`` is (*window, filters / groups, channels), the
    weights of the ``conv`` from the result to ``x``, as in Keras. A stride of s makes each spatial
    axis s times as long. Along an axis of n positions, with a window of k elements, the result has
    n * s elements with ``padding="same"`` and (n - 1) * s + max(k, s) with ``"valid"``; pairs
    (before, after) cut that many elements off the (n - 1) * s + k. ``output_padding`` (an integer
    or one for each axis) replaces the first two by (n - 1) * s + k % 2 + output_padding and (n - 1)
    * s + k + output_padding, and is added in the last case. Raises ShapeError where shapes or
    attributes do not fit.

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
        # The cropping is split as in JAX and Keras: the smaller half at the start.
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
