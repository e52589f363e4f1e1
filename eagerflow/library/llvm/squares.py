"""The largest element of windows side by side, and where it is, as LLVM's code."""

from __future__ import annotations

from typing import Any, NamedTuple

from eagerflow.library.llvm.pieces import Pieces

__all__ = ["SLOTS", "Form", "Writer"]

SLOTS = ("x", "g", "result")
"""What a frame holds after the numbers of the driver."""


class Form(NamedTuple):
    """What a kernel depends on: an image, and windows that touch no element twice."""

    dtype: str
    height: int
    width: int
    channels: int
    high: int
    """Rows of a window, and from one to the next."""
    wide: int
    rows: int
    """Rows of windows."""
    columns: int
    gradient: bool


class Writer(Pieces):
    """Writes ``kernel``, whose rows are those of the windows of all images."""

    def __init__(self, code: Any, form: Form, lanes: int, slots: list[str]) -> None:
        super().__init__(code, form.dtype, lanes, slots)
        self.form = form
        self.pixel = form.channels * self.v.itemsize

    def module(self) -> str:
        """The text of the module, but for the driver."""
        v, form, code = self.v, self.form, self.code
        line = form.width * self.pixel
        places = [a * line + b * self.pixel for a in range(form.high) for b in range(form.wide)]
        with self.function("kernel"), code.loop("row", "%r0", "%r1") as (row, _):
            image, inside = (code.value(f"{op} i64 {row}, {form.rows}") for op in ("udiv", "urem"))
            above = v.number("mul", image, form.height)
            above = v.number("add", above, v.number("mul", inside, form.high))
            small = v.number("mul", row, form.columns * self.pixel)
            large = v.number("mul", above, line)
            with code.loop("column", "0", str(form.columns)) as (column, _):
                own = v.number("add", small, v.number("mul", column, self.pixel))
                seen = v.number("add", large, v.number("mul", column, form.wide * self.pixel))
                self.parts(form.channels, lambda at, n: self._window(own, seen, at, n, places))
        return self.text()

    def _window(self, own: str, seen: str, at: str, count: int, places: list[int]) -> None:
        """A vector of channels of one window."""
        v = self.v
        x, result = (v.at(self.pointer(name), at) for name in ("x", "result"))
        values = [v.load(v.at(x, seen), place, count) for place in places]
        largest = self._maximum(values)
        if not self.form.gradient:
            v.store(largest, result, own, count)
            return
        given = v.load(v.at(self.pointer("g"), at), own, count)
        self._place(values, largest, given, v.at(result, seen), places, count)

    def _maximum(self, values: list[str]) -> str:
        """The largest value; NaN if there is one, as NumPy has it."""
        code, kind, bits = self.code, self.v.type, f"<{self.v.lanes} x i1>"
        found = values[0]
        for value in values[1:]:
            larger = code.value(f"fcmp ogt {kind} {found}, {value}")
            best = code.value(f"select {bits} {larger}, {kind} {found}, {kind} {value}")
            none = code.value(f"fcmp uno {kind} {found}, {found}")
            found = code.value(f"select {bits} {none}, {kind} {found}, {kind} {best}")
        return found

    def _place(
        self, values: list[str], largest: str, given: str, aim: str, places: list[int], count: int
    ) -> None:
        """An element of g where the window has its first maximum, zeros elsewhere."""
        v, code = self.v, self.code
        bits = f"<{v.lanes} x i1>"
        free = "splat (i1 true)"
        for value, place in zip(values, places, strict=True):
            below = code.value(f"fcmp olt {v.type} {value}, {largest}")
            # With NaN, none is below: the first one gets it.
            hit = code.value(f"select {bits} {below}, {bits} zeroinitializer, {bits} {free}")
            chosen = code.value(f"select {bits} {hit}, {v.type} {given}, {v.type} {v.zero}")
            v.store(chosen, aim, place, count)
            free = code.value(f"and {bits} {free}, {below}")
