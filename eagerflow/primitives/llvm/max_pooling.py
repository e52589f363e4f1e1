"""Max pooling over adjacent windows, and its gradient, in LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from eagerflow.primitives.llvm.stage_writer import StageWriter


class MaxPoolConfig(NamedTuple):
    """The parameters of a kernel: an image, and windows that do not overlap."""

    dtype: str
    height: int
    width: int
    channels: int
    high: int
    """Rows of a window, and their stride."""
    wide: int
    rows: int
    """Rows of windows."""
    columns: int
    gradient: bool


class MaxPoolWriter(StageWriter):
    """Writes ``kernel``, with the rows of windows of all images as rows."""

    stages = ("kernel",)
    slots = ("x", "g", "result")

    def __init__(self, llvm: Any, frame: Sequence[str], config: MaxPoolConfig, lanes: int) -> None:
        super().__init__(llvm, frame, config.dtype, lanes)
        self.config = config
        self.pixel = config.channels * self.v.itemsize

    def _kernel(self) -> None:
        v, config, code = self.v, self.config, self.code
        line = config.width * self.pixel
        places = [a * line + b * self.pixel for a in range(config.high) for b in range(config.wide)]
        with code.loop("row", "%r0", "%r1") as (row, _):
            image, inside = (v.number(op, row, config.rows) for op in ("udiv", "urem"))
            above = v.number("mul", image, config.height)
            above = v.number("add", above, v.number("mul", inside, config.high))
            small = v.number("mul", row, config.columns * self.pixel)
            large = v.number("mul", above, line)
            with code.loop("column", 0, config.columns) as (column, _):
                own = v.number("add", small, v.number("mul", column, self.pixel))
                seen = v.number("add", large, v.number("mul", column, config.wide * self.pixel))
                self.parts(config.channels, lambda at, n: self._window(own, seen, at, n, places))

    def _window(self, own: str, seen: str, at: str, count: int, places: list[int]) -> None:
        """A vector of channels of one window."""
        v = self.v
        x, result = (v.at(self.pointer(name), at) for name in ("x", "result"))
        values = [v.load(v.at(x, seen), place, count) for place in places]
        # NaN if there is one, as in NumPy.
        largest = reduce(self.s.maximum, values)
        if not self.config.gradient:
            v.store(largest, result, own, count)
            return
        given = v.load(v.at(self.pointer("g"), at), own, count)
        self._place(values, largest, given, v.at(result, seen), places, count)

    def _place(
        self, values: list[Any], largest: Any, given: Any, aim: str, places: list[int], count: int
    ) -> None:
        """An element of g at the first maximum of the window, zeros elsewhere."""
        s, free = self.s, self.s.constant(True, "bool")
        for value, place in zip(values, places, strict=True):
            below = s.less(value, largest)
            # No comparison with NaN is true: the first element gets it.
            hit = s.select(below, False, free)
            self.v.store(s.select(hit, given, 0), aim, place, count)
            free = s.logical_and(free, below)
