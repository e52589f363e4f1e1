"""Layer and RMS normalization of NumPy arrays, and their gradient.

Large arrays take a generated kernel, which reads each row from memory once; others are worked
through in tiles of rows that stay in the processor's cache. The steps of tiles are written out,
not made from the bodies of regions: these take more calls of NumPy, which is what counts in small
arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen import generated
from eagerflow.primitives.rows import add_up, each_tile, tile_height
from eagerflow.runtime import buffers
from eagerflow.runtime.threads import scratch

Axes = tuple[int, ...]

MIN_COMPILED_ELEMENTS = 1 << 12  # from which a generated kernel costs less than NumPy's steps


class _Rows:
    """How arrays of one shape become matrices with a row for each set of normalized elements.

    ``side_by_side`` leaves axes in their order in memory where the normalized ones are
    neighbours: what lies behind them is then a second axis of rows.
    """

    def __init__(self, shape: tuple[int, ...], axes: Axes, side_by_side: bool = False) -> None:
        normalized = tuple(sorted(axes))
        neighbours = normalized == tuple(range(min(axes, default=0), max(axes, default=0) + 1))
        if side_by_side and neighbours:
            self.order = tuple(range(len(shape)))
            self.inner = prod(shape[normalized[-1] + 1 :])
        else:
            self.order = (*(i for i in range(len(shape)) if i not in axes), *normalized)
            self.inner = 1
        self.shape = tuple(shape[i] for i in self.order)
        self.width = prod(shape[i] for i in axes)
        self.sizes = tuple(shape[i] for i in normalized)
        self.turn = tuple(axes.index(i) for i in normalized)
        self.count = prod(shape) // self.width if self.width else 0

    @property
    def axes(self) -> str:
        """The axes of a region over the matrices."""
        return "m n" if self.inner == 1 else "a m n"

    def matrix(self, x: Any) -> Any:
        """The rows of ``x``, as a view where that is possible."""
        return self.view(x.transpose(self.order))

    def view(self, x: Any) -> Any:
        """The rows of an array whose axes are in the order of ``shape``."""
        if self.inner == 1:
            return x.reshape(self.count, self.width)
        planes = self.count // max(self.inner, 1)
        return x.reshape(planes, self.width, self.inner).swapaxes(1, 2)

    def back(self, x: Any) -> Any:
        """An array of ``shape`` with its axes where they were."""
        return x.reshape(self.shape).transpose(_inverse(self.order))

    def line(self, parameter: Any) -> Any:
        """A parameter, one element for each column."""
        return parameter.transpose(self.turn).reshape(self.width)

    def parameter(self, line: Any) -> Any:
        """The parameter that ``line`` is a form of."""
        return line.reshape(self.sizes).transpose(_inverse(self.turn))


def _inverse(order: Axes) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


# Normalization -----------------------------------------------------------------------------------


def norm(x: Any, scale: Any, offset: Any, axes: Axes, epsilon: float, center: bool) -> Any:
    """``x`` with mean 0 (where ``center``) and mean square 1 over ``axes``, scaled and shifted.

    ``scale`` and ``offset``, or None, have the sizes of ``axes`` as their shape.
    """
    large = generated.takes(x, MIN_COMPILED_ELEMENTS)
    rows = _Rows(x.shape, axes, side_by_side=large)
    given = [None if p is None else rows.line(p) for p in (scale, offset)]
    if large:
        return rows.back(_generated_norm(rows, x, given, epsilon, center))
    matrix = np.ascontiguousarray(rows.matrix(x))
    out = np.empty_like(matrix)

    def work(i: int, s: slice) -> None:
        tile = out[s]
        _standardize_tile(matrix[s], tile, epsilon, center)
        for parameter, combine in zip(given, (np.multiply, np.add), strict=True):
            if parameter is not None:
                combine(tile, parameter, tile)

    each_tile(rows.count, rows.width, work)
    return rows.back(out)


def _generated_norm(rows: _Rows, x: Any, given: list[Any], epsilon: float, center: bool) -> Any:
    kind = x.dtype.name
    parameters = [p for p in given if p is not None]
    operands = ((kind, rows.axes), (kind, ""), *((kind, "n") for _ in parameters))
    scaled, shifted = (p is not None for p in given)
    more = (("center", center), ("scaled", scaled), ("shifted", shifted))
    out = buffers.empty(rows.shape, x.dtype)
    arrays = rows.matrix(x), np.array(epsilon, x.dtype), *parameters
    region = generated.region(norm_body, rows.axes, operands, more)
    generated.compute(region, arrays, (rows.view(out),))
    return out


def norm_body(
    s: Any, x: Any, epsilon: Any, *parameters: Any, center: bool, scaled: bool, shifted: bool
) -> Any:
    """Rows standardized, scaled and shifted, in scalar instructions."""
    middle = s.subtract(x, s.mean(x, "n")) if center else x
    y = s.multiply(middle, s.rsqrt(s.add(s.mean(s.square(middle), "n"), epsilon)))
    if scaled:
        y = s.multiply(y, parameters[0])
    return s.add(y, parameters[-1]) if shifted else y


def _standardize_tile(x: Any, out: Any, epsilon: float, center: bool) -> Any:
    """Fill ``out`` with the standardized rows of ``x``; the result is the factor of each."""
    width = x.shape[1]
    if center:
        x = np.subtract(x, add_up(x, 1, None, None, True) / width, out)
    squares = np.multiply(x, x, scratch("squares", x.shape, x.dtype))
    factor = add_up(squares, 1, None, None, True)
    factor /= width
    factor += epsilon
    np.sqrt(factor, factor)
    np.reciprocal(factor, factor)
    np.multiply(x, factor, out)
    return factor


# The gradient ------------------------------------------------------------------------------------


def norm_gradient(
    x: Any, g: Any, scale: Any, axes: Axes, epsilon: float, center: bool
) -> tuple[Any, Any, Any]:
    """Gradients of ``norm`` by x, scale and offset, where ``g`` is that of the result."""
    rows = _Rows(x.shape, axes)
    line = None if scale is None else rows.line(scale)
    steps: Callable[..., Any] = _tiled_gradient
    if generated.takes(x, MIN_COMPILED_ELEMENTS):
        steps = _generated_gradient
    of_x, *of_parameters = steps(rows.matrix(x), rows.matrix(g), line, epsilon, center)
    of_scale, of_offset = (rows.parameter(p) for p in of_parameters)
    return rows.back(of_x), of_scale, of_offset


def _generated_gradient(x: Any, g: Any, scale: Any, epsilon: float, center: bool) -> Any:
    kind = x.dtype.name
    given = [] if scale is None else [scale]
    operands = ((kind, "m n"), (kind, "m n"), (kind, ""), *((kind, "n") for _ in given))
    region = generated.region(gradient_body, "m n", operands, (("center", center),))
    return generated.run(region, x, g, np.array(epsilon, x.dtype), *given)


def gradient_body(s: Any, x: Any, g: Any, epsilon: Any, *scale: Any, center: bool) -> Any:
    """Gradients by x, scale and offset, in scalar instructions."""
    middle = s.subtract(x, s.mean(x, "n")) if center else x
    u = s.multiply(g, scale[0]) if scale else g
    factor = s.rsqrt(s.add(s.mean(s.square(middle), "n"), epsilon))
    h = s.multiply(middle, factor)
    # The mean of u h, from what one pass can sum while it still looks for the factor.
    along = s.multiply(s.mean(s.multiply(u, middle), "n"), factor)
    rest = s.subtract(u, s.multiply(h, along))
    if center:
        rest = s.subtract(rest, s.mean(u, "n"))
    return s.multiply(rest, factor), s.sum(s.multiply(g, h), "m"), s.sum(g, "m")


def _tiled_gradient(x: Any, g: Any, scale: Any, epsilon: float, center: bool) -> Any:
    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    out = np.empty_like(x)
    count, width = x.shape
    tiles = -(-count // tile_height(width))
    sums = np.zeros((2, tiles, width), x.dtype)

    def work(i: int, s: slice) -> None:
        tile, g_tile = out[s], g[s]
        h = scratch("standardized", tile.shape, tile.dtype)
        factor = _standardize_tile(x[s], h, epsilon, center)
        np.multiply(g_tile, h, tile)
        add_up(tile, 0, None, sums[0, i])
        add_up(g_tile, 0, None, sums[1, i])
        u = g_tile
        if scale is not None:
            np.multiply(tile, scale, tile)
            u = np.multiply(g_tile, scale, scratch("squares", tile.shape, tile.dtype))
        np.multiply(h, add_up(tile, 1, None, None, True) / width, h)
        np.subtract(u, h, tile)
        if center:
            np.subtract(tile, add_up(u, 1, None, None, True) / width, tile)
        np.multiply(tile, factor, tile)

    each_tile(count, width, work)
    return out, *add_up(sums, 1)
