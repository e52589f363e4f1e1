"""Sliding windows over the spatial axes of (batch, *spatial, channels): sizes, padding, taps.

Convolution and pooling share this arithmetic. ``"same"`` padding is TensorFlow's: the result
has ``ceil(size / stride)`` positions, and odd padding goes to the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

from eagerflow.dims import Dim
from eagerflow.errors import ShapeError, short_repr
from eagerflow.handlers import raised_here
from eagerflow.spec import Array


class Window(NamedTuple):
    """The placement of a window along one spatial axis; all numbers are known."""

    size: int
    """Elements of the input."""
    kernel: int
    stride: int
    dilation: int
    before: int
    """Padding before the input."""
    out: int
    """Positions of the window."""

    @property
    def extent(self) -> int:
        """The extent of the window in elements."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def back(self) -> Window:
        """The window of the convolution for the input gradient; strides have to be 1."""
        before = self.extent - 1 - self.before
        return self._replace(size=self.out, out=self.size, before=before)

    def reach(self, tap: int) -> tuple[slice, slice] | None:
        """The positions at which element ``tap`` of the window is real, and its input positions."""
        start = tap * self.dilation - self.before
        first = max(0, -(start // self.stride))
        last = min(self.out, (self.size - 1 - start) // self.stride + 1)
        if first >= last:
            return None
        begin = start + first * self.stride
        end = start + (last - 1) * self.stride + 1
        return slice(first, last), slice(begin, end, self.stride)


Windows = tuple[Window, ...]


def spatial_rank(x: Any, name: str) -> int:
    """Number of spatial axes of ``x``, the argument ``name``; ShapeError without any."""
    if x.ndim < 3:
        raise ShapeError(
            f"{x.ndim} axes are too few",
            argument=name,
            expected="(batch, *spatial, channels) with at least one spatial axis",
        )
    return x.ndim - 2  # type: ignore[no-any-return]


def per_axis(value: Any, rank: int, argument: str, least: int = 1) -> tuple[int, ...]:
    """An attribute that is one integer for all spatial axes, or one for each."""
    items = value if isinstance(value, tuple | list) else (value,) * rank
    try:
        numbers = tuple(index(item) for item in items)
    except raised_here(TypeError):
        numbers = ()
    if len(numbers) != rank or isinstance(value, bool):
        raise ShapeError(
            f"{short_repr(value)} is not a number for each spatial axis",
            argument=argument,
            expected=f"an integer, or {rank} of them",
        )
    if min(numbers, default=least) < least:
        raise ShapeError(
            f"{short_repr(value)} is too small", argument=argument, expected=f"at least {least}"
        )
    return numbers


def sizes_of(size: Any, rank: int) -> tuple[Any, ...]:
    """The spatial sizes in the attribute ``size``; symbolic ones are kept."""
    sizes = size if isinstance(size, tuple | list) else (size,) * rank
    if len(sizes) == rank and any(isinstance(n, Dim) for n in sizes):
        return tuple(sizes)
    return per_axis(size, rank, "size", 0)


def padding_of(padding: Any, rank: int) -> tuple[Any, ...]:
    """For each spatial axis ``"same"``, ``"valid"``, or a pair (before, after)."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ShapeError(
                f"{padding!r} is not a kind of padding",
                argument="padding",
                expected=f"'same', 'valid', or {rank} pairs (before, after)",
            )
        return (padding,) * rank
    items = padding if isinstance(padding, tuple | list) else (padding,) * rank
    if len(items) != rank:
        raise ShapeError(
            f"{padding!r} does not pad each spatial axis",
            argument="padding",
            expected=f"'same', 'valid', an integer, or {rank} pairs (before, after)",
        )
    pairs = []
    for item in items:
        pair = item if isinstance(item, tuple | list) else (item, item)
        try:
            before, after = (index(number) for number in pair)
        except raised_here(TypeError, ValueError):
            raise ShapeError(
                f"{item!r} is not a pair", argument="padding", expected="pairs (before, after)"
            ) from None
        if min(before, after) < 0:
            raise ShapeError(
                f"padding {item!r} is negative",
                argument="padding",
                expected="at least 0",
                hint="x[:, 1:-1] cuts elements off",
            )
        pairs.append((before, after))
    return tuple(pairs)


def output_size(size: Any, kernel: Any, stride: int, dilation: int, pad: Any) -> Any:
    """Positions of a window along an axis of ``size``; ``size`` may be symbolic.

    ``pad`` is ``"same"``, ``"valid"`` or a pair.
    """
    if pad == "same":
        return size // stride if size % stride == 0 else (size + stride - 1) // stride
    before, after = (0, 0) if pad == "valid" else pad
    extent = (kernel - 1) * dilation + 1
    room = size + (before + after)
    if isinstance(room, int) and isinstance(extent, int) and extent > room:
        raise ShapeError(
            f"a window of {extent} elements does not fit into {room}",
            expected="windows no larger than the input with its padding",
            hint="padding='same'; the axes are (batch, *sizes, channels)",
        )
    return (room - extent) // stride + 1


def window_of(size: int, kernel: int, stride: int, dilation: int, pad: Any) -> Window:
    """The window along one axis, from ``"same"``, ``"valid"`` or a pair."""
    out = output_size(size, kernel, stride, dilation, pad)
    if pad == "same":
        extent = (kernel - 1) * dilation + 1
        before = max((out - 1) * stride + extent - size, 0) // 2
    else:
        before = 0 if pad == "valid" else pad[0]
    return Window(size, kernel, stride, dilation, before, out)


def along_axes(
    one: Callable[..., Any],
    size: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    *more: Any,
) -> tuple[Any, ...]:
    """``one(size, kernel, stride, dilation, padding, ...)`` for each spatial axis."""
    rank = len(size)
    steps = per_axis(strides, rank, "strides")
    spread = per_axis(dilation, rank, "dilation")
    columns = zip(size, kernel, steps, spread, padding_of(padding, rank), *more, strict=True)
    return tuple(one(*column) for column in columns)


def differ(a: Any, b: Any) -> bool:
    """Whether two shapes certainly differ; a symbolic size may equal any other."""
    pairs = zip(a, b, strict=False)
    return len(a) != len(b) or any(
        m != n for m, n in pairs if not isinstance(m, Dim) and not isinstance(n, Dim)
    )


def put(y: Array, index: Any, values: Any) -> Array:
    """``y`` with values set at an index: ``y`` itself, unless arrays are immutable."""
    at = getattr(y, "at", None)
    if at is not None:
        return at[index].set(values)
    y[index] = values
    return y


@lru_cache(256)
def taps(windows: Windows) -> tuple[tuple[tuple[int, ...], Any, Any], ...]:
    """The elements of the window that are real at some position.

    For each: its offset in the window, the positions at which it is real, and its input positions
    there (indices without channels).
    """
    found = []
    for at in itertools.product(*(range(w.kernel) for w in windows)):
        reached = [w.reach(tap) for w, tap in zip(windows, at, strict=True)]
        if None not in reached:
            outs, ins = zip(*reached, strict=True)  # type: ignore[arg-type]
            found.append((at, (slice(None), *outs), (slice(None), *ins)))
    return tuple(found)
