"""How far to go along a line, so that a function falls enough and its slope becomes small.

A search takes ``at(step)``, which returns a ``Point``, the point at 0, and the first step to try.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["SEARCHES", "Point", "backtracking", "strong_wolfe"]

FALL = 1e-4  # sufficient decrease, as a fraction of the linear prediction at 0
FLAT = 0.9  # remaining slope, as a fraction of the slope at 0
MAX_TRIES = 25


class Point(NamedTuple):
    """A step along a line, the function's value and slope there, and its gradient."""

    step: float
    value: float
    slope: float
    gradient: Any = None


At = Callable[[float], Point]


def _falls(point: Point, start: Point) -> bool:
    """Whether the function is low enough; not a number never is."""
    return point.value <= start.value + FALL * point.step * start.slope


def backtracking(at: At, start: Point, step: float) -> Point:
    """Half the step as often as needed for the function to fall enough (Armijo).

    >>> from eagerflow.nn.optimizers.line_searches import Point, backtracking
    >>> parabola = lambda x: Point(x, (x - 1) ** 2, 2 * (x - 1))
    >>> backtracking(parabola, parabola(0.0), 8.0).step
    1.0
    """
    for _ in range(MAX_TRIES):
        point = at(step)
        if _falls(point, start):
            return point
        step /= 2
    return start


def strong_wolfe(at: At, start: Point, step: float) -> Point:
    """The step to where the function has fallen enough and its slope is small.

    Source: Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.5 and 3.6.

    >>> from eagerflow.nn.optimizers.line_searches import Point, strong_wolfe
    >>> parabola = lambda x: Point(x, (x - 1) ** 2, 2 * (x - 1))
    >>> strong_wolfe(parabola, parabola(0.0), 8.0).step
    1.0
    """
    before = start
    for tries in range(MAX_TRIES):
        point = at(step)
        if not _falls(point, start) or (tries and point.value >= before.value):
            return _between(at, start, before, point, MAX_TRIES - tries)
        if abs(point.slope) <= -FLAT * start.slope:
            return point
        if point.slope >= 0:
            return _between(at, start, point, before, MAX_TRIES - tries)
        before, step = point, 2 * step
    return before


def _between(at: At, start: Point, low: Point, high: Point, tries: int) -> Point:
    """A point with a small slope between the lowest one so far and a further one."""
    for _ in range(tries):
        point = at(_lowest(low, high))
        if not _falls(point, start) or point.value >= low.value:
            high = point
            continue
        if abs(point.slope) <= -FLAT * start.slope:
            return point
        if point.slope * (high.step - low.step) >= 0:
            high = low
        low = point
    return low


def _lowest(a: Point, b: Point) -> float:
    """Where the cubic through two points has its minimum, in the inner 8 tenths between them."""
    length = b.step - a.step
    chord = a.slope + b.slope - 3 * (b.value - a.value) / length
    square = chord * chord - a.slope * b.slope
    part = 0.5
    if 0 <= square < math.inf:
        root = math.copysign(math.sqrt(square), length)
        bottom = b.slope - a.slope + 2 * root
        part = 1 - (b.slope + root - chord) / bottom if bottom else 0.5
    return a.step + length * (min(max(part, 0.1), 0.9) if math.isfinite(part) else 0.5)


SEARCHES = {"backtracking": backtracking, "strong_wolfe": strong_wolfe}
"""The line searches by their names."""
