"""Convolutions of bytes as products of matrices whose rows are windows of images.

A window consists of runs of bytes, one for each of its lines. They are concatenated while the rows
of a product are packed (``product_packing``), at no additional cost.
"""

from __future__ import annotations

from typing import ClassVar

from eagerflow.codegen.instructions import item_size
from eagerflow.primitives.llvm.matrix_product import PackedProductWriter


class ByteConvolutionWriter(PackedProductWriter):
    """Writes ``pack`` and ``multiply``, with positions in all images as rows.

    ``a`` is the address of the images. Each has ``image_positions`` windows, and ``line_positions``
    in a line. ``image_next``, ``line_next`` and ``position_next`` are strides of windows in
    elements; ``run_length`` is the length of a run, and ``run_next`` the stride of a window's runs.
    """

    slots: ClassVar[tuple[str, ...]] = (
        *PackedProductWriter.slots,
        *("image_positions", "line_positions", "image_next", "line_next", "position_next"),
        *("run_length", "run_next"),
    )

    def _begin_part(self, part: str) -> None:
        super()._begin_part(part)
        self.part_begin = part

    def _pack_rows(self, a: str, to: str) -> None:
        """Copy the windows from ``first`` to ``last``, limited to the part."""
        v, code, given = self.v, self.code, self.given
        length = given["run_length"]
        end = v.number("add", self.part_begin, self.count)
        first = v.number("udiv", self.part_begin, length)
        last = v.number("add", v.number("udiv", v.number("sub", end, 1), length), 1)
        with code.loop("row", self.first, self.last) as (i, _):
            here = v.step(self.pointer("a"), self._offset(i), item_size(self.terms.a))
            there = v.step(to, v.number("sub", i, self.first), self.row)
            with code.loop("run", first, last) as (run, _):
                before = v.number("mul", run, length)
                begin = self.most(before, self.part_begin)
                stop = self.least(v.number("add", before, length), end)
                source = v.number("mul", run, given["run_next"])
                source = v.number("add", source, v.number("sub", begin, before))
                aim = v.number("sub", begin, self.part_begin)
                self._copy_run(
                    v.step(here, source, item_size(self.terms.a)),
                    v.step(there, aim, self.v.itemsize // self.terms.group),
                    v.number("sub", stop, begin),
                )

    def _offset(self, position: str) -> str:
        """The start of the window at a position."""
        v, given = self.v, self.given
        image = v.number("udiv", position, given["image_positions"])
        inside = v.number("urem", position, given["image_positions"])
        line = v.number("udiv", inside, given["line_positions"])
        place = v.number("urem", inside, given["line_positions"])
        terms = [
            v.number("mul", image, given["image_next"]),
            v.number("mul", line, given["line_next"]),
            v.number("mul", place, given["position_next"]),
        ]
        return v.number("add", v.number("add", terms[0], terms[1]), terms[2])

    def _copy_run(self, source: str, aim: str, count: str) -> None:
        """Copy a number of elements; the next run overwrites any excess."""
        v, several = self.v, self.lanes * self.terms.group
        whole = v.number("mul", v.number("udiv", count, several), several)
        for begin, end in (("0", whole), (whole, count)):
            with self.code.loop("vector", begin, end, several) as (k, _):
                mask = "" if begin == "0" else self.reader.below(v.number("sub", count, k))
                start = v.step(source, k, item_size(self.terms.a))
                units = self.reader.of_first(self.reader.along(start, self.terms.a, mask))
                v.store(units, v.step(aim, k, v.itemsize // self.terms.group))


class ByteConvolutionRowsWriter(ByteConvolutionWriter):
    """Writes ``multiply`` alone, for packed filters."""

    stages = ("multiply",)
