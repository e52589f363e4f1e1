"""Convolution: conv, its two gradients, and the transposed convolution.

The three ops belong to one trilinear form: with ``y = conv(x, w)``, the sum of ``g * y`` is
linear in ``x``, ``w`` and ``g``. ``conv_input_gradient`` is its derivative by ``x`` and
``conv_filter_gradient`` the one by ``w``, so each op's gradients are the other two ops.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.display import summary
from eagerflow.dtypes import DType
from eagerflow.errors import EagerflowError, ShapeError
from eagerflow.op import Cost, ErrorSample, Missing, Sample, Split
from eagerflow.ops.attributes import Padding, Sizes
from eagerflow.ops.family import FLOATS, Batch, as_operands, batch_first, define, refused_objects
from eagerflow.ops.samples import make
from eagerflow.ops.shapes.reshaping import permute_dims, reshape
from eagerflow.primitives.convolution import filter_gradient, forward, input_gradient
from eagerflow.primitives.windows import (
    Window,
    check_kernel,
    known,
    output_size,
    padding_of,
    per_axis,
    taps,
    window_of,
)
from eagerflow.spec import Array, Namespace, TensorSpec

__all__ = ["conv", "conv_filter_gradient", "conv_input_gradient", "conv_transpose"]


Windows = tuple[Window, ...]


def spatial_rank(x: Any, name: str) -> int:
    """Number of spatial axes of ``x``, the argument ``name``; ShapeError without any."""
    if x.ndim < 3:
        raise ShapeError(
            f"{x.ndim} axes are too few",
            argument=name,
            expected="(batch, *spatial, channels) with at least one spatial axis",
        )
    return x.ndim - 2


def _groups(channels: Any, filters: Any, groups: Any) -> None:
    (count,) = per_axis(groups, 1, "groups")
    for what, number in (("input", channels), ("output", filters)):
        if isinstance(number, int) and number % count:
            raise ShapeError(
                f"{count} groups do not divide {number} {what} channels",
                argument="groups",
                expected="a divisor of the input and the output channels",
            )


def along_axes(
    one: Callable[..., Any],
    size: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    *more: Any,
) -> tuple[Any, ...]:
    """``one(size, kernel, stride, dilation, padding, ...)`` of each spatial axis."""
    rank = len(size)
    steps = per_axis(strides, rank, "strides")
    spread = per_axis(dilation, rank, "dilation")
    pads = padding_of(padding, rank)
    pads = (pads,) * rank if isinstance(pads, str) else pads
    return tuple(
        one(*column) for column in zip(size, kernel, steps, spread, pads, *more, strict=True)
    )


def conv_spec(
    x: TensorSpec, w: TensorSpec, strides: Any, padding: Any, dilation: Any, groups: Any
) -> TensorSpec:
    """What ``conv`` gives."""
    spatial_rank(x, "x")
    if w.ndim != x.ndim:
        raise ShapeError(
            f"w has {w.ndim} axes, x has {x.ndim}",
            argument="w",
            expected="(*window, input channels / groups, output channels), as many axes as x",
        )
    check_kernel(w.shape[:-2], "w")
    _groups(x.shape[-1], w.shape[-1], groups)
    channels, taken = x.shape[-1], w.shape[-2] * groups
    if known(channels, taken) and channels != taken:
        raise ShapeError(
            f"x has {channels} channels, the weights take {taken}",
            argument="w",
            expected=f"w with shape (*window, {channels // groups}, output channels)",
        )
    out = along_axes(output_size, x.shape[1:-1], w.shape[:-2], strides, padding, dilation)
    return x.like((x.shape[0], *out, w.shape[-1]))


def _check_positions(g: TensorSpec, out: tuple[Any, ...]) -> None:
    pairs = zip(g.shape[1:-1], out, strict=True)
    if any(known(a, b) and a != b for a, b in pairs):
        raise ShapeError(
            f"g has the spatial sizes {g.shape[1:-1]}, the convolution gives {out}",
            argument="g",
            expected="a g with the shape of the convolution's result",
        )


def sizes_of(size: Any, rank: int) -> tuple[Any, ...]:
    """The spatial sizes that the attribute ``size`` gives."""
    sizes = size if isinstance(size, tuple | list) else (size,) * rank
    if len(sizes) == rank and not known(*sizes):
        return tuple(sizes)
    return per_axis(size, rank, "size", 0)


def input_gradient_spec(
    g: TensorSpec, w: TensorSpec, size: Any, strides: Any, padding: Any, dilation: Any, groups: Any
) -> TensorSpec:
    """What ``conv_input_gradient`` gives."""
    rank = spatial_rank(g, "g")
    sizes = sizes_of(size, rank)
    if w.ndim != g.ndim:
        raise ShapeError(
            f"w has {w.ndim} axes, g has {g.ndim}", argument="w", expected="as many axes as g"
        )
    (count,) = per_axis(groups, 1, "groups")
    channels = w.shape[-2] * count
    y = conv_spec(g.like((g.shape[0], *sizes, channels)), w, strides, padding, dilation, groups)
    if known(g.shape[-1], w.shape[-1]) and g.shape[-1] != w.shape[-1]:
        raise ShapeError(
            f"g has {g.shape[-1]} channels, the weights give {w.shape[-1]}",
            argument="g",
            expected=f"g with {w.shape[-1]} channels",
        )
    _check_positions(g, y.shape[1:-1])
    return g.like((g.shape[0], *sizes, channels))


def filter_gradient_spec(
    x: TensorSpec, g: TensorSpec, size: Any, strides: Any, padding: Any, dilation: Any, groups: Any
) -> TensorSpec:
    """What ``conv_filter_gradient`` gives."""
    rank = spatial_rank(x, "x")
    kernel = sizes_of(size, rank)
    if g.ndim != x.ndim:
        raise ShapeError(
            f"g has {g.ndim} axes, x has {x.ndim}", argument="g", expected="as many axes as x"
        )
    check_kernel(kernel, "size")
    _groups(x.shape[-1], g.shape[-1], groups)
    if known(x.shape[0], g.shape[0]) and x.shape[0] != g.shape[0]:
        raise ShapeError(
            f"x has {x.shape[0]} examples, g has {g.shape[0]}",
            argument="g",
            expected="the same number",
        )
    _check_positions(g, along_axes(output_size, x.shape[1:-1], kernel, strides, padding, dilation))
    return x.like((*kernel, x.shape[-1] // groups, g.shape[-1]))


# The checks and the arithmetic of one combination of shapes and attributes are done once.


@lru_cache(1024, typed=True)
def conv_windows(x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int) -> Windows:
    """The windows of ``conv`` for arguments of these shapes."""
    conv_spec(
        TensorSpec(x, "float32"), TensorSpec(w, "float32"), strides, padding, dilation, groups
    )
    return along_axes(window_of, x[1:-1], w[:-2], strides, padding, dilation)


@lru_cache(1024, typed=True)
def input_windows(
    g: Any, w: Any, size: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Windows:
    """The windows of ``conv_input_gradient`` for arguments of these shapes."""
    specs = TensorSpec(g, "float32"), TensorSpec(w, "float32")
    x = input_gradient_spec(*specs, size, strides, padding, dilation, groups)
    return along_axes(window_of, x.shape[1:-1], w[:-2], strides, padding, dilation)


@lru_cache(1024, typed=True)
def filter_windows(
    x: Any, g: Any, size: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Windows:
    """The windows of ``conv_filter_gradient`` for arguments of these shapes."""
    specs = TensorSpec(x, "float32"), TensorSpec(g, "float32")
    w = filter_gradient_spec(*specs, size, strides, padding, dilation, groups)
    return along_axes(window_of, x[1:-1], w.shape[:-2], strides, padding, dilation)


# Costs ------------------------------------------------------------------------------------------


def _cost(x: TensorSpec, w: TensorSpec, y: TensorSpec, groups: int) -> Cost:
    """Positions times window times channels times filters, for each of the three ops."""
    work = product((x.shape[0], *y.shape[1:-1], *w.shape[:-2], x.shape[-1] // groups, w.shape[-1]))
    moved = sum((spec.size * spec.dtype.itemsize for spec in (x, w, y)), start=0)
    return Cost(work * 2, moved)


def conv_cost(x: Any, w: Any, *, groups: int, **attributes: Any) -> Cost:
    """Operations and bytes of ``conv``."""
    return _cost(x, w, conv_spec(x, w, groups=groups, **attributes), groups)


def input_cost(g: Any, w: Any, size: Any, *, groups: int, **attributes: Any) -> Cost:
    """Operations and bytes of ``conv_input_gradient``."""
    return _cost(input_gradient_spec(g, w, size, groups=groups, **attributes), w, g, groups)


def filter_cost(x: Any, g: Any, size: Any, *, groups: int, **attributes: Any) -> Cost:
    """Operations and bytes of ``conv_filter_gradient``."""
    return _cost(x, filter_gradient_spec(x, g, size, groups=groups, **attributes), g, groups)


# Samples ------------------------------------------------------------------------------------------

# x, w, attributes
_CASES: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    ((2, 5, 5, 2), (3, 3, 2, 3), {}),
    ((1, 5, 4, 1), (3, 2, 1, 2), {"strides": 2}),
    ((1, 6, 5, 2), (3, 3, 2, 2), {"strides": (1, 2), "padding": "valid"}),
    ((2, 5, 5, 2), (2, 2, 2, 1), {"dilation": 2, "padding": "valid"}),
    ((1, 4, 4, 4), (3, 3, 2, 2), {"groups": 2}),
    ((2, 4, 3, 3), (2, 3, 1, 3), {"groups": 3}),
    ((1, 4, 5, 2), (3, 3, 1, 4), {"groups": 2, "strides": 2, "padding": ((0, 1), (2, 0))}),
    ((2, 3, 3, 2), (1, 1, 2, 3), {}),
    ((2, 3, 4, 2), (1, 1, 2, 1), {"strides": 2}),
    ((2, 6, 2), (3, 2, 2), {}),
    ((1, 7, 1), (2, 1, 2), {"strides": 3, "padding": ((2, 2),), "dilation": 2}),
    ((1, 3, 3, 2, 2), (2, 3, 1, 2, 1), {"padding": "valid"}),
    ((0, 4, 4, 1), (3, 3, 1, 2), {}),
    ((2, 3, 3, 0), (2, 2, 0, 2), {"padding": "valid"}),
    ((1, 2, 2, 1), (3, 3, 1, 1), {"padding": 4}),
)
_DEFAULTS: dict[str, Any] = {"strides": 1, "padding": "same", "dilation": 1, "groups": 1}


def _case(
    rng: np.random.Generator, dtype: DType, case: Any
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Arrays x, w and g of a case, and its attributes."""
    x, w = (make(rng, dtype, shape) for shape in case[:2])
    specs = [TensorSpec(shape, "float32") for shape in case[:2]]
    g = make(rng, dtype, conv_spec(*specs, **_DEFAULTS | case[2]).shape)
    return x, w, g, dict(case[2])


def conv_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    """Calls of ``conv``: ranks, strides, padding, dilation, groups, nothing to do."""
    found = [Sample((x, w), more) for x, w, _, more in (_case(rng, dtype, c) for c in _CASES)]
    x, w = make(rng, dtype, (5, 4, 3, 2)), make(rng, dtype, (2, 3, 2, 3))
    found.append(Sample((x.T[..., :3], w.T[::-1])))
    found.append(Sample((np.broadcast_to(x[:1, :, :1], (2, 4, 3, 2)), w), {"padding": "valid"}))
    return found


def input_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    """The same for ``conv_input_gradient``."""
    found = []
    for x, w, g, more in (_case(rng, dtype, case) for case in _CASES):
        found.append(Sample((g, w), {"size": x.shape[1:-1], **more}))
    return found


def filter_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    """The same for ``conv_filter_gradient``."""
    found = []
    for x, w, g, more in (_case(rng, dtype, case) for case in _CASES):
        found.append(Sample((x, g), {"size": w.shape[:-2], **more}))
    return found


def conv_errors(rng: np.random.Generator) -> list[ErrorSample]:
    """Calls of ``conv`` that are refused."""
    x, w = rng.standard_normal((2, 5, 5, 4)), rng.standard_normal((3, 3, 4, 2))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"strides": 0}, "too small"),
        ({"strides": (1, 1, 1)}, "for each spatial axis"),
        ({"padding": "full"}, "is not a kind of padding"),
        ({"padding": ((0, -1), (0, 0))}, "negative"),
        ({"padding": ((0, 1),)}, "does not pad each spatial axis"),
        ({"dilation": 0}, "too small"),
        ({"dilation": 3, "padding": "valid"}, "does not fit"),
        ({"groups": 3}, "do not divide"),
        ({"groups": 2}, "the weights take 8"),
    ]
    found = [ErrorSample((x, w), more, ShapeError, words) for more, words in bad]
    return [
        *refused_objects(rng, w),
        *found,
        ErrorSample((x, w[:, :, :3]), {}, ShapeError, "x has 4 channels, the weights take 3"),
        ErrorSample((x[0, 0], w), {}, ShapeError, "too few"),
        ErrorSample((x, w[0]), {}, ShapeError, "w has 3 axes, x has 4"),
        ErrorSample((x[:, :2], w), {"padding": "valid"}, ShapeError, "does not fit"),
        ErrorSample((x, w[:0]), {}, ShapeError, "has no elements"),
    ]


def input_errors(rng: np.random.Generator) -> list[ErrorSample]:
    """Calls of ``conv_input_gradient`` that are refused."""
    g, w = rng.standard_normal((2, 5, 5, 2)), rng.standard_normal((3, 3, 4, 2))
    return [
        ErrorSample((g, w), {"size": (6, 5)}, ShapeError, "the convolution gives (6, 5)"),
        ErrorSample((g, w), {"size": (5,)}, ShapeError, "for each spatial axis"),
        ErrorSample((g[..., :1], w), {"size": (5, 5)}, ShapeError, "g has 1 channels"),
        ErrorSample((g, w[0]), {"size": (5, 5)}, ShapeError, "w has 3 axes"),
        ErrorSample((g, w), {"size": 5, "strides": 0}, ShapeError, "too small"),
    ]


def filter_errors(rng: np.random.Generator) -> list[ErrorSample]:
    """Calls of ``conv_filter_gradient`` that are refused."""
    x, g = rng.standard_normal((2, 5, 5, 4)), rng.standard_normal((2, 5, 5, 2))
    return [
        ErrorSample((x, g[:, 1:]), {"size": 3}, ShapeError, "the convolution gives (5, 5)"),
        ErrorSample((x, g[:1]), {"size": 3}, ShapeError, "x has 2 examples, g has 1"),
        ErrorSample((x, g[0]), {"size": 3}, ShapeError, "g has 3 axes"),
        ErrorSample((x, g), {"size": (3, 0)}, ShapeError, "no elements"),
        ErrorSample((x, g), {"size": 3, "groups": 4}, ShapeError, "do not divide"),
    ]


# References --------------------------------------------------------------------------------------


def windows_of(size: Any, kernel: Any, strides: Any, padding: Any, dilation: Any) -> Any:
    """Padding, positions, and for each: its index, and the padded elements in its window."""
    rank = len(size)
    steps, spread = (v if isinstance(v, tuple) else (v,) * rank for v in (strides, dilation))
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    if padding == "valid":
        pads = [(0, 0)] * rank
    elif padding == "same":
        need = [
            max((-(-n // s) - 1) * s + e - n, 0)
            for n, s, e in zip(size, steps, extent, strict=True)
        ]
        pads = [(total // 2, total - total // 2) for total in need]
    else:
        items = padding if isinstance(padding, tuple) else (padding,) * rank
        pads = [(p, p) if isinstance(p, int) else p for p in items]
    columns = zip(size, pads, extent, steps, strict=True)
    out = [(n + a + b - e) // s + 1 for n, (a, b), e, s in columns]
    pieces = [
        (
            at,
            tuple(
                slice(i * s, i * s + e, d)
                for i, s, e, d in zip(at, steps, extent, spread, strict=True)
            ),
        )
        for at in itertools.product(*map(range, out))
    ]
    return pads, out, pieces


def _split_groups(x: Any, groups: int, axes: int) -> Any:
    """Channels by group, and the window's axes in one, after ``axes`` others."""
    return x.reshape(*x.shape[:axes], prod(x.shape[axes:-1]), groups, x.shape[-1] // groups)


def _split_filters(w: Any, groups: int) -> Any:
    """Filters (*window, inputs, outputs) as (window, inputs, groups, outputs)."""
    return w.reshape(prod(w.shape[:-2]), w.shape[-2], groups, w.shape[-1] // groups)


def conv_reference(x: Any, w: Any, groups: int, **where: Any) -> Any:
    """``conv``, window by window."""
    pads, out, pieces = windows_of(x.shape[1:-1], w.shape[:-2], **where)
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    y = np.zeros((x.shape[0], *out, w.shape[-1]), np.result_type(x, w))
    for at, piece in pieces:
        seen = _split_groups(padded[(slice(None), *piece)], groups, 1)
        part = np.einsum("nkgi,kigo->ngo", seen, _split_filters(w, groups))
        y[(slice(None), *at)] = part.reshape(len(x), w.shape[-1])
    return y


def input_reference(g: Any, w: Any, size: Any, groups: int, **where: Any) -> Any:
    """``conv_input_gradient``, window by window."""
    sizes = size if isinstance(size, tuple) else (size,) * (g.ndim - 2)
    pads, _, pieces = windows_of(sizes, w.shape[:-2], **where)
    wide = [n + a + b for n, (a, b) in zip(sizes, pads, strict=True)]
    dx = np.zeros((g.shape[0], *wide, w.shape[-2] * groups), np.result_type(g, w))
    for at, piece in pieces:
        weights = g[(slice(None), *at)].reshape(len(g), groups, g.shape[-1] // groups)
        part = np.einsum("ngo,kigo->nkgi", weights, _split_filters(w, groups))
        aim = dx[(slice(None), *piece)]
        aim += part.reshape(aim.shape)
    crop = [slice(a, a + n) for n, (a, _) in zip(sizes, pads, strict=True)]
    return dx[(slice(None), *crop)]


def filter_reference(x: Any, g: Any, size: Any, groups: int, **where: Any) -> Any:
    """``conv_filter_gradient``, window by window."""
    kernel = size if isinstance(size, tuple) else (size,) * (x.ndim - 2)
    pads, _, pieces = windows_of(x.shape[1:-1], kernel, **where)
    padded = np.pad(x, [(0, 0), *pads, (0, 0)])
    dw = np.zeros((*kernel, x.shape[-1] // groups, g.shape[-1]), np.result_type(x, g))
    for at, piece in pieces:
        seen = _split_groups(padded[(slice(None), *piece)], groups, 1)
        weights = g[(slice(None), *at)].reshape(len(g), groups, g.shape[-1] // groups)
        dw += np.einsum("nkgi,ngo->kigo", seen, weights).reshape(dw.shape)
    return dw


# Facts that the three ops share ------------------------------------------------------------------


def _into_channels(x: Any, size: int) -> Any:
    """Images of each example of vmap side by side in the channels, one group for each."""
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
    wide = [_into_channels(x, size) for x in batch_first(args, batched, size)]
    return _from_channels(call(*wide, groups=groups * size, **attributes), size)


def _split(images: Split, channels: Callable[[int], list[Split]]) -> Callable[..., list[Split]]:
    """The fact ``split``: along images, and along the last axis where there are no groups."""

    def split(a: TensorSpec, b: TensorSpec, groups: Any = 1, **attributes: Any) -> list[Split]:
        return [images, *(channels(a.ndim - 1) if groups == 1 else ())]

    return split


def _op(**facts: Any) -> Any:
    own: dict[str, Any] = {
        "dtypes": FLOATS,
        "jvp": "multilinear",
        "onnx": Missing("ONNX's Conv has its channels first, so it takes transposes as well"),
        "ulp": 64,  # sums of many products, in an order of the kernel's own
        "trusted": True,  # the kernels look at the shapes themselves
    } | facts
    return define("contraction", **own)


# Kernels -----------------------------------------------------------------------------------------


def _conv_numpy(
    xp: Namespace, x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    windows = conv_windows(x.shape, w.shape, strides, padding, dilation, groups=groups)
    return forward(x, w, windows, groups)


def _gradient_numpy(find: Any, kernel: Any) -> Any:
    """The NumPy kernel of one of the two gradients."""

    def on_numpy(
        xp: Namespace,
        a: Any,
        b: Any,
        size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        groups: int,
    ) -> Any:
        windows = find(a.shape, b.shape, size, strides, padding, dilation, groups=groups)
        return kernel(a, b, windows, groups)

    return on_numpy


def _grouped(xp: Namespace, x: Any, groups: int) -> Any:
    """(..., channels) as (groups, ..., channels / groups) with the axes between in one."""
    flat = xp.reshape(x, (prod(x.shape[:-1]), groups, x.shape[-1] // groups))
    return xp.permute_dims(flat, (1, 0, 2))


def _ungrouped(xp: Namespace, y: Any, shape: Any) -> Any:
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
    overrides={"numpy": _gradient_numpy(input_windows, input_gradient)},
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
    overrides={"numpy": _gradient_numpy(filter_windows, filter_gradient)},
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
