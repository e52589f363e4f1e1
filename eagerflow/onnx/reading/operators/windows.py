"""Sliding windows from ONNX's attributes, and tensors in its layout and in ours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, NamedTuple

from eagerflow import ops
from eagerflow.dims import Dim
from eagerflow.onnx.reading.calls import Call
from eagerflow.onnx.reading.operators.limits import check_steps

Pairs = tuple[tuple[Any, Any], ...]


def channels_last(x: Any) -> Any:
    """(batch, channels, *spatial) as (batch, *spatial, channels)."""
    return ops.permute_dims(x, (0, *range(2, x.ndim), 1))


def channels_first(x: Any) -> Any:
    """(batch, *spatial, channels) as (batch, channels, *spatial)."""
    return ops.permute_dims(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def per_channel(x: Any, rank: int) -> Any:
    """A vector with one element per channel, broadcastable to channels-first tensors."""
    return ops.reshape(x, (1, -1, *[1] * (rank - 2)))


class Windows(NamedTuple):
    """Windows over the spatial axes: one number, or one pair (before, after), for each."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pairs

    @property
    def reach(self) -> tuple[int, ...]:
        """The extent of each window in elements, with dilation."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def positions(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """The number of windows along each axis."""
        columns = zip(sizes, self.reach, self.strides, self.pads, strict=True)
        return tuple((n + sum(pad) - reach) // step + 1 for n, reach, step, pad in columns)

    def taps(self) -> Iterator[tuple[int, ...]]:
        """The offsets in a window, the last axis fastest."""
        return itertools.product(*map(range, self.kernel))


def spatial_sizes(call: Call, x: Any) -> tuple[Any, ...]:
    """The sizes of the axes after batch and channels."""
    if x.ndim < 3:
        call.refuse(f"a tensor of {x.ndim} axes has no spatial axes behind batch and channels")
    return tuple(x.shape[2:])


def _numbers(call: Call, what: str, given: Any, rank: int) -> tuple[int, ...]:
    numbers = (1,) * rank if not given else tuple(map(int, given))
    if len(numbers) != rank or any(n < 1 for n in numbers):
        call.refuse(f"{what} {list(numbers)} do not fit {rank} spatial axes")
    return numbers


def windows_of(
    call: Call,
    sizes: tuple[Any, ...],
    kernel: Any,
    *,
    strides: Any = None,
    dilations: Any = None,
    pads: Any = None,
    auto_pad: str = "NOTSET",
) -> Windows:
    """The windows from attributes, for tensors of these spatial sizes."""
    rank = len(sizes)
    found = Windows(
        _numbers(call, "kernel_shape", kernel, rank),
        _numbers(call, "strides", strides, rank),
        _numbers(call, "dilations", dilations, rank),
        pairs(call, pads, rank),
    )
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        same = _same(sizes, found, auto_pad)
        if same is None:
            call.refuse(f"auto_pad {auto_pad} with strides along an axis of unknown size")
        return found._replace(pads=same)
    if auto_pad == "VALID":
        return found._replace(pads=((0, 0),) * rank)
    if auto_pad not in ("NOTSET", ""):
        call.refuse(f"there is no auto_pad {auto_pad!r}")
    return found


def pairs(call: Call, pads: Any, rank: int) -> Pairs:
    """ONNX's [all begins, all ends] as one pair for each axis."""
    numbers = [0] * 2 * rank if not pads else [int(p) for p in pads]
    if len(numbers) != 2 * rank:
        call.refuse(f"pads {numbers} do not fit {rank} spatial axes")
    return tuple(zip(numbers[:rank], numbers[rank:], strict=True))


def share(total: Any, auto_pad: str) -> tuple[Any, Any]:
    """Padding split into before and after; an odd one goes after for ``SAME_UPPER``."""
    less = total // 2
    return (less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less)


def _same(sizes: tuple[Any, ...], found: Windows, auto_pad: str) -> Pairs | None:
    """The padding for ``ceil(size / stride)`` windows; None if it is not known."""
    made = []
    for size, reach, step in zip(sizes, found.reach, found.strides, strict=True):
        total = (-(-size // step) - 1) * step + reach - size
        if isinstance(total, Dim):
            return None
        made.append(share(max(total, 0), auto_pad))
    return tuple(made)


def padding_of(sizes: tuple[Any, ...], found: Windows) -> str | Pairs:
    """The padding in the form of our ops, as a word if possible."""
    if not any(map(any, found.pads)):
        return "valid"
    return "same" if found.pads == _same(sizes, found, "SAME_UPPER") else found.pads


def tap_slices(call: Call, x: Any, windows: Windows, out: tuple[Any, ...]) -> Iterator[Any]:
    """For each offset in the window, the elements of a padded (n, c, *spatial) tensor."""
    check_steps(call, *windows.kernel)
    for tap in windows.taps():
        index: list[Any] = [slice(None), slice(None)]
        columns = zip(tap, windows.dilations, windows.strides, out, strict=True)
        index += [_tap(*column) for column in columns]
        yield x[tuple(index)]


def _tap(place: int, dilation: int, step: int, count: Any) -> slice:
    """The elements of an axis at one offset of its windows."""
    first = place * dilation
    return slice(first, first + (count - 1) * step + 1, step)


def over_windows(
    call: Call, function: Callable[[Any, Any], Any], x: Any, windows: Windows, out: tuple[Any, ...]
) -> Any:
    """A function of two tensors, such as their maximum, over each window: axis by axis."""
    check_steps(call, sum(windows.kernel))
    for axis, (size, dilation, step, count) in enumerate(
        zip(windows.kernel, windows.dilations, windows.strides, out, strict=True)
    ):
        before = (slice(None),) * (axis + 2)
        taps = (x[(*before, _tap(place, dilation, step, count))] for place in range(size))
        x = reduce(function, taps)
    return x
