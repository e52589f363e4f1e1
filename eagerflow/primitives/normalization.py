"""Layer and RMS normalization of NumPy arrays, and their gradient.

Large arrays use a generated kernel, which reads each row from memory once; others use the same body
as NumPy steps, in tiles of rows that stay in the cache.
"""

from __future__ import annotations

from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen import generated

Axes = tuple[int, ...]


class _Rows:
    """The conversion of arrays to matrices with a row for each normalized set of elements.

    ``side_by_side`` keeps the memory order of axes if the normalized ones are adjacent: later axes
    are then a second axis of rows.
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
        """The rows of ``x``, as a view if possible."""
        return self.view(x.transpose(self.order))

    def view(self, x: Any) -> Any:
        """The rows of an array whose axes are in the order of ``shape``."""
        if self.inner == 1:
            return x.reshape(self.count, self.width)
        planes = self.count // max(self.inner, 1)
        return x.reshape(planes, self.width, self.inner).swapaxes(1, 2)

    def back(self, x: Any) -> Any:
        """An array of ``shape`` with its axes in the original order."""
        x = x.reshape(self.shape)
        return x if self.order == tuple(range(x.ndim)) else x.transpose(_inverse(self.order))

    def all_back(self, outs: Any) -> tuple[Any, Any, Any]:
        """The gradients of x and of two parameters, in their shapes."""
        of_x, of_scale, of_offset = outs
        return self.back(of_x), self.parameter(of_scale), self.parameter(of_offset)

    def line(self, parameter: Any) -> Any:
        """A parameter, one element for each column."""
        return parameter.transpose(self.turn).reshape(self.width)

    def parameter(self, line: Any) -> Any:
        """The inverse of ``line``."""
        return line.reshape(self.sizes).transpose(_inverse(self.turn))


def _inverse(order: Axes) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


# Normalization -----------------------------------------------------------------------------------


def norm(
    body: generated.Body,
    x: Any,
    scale: Any,
    offset: Any,
    axes: Axes,
    epsilon: float,
    center: bool,
) -> Any:
    """``x`` with mean 0 (if ``center``) and mean square 1 over ``axes``, scaled and shifted.

    ``scale`` and ``offset``, or None, have the sizes of ``axes`` for a shape. The ``body`` of a row
    is ``(s, x, epsilon, *parameters, center, scaled, shifted)``.
    """
    given = [p for p in (scale, offset) if p is not None]
    flags = {"center": center, "scaled": scale is not None, "shifted": offset is not None}
    if generated.takes(x):
        arrays = x, np.array(epsilon, x.dtype), *given
        key = body, axes, *flags.values()
        make = partial(_ready_norm, body, arrays, axes, flags)
        return generated.ready(key, arrays, make)(arrays)
    rows = _Rows(x.shape, axes)
    lines = [rows.line(p) for p in given]
    matrix = np.ascontiguousarray(rows.matrix(x))
    out = np.empty_like(matrix)
    if x.size:
        _program(body, x.dtype, 1, len(lines), **flags)(1, matrix, epsilon, *lines, out)
    return rows.back(out)


def _ready_norm(
    body: generated.Body, arrays: tuple[Any, ...], axes: Axes, flags: dict[str, bool], made: Any
) -> Any:
    """``norm`` by machine code, for arrays like these."""
    x, _, *lines = arrays
    rows = _Rows(x.shape, axes, side_by_side=True)
    region = _region(body, x.dtype, 1, rows.axes, len(lines), **flags)

    def enter(arrays: Any) -> list[Any]:
        x, epsilon, *lines, out = arrays
        return [rows.matrix(x), epsilon, *[rows.line(x) for x in lines], rows.view(out)]

    return made.ReadyCall(region, arrays, [rows.shape], enter, rows.back)


@cache
def _region(
    body: generated.Body, kind: Any, arrays: int, axes: str, lines: int, **flags: Any
) -> Any:
    """The region of a body of matrices, epsilon, and lines along their rows."""
    name = kind.name
    operands = ((name, axes),) * arrays + ((name, ""),) + ((name, "n"),) * lines
    return generated.region(body, axes, operands, tuple(flags.items()))


@cache
def _program(body: generated.Body, kind: Any, arrays: int, lines: int, **flags: Any) -> Any:
    """``fill(1, *matrices, epsilon, *lines, *outputs)``."""
    return generated.program(_region(body, kind, arrays, "m n", lines, **flags))


# The gradient ------------------------------------------------------------------------------------


def norm_gradient(
    body: generated.Body,
    x: Any,
    g: Any,
    scale: Any,
    axes: Axes,
    epsilon: float,
    center: bool,
) -> tuple[Any, Any, Any]:
    """Gradients of ``norm`` for x, scale and offset, where ``g`` is that of the result.

    The ``body`` of a row is ``(s, x, g, epsilon, *scale, center, early)``: ``early`` computes sums
    that need a row's factor before it is known, so that all sums take one pass.
    """
    if generated.takes(x):
        arrays = x, g, np.array(epsilon, x.dtype), *(() if scale is None else (scale,))
        make = partial(_ready_gradient, body, arrays, axes, center)
        found: tuple[Any, Any, Any] = generated.ready((body, axes, center), arrays, make)(arrays)
        return found
    rows = _Rows(x.shape, axes)
    lines = [] if scale is None else [rows.line(scale)]
    outs = _gradient_in_steps(body, rows.matrix(x), rows.matrix(g), epsilon, lines, center)
    return rows.all_back(outs)


def _ready_gradient(
    body: generated.Body, arrays: tuple[Any, ...], axes: Axes, center: bool, made: Any
) -> Any:
    """``norm_gradient`` by machine code, for arrays like these."""
    x, _, _, *lines = arrays
    rows = _Rows(x.shape, axes)
    region = _region(body, x.dtype, 2, rows.axes, len(lines), center=center)

    def enter(arrays: Any) -> list[Any]:
        x, g, epsilon, *lines, of_x, of_scale, of_offset = arrays
        given = [rows.matrix(x), rows.matrix(g), epsilon, *[rows.line(x) for x in lines]]
        return [*given, rows.view(of_x), of_scale, of_offset]

    shapes = [rows.shape, (rows.width,), (rows.width,)]
    return made.ReadyCall(region, arrays, shapes, enter, rows.all_back)


def _gradient_in_steps(
    body: generated.Body, x: Any, g: Any, epsilon: float, lines: list[Any], center: bool
) -> Any:
    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    out, sums = np.empty_like(x), np.zeros((2, 1, x.shape[1]), x.dtype)
    if x.size:
        fill = _program(body, x.dtype, 2, len(lines), center=center, early=False)
        fill(1, x, g, epsilon, *lines, out, *sums)
    return out, *sums[:, 0]
