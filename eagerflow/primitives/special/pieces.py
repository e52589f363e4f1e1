"""Building blocks of special functions: pieces of their domain, polynomials, tiles.

Every function here takes a namespace and float64 arrays of one shape. On NumPy a piece of the
domain is computed only for the elements in it; elsewhere, as in a trace, for all, after replacing
other elements by a safe value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from eagerflow.codegen.numpy import special
from eagerflow.codegen.numpy.tiling import horner, tiled_together
from eagerflow.errors import EagerflowError
from eagerflow.handlers import raised_here
from eagerflow.runtime import buffers

Function = Callable[..., Any]
Piece = tuple[Any, Function, tuple[float, ...]]

TILE_ELEMENTS = 1 << 13  # of float64: a dozen temporaries stay in the second cache
CHECKED_EVERY = 8  # terms between two convergence checks


def choose(xp: Any, pieces: Sequence[Piece], *xs: Any) -> Any:
    """The value of the first piece ``(mask, function, safe)`` whose mask is true.

    The last mask is None: it takes the rest. ``function(xp, *xs)`` only gets arguments for which
    its mask, and no earlier one, is true, or ``safe`` ones.
    """
    if type(xs[0]) is np.ndarray:
        return _gathered(pieces, xs)
    value, left = None, None
    for mask, function, safe in pieces:
        here = left if mask is None else mask if left is None else mask & left
        inside = [xp.where(here, x, xp.full_like(x, s)) for x, s in zip(xs, safe, strict=True)]
        found = function(xp, *inside)
        value = found if value is None else xp.where(here, found, value)
        if mask is not None:
            left = ~mask if left is None else left & ~mask
    return value


def _gathered(pieces: Sequence[Piece], xs: Any) -> Any:
    out = np.empty(xs[0].shape)
    flat = out.reshape(-1)
    columns = [x.reshape(-1) for x in xs]
    left = np.ones(flat.shape, bool)
    for mask, function, _ in pieces:
        here = left if mask is None else left & mask.reshape(-1)
        at = np.flatnonzero(here)
        if at.size == flat.size:
            flat[...] = function(np, *columns)
            return out
        if at.size:
            flat[at] = function(np, *(x[at] for x in columns))
            left &= ~here
    return out


def any_of(xp: Any, mask: Any) -> bool:
    """Whether anything is true; assumed if values are unknown, as in a trace."""
    try:
        return bool(xp.any(mask))
    except raised_here(EagerflowError):
        return True


def largest(xp: Any, x: Any, default: float) -> float:
    """The largest element, or ``default`` if values are unknown."""
    try:
        return float(xp.max(x)) if x.size else default
    except raised_here(EagerflowError):
        return default


def polynomial(c: Sequence[float], z: Any) -> Any:
    """c0 + c1·z + c2·z² + … by Horner's rule."""
    if type(z) is np.ndarray and len(c) > 1:
        return horner(tuple(c), z, np.empty(z.shape))
    return special.polynomial(c, z)


def in_double(function: Function) -> Function:
    """Make a function of float64 arrays of one shape one of any floats, on any namespace."""

    @wraps(function)
    def kernel(xp: Any, *xs: Any, **attributes: Any) -> Any:
        first = next(x for x in xs if hasattr(x, "dtype"))
        like = xp.asarray(first, dtype=xp.float64)
        wide = [
            xp.asarray(x, dtype=xp.float64) if hasattr(x, "dtype") else xp.full_like(like, x)
            for x in xs
        ]
        if len(wide) > 1:
            wide = list(xp.broadcast_arrays(*wide))
        return xp.asarray(function(xp, *wide, **attributes), dtype=first.dtype)

    return kernel


def on_numpy(function: Function) -> Function:
    """The kernel ``(xp, *xs, **attributes)`` on NumPy arrays: in float64, tile by tile."""

    def kernel(xp: Any, *xs: Any, **attributes: Any) -> Any:
        arrays = tuple([np.asarray(x) for x in xs])
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        out = buffers.empty(shape, next((x.dtype for x in xs if hasattr(x, "dtype")), np.float64))

        def into(*tiles: Any) -> None:
            *given, target = tiles
            wide = [np.broadcast_to(t, target.shape).astype(np.float64).reshape(-1) for t in given]
            target[...] = function(np, *wide, **attributes).reshape(target.shape)

        if out.size:
            tiled_together(into, arrays, (out,), TILE_ELEMENTS)
        return out

    return kernel
