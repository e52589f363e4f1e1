"""The LLVM way: a region's kernel made ready for a layout, and run by threads.

Which variant runs, and where rows and columns are cut, follows from shapes alone, so results
have the same bits with any number of threads.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from eagerflow.kernels import threads
from eagerflow.kernels.cache import ObjectCache
from eagerflow.kernels.layout import Binding, Layout, bind, operands_of, sideways, straight
from eagerflow.kernels.llvm import compiler
from eagerflow.kernels.llvm.lanes import SideNest
from eagerflow.kernels.llvm.nest import Nest, combine_arrays, frame_slots, identity
from eagerflow.kernels.region import Input, Output, Region
from eagerflow.kernels.schedule import schedule

__all__ = ["Code", "assembly", "clear", "compute", "intermediate", "prepare"]

TASK = 1 << 17  # elements of one call, which costs a few µs to hand over
PARALLEL = 1 << 16  # elements from which waking another thread pays
LONG = 1 << 16  # elements of a row from which threads share it
BLOCK = 1 << 15  # elements of a block of such a row
COLUMN_BLOCKS = 32  # blocks of rows at most, each with sums of its own
KEPT = 4096  # kernels kept in memory

_ARGUMENTS = (*[ctypes.c_int64] * 4, ctypes.c_void_p, ctypes.c_void_p)
Function = Callable[..., None]
Operands = list[tuple[Any, tuple[str, ...]]]


# Code --------------------------------------------------------------------------------------------


class Code:
    """A kernel for one layout, ready to call: its functions, and what their frame holds."""

    def __init__(self, region: Region, layout: Layout, variant: str) -> None:
        self.variant = variant
        self.slots = frame_slots(region, layout)
        self.at = {slot: i for i, slot in enumerate(self.slots)}
        names = ["kernel"]
        if variant == "stages":
            names = [f"stage{i}" for i in range(len(schedule(region).passes) + 1)]
        library = compiler.link(_object(region, layout, variant), *names)
        self.functions = [library.function(name, *_ARGUMENTS) for name in names]


_codes: OrderedDict[Any, Code] = OrderedDict()
_making = threading.Lock()
_disk = ObjectCache()


def _renew() -> None:
    global _making
    _making = threading.Lock()  # another thread may have held it when the process forked


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def lanes_of(region: Region, target: compiler.Target) -> int:
    """Elements of a vector: as many of the widest floats, or of 32 bits, as fit."""
    types = [s.dtype for s in region.body] + [p.dtype for p in region.inputs]
    return target.vector_bytes // (8 if "float64" in types else 4)


def intermediate(
    region: Region, layout: Layout, variant: str, target: compiler.Target | None = None
) -> str:
    """The kernel in LLVM's text form."""
    target = target or compiler.host()
    if variant == "side":
        side = SideNest(region, layout, lanes_of(region, target), target.has_halves)
        return side.lanes_kernel()
    nest = Nest(region, layout, lanes_of(region, target), target.has_halves)
    return nest.stages() if variant == "stages" else nest.rows(short=variant == "short")


def assembly(
    region: Region, layout: Layout, variant: str, target: compiler.Target | None = None
) -> str:
    """The kernel as the assembly of a machine."""
    return compiler.assembly(intermediate(region, layout, variant, target), target)


@cache
def _generator() -> str:
    """A digest of the code that writes code: objects of another one are of no use."""
    digest = hashlib.sha256()
    folder = os.path.dirname(os.path.dirname(__file__))
    for place, folders, files in sorted(os.walk(folder)):
        folders.sort()
        for file in sorted(files):
            if file.endswith(".py"):
                with open(os.path.join(place, file), "rb") as source:
                    digest.update(source.read())
    return digest.hexdigest()


def _object(region: Region, layout: Layout, variant: str) -> bytes:
    target = compiler.host()
    key = "\n".join(
        [str(region), str(layout), variant, target.key, compiler.version(), _generator()]
    )
    content = _disk.load(key)
    if content is None:
        content = compiler.compile_object(intermediate(region, layout, variant), target)
        _disk.store(key, content)
    return content


def prepare(region: Region, layout: Layout, variant: str) -> Code:
    """The kernel of a layout, from memory, from disk, or compiled now."""
    key = region.key, layout, variant
    code = _codes.get(key)
    if code is None:
        with _making:
            code = _codes.get(key)
            if code is None:
                code = _codes[key] = Code(region, layout, variant)
                while len(_codes) > KEPT:
                    _codes.popitem(last=False)
    return code


def clear() -> None:
    """Forget all kernels in memory; those on disk stay."""
    with _making:
        _codes.clear()


# Running -----------------------------------------------------------------------------------------


def choose(region: Region, binding: Binding, lanes: int) -> str:
    """The variant for a shape and its strides."""
    rows, width, plan = binding.rows, binding.width, schedule(region)
    reduces = any(p.reductions for p in plan.passes)
    columns = bool(plan.column_results())
    if reduces and not columns and _side_by_side(region, binding):
        return "side"
    if width > LONG and (rows < 16 or not reduces):
        return "stages"
    if not reduces and not columns:
        return "stages"
    if reduces and not columns and width <= lanes:
        return "short"
    return "rows"


def _side_by_side(region: Region, binding: Binding) -> bool:
    """Whether neighbouring elements belong to different rows, so that lanes are rows."""
    if binding.extents[-1] < 4 or any(
        s.instruction == "random_bits" for s in region.body
    ) or any(p.gather for p in region.inputs):
        return False
    strided = [
        abs(outer[-1]) < abs(inner)
        for outer, inner in binding.strides
        if inner
    ]
    return sum(strided) * 2 > len(strided)


class _Launch:
    """One call of a kernel: its frame, and the memory that it works in."""

    def __init__(
        self, region: Region, binding: Binding, operands: Operands, sizes: dict[str, int]
    ) -> None:
        self.region, self.binding = region, binding
        self.rows, self.width = binding.rows, binding.width
        lanes = lanes_of(region, compiler.host())
        variant = choose(region, binding, lanes)
        if variant == "side":
            self.binding = binding = sideways(binding, [a.itemsize for a, _ in operands])
            self.rows = binding.rows
        self.lanes = lanes
        self.code = prepare(region, binding.layout, variant)
        self.frame = (ctypes.c_int64 * len(self.code.slots))()
        self.held: list[Any] = []
        self._describe(operands, sizes)

    def set(self, slot: str, value: int) -> None:
        self.frame[self.code.at[slot]] = value

    def hold(self, slot: str, array: Any) -> None:
        """Let a slot point to an array, which lives as long as the call."""
        self.held.append(array)
        self.set(slot, array.__array_interface__["data"][0])

    def _describe(self, operands: Operands, sizes: dict[str, int]) -> None:
        binding = self.binding
        self.set("width", self.width)
        self.set("side", binding.side)
        for i, step in enumerate(binding.steps or ()):
            self.set(f"s{i}", step)
        for k, extent in enumerate(binding.extents):
            self.set(f"extent{k}", extent)
        for i, (part, (array, _)) in enumerate(
            zip(operands_of(self.region), operands, strict=True)
        ):
            outer, inner = binding.strides[i]
            self.hold(f"p{i}", array)
            self.set(f"i{i}", inner)
            for k, stride in enumerate(outer):
                self.set(f"o{i}_{k}", stride)
            if isinstance(part, Input) and part.gather:
                self.set(f"g{i}", array.strides[0])
        for axis, size in sizes.items():
            self.set(f"size_{axis}", size)
        for slot in ("rows_per_block", "blocks", "block_width"):
            self.set(slot, 1)

    def column_sums(self) -> dict[str, Any]:
        """Memory for column reductions, one line for each block of rows."""
        found = {}
        plan = schedule(self.region)
        height = 1
        if self.code.variant != "stages":
            height = max(-(-self.rows // COLUMN_BLOCKS), TASK // max(self.width, 1), 1)
        self.set("rows_per_block", height)
        self.height = height
        for part in self.region.body:
            if self.region.is_column_reduction(part):
                width = self.width if plan.varies(str(part.operands[0])) else 1
                shape = (max(1, -(-self.rows // height)), width)
                found[part.name] = np.full(
                    shape, identity(part.instruction, part.dtype), part.dtype
                )
                self.hold(f"columns_{part.name}", found[part.name])
        return found

    # By rows ---------------------------------------------------------------------------------

    def by_rows(self, blocks: bool) -> None:
        """Ranges of rows, shared out to threads."""
        function, frame = self.code.functions[0], self.frame
        rows, width = self.rows, self.width
        kept = schedule(self.region).kept
        slot = -(-width * 8 // 64) * 64
        self.set("keep_slot", slot)
        height = self.height if blocks else max(1, TASK // max(width, 1))
        scratch = _scratch(slot * len(kept)) if kept else _no_scratch

        def work(i: int) -> None:
            function(i * height, min((i + 1) * height, rows), 0, width, frame, scratch())

        count = -(-rows // height)
        if rows * width >= PARALLEL:
            threads.run(work, count)
        elif blocks:
            for i in range(count):
                work(i)
        else:
            function(0, rows, 0, width, frame, scratch())

    def sideways(self) -> None:
        """Ranges along the side, of each row of the other axes."""
        function, frame, rows, side = self.code.functions[0], self.frame, self.rows, self.binding.side
        kept = schedule(self.region).kept
        slot = self.width * self.lanes * 8
        self.set("keep_slot", slot)
        scratch = _scratch(slot * len(kept)) if kept else _no_scratch
        width = max(self.lanes, TASK // max(self.width, 1) // self.lanes * self.lanes)
        pieces = max(1, -(-side // width))
        height = max(1, TASK // max(self.width * side, 1))

        def work(i: int) -> None:
            r, c = divmod(i, pieces)
            first, start = r * height, c * width
            last, end = min(first + height, rows), min(start + width, side)
            function(first, last, start, end, frame, scratch())

        if rows * side * self.width >= PARALLEL:
            threads.run(work, -(-rows // height) * pieces)
        else:
            function(0, rows, 0, side, frame, scratch())

    # By stages -------------------------------------------------------------------------------

    def by_stages(self) -> None:
        """Blocks of columns of each row, pass by pass."""
        plan = schedule(self.region)
        rows, width = self.rows, self.width
        block = BLOCK if plan.passes and any(p.reductions for p in plan.passes) else TASK
        blocks = max(1, -(-width // block))
        self.set("blocks", blocks)
        self.set("block_width", block)
        for own in plan.passes:
            for part in own.reductions:
                self.hold(f"partial_{part.name}", np.empty((rows, blocks), part.dtype))
        address = 0
        if plan.kept:
            line = -(-width * 8 // 64) * 64
            self.set("keep_slot", line * rows)
            self.set("keep_row", line)
            room = np.empty(line * rows * len(plan.kept), np.uint8)
            self.held.append(room)
            address = room.ctypes.data
        functions = self.code.functions
        for function in functions[:-1]:
            self._blocks(function, blocks, block, address)
        if plan.row_outputs() or plan.row_columns():
            functions[-1](0, rows, 0, width, self.frame, address)

    def _blocks(self, function: Function, blocks: int, block: int, address: int) -> None:
        rows, width, frame = self.rows, self.width, self.frame
        single = blocks == 1 and not schedule(self.region).column_results()
        height = max(1, TASK // max(width, 1)) if single else 1

        def work(i: int) -> None:
            r, b = divmod(i, blocks)
            first, start = r * height, b * block
            last, end = min(first + height, rows), min(start + block, width)
            function(first, last, start, end, frame, address)

        count = -(-rows // height) * blocks
        if rows * width >= PARALLEL:
            threads.run(work, count)
        elif single:
            function(0, rows, 0, width, frame, address)
        else:
            for i in range(count):
                work(i)


def _no_scratch() -> int:
    return 0


def _scratch(size: int) -> Callable[[], int]:
    """What gives the address of so many bytes of the calling thread's own, for vectors."""

    def address() -> int:
        start: int = threads.scratch("kernel", (size + 64,), np.uint8).ctypes.data
        return -(-start // 64) * 64

    return address


def compute(
    region: Region, inputs: Sequence[Any], outputs: Sequence[Any], sizes: dict[str, int]
) -> None:
    """Fill ``outputs``; all arrays are checked already (``kernels/kernel.py``)."""
    columns = schedule(region).column_results()
    by_column = [(p, a) for p, a in zip(region.outputs, outputs, strict=True) if p.value in columns]
    direct = [(p, a) for p, a in zip(region.outputs, outputs, strict=True)
              if p.value not in columns]  # fmt: skip
    parts: list[tuple[Input | Output, Any]] = [*zip(region.inputs, inputs, strict=True), *direct]
    operands: Operands = [(array, part.axes) for part, array in parts]
    binding = bind(region, operands, sizes)
    copied = operands
    if binding is None:
        copied = straight(region, operands, sizes)
        binding = bind(region, copied, sizes)
        assert binding is not None, "contiguous copies have one stride"
    launch = _Launch(region, binding, copied, sizes)
    partial = launch.column_sums() if columns else {}
    if launch.code.variant == "stages":
        launch.by_stages()
    elif launch.code.variant == "side":
        launch.sideways()
    else:
        launch.by_rows(bool(columns))
    for (part, array), (whole, _), (made, _) in zip(parts, operands, copied, strict=True):
        if made is not whole and isinstance(part, Output):
            array[...] = made
    for out, array in by_column:
        reduction = next(s for s in region.body if s.name == out.value)
        total = combine_arrays(reduction.instruction, partial[out.value])
        array[...] = total.reshape([sizes[a] for a in reduction.axes])
