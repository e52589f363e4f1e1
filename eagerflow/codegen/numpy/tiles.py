"""The tiles way: a region on NumPy's ufuncs, a piece of the index space at a time.

It needs only NumPy, starts immediately, and is the reference in tests of machine code. Every step
of a tile is a ufunc that writes into a buffer; a tile is small enough for its buffers to stay in
the cache from the first step to the last, and buffers are reused as soon as their value is dead.

The outputs of a region are computed by nests. A nest cuts the axes of its outputs into tiles,
except those of the row, whose reductions are computed within a tile. Very long rows are cut as
well: then each reduction is a nest of its own, and the elements are recomputed for the next one.
Tiles depend only on shapes, and partial results are combined in the order of the tiles, so results
are bit-identical for any number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen.numpy.tile_plan import TileNest, plan
from eagerflow.codegen.numpy.tile_steps import EXTENT, TABLE, Array, copy
from eagerflow.codegen.numpy.tiling import MAX_TURNED_WIDTH
from eagerflow.codegen.reductions import ufunc
from eagerflow.codegen.region import Region, Statement
from eagerflow.runtime import threads

TILE_ELEMENTS = 1 << 16  # smaller tiles contend for the interpreter's lock
MIN_CUT_ROW_ELEMENTS = 1 << 17  # of a row, from which it is cut
MIN_SHARED_ELEMENTS = 1 << 17  # threshold for using another thread
MAX_GROUPS = 64  # of tiles with partial results that are added sequentially
ALIGNMENT_BYTES = 64

Box = tuple[slice, ...]
WHOLE = slice(None)


def compute(
    region: Region, inputs: Sequence[Array], outputs: Sequence[Array], sizes: dict[str, int]
) -> None:
    """Fill the outputs of a region.

    ``inputs`` and ``outputs`` are in the region's order, have the shapes given by ``sizes``, and
    any strides; an in-place output is its input's array.

    >>> from eagerflow.codegen.builder import Builder
    >>> b = Builder("scale", "m n")
    >>> b.output("y", b.input("x", "float32", "m n") * b.input("s", "float32", "n"))
    >>> x, s, y = np.ones((2, 3), "f"), np.arange(3, dtype="f"), np.empty((2, 3), "f")
    >>> compute(b.region(), (x, s), (y,), {"m": 2, "n": 3})
    >>> y.tolist()
    [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    """
    flat = _flat(region)
    if flat is not None and all(a.flags.c_contiguous for a in (*inputs, *outputs)):
        inputs = [a.reshape(-1) if p.axes else a for a, p in zip(inputs, flat.inputs, strict=True)]
        outputs = [a.reshape(-1) for a in outputs]
        region, sizes = flat, {"all": prod(sizes[a] for a in region.axes)}
    with np.errstate(all="ignore"):
        _Call(region, inputs, outputs, sizes).make()


@lru_cache(1024)
def _flat(region: Region) -> Region | None:
    """The same region along one axis, if each operand has all of its axes or none."""
    parts: tuple[Any, ...] = (*region.inputs, *region.body, *region.outputs)
    if (
        len(region.axes) < 2
        or any(p.axes not in ((), region.axes) for p in parts)
        or any(s.over for s in region.body)
        or any(p.gather for p in region.inputs)
        or not all(o.axes for o in region.outputs)
    ):
        return None

    def flattened(part: Any) -> Any:
        return replace(part, axes=("all",) if part.axes else ())

    inputs, body, outputs = (
        tuple([flattened(x) for x in group])
        for group in (region.inputs, region.body, region.outputs)
    )
    return Region(region.name, ("all",), inputs, body, outputs)


class _Boxes:
    """Pieces of an index space: runs of this length along one axis, for each index before it."""

    def __init__(self, sizes: tuple[int, ...], axis: int, length: int) -> None:
        self._sizes, self._axis, self._length = sizes, axis, length
        self._runs = -(-sizes[axis] // length)
        self._behind = tuple(slice(0, size) for size in sizes[axis + 1 :])

    def __len__(self) -> int:
        return prod(self._sizes[: self._axis]) * self._runs

    def __getitem__(self, number: int) -> Box:
        number, run = divmod(number, self._runs)
        start = run * self._length
        end = min(start + self._length, self._sizes[self._axis])
        found = [slice(start, end), *self._behind]
        for size in self._sizes[self._axis - 1 :: -1] if self._axis else ():
            number, place = divmod(number, size)
            found.insert(0, slice(place, place + 1))
        return tuple(found)


@lru_cache(4096)
def cut(sizes: tuple[int, ...], limit: int) -> tuple[Sequence[Box] | _Boxes, int, int]:
    """Pieces of up to ``limit`` elements: their positions, the largest one, the number of cut axes.

    A piece is a run along one axis, all of about the same length; later axes are whole, earlier
    ones have size 1.
    """
    if prod(sizes) <= limit:
        return [tuple(slice(0, size) for size in sizes)], prod(sizes), 0
    axis = next(i for i in range(len(sizes)) if prod(sizes[i + 1 :]) <= limit)
    behind = prod(sizes[axis + 1 :])
    runs = -(-sizes[axis] // max(1, limit // behind))
    length = -(-sizes[axis] // runs)
    return _Boxes(sizes, axis, length), length * behind, axis + 1


class _Call:
    """An execution of a region on some arrays."""

    def __init__(
        self,
        region: Region,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        sizes: dict[str, int],
    ) -> None:
        self.region, self.sizes, self.inputs = region, sizes, inputs
        self.arrays: dict[str, Any] = {f"{a}{EXTENT}": np.array(sizes[a]) for a in region.axes}
        self.strided: list[str] = []
        for part, array in zip(region.inputs, inputs, strict=True):
            if part.gather:
                self.arrays[f"{part.name}{TABLE}"] = array
                continue
            self.arrays[part.name] = self._in_space(array, part.axes)
            if not array.flags.c_contiguous and not _has_runs(array):
                self.strided.append(part.name)
        self.outputs = [
            self._in_space(array, part.axes)
            for part, array in zip(region.outputs, outputs, strict=True)
        ]

    def _in_space(self, array: Array, axes: tuple[str, ...]) -> Array:
        """The array with all axes of the region, of size 1 where it lacks them."""
        if axes == self.region.axes:
            return array
        return array[tuple(WHOLE if a in axes else None for a in self.region.axes)]

    def make(self) -> None:
        """Run the nests, then store the column reductions."""
        row = prod(self.sizes[a] for a in self.region.reduced_axes)
        for nest in plan(self.region, row >= MIN_CUT_ROW_ELEMENTS):
            _Run(self, nest).make()
        for part, out in zip(self.region.outputs, self.outputs, strict=True):
            value = self.region.statement(part.value)
            if isinstance(value, Statement) and self.region.is_column_reduction(value):
                copy(self.arrays[part.value], out)


def _has_runs(array: Array) -> bool:
    """Whether the last axis is contiguous."""
    for size, stride in zip(array.shape[::-1], array.strides[::-1], strict=True):
        if size != 1:
            return stride == array.itemsize
    return True


class _Run:
    """An execution of a nest: its tiles, distributed to threads."""

    def __init__(self, call: _Call, nest: TileNest) -> None:
        self.call, self.nest = call, nest
        self.axes = call.region.axes
        sizes = call.sizes
        kept = [a for a in nest.cut if a not in nest.over]
        self.width = prod(sizes[a] for a in nest.row)
        limit = max(1, TILE_ELEMENTS // max(1, self.width))
        self.kept, largest, kept_cut = cut(tuple(sizes[a] for a in kept), limit)
        limit = max(1, limit // max(1, largest))
        self.over, _, over_cut = cut(tuple(sizes[a] for a in nest.over), limit)
        self.groups = min(len(self.over), max(1, MAX_GROUPS // len(self.kept)))
        self.places = [self.axes.index(a) for a in (*kept, *nest.over)]
        self.size = prod(sizes[a] for a in nest.cut) * self.width
        rows = self.size // max(1, self.width)
        self.turned = nest.reduces_rows and self.width <= MAX_TURNED_WIDTH and rows >= 64
        pieces = frozenset((*kept[:kept_cut], *nest.over[:over_cut]))
        self.program = nest.program(pieces, self.turned, frozenset(call.strided))
        self.frames: dict[Any, list[Any]] = {}

    def make(self) -> None:
        """Make the calls of the program's start, then those of all tiles."""
        self.registers = self._started()
        for register, step in self.program.sums:
            operand_axes = set(step.axes)
            shape = [self.call.sizes[a] if a in operand_axes else 1 for a in self.axes]
            self.registers[register] = np.empty((self.groups, *shape), step.dtype)
        tasks = len(self.kept) * self.groups
        threads.run_if(tasks > 1 and self.size >= MIN_SHARED_ELEMENTS, self._task, tasks)
        for register, step in self.program.sums:
            parts = self.registers[register]
            join = ufunc(step.reduction)
            self.call.arrays[step.name] = (
                parts[0] if self.groups == 1 else join.reduce(parts, 0, parts.dtype)
            )

    def _started(self) -> list[Any]:
        """The registers that are the same for each tile."""
        program, arrays = self.program, self.call.arrays
        registers: list[Any] = [None] * program.count
        registers[0] = tuple(slice(0, self.call.sizes[a]) for a in self.axes)
        for register, value in program.constants:
            registers[register] = value
        for register, name, _ in program.fixed:
            registers[register] = arrays[name]
        for call, ins, out, axes, dtype in program.start:
            shape = [self.call.sizes[a] if a in axes else 1 for a in self.axes]
            registers[out] = np.empty(shape, dtype)
            call(*[registers[i] for i in ins], out=registers[out])
        return registers

    def _task(self, task: int) -> None:
        """Process the tiles of a group, in order."""
        piece, group = divmod(task, self.groups)
        box = [slice(0, self.call.sizes[a] if a in self.nest.row else 1) for a in self.axes]
        start = group * len(self.over) // self.groups
        end = (group + 1) * len(self.over) // self.groups
        for number in range(start, end):
            for place, run in zip(self.places, self.kept[piece] + self.over[number], strict=True):
                box[place] = run
            self._tile(tuple(box), group, number == start)

    def _tile(self, box: Box, group: int, first: bool) -> None:
        program, call = self.program, self.call
        lengths = tuple(run.stop - run.start for run in box)
        key = threading.get_ident(), lengths
        registers = self.frames.get(key)
        if registers is None:
            registers = self.frames[key] = self._frame(lengths)
        registers[0], registers[1] = box, first
        for register, name, axes in program.moving:
            registers[register] = self._part(call.arrays[name], axes, box)
        for register, place, axes in program.outputs:
            registers[register] = self._part(call.outputs[place], axes, box)
        for register, step in program.sums:
            registers[register] = self._part(self.registers[register][group], step.axes, box)
        for function, ins, out in program.calls:
            function(*[registers[i] for i in ins], out=registers[out])

    def _part(self, array: Any, axes: tuple[str, ...], box: Box) -> Any:
        if axes == self.axes:
            return array[box]
        if not axes:
            return array
        return array[tuple(b if a in axes else WHOLE for a, b in zip(self.axes, box, strict=True))]

    def _frame(self, lengths: tuple[int, ...]) -> list[Any]:
        """Registers for tiles of a size, with this thread's memory for the buffers."""
        registers = self.registers.copy()
        offsets, end = [], 0
        for axes, itemsize in self.program.slots:
            offsets.append(end)
            count = prod(n for a, n in zip(self.axes, lengths, strict=True) if a in axes)
            end += -(-count * itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        arena = threads.scratch("tiles", (end,), np.uint8)
        for register, slot, dtype in self.program.buffers:
            axes = self.program.slots[slot][0]
            registers[register] = self._buffer(axes, lengths, dtype, arena, offsets[slot])
        for register, value, axes, dtype in self.program.filled:
            # Not in the arena, which is shared by frames of other lengths.
            registers[register] = self._buffer(axes, lengths, dtype)
            registers[register].fill(value)
        return registers

    def _buffer(
        self,
        axes: tuple[str, ...],
        lengths: tuple[int, ...],
        dtype: str,
        arena: Array | None = None,
        offset: int = 0,
    ) -> Array:
        shape = [n if a in axes else 1 for a, n in zip(self.axes, lengths, strict=True)]
        if not self.turned:
            return np.ndarray(shape, dtype, arena, offset)
        row = [i for i, a in enumerate(self.axes) if a in self.nest.row]
        order = row + [i for i in range(len(shape)) if i not in row]
        array: Array = np.ndarray([shape[i] for i in order], dtype, arena, offset)
        return array.transpose(np.argsort(order))
