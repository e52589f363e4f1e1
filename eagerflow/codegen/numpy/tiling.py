"""Elementwise kernels of several steps on NumPy, a cache-sized tile at a time.

Each step of such a kernel is a ufunc that writes into a buffer. On whole arrays every step
would move the array through memory; a tile stays in the cache from the first step to the
last. The tiles of large arrays are distributed to threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.runtime import buffers, threads

Call = Callable[..., Any]

MIN_TILED_ELEMENTS = 1 << 10  # up to which the fewest calls are fastest
TILE_ELEMENTS = 1 << 16  # with smaller tiles, threads contend for the interpreter's lock
MIN_SHARED_ELEMENTS = 1 << 19  # threshold for using another thread, even for a single ufunc


# What kernels work with --------------------------------------------------------------------------


def scratch(like: Any, name: str = "elementwise") -> Any:
    """A buffer of the shape and dtype of ``like``; each thread has one for each name."""
    if like.size < MIN_TILED_ELEMENTS:
        return np.empty_like(like)
    return threads.scratch(name, like.shape, like.dtype)


def filled(x: Any, value: Any) -> Any:
    """A constant tile: NumPy's maximum and minimum of two contiguous arrays take a third of the
    time of those of an array and a number.
    """
    return np.full(TILE_ELEMENTS, value, x.dtype)


def horner(coefficients: tuple[float, ...], z: Any, out: Any) -> Any:
    """The polynomial of ``z`` with these coefficients, the lowest first, in ``out``."""
    np.multiply(z, coefficients[-1], out)
    for c in coefficients[-2:0:-1]:
        np.add(out, c, out)
        np.multiply(out, z, out)
    return np.add(out, coefficients[0], out)


# One array ---------------------------------------------------------------------------------------


def tiled(into: Call, x: Any, **attributes: Any) -> Any:
    """The result of ``into(x, out, **attributes)``, which fills ``out``, an array like ``x``."""
    if x.dtype.char == "e":
        # Half precision arithmetic is emulated, and rounding each step costs digits.
        into, attributes = _through_float32, {"into": into, **attributes}
    size = x.size
    if size < MIN_TILED_ELEMENTS:
        out = np.empty_like(x)
        into(x, out, **attributes)
        return out
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        x = np.ascontiguousarray(x)
    out = np.empty_like(x) if x.nbytes < buffers.MIN_POOLED_BYTES else buffers.empty_like(x)
    source, target = x.ravel("K"), out.ravel("K")

    def work(tile: int) -> None:
        here = slice(tile * TILE_ELEMENTS, (tile + 1) * TILE_ELEMENTS)
        into(source[here], target[here], **attributes)

    threads.run_if(size >= MIN_SHARED_ELEMENTS, work, -(-size // TILE_ELEMENTS))
    return out


def _through_float32(x: Any, out: Any, into: Call, **attributes: Any) -> None:
    wide = np.empty(x.shape, np.float32)
    into(x.astype(np.float32), wide, **attributes)
    out[...] = wide


# Several arrays that broadcast -------------------------------------------------------------------


def tiled_together(
    into: Call, arrays: tuple[Any, ...], outs: tuple[Any, ...], elements: int = TILE_ELEMENTS
) -> None:
    """Fill ``outs``, contiguous and of one shape, by ``into(*tiles, *tiles of outs)``.

    0-d arrays are passed as they are; a tile has about ``elements`` elements.
    """
    shape = outs[0].shape
    wide = [a if a.shape == shape or a.ndim == 0 else np.broadcast_to(a, shape) for a in arrays]
    if all(a.flags.c_contiguous for a in wide):
        wide = [a if a.ndim == 0 else a.reshape(-1) for a in wide]
        outs = tuple([out.reshape(-1) for out in outs])
        shape = outs[0].shape
        if shape[0] <= elements:
            into(*wide, *outs)
            return
    # Tiles are runs along one axis, for each index of the axes before it.
    axis = next(i for i in range(len(shape)) if math.prod(shape[i + 1 :]) <= elements)
    length = max(1, elements // math.prod(shape[axis + 1 :]))
    runs = -(-shape[axis] // length)

    def work(tile: int) -> None:
        before, run = divmod(tile, runs)
        here = (
            *np.unravel_index(before, shape[:axis]),
            slice(run * length, (run + 1) * length),
        )
        into(*(a if a.ndim == 0 else a[here] for a in wide), *(out[here] for out in outs))

    tiles = math.prod(shape[:axis]) * runs
    threads.run_if(outs[0].size >= MIN_SHARED_ELEMENTS, work, tiles)
