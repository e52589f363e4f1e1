"""The history of a training in a notebook: a curve for each metric, and a table of all numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eagerflow.notebook.markup import BLUE, ORANGE, Markup, element, folded, label, picture, table

MAX_CHARTS, MAX_POINTS, MAX_ROWS = 12, 240, 100
_MARKED = 30  # up to so many points have markers with their numbers
_WIDTH, _HEIGHT = 300.0, 170.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 12.0, 34.0, 24.0
_LOOKS = (("training", BLUE, None), ("validation", ORANGE, "5 3"))
Points = list[tuple[float, float]]


def view(history: Any) -> Markup:
    """A History: charts of training and validation together, the numbers folded."""
    numbers = history.history
    if not numbers:
        return element("div", element("code", "History: no epoch has ended yet"))
    names = list(dict.fromkeys(name.removeprefix("val_") for name in numbers))
    charts = [_chart(name, history) for name in names[:MAX_CHARTS]]
    more = names[MAX_CHARTS:]
    rest = [element("div", f"and {len(more)} more: {', '.join(more)}"[:500])] if more else []
    count = len(history.epoch)
    title = f"History of {count} epoch{'s' * (count != 1)}"
    return element("div", element("code", title), element("div", *charts), *rest, _table(history))


def _points(history: Any, name: str) -> Points:
    """Epochs, counted from 1, and the numbers in them."""
    values = history.history.get(name, ())
    epochs = history._epochs.get(name, ())
    if len(epochs) != len(values):  # the lists were modified
        epochs = range(1, len(values) + 1)
    return list(zip(map(float, epochs), values, strict=True))


def _table(history: Any) -> Markup:
    """All numbers by epoch; of many epochs, a sample at even distances, and the last."""
    names = list(history.history)[: 2 * MAX_CHARTS]
    found = {name: dict(_points(history, name)) for name in names}
    epochs = sorted({epoch for own in found.values() for epoch in own})
    shown = _thinned(epochs, MAX_ROWS)
    rows = [
        (f"{epoch:.0f}", *(f"{own[epoch]:.6g}" if epoch in own else "" for own in found.values()))
        for epoch in shown
    ]
    title = "numbers" if len(shown) == len(epochs) else f"numbers of {len(shown)} epochs"
    return folded(title, table(("epoch", *names), rows, ">" * (1 + len(names))))


def _thinned(items: Sequence[Any], limit: int) -> list[Any]:
    """At most ``limit`` items at even distances, always with the last one."""
    step = -(-len(items) // limit)
    return list(items[::-1][::step][::-1]) if step > 1 else list(items)


# Charts ------------------------------------------------------------------------------------------


def _chart(name: str, history: Any) -> Markup:
    """The curves of a metric in training and validation, in one chart."""
    series = [_points(history, key) for key in (name, f"val_{name}")]
    finite = [p for points in series for p in points if math.isfinite(p[1])]
    ends = "; ".join(
        f"{look[0]} {points[0][1]:.4g} to {points[-1][1]:.4g}"
        for look, points in zip(_LOOKS, series, strict=True)
        if points
    )
    parts = [label(_LEFT, 14, name, font_weight="bold")]
    if finite:
        xs, ys = zip(*finite, strict=True)
        frame = _Frame(min(xs), max(xs), min(ys), max(ys))
        parts += frame.grid()
        for look, points in zip(_LOOKS, series, strict=True):
            if points:
                parts += _curve(frame, _thinned(points, MAX_POINTS), look)
    else:
        parts.append(label(_LEFT, _HEIGHT / 2, "no finite number"))
    at = _LEFT
    for look, points in zip(_LOOKS, series, strict=True):
        if points:
            parts += _legend(at, look, points[-1][1])
            at += 118
    return picture(_WIDTH, _HEIGHT, f"{name} by epoch: {ends}", *parts)


def _legend(x: float, look: tuple[str, str, str | None], last: float) -> list[Markup]:
    name, colour, dashes = look
    line = element(
        "line", x1=x, y1=25, x2=x + 16, y2=25, stroke=colour, stroke_width=2,
        stroke_dasharray=dashes,
    )  # fmt: skip
    return [line, label(x + 20, 28.5, f"{name} {last:.4g}", font_size=10)]


def _curve(frame: _Frame, points: Points, look: tuple[str, str, str | None]) -> list[Markup]:
    """A line through the finite numbers, with gaps at others."""
    name, colour, dashes = look
    commands, pen = [], "M"
    for x, y in points:
        if math.isfinite(y):
            commands.append(f"{pen}{frame.x(x):.1f},{frame.y(y):.1f}")
        pen = "L" if math.isfinite(y) else "M"
    line = element(
        "path", d=" ".join(commands), fill="none", stroke=colour, stroke_width="1.8",
        stroke_dasharray=dashes,
    )  # fmt: skip
    dots = [
        element(
            "g",
            element("title", f"{name}, epoch {x:.0f}: {y:.6g}"),
            element("circle", cx=f"{frame.x(x):.1f}", cy=f"{frame.y(y):.1f}", r="2.5", fill=colour),
        )
        for x, y in (points if len(points) <= _MARKED else ())
        if math.isfinite(y)
    ]
    return [line, *dots]


class _Frame:
    """The coordinates of a chart, with readable ticks."""

    def __init__(self, left: float, right: float, low: float, high: float) -> None:
        self.ticks = ticks(low, high, 4)
        self.bottom, self.top = min(low, self.ticks[0]), max(high, self.ticks[-1])
        self.left, self.right = left, right
        whole = [t for t in ticks(left, right, 5) if t == int(t) and left <= t <= right]
        self.epochs = whole or [left]

    def x(self, x: float) -> float:
        """The distance from the left in pixels."""
        share = (x - self.left) / (self.right - self.left) if self.right > self.left else 0.5
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, y: float) -> float:
        """The distance from the top in pixels; halved, as differences of large floats overflow."""
        half = self.top / 2 - self.bottom / 2
        share = (y / 2 - self.bottom / 2) / half if half else 0.5
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> list[Markup]:
        """Grid lines, and the numbers of the axes."""
        found = []
        for tick in self.ticks:
            y = f"{self.y(tick):.1f}"
            found.append(
                element(
                    "line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, stroke="currentColor",
                    stroke_opacity=".18",
                )
            )  # fmt: skip
            found.append(label(_LEFT - 5, self.y(tick) + 3.5, f"{tick:.4g}", "end", font_size=10))
        for tick in self.epochs:
            found.append(label(self.x(tick), _HEIGHT - 8, f"{tick:.0f}", "middle", font_size=10))
        return found


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round ticks around a range, about ``count``: 1, 2 or 5 times a power of ten apart."""
    span = high / count - low / count
    if not (span > abs(high) * 1e-9 and math.isfinite(span)):
        return [low] if low == high else [low, high]
    power = 10.0 ** math.floor(math.log10(span))
    step = next((power * k for k in (1, 2, 5, 10) if power * k >= span * 0.999), 0.0)
    if not step:  # below the smallest float
        return [low, high]
    first, last = math.floor(low / step), math.ceil(high / step)
    return [k * step for k in range(first, last + 1)]
