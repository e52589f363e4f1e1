"""Pooling with array operations: axis by axis, or by window element.

The functions for NumPy take blocks of images that stay in the caches and are shared by threads; the
others work for any array library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.dtypes import dtype_name
from eagerflow.primitives.blocks import each_image_block
from eagerflow.primitives.llvm.max_pooling import MaxPoolConfig, MaxPoolWriter
from eagerflow.primitives.llvm.staged_kernel import (
    Prepared,
    StagedCall,
    StagedKernel,
    kept,
    processor,
)
from eagerflow.primitives.windows import Window, Windows, put, taps
from eagerflow.runtime import buffers
from eagerflow.runtime.threads import scratch
from eagerflow.spec import Array, Namespace

BLOCK_ELEMENTS = 1 << 18  # processed at a time: with fewer, call overhead dominates
MAX_WINDOW = 16  # elements of a window, which machine code unrolls
PIECE_ELEMENTS = 1 << 14  # taken by a thread at a time
MIN_SHARED_ELEMENTS = 1 << 18  # threshold for using another thread


def seen(w: Window) -> Array:
    """The number of input elements under each window along an axis."""
    starts = np.arange(w.out)[:, None] * w.stride - w.before
    places = starts + np.arange(w.kernel) * w.dilation
    return ((places >= 0) & (places < w.size)).sum(axis=1)


@lru_cache(256)
def _counts(windows: Windows) -> Array:
    """The number of real elements of each window, with an axis of size 1 for the channels."""
    result = np.ones(1)
    for w in windows:
        result = np.multiply.outer(result, seen(w))
    return result[0][..., None]


def _result_shape(x: Array, windows: Windows) -> tuple[int, ...]:
    return (x.shape[0], *(w.out for w in windows), x.shape[-1])


# NumPy -------------------------------------------------------------------------------------------


@lru_cache(1024)
def _reaches(w: Window) -> tuple[list[Any], list[Any]]:
    """The input positions of the window's elements.

    First the elements that are real at all positions, then the others, with their real positions.
    """
    reached = [r for r in (w.reach(x) for x in range(w.kernel)) if r is not None]
    everywhere = slice(0, w.out)
    whole = [ins for outs, ins in reached if outs == everywhere]
    return whole, [(outs, ins) for outs, ins in reached if outs != everywhere]


def _fold(ufunc: Any, start: float, x: Array, axis: int, w: Window, out: Array) -> None:
    """Fold the elements of each window along one axis into ``out``."""
    lead = (slice(None),) * axis
    whole, partly = _reaches(w)
    if len(whole) > 1:
        ufunc(x[(*lead, whole[0])], x[(*lead, whole[1])], out=out)
    elif whole:
        np.copyto(out, x[(*lead, whole[0])])
    else:
        out[...] = start
    for ins in whole[2:]:
        ufunc(out, x[(*lead, ins)], out=out)
    for outs, ins in partly:
        part = out[(*lead, outs)]
        ufunc(part, x[(*lead, ins)], out=part)


def _fold_axes(ufunc: Any, start: float, x: Array, windows: Windows, result: Array) -> None:
    """Fold the elements of each window into ``result``, axis by axis."""
    part = x
    for axis, w in enumerate(windows, 1):
        shape = (*part.shape[:axis], w.out, *part.shape[axis + 1 :])
        out = result if axis == len(windows) else scratch(f"pooled{axis}", shape, x.dtype)
        _fold(ufunc, start, part, axis, w, out)
        part = out


def _pooled(ufunc: Any, start: float, x: Array, windows: Windows, counts: Any) -> Array:
    """Windows folded axis by axis, and divided by ``counts`` if given."""
    y = buffers.empty(_result_shape(x, windows), x.dtype)

    def work(images: slice) -> None:
        result = y[images]
        _fold_axes(ufunc, start, x[images], windows, result)
        if counts is not None:
            np.divide(result, counts, out=result)

    if y.size:
        each_image_block(x, BLOCK_ELEMENTS, 4, work)
    return y


def takes(x: Array, windows: Windows) -> bool:
    """Whether machine code supports windows on such an image, and pays."""
    if not (len(windows) == 2 and generated.takes(x)):
        return False
    side_by_side = all(w.kernel == w.stride and w.before == 0 and w.dilation == 1 for w in windows)
    inside = all(w.out * w.kernel <= w.size for w in windows)
    return side_by_side and inside and prod(w.kernel for w in windows) <= MAX_WINDOW


@kept
def _kernel(config: MaxPoolConfig) -> StagedKernel[MaxPoolWriter]:
    return StagedKernel(MaxPoolWriter, config, processor(config.dtype)[0])


def _staged(x: Array, windows: Windows, result: Array, g: Array = None) -> StagedCall:
    """The kernel that fills ``result`` with maxima, or with g at their positions."""
    prepared = _prepared(x.shape, x.dtype, windows, g is not None)
    return prepared.on(x=x, result=result, **({} if g is None else {"g": g}))


@kept
def _prepared(shape: tuple[int, ...], dtype: Any, windows: Windows, back: bool) -> Prepared:
    high, wide = windows
    config = MaxPoolConfig(
        dtype_name(dtype),
        high.size,
        wide.size,
        shape[-1],
        high.kernel,
        wide.kernel,
        high.out,
        wide.out,
        back,
    )
    rows = shape[0] * high.out
    height = max(PIECE_ELEMENTS // max(prod(shape[2:]) * high.kernel, 1), 1)
    return Prepared(_kernel(config), (rows, 1, height, 1), prod(shape) >= MIN_SHARED_ELEMENTS)


def native_max_pool(x: Any, windows: Windows) -> Callable[..., Any] | None:
    """A segment's call of ``max_pool``; None for unsupported specs."""
    if not takes(x, windows):
        return None
    return lambda x, y: _staged(x, windows, y) if x.flags.c_contiguous else None


def native_max_pool_gradient(x: Any, g: Any, windows: Windows) -> Callable[..., Any] | None:
    """A segment's call of ``max_pool_gradient``; None for unsupported specs."""
    if not takes(x, windows) or any(w.out * w.kernel < w.size for w in windows):
        return None

    def staged(x: Array, g: Array, result: Array) -> StagedCall | None:
        straight = x.flags.c_contiguous and g.flags.c_contiguous
        return _staged(x, windows, result, g) if straight else None

    return staged


def max_pool(x: Array, windows: Windows) -> Array:
    """The largest element of each window."""
    if takes(x, windows):
        y = buffers.empty(_result_shape(x, windows), x.dtype)
        _staged(np.ascontiguousarray(x), windows, y).run()
        return y
    return _pooled(np.maximum, -np.inf, x, windows, None)


def avg_pool(x: Array, windows: Windows) -> Array:
    """The mean of each window's elements."""
    counts = _counts(windows)
    if (counts == counts.flat[0]).all():
        return _pooled(np.add, 0, x, windows, x.dtype.type(counts.flat[0]))
    return _pooled(np.add, 0, x, windows, counts.astype(x.dtype))


def _masks(x: Array, windows: Windows) -> Any:
    """For each element of the window: the positions at which it is the first maximum.

    Yields positions and elements, as ``taps`` does, and a mask.
    """
    y = scratch("largest", _result_shape(x, windows), x.dtype)
    _fold_axes(np.maximum, -np.inf, x, windows, y)
    free = scratch("free", y.shape, np.bool)
    free[...] = True
    for _, outs, ins in taps(windows):
        shape = y[outs].shape
        below, hit = scratch("below", shape, np.bool), scratch("hit", shape, np.bool)
        np.less(x[ins], y[outs], out=below)
        np.greater(free[outs], below, out=hit)
        np.logical_and(free[outs], below, out=free[outs])
        yield outs, ins, hit


def _scatter(x: Array, g: Array, windows: Windows, result: Array) -> None:
    """Add to ``result``, which is initially zero."""
    apart = all(w.stride >= w.extent for w in windows)
    for outs, ins, hit in _masks(x, windows):
        if apart:
            np.copyto(result[ins], g[outs], where=hit)
        else:
            np.add(result[ins], g[outs], out=result[ins], where=hit)


def _gather(x: Array, t: Array, windows: Windows, result: Array) -> None:
    """Set elements of ``result``."""
    for outs, ins, hit in _masks(x, windows):
        np.copyto(result[outs], t[ins], where=hit)


def _by_blocks(step: Any, x: Array, values: Array, windows: Windows, result: Array) -> Array:
    """``result``, filled by ``step(x, values, windows, result)`` on some images at a time."""
    values = np.ascontiguousarray(values)

    def fill(images: slice) -> None:
        step(x[images], values[images], windows, result[images])

    if x.size and result.size:
        each_image_block(x, BLOCK_ELEMENTS, 16, fill)
    return result


def max_pool_gradient(x: Array, g: Array, windows: Windows) -> Array:
    """For each window its element of ``g``, added at the window's maximum."""
    if takes(x, windows):
        result = buffers.empty(x.shape, x.dtype)
        if any(w.out * w.kernel < w.size for w in windows):
            result.fill(0)
        _staged(np.ascontiguousarray(x), windows, result, np.ascontiguousarray(g)).run()
        return result
    return _by_blocks(_scatter, x, g, windows, np.zeros(x.shape, x.dtype))


def max_pool_gather(x: Array, t: Array, windows: Windows) -> Array:
    """Elements of ``t`` at the maxima of ``x``'s windows."""
    return _by_blocks(_gather, x, t, windows, np.zeros(_result_shape(x, windows), x.dtype))


# Any library -------------------------------------------------------------------------------------


def _folded(xp: Namespace, x: Array, windows: Windows, function: Any, start: float) -> Array:
    y = xp.full(_result_shape(x, windows), start, dtype=x.dtype)
    for _, outs, ins in taps(windows):
        y = put(y, (*outs, ...), function(y[(*outs, ...)], x[(*ins, ...)]))
    return y


def portable_max_pool(xp: Namespace, x: Array, windows: Windows) -> Array:
    """The largest element of each window."""
    return _folded(xp, x, windows, xp.maximum, -xp.inf)


def portable_avg_pool(xp: Namespace, x: Array, windows: Windows) -> Array:
    """The mean of each window's elements."""
    return _folded(xp, x, windows, xp.add, 0) / xp.asarray(_counts(windows), dtype=x.dtype)


def _hits(xp: Namespace, x: Array, windows: Windows) -> Any:
    """For each element of the window: the positions at which it is the first maximum.

    Yields positions and elements, as ``taps`` does, and a mask.
    """
    y = portable_max_pool(xp, x, windows)
    free = xp.ones(y.shape, dtype=xp.bool)
    for _, outs, ins in taps(windows):
        outs, ins = (*outs, ...), (*ins, ...)
        below = x[ins] < y[outs]
        waiting = free[outs]
        yield outs, ins, waiting & ~below
        free = put(free, outs, waiting & below)


def portable_max_pool_gradient(xp: Namespace, x: Array, g: Array, windows: Windows) -> Array:
    """For each window its element of ``g``, added at the window's maximum."""
    result = xp.zeros(x.shape, dtype=x.dtype)
    none = xp.zeros((), dtype=x.dtype)
    apart = all(w.stride >= w.extent for w in windows)
    for outs, ins, hit in _hits(xp, x, windows):
        term = xp.where(hit, g[outs], none)
        result = put(result, ins, term if apart else result[ins] + term)
    return result


def portable_max_pool_gather(xp: Namespace, x: Array, t: Array, windows: Windows) -> Array:
    """Elements of ``t`` at the maxima of ``x``'s windows."""
    y = xp.zeros(_result_shape(x, windows), dtype=x.dtype)
    for outs, ins, hit in _hits(xp, x, windows):
        y = put(y, outs, xp.where(hit, t[ins], y[outs]))
    return y


def portable_avg_pool_gradient(xp: Namespace, g: Array, windows: Windows) -> Array:
    """Each element of ``g``, distributed equally over its window."""
    shares = g / xp.asarray(_counts(windows), dtype=g.dtype)
    result = xp.zeros((g.shape[0], *(w.size for w in windows), g.shape[-1]), dtype=g.dtype)
    apart = all(w.stride >= w.extent for w in windows)
    for _, outs, ins in taps(windows):
        outs, ins = (*outs, ...), (*ins, ...)
        result = put(result, ins, shares[outs] if apart else result[ins] + shares[outs])
    return result
