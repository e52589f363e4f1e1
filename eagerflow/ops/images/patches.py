"""Patches of images, signals and volumes: extracted, and summed again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eagerflow.dims import product
from eagerflow.dtypes import DType
from eagerflow.errors import CaptureError, ShapeError
from eagerflow.op import ErrorSample, Missing, Sample
from eagerflow.ops.composition import composed
from eagerflow.ops.creation.filled import zeros
from eagerflow.ops.indexing.gathering import take
from eagerflow.ops.nn.convolution import windows_of
from eagerflow.ops.samples import make
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

_CASES: tuple[tuple[Any, Any, dict[str, Any]], ...] = (
    ((2, 4, 5, 2), 2, {}),
    ((1, 5, 4, 1), (3, 2), {"strides": 2}),
    ((1, 5, 4, 2), 2, {"strides": 2}),
    ((2, 5, 5, 1), 3, {"strides": 2, "padding": "same"}),
    ((1, 4, 4, 1), 2, {"dilation": 2, "padding": "same"}),
    ((1, 6, 4, 2), 2, {"strides": (1, 3), "dilation": (2, 1), "padding": ((1, 2), (0, 1))}),
    ((2, 5, 2), 3, {}),
    ((1, 3, 2, 3, 1), 2, {"strides": (1, 1, 2)}),
    ((0, 4, 4, 2), 2, {}),
)
_DEFAULTS: dict[str, Any] = {"strides": 1, "padding": "valid", "dilation": 1}


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


def _unfold_reference(x: Any, window: Any, **where: Any) -> Any:
    sizes = x.shape[1:-1]
    kernel = window if isinstance(window, tuple) else (window,) * len(sizes)
    pads, out, pieces = windows_of(sizes, kernel, **where)
    whole = np.pad(x, [(0, 0), *pads, (0, 0)])
    found = np.zeros((len(x), *out, *kernel, x.shape[-1]), x.dtype)
    for at, piece in pieces:
        found[(slice(None), *at)] = whole[(slice(None), *piece)]
    return found


def _samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    return [Sample((make(rng, dtype, s),), {"window": window} | more) for s, window, more in _CASES]


def _errors(rng: np.random.Generator) -> list[ErrorSample]:
    x = rng.standard_normal((2, 4, 4, 3))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"window": 5}, "does not fit"),
        ({"window": 0}, "too small"),
        ({"window": (2,)}, "for each spatial axis"),
        ({"window": 2, "strides": 0}, "too small"),
        ({"window": 2, "dilation": 0}, "too small"),
        ({"window": 2, "padding": "full"}, "is not a kind of padding"),
    ]
    return [
        *(ErrorSample((x,), more, ShapeError, words) for more, words in bad),
        ErrorSample((x[0, 0],), {"window": 2}, ShapeError, "too few"),
    ]


@composed(samples=_samples, reference=_unfold_reference, errors=_errors)
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


@composed(
    samples=lambda rng, dtype: [
        Sample(args, {"size": more.pop("window")} | more) for args, more in _samples(rng, dtype)
    ],
    reference=lambda x, size, strides, **where: (
        y := _unfold_reference(x, size, strides=size if strides is None else strides, **where)
    ).reshape((*y.shape[: x.ndim - 1], math.prod(y.shape[x.ndim - 1 :]))),
    errors=lambda rng: [
        e._replace(attributes={"size": e.attributes["window"]}) for e in _errors(rng)[:3]
    ],
)
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


def _fold_reference(patches: Any, size: Any, **where: Any) -> Any:
    rank = (patches.ndim - 2) // 2
    sizes = size if isinstance(size, tuple) else (size,) * rank
    pads, _, pieces = windows_of(sizes, patches.shape[1 + rank : -1], **where)
    room = [n + before + behind for n, (before, behind) in zip(sizes, pads, strict=True)]
    found = np.zeros((len(patches), *room, patches.shape[-1]), patches.dtype)
    for at, piece in pieces:
        found[(slice(None), *piece)] += patches[(slice(None), *at)]
    inside = [slice(before, before + n) for n, (before, _) in zip(sizes, pads, strict=True)]
    return found[(slice(None), *inside)]


def _fold_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    found = []
    for shape, window, more in _CASES:
        patches = _unfold_reference(np.zeros(shape), window, **_DEFAULTS | more)
        found.append(Sample((make(rng, dtype, patches.shape),), {"size": shape[1:-1]} | more))
    return found


def _fold_errors(rng: np.random.Generator) -> list[ErrorSample]:
    p = rng.standard_normal((2, 3, 3, 2, 2, 1))
    return [
        ErrorSample((p,), {"size": 5}, ShapeError, "positions"),
        ErrorSample((p[0],), {"size": 4}, ShapeError, "are not those of patches"),
        ErrorSample((p,), {"size": (4,)}, ShapeError, "for each spatial axis"),
        ErrorSample((p,), {"size": 1}, ShapeError, "does not fit"),
        ErrorSample((p,), {"size": 4, "strides": 0}, ShapeError, "too small"),
    ]


@composed(
    samples=_fold_samples,
    reference=_fold_reference,
    errors=_fold_errors,
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
