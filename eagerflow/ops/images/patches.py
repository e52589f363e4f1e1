"""Patches of images, signals and volumes: extracted, and summed again."""

from __future__ import annotations

from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.errors import CaptureError, ShapeError
from eagerflow.op import Missing
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.shapes.padding import pad
from eagerflow.ops.shapes.reshaping import permute_dims, reshape
from eagerflow.primitives.windows import (
    along_axes,
    differ,
    output_size,
    per_axis,
    sizes_of,
    spatial_rank,
)
from eagerflow.tensor import Tensor

__all__ = ["extract_patches", "fold", "unfold"]

# Windows ------------------------------------------------------------------------------------------


def _ahead(size: Any, kernel: int, stride: int, dilation: int, padding: Any) -> tuple[Any, Any]:
    """The padding before and after an axis."""
    if padding != "same":
        return (0, 0) if padding == "valid" else padding
    extent = (kernel - 1) * dilation + 1
    out = output_size(size, kernel, stride, dilation, padding)
    total = extent - 1 if stride == 1 else (out - 1) * stride + extent - size
    if not isinstance(total, int):
        raise CaptureError(
            f"an axis has a size that is not known, {size}",
            argument="padding",
            expected="strides of 1, 'valid' or pairs",
        )
    total = max(total, 0)
    return total // 2, total - total // 2


def _places(out: int, kernel: int, stride: int, dilation: int) -> Any:
    return np.arange(out)[:, None] * stride + np.arange(kernel) * dilation


def _unfolded(x: Any, axis: int, out: Any, kernel: int, stride: int, dilation: int) -> Any:
    """The windows along an axis, which becomes two axes."""
    if stride == kernel and dilation == 1:
        part = x[(*(slice(None),) * axis, slice(0, out * kernel))]
        return reshape(part, (*x.shape[:axis], out, kernel, *x.shape[axis + 1 :]))
    if not isinstance(out, int):
        raise CaptureError(
            f"a number of patches is not known, {out}",
            argument="x",
            expected="known sizes, but for strides as large as the window",
        )
    return take(x, _places(out, kernel, stride, dilation), axis=axis)


@composed()
def unfold(
    x: Any, /, window: Any, strides: Any = 1, padding: Any = "valid", dilation: Any = 1
) -> Tensor:
    """The patches of images: the contents of a window at each of its positions (im2col).

    ``x`` is (batch, *spatial, channels), the result (batch, *positions, *window, channels).
    ``window``, ``strides`` and ``dilation`` are integers or one for each spatial axis, ``padding``
    (with zeros) is ``"valid"`` (none), ``"same"`` (``ceil(size / stride)`` positions) or pairs
    (before, behind). Raises ShapeError where shapes or attributes do not fit.

    >>> x = ef.tensor([1.0, 2.0, 3.0]).reshape((1, 3, 1))
    >>> ef.unfold(x, 2).reshape((2, 2))
    Tensor([[1., 2.],
            [2., 3.]], shape=(2, 2), float32, cpu:0)
    """
    rank = spatial_rank(x, "x")
    kernel, sizes = per_axis(window, rank, "window"), x.shape[1:-1]
    steps, spread = per_axis(strides, rank, "strides"), per_axis(dilation, rank, "dilation")
    out = along_axes(output_size, sizes, kernel, steps, padding, spread)
    pads = along_axes(_ahead, sizes, kernel, steps, padding, spread)
    if any(map(any, pads)):
        x = pad(x, ((0, 0), *pads, (0, 0)))
    for i, column in enumerate(zip(out, kernel, steps, spread, strict=True)):
        x = _unfolded(x, 1 + 2 * i, *column)
    at = range(rank)
    return permute_dims(x, (0, *(1 + 2 * i for i in at), *(2 + 2 * i for i in at), 1 + 2 * rank))


@composed()
def extract_patches(
    x: Any, /, size: Any, strides: Any = None, dilation: Any = 1, padding: Any = "valid"
) -> Tensor:
    """The patches of images, each a row of its pixels with their channels.

    ``x`` is (batch, *spatial, channels); the result is (batch, *positions, values), rows of a patch
    one after another, channels last. ``size`` is that of the patches; ``strides`` defaults to it;
    the rest is as in ``unfold``. Raises ShapeError where shapes or attributes do not fit.

    >>> ef.extract_patches(ef.ones((1, 4, 6, 3)), 2).shape
    (1, 2, 3, 12)
    """
    rank = spatial_rank(x, "x")
    found = unfold(x, size, size if strides is None else strides, padding, dilation)
    return reshape(found, (*found.shape[: rank + 1], product(found.shape[rank + 1 :])))


def _folded(p: Any, axis: int, size: Any, stride: int, dilation: int) -> Any:
    """The patches along an axis and the next one, summed into ``size`` elements."""
    out, kernel = p.shape[axis : axis + 2]
    lead, rest = p.shape[:axis], p.shape[axis + 2 :]
    if stride == kernel and dilation == 1:
        whole = reshape(p, (*lead, out * kernel, *rest))
        return pad(whole, ((0, 0),) * axis + ((0, size - out * kernel),) + ((0, 0),) * len(rest))
    found, before = zeros((*lead, size, *rest), p.dtype, str(p.device)), (slice(None),) * axis
    for tap in range(kernel):
        first = tap * dilation
        part = slice(first, first + (out - 1) * stride + 1, stride)
        found = found.at[(*before, part)].add(p[(*before, slice(None), tap)])
    return found


@composed(
    sizes=Missing("the elements of a window are added one after another"),
)
def fold(
    patches: Any, /, size: Any, strides: Any = 1, padding: Any = "valid", dilation: Any = 1
) -> Tensor:
    """Images with all patches added where ``unfold`` took them: its transpose (col2im).

    ``patches`` is (batch, *positions, *window, channels), ``size`` has the spatial sizes of the
    images, the result is (batch, *size, channels); the rest is as in ``unfold``. Raises ShapeError
    if ``unfold`` of such images has another shape.

    >>> ef.fold(ef.ones((1, 2, 2, 1)), 3).reshape((-1,))
    Tensor([1., 2., 1.], float32, cpu:0)
    """
    rank = (patches.ndim - 2) // 2
    if rank < 1 or patches.ndim % 2:
        raise ShapeError(
            f"{patches.ndim} axes are not those of patches",
            argument="patches",
            expected="(batch, *positions, *window, channels)",
        )
    sizes = sizes_of(size, rank)
    kernel = per_axis(tuple(patches.shape[1 + rank : -1]), rank, "patches")
    steps, spread = per_axis(strides, rank, "strides"), per_axis(dilation, rank, "dilation")
    out = along_axes(output_size, sizes, kernel, steps, padding, spread)
    if differ(patches.shape[1 : 1 + rank], out):
        raise ShapeError(
            f"patches at {tuple(patches.shape[1 : 1 + rank])} positions, unfold gives {out}",
            argument="patches",
            expected="patches as unfold gives them",
        )
    pads = along_axes(_ahead, sizes, kernel, steps, padding, spread)
    order = [axis for i in range(rank) for axis in (1 + i, 1 + rank + i)]
    found = permute_dims(patches, (0, *order, 2 * rank + 1))
    for i, (n, (before, behind)) in enumerate(zip(sizes, pads, strict=True)):
        found = _folded(found, 1 + i, n + before + behind, steps[i], spread[i])
    return found[(slice(None), *(slice(b, b + n) for n, (b, _) in zip(sizes, pads, strict=True)))]
