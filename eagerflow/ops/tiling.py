"""Element-wise kernels of several steps on NumPy, a cache-sized tile at a time.

Each step of such a kernel is a ufunc that writes into a buffer. On whole arrays every step
would move the array through memory; a tile stays in the cache from the first step to the
last. The tiles of large arrays are shared out to threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerflow.kernels import threads

__all__ = ["direct_tiles", "horner", "in_tiles", "scratch", "tiled"]

Call = Callable[..., Any]

TILE = 1 << 15  # elements; with smaller ones, threads wait for the interpreter's lock
PARALLEL = 1 << 17  # elements from which waking another thread pays


def scratch(like: Any, name: str = "elementwise") -> Any:
    """A buffer of the shape and dtype of ``like``; each thread has one for each name."""
    if like.size < 512:
        return np.empty_like(like)
    return threads.scratch(name, like.shape, like.dtype)


def tiled(into: Call, x: Any, out: Any, **attributes: Any) -> Any:
    """The result of ``into(x, out, **attributes)``, which may use ``out`` as a buffer.

    ``out`` is an empty array like ``x``; the array that is returned may be another one.
    """
    if x.dtype == np.float16:
        # Half precision has no arithmetic of its own, and rounding each step costs digits.
        return _run(_through_float32, x, out, {"into": into, **attributes})
    return _run(into, x, out, attributes)


def _through_float32(x: Any, out: Any, into: Call, **attributes: Any) -> None:
    wide = np.empty(x.shape, np.float32)
    into(x.astype(np.float32), wide, **attributes)
    out[...] = wide


def _run(into: Call, x: Any, out: Any, attributes: dict[str, Any]) -> Any:
    size = x.size
    if size <= TILE:
        into(x, out, **attributes)
        return out
    if not (x.flags.c_contiguous or x.flags.f_contiguous):
        x = np.ascontiguousarray(x)
    if x.strides != out.strides:
        out = np.empty_like(x)
    source, target = x.ravel("K"), out.ravel("K")

    def work(tile: int) -> None:
        here = slice(tile * TILE, (tile + 1) * TILE)
        into(source[here], target[here], **attributes)

    count = -(-size // TILE)
    if size >= PARALLEL:
        threads.run(work, count)
    else:
        for tile in range(count):
            work(tile)
    return out


def in_tiles(into: Call) -> Call:
    """The NumPy kernel ``(xp, x, **attributes)`` that ``into`` computes."""

    def kernel(xp: Any, x: Any, /, **attributes: Any) -> Any:
        return tiled(into, x, np.empty_like(x), **attributes)

    return kernel


def direct_tiles(into: Call, name: str, default: Any, types: tuple[type, ...]) -> Call:
    """The fact ``direct`` of an op with one attribute, whose NumPy kernel is ``into``."""

    def direct(xp: Any) -> Call | None:
        def fast(x: Any, value: Any = default) -> Any:
            if type(value) not in types:
                raise TypeError(f"{name} needs conversion")
            return tiled(into, x, np.empty_like(x), **{name: value})

        return fast if xp is np else None

    return direct


def horner(coefficients: tuple[float, ...], z: Any, out: Any) -> Any:
    """The polynomial of ``z`` with these coefficients, the lowest first, in ``out``."""
    np.multiply(z, coefficients[-1], out=out)
    for c in coefficients[-2:0:-1]:
        np.add(out, c, out=out)
        np.multiply(out, z, out=out)
    return np.add(out, coefficients[0], out=out)
