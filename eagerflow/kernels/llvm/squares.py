"""The largest element of windows side by side, and where it is, as LLVM's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from eagerflow.kernels.llvm.products import Vectors

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


class Writer:
    """Writes ``kernel``, whose rows are those of the windows of all images."""

    def __init__(self, code: Any, form: Form, lanes: int, slots: list[str]) -> None:
        self.code, self.form, self.slots = code, form, slots
        self.v = Vectors(code, form.dtype, lanes)
        self.pixel = form.channels * self.v.itemsize

    def module(self) -> str:
        """The text of the module, but for the driver."""
        v, form, code = self.v, self.form, self.code
        code.lines.append(
            "define void @kernel(i64 %r0, i64 %r1, i64 %c0, i64 %c1, ptr %frame, ptr %scratch) "
            "nounwind {"
        )
        code.label("entry")
        x, g, result = (v.pointer(self.slots.index(name)) for name in SLOTS)
        line = form.width * self.pixel
        with code.loop("row", "%r0", "%r1") as (row, _):
            image, inside = (code.value(f"{op} i64 {row}, {form.rows}") for op in ("udiv", "urem"))
            above = v.number("mul", image, form.height)
            above = v.number("add", above, v.number("mul", inside, form.high))
            small = v.number("mul", row, form.columns * self.pixel)
            large = v.number("mul", above, line)
            with code.loop("column", "0", str(form.columns)) as (column, _):
                own = v.number("add", small, v.number("mul", column, self.pixel))
                seen = v.number("add", large, v.number("mul", column, form.wide * self.pixel))
                places = [a * line + b * self.pixel for a in range(form.high)
                          for b in range(form.wide)]  # fmt: skip
                if form.gradient:
                    starts = v.at(x, seen), v.at(g, own), v.at(result, seen)
                    self._parts(lambda at, n, s=starts: self._place(at, n, *s, places))
                else:
                    starts = v.at(x, seen), v.at(result, own)
                    self._parts(lambda at, n, s=starts: self._largest(at, n, *s, places))
        code.line("ret void")
        code.lines.append("}")
        return "\n".join([*code.lines, *code.declarations.values(), ""])

    def _parts(self, one: Callable[[str, int], None]) -> None:
        """Call ``one(offset, count)`` in a loop over whole vectors, and for what is left."""
        whole, rest = divmod(self.form.channels, self.v.lanes)
        if whole:
            with self.code.loop("part", "0", str(whole)) as (i, _):
                one(self.v.number("mul", i, self.v.size), self.v.lanes)
        if rest:
            one(str(whole * self.v.size), rest)

    def _read(self, start: str, places: list[int], count: int) -> list[str]:
        return [self.v.load(start, place, count) for place in places]

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

    def _largest(self, at: str, count: int, x: str, result: str, places: list[int]) -> None:
        values = self._read(self.v.at(x, at), places, count)
        self.v.store(self._maximum(values), result, at, count)

    def _place(self, at: str, count: int, x: str, g: str, result: str, places: list[int]) -> None:
        """An element of g where the window has its first maximum, zeros elsewhere."""
        v, code = self.v, self.code
        bits = f"<{v.lanes} x i1>"
        values = self._read(v.at(x, at), places, count)
        largest, given = self._maximum(values), v.load(g, at, count)
        free = "splat (i1 true)"
        aim = v.at(result, at)
        for value, place in zip(values, places, strict=True):
            below = code.value(f"fcmp olt {v.type} {value}, {largest}")
            # With NaN, none is below: the first one gets it.
            hit = code.value(f"select {bits} {below}, {bits} zeroinitializer, {bits} {free}")
            chosen = code.value(f"select {bits} {hit}, {v.type} {given}, {v.type} {v.zero}")
            v.store(chosen, aim, place, count)
            free = code.value(f"and {bits} {free}, {below}")
