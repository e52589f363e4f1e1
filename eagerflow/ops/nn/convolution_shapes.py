"""Shapes of convolutions: what fits together, what comes out, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from eagerflow.dims import product
from eagerflow.errors import ShapeError
from eagerflow.library.windows import (
    Window,
    check_kernel,
    known,
    output_size,
    padding_of,
    per_axis,
    window_of,
)
from eagerflow.op import Cost
from eagerflow.spec import TensorSpec

__all__ = [
    "along_axes",
    "conv_cost",
    "conv_spec",
    "conv_windows",
    "filter_cost",
    "filter_gradient_spec",
    "filter_windows",
    "input_cost",
    "input_gradient_spec",
    "input_windows",
    "sizes_of",
    "spatial_rank",
]

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
