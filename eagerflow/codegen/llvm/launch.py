"""The LLVM way: a region's kernel prepared for a layout, and run by threads.

The choice of the variant, and the division of rows and columns, depend only on shapes, so results
are bit-identical for any number of threads.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen.layout import (
    Binding,
    Layout,
    bind,
    imagined,
    operands_of,
    sideways,
    straight,
)
from eagerflow.codegen.llvm.driver import RUN, SLOTS, counters, driver
from eagerflow.codegen.llvm.groups import GroupNest
from eagerflow.codegen.llvm.lanes import SideNest
from eagerflow.codegen.llvm.nest import Nest, frame_slots, homes, reduces_outer_axes
from eagerflow.codegen.llvm.team import Team
from eagerflow.codegen.reductions import ROWS_OF_A_LINE, identity, joined
from eagerflow.codegen.region import Input, Region, Statement
from eagerflow.codegen.schedule import schedule
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked, reentrant_lock
from eagerflow.runtime import machine_code, threads
from eagerflow.runtime.buffers import empty
from eagerflow.runtime.cache import ObjectCache
from eagerflow.runtime.compilation import Compilation

TASK_ELEMENTS = 1 << 15  # of one piece; threads take pieces by an atomic counter
MIN_SHARED_ELEMENTS = 1 << 17  # threshold for using another thread
MAX_SHORT_WIDTH = 2048  # elements of a row that is summed without turns
MAX_OWN_WIDTH = 1 << 16  # elements of a row up to which one thread processes it alone
MAX_GROUPED_WIDTH = 256  # elements of a row up to which rows are processed in groups
BLOCK_ELEMENTS = 1 << 15  # of a block of a longer row
MAX_COLUMN_PIECES = 32  # of rows, for column reductions
VECTOR_ALIGNMENT_BYTES = 64
MAX_KEPT_KERNELS = 64  # that no call holds; those in calls are in memory anyway

Operands = list[tuple[Any, tuple[str, ...]]]


# Code --------------------------------------------------------------------------------------------


class CompiledKernel:
    """A kernel for one layout, ready to call: its functions, and the layout of their frame."""

    def __init__(self, region: Region, layout: Layout, variant: str) -> None:
        self.variant = variant
        self.slots = frame_slots(region, layout)
        self.at = {slot: i for i, slot in enumerate(self.slots)}
        stages, last = _stages(region, variant)
        self.counters = ctypes.c_int64 * counters(len(stages))
        own, host = f"{region}\n{layout}\n{variant}", machine_code.host()
        content = compiled(own, lambda: intermediate(region, layout, variant), host)
        self.alone = len(stages) == 1 and last is None and variant != "side"
        self.linked = Linked(content, stages if last is None else [*stages, last])

    @property
    def function(self) -> Any:
        """``run(frame, scratch, counters)``."""
        return self.linked.run

    @property
    def piece(self) -> int:
        """The address of the function of a piece, if that is the whole kernel, else 0."""
        return next(iter(self.linked.pieces.values())) if self.alone else 0


_kernels: weakref.WeakValueDictionary[Any, CompiledKernel] = weakref.WeakValueDictionary()
_latest: deque[CompiledKernel] = deque(maxlen=MAX_KEPT_KERNELS)
_making: dict[Any, Any] = {}  # held during a compilation; others are not blocked
_disk = ObjectCache()


def _renew() -> None:
    _making.clear()  # another thread may have held one during a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def lanes_of(region: Region, target: machine_code.Target) -> int:
    """Elements of a vector: as many of the widest floats, or of 32 bits, as fit."""
    types = [s.dtype for s in region.body] + [p.dtype for p in region.inputs]
    return target.vector_bytes // (8 if "float64" in types else 4)


def intermediate(
    region: Region, layout: Layout, variant: str, target: machine_code.Target | None = None
) -> str:
    """The kernel in LLVM's text form."""
    target = target or machine_code.host()
    given = region, layout, lanes_of(region, target), target
    if variant == "side":
        text = SideNest(*given).kernel()
    elif variant in ("short", "group"):
        text = GroupNest(*given).kernel(single=variant == "short")
    else:
        text = Nest(*given).stages() if variant == "stages" else Nest(*given).rows()
    stages, last = _stages(region, variant)
    return text + driver(stages, last, frame_slots(region, layout), target.triple)


def _stages(region: Region, variant: str) -> tuple[list[str], str | None]:
    """The functions of pieces, in order, and one of all rows after them."""
    if variant != "stages":
        return ["kernel"], None
    plan = schedule(region)
    names = [f"stage{i}" for i in range(len(plan.passes))]
    return names, f"stage{len(names)}" if plan.has_row_results() else None


def assembly(
    region: Region, layout: Layout, variant: str, target: machine_code.Target | None = None
) -> str:
    """The kernel as machine assembly."""
    return machine_code.assembly(intermediate(region, layout, variant, target), target)


@cache
def source_digest(folder: str) -> str:
    """A digest of a folder's code: cached objects are only valid for the same generator."""
    digest = hashlib.sha256()
    for place, folders, files in sorted(os.walk(folder)):
        folders.sort()
        for file in sorted(files):
            if file.endswith(".py"):
                with open(os.path.join(place, file), "rb") as source:
                    digest.update(source.read())
    return digest.hexdigest()


def compiled(own: str, text: Callable[[], str], target: machine_code.Target) -> Callable[[], bytes]:
    """A future of a module's object, from disk or compiled in the background from ``text()``.

    ``own`` identifies the module among all of the same generator.
    """
    generator = source_digest(os.path.dirname(os.path.dirname(__file__)))
    key = "\n".join([own, target.key, machine_code.version(), generator])
    found = _disk.load(key)
    if found is not None:
        return lambda: found
    code = text()

    def make() -> bytes:
        content = machine_code.compile_object(code, target)
        _disk.store(key, content)
        return content

    return Compilation(make).content


class Linked:
    """The functions of an object, which may still be compiling: callers block until it is ready.

    No lock is held meanwhile, as a fork would leave it locked. If threads link it at the same time,
    all use the first one's functions, as the code of others is freed with its owner.
    """

    def __init__(self, content: Callable[[], bytes], pieces: Sequence[str]) -> None:
        self._content, self._names = content, pieces
        self._found: dict[str, tuple[Any, dict[str, int]]] = {}

    @property
    def run(self) -> Any:
        """``run(frame, scratch, counters)``."""
        return (self._found.get(RUN) or self._link())[0]

    @property
    def pieces(self) -> dict[str, int]:
        """The addresses of functions of pieces, by name."""
        return (self._found.get(RUN) or self._link())[1]

    def _link(self) -> tuple[Any, dict[str, int]]:
        library = machine_code.link(self._content(), RUN, *self._names)
        function = library.function(RUN, *[ctypes.c_void_p] * 3)
        made = function, {name: library.address(name) for name in self._names}
        return self._found.setdefault(RUN, made)


def prepare(region: Region, layout: Layout, variant: str) -> CompiledKernel:
    """The kernel of a layout, from memory, from disk, or newly compiled."""
    key = region.key, layout, variant
    code = _kernels.get(key)
    if code is None:
        with Locked(_making.setdefault(key, reentrant_lock())):
            code = _kernels.get(key)
            if code is None:
                code = _kernels[key] = CompiledKernel(region, layout, variant)
                _latest.append(code)
        _making.pop(key, None)
    return code


def clear() -> None:
    """Drop all kernels in memory; those on disk stay."""
    _kernels.clear()
    _latest.clear()


# Running -----------------------------------------------------------------------------------------


def _power_of_two(least: int) -> int:
    """The least power of two that is at least a number."""
    return 1 << (max(least, 1) - 1).bit_length()


def choose(region: Region, binding: Binding, lanes: int) -> str:
    """The variant for a shape and its strides."""
    rows, width, plan = binding.rows, binding.width, schedule(region)
    reduces = any(p.reductions for p in plan.passes)
    if reduces and not region.columns and _side_by_side(region, binding):
        return "side"
    if width > MAX_OWN_WIDTH and (rows < 16 or not reduces):
        return "stages"
    if not reduces and not region.columns:
        return "stages"
    if reduces and width <= MAX_GROUPED_WIDTH and _one_line(region):
        return "short" if width <= lanes else "group"
    return "rows"


def _one_line(region: Region) -> bool:
    """Whether all rows are added to the same line of each column reduction."""
    return all(reduces_outer_axes(region, s) for s in region.columns.values())


def _side_by_side(region: Region, binding: Binding) -> bool:
    """Whether neighboring elements belong to different rows, so that lanes are rows."""
    made = any(s.instruction == "random_bits" for s in region.body)
    if binding.extents[-1] < 4 or made or any(p.gather for p in region.inputs):
        return False
    closer = [abs(outer[-1]) < abs(inner) for outer, inner in binding.strides if inner]
    return sum(closer) * 2 > len(closer)


# Offsets in bytes of addresses in objects and arrays.
TYPE_OFFSET = object.__basicsize__ - 8
DATA_OFFSET = object.__basicsize__
STRIDES_OFFSET = DATA_OFFSET + 24
OWNER_OFFSET = DATA_OFFSET + 32  # that of the owner of an array's memory
DTYPE_OFFSET = DATA_OFFSET + 40
_word = ctypes.c_uint64.from_address


def _plain_address(array: Any) -> int:
    start: int = array.ctypes.data
    return start


def _quick_address(array: Any) -> int:
    start: int = _word(id(array) + DATA_OFFSET).value
    return start


def _address() -> Callable[[Any], int]:
    """A function that returns an array's address: in 0.1 µs if the object's layout is known."""
    probe = np.zeros(3)
    try:
        return _quick_address if _quick_address(probe) == probe.ctypes.data else _plain_address
    except raised_here(ValueError, TypeError):
        return _plain_address


address = _address()


def own_scratch(name: str, size: int) -> tuple[Any, int]:
    """Memory of the calling thread, and its first aligned address."""
    memory = threads.scratch(name, (size,), np.uint8)
    return memory, aligned_address(memory)


def scratch_of_segment(size: int) -> Callable[[], tuple[Any, int]] | None:
    """A function that returns thread-local memory for the jobs of a segment; None if unneeded.

    Each power of two has memory of its own: small kernels do not touch the large ones'.
    """
    bits = size.bit_length()
    return (lambda: own_scratch(f"segment {bits}", 2 << bits)) if bits else None


def aligned_address(memory: Any) -> int:
    """The first aligned address in memory."""
    return whole_lines(address(memory))


def whole_lines(size: int) -> int:
    """The next multiple of a vector's largest alignment, which is also that of a cache line."""
    return -(-size // VECTOR_ALIGNMENT_BYTES) * VECTOR_ALIGNMENT_BYTES


def share(
    function: Any,
    frame: Any,
    counters: Any,
    scratch: Callable[[], tuple[Any, int]] | None,
    helpers: int,
) -> None:
    """Run a kernel on a frame, with a number of helpers; none works on it afterwards."""
    if helpers < 1:
        memory = None if scratch is None else scratch()  # kept alive until the call has ended
        function(frame, 0 if memory is None else memory[1], counters)
        return
    entry = ctypes.cast(function, ctypes.c_void_p).value or 0
    job = (ctypes.c_int64 * 4)(entry, ctypes.addressof(frame), 0, ctypes.addressof(counters))
    held = function, frame, counters, job
    Team([ctypes.addressof(job)], held, scratch).run(helpers)


class Launch:
    """A kernel for operands of one shape and layout, ready to run on similar arrays."""

    def __init__(
        self, region: Region, binding: Binding, operands: Operands, sizes: dict[str, int]
    ) -> None:
        self.region, self.plan, self.sizes = region, schedule(region), sizes
        self.lanes = lanes_of(region, machine_code.host())
        variant = choose(region, binding, self.lanes)
        if variant == "side":
            binding = sideways(binding, [a.itemsize for a, _ in operands])
        self.variant, self.binding = variant, binding
        self.rows, self.width, self.side = binding.rows, binding.width, binding.side
        longest = ROWS_OF_A_LINE if variant == "side" else MAX_SHORT_WIDTH
        layout = replace(binding.layout, long=binding.width > longest)
        self.code = prepare(region, layout, variant)
        self.at = self.code.at
        self.frame_type = ctypes.c_int64 * len(self.code.slots)
        self.template = self.frame_type()
        self._describe(operands, sizes)
        self._cut()
        self.pointers = [self.at[f"p{i}"] for i in range(len(operands))]

    def _set(self, slot: str, value: int) -> None:
        self.template[self.at[slot]] = value

    def _describe(self, operands: Operands, sizes: dict[str, int]) -> None:
        """The frame without addresses."""
        binding = self.binding
        self._set("width", self.width)
        self._set("side", binding.side)
        for i, step in enumerate(binding.steps or ()):
            self._set(f"s{i}", step)
        for k, extent in enumerate(binding.extents):
            self._set(f"extent{k}", extent)
        for i, part in enumerate(operands_of(self.region)):
            outer, inner = binding.strides[i]
            self._set(f"i{i}", inner)
            for k, stride in enumerate(outer):
                self._set(f"o{i}_{k}", stride)
            if isinstance(part, Input) and part.gather:
                self._set(f"g{i}", operands[i][0].strides[0])
        for axis, size in sizes.items():
            self._set(f"size_{axis}", size)

    def _cut(self) -> None:
        """The division of rows and columns, and the memory for kept values."""
        rows, width, side = self.rows, max(self.width, 1), self.side
        self.parallel = rows * self.width * side >= MIN_SHARED_ELEMENTS
        self.height, self.span, self.blocks = max(1, TASK_ELEMENTS // (width * side)), self.width, 1
        line = -(-self.width * 8 // 64) * 64
        away = set(self.plan.kept)
        if self.variant not in ("side", "short"):
            away -= set(homes(self.region, self.binding.layout))
        # Buffers are numbered by all kept values; if all have a home, none is needed.
        lines = len(self.plan.kept) if away else 0
        self.scratch = line * lines
        self.column_shapes: dict[str, tuple[int, int, int]] = {}
        self.neutral: dict[str, Any] = {}  # the initial values of column reductions
        if self.variant == "side":
            piece = max(self.lanes, TASK_ELEMENTS // width // self.lanes * self.lanes)
            self.span, self.blocks = piece, max(1, -(-side // piece))
            line = self.width * self.lanes * 8
            self.scratch = line * lines
        elif self.variant == "stages":
            reduces = any(p.reductions for p in self.plan.passes)
            self.span = BLOCK_ELEMENTS if reduces else TASK_ELEMENTS
            self.blocks = max(1, -(-self.width // self.span))
            if self.region.columns or self.blocks > 1:
                self.height = 1
            self.scratch *= rows
            self._set("keep_row", line)
            line *= rows
        elif self.region.columns:
            least = max(-(-rows // MAX_COLUMN_PIECES), TASK_ELEMENTS // width, 1)
            self.height = _power_of_two(least)  # compatible with that of other kernels
        if self.variant in ("short", "group"):
            self._set("keep_row", line)
            line *= self.lanes
            self.scratch *= self.lanes
        self.count = -(-rows // self.height) * self.blocks
        whole = side if self.variant == "side" else self.width
        for slot, value in zip(
            SLOTS, (rows, whole, self.height, self.span, self.blocks, self.count), strict=True
        ):
            self._set(slot, value)
        self._set("keep_slot", line)
        self._set("block_width", max(self.span, 1))
        for name, part in self.region.columns.items():
            self._cut_columns(name, part)

    def _cut_columns(self, name: str, part: Statement) -> None:
        """The blocks of rows with a line each: few enough rows for accurate sums."""
        across = self.width if self.plan.varies(str(part.operands[0])) else 1
        outer = self.region.axes[: -len(self.region.row_axes)]
        middle = prod(self.sizes[a] for a in outer if a not in part.over)
        block = min(self.height, _power_of_two(middle * ROWS_OF_A_LINE))
        self._set(f"shift_{name}", block.bit_length() - 1)
        self._set(f"middle_{name}", max(middle, 1))
        self.column_shapes[name] = (max(1, -(-self.rows // block)), middle, across)
        self.neutral[name] = identity(part.instruction, part.dtype)

    def __call__(
        self, arrays: Sequence[Any], lines: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run on arrays; returns the partial results of each column reduction.

        ``lines`` are preallocated arrays for some of them.
        """
        frame = self.frame_type.from_buffer_copy(self.template)
        for slot, array in zip(self.pointers, arrays, strict=True):
            frame[slot] = address(array)
        partial = self.partial_columns(frame, lines)
        for name, array in partial.items():
            array.fill(self.neutral[name])
        held = self.reserve(frame) if self.variant == "stages" else []
        own = None
        if self.scratch:
            own = (lambda: (held, address(held[-1]))) if held else self.own_scratch
        many = min(self.count, 1 + threads.helpers()) if self.parallel else 1
        share(self.code.function, frame, self.code.counters(), own, many - 1)
        return partial

    def partial_columns(self, frame: Any, lines: dict[str, Any] | None = None) -> dict[str, Any]:
        """Arrays for the partial results of column reductions, as passed in a frame."""
        found = {}
        for name, shape in self.column_shapes.items():
            made = None if lines is None else lines.get(name)
            if made is None:
                made = np.empty(shape, self.region.statement(name).dtype)
            found[name] = made
            frame[self.at[f"columns_{name}"]] = address(made)
        return found

    def own_scratch(self) -> tuple[Any, int]:
        """Memory of the calling thread, and the part that kernels may use."""
        return own_scratch("kernel", self.scratch + VECTOR_ALIGNMENT_BYTES)

    def reserve(self, frame: Any) -> list[Any]:
        """Memory for values that stages pass to later ones; at the end, that of kept values."""
        held = []
        for own in self.plan.passes:
            for part in own.reductions:
                held.append(np.empty((self.rows, self.blocks), part.dtype))
                frame[self.at[f"partial_{part.name}"]] = address(held[-1])
        if self.scratch:
            held.append(empty((self.scratch,), np.dtype(np.uint8)))
        return held


def _lookups(region: Region) -> list[tuple[int, int]]:
    """Inputs with lookups and their indices, unless there is one index per row."""
    names = [p.name for p in region.inputs]
    pairs = [(i, names.index(p.gather)) for i, p in enumerate(region.inputs) if p.gather]
    inner = set(region.row_axes)
    far = [inner & {*region.inputs[i].axes[:1], *region.inputs[k].axes} for i, k in pairs]
    return pairs if any(far) else []


def _read_again(region: Region, sizes: dict[str, int]) -> list[int]:
    """Inputs that later rows still read after an earlier row has replaced them."""
    names = [p.name for p in region.inputs]
    return [
        names.index(out.inplace)
        for out in region.outputs
        if out.inplace and any(a not in out.axes and sizes[a] > 1 for a in region.axes)
    ]


def can_run(region: Region, sizes: dict[str, int]) -> bool:
    """Whether there is a kernel for a region of these extents.

    Empty loops write nothing, not even values of other axes; and a reduction across rows of some of
    a row's axes is neither a row's sum nor a column's.
    """
    inner = set(region.row_axes)
    return 0 not in sizes.values() and all(
        inner.isdisjoint(s.over) for s in region.columns.values()
    )


class KernelCall:
    """A region prepared for arrays of certain shapes and strides; called with arrays."""

    def __init__(
        self, region: Region, inputs: Sequence[Any], outputs: Sequence[Any], sizes: dict[str, int]
    ) -> None:
        self.sizes = sizes
        self.lookups = _lookups(region)
        self.region = region = region.without_gathers if self.lookups else region
        self.direct = [i for i, p in enumerate(region.outputs) if p.value not in region.columns]
        self.columns = [i for i, p in enumerate(region.outputs) if p.value in region.columns]
        self.saved = _read_again(region, sizes)
        operands = self._operands(self._ready(inputs, read=False), outputs)
        binding = bind(region, operands, sizes)
        self.copies = binding is None
        if binding is None:
            operands = straight(region, operands, sizes, read=False)
            binding = bind(region, operands, sizes)
            assert binding is not None, "contiguous copies have one stride"
        self.launch = Launch(region, binding, operands, sizes)

    def _operands(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Operands:
        arrays = [*inputs, *(outputs[i] for i in self.direct)]
        return [(a, p.axes) for a, p in zip(arrays, operands_of(self.region), strict=True)]

    def _ready(self, inputs: Sequence[Any], read: bool = True) -> Sequence[Any]:
        """The inputs, with rows looked up and with copies of those read after they are replaced.

        Without ``read`` these are ``imagined``.
        """
        if not (self.lookups or self.saved):
            return inputs
        found = list(inputs)
        for i in self.saved:
            found[i] = found[i].copy() if read else imagined(found[i].shape, found[i].dtype)
        for i, index in self.lookups:
            part, by = self.region.inputs[i], self.region.inputs[index]
            shape = (*inputs[index].shape, *inputs[i].shape[1:])  # of the index, then of its rows
            rows = inputs[i][inputs[index]] if read else imagined(shape, inputs[i].dtype)
            axes = (*by.axes, *part.axes[1:])
            order = sorted(range(len(axes)), key=lambda k: self.region.axes.index(axes[k]))
            own = tuple(self.sizes[a] if a in axes else 1 for a in part.axes)
            full = tuple(self.sizes[a] for a in part.axes)
            found[i] = np.broadcast_to(rows.transpose(order).reshape(own), full)
        return found

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Fill ``outputs``, in the region's order."""
        inputs = self._ready(inputs)
        if self.copies:
            self._copied(inputs, outputs)
            return
        if self.columns:
            lines = self._lines(outputs)
            partial = self.launch([*inputs, *(outputs[i] for i in self.direct)], lines)
            self._join(partial, outputs)
        else:
            self.launch((*inputs, *outputs))

    def _lines(self, outputs: Sequence[Any]) -> dict[str, Any]:
        """Column reductions of a single block of rows, which need no combination."""
        found: dict[str, Any] = {}
        for i in self.columns:
            out, array = self.region.outputs[i], outputs[i]
            shape = self.launch.column_shapes[out.value]
            part = self.region.statement(out.value)
            whole = shape[0] == 1 and prod(shape) == array.size and out.inplace is None
            if whole and array.flags.c_contiguous and out.dtype == part.dtype:
                found.setdefault(out.value, array)
        return found

    def _copied(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        operands = self._operands(inputs, outputs)
        copies = straight(self.region, operands, self.sizes)
        partial = self.launch([array for array, _ in copies])
        for (whole, own), (made, axes) in zip(
            operands[len(inputs) :], copies[len(inputs) :], strict=True
        ):
            if made is not whole:
                whole[...] = made[tuple(slice(None) if a in own else 0 for a in axes)]
        self._join(partial, outputs)

    def _join(self, partial: dict[str, Any], outputs: Sequence[Any]) -> None:
        """Fill the outputs of column reductions, except those that were summed in place."""
        for i in self.columns:
            self._join_one(partial, outputs, i)

    def _join_one(self, partial: dict[str, Any], outputs: Any, i: int) -> None:
        out = self.region.outputs[i]
        lines, part = partial[out.value], self.region.statement(out.value)
        if lines is outputs[i] or not isinstance(part, Statement):
            return
        with np.errstate(all="ignore"):
            shaped = lines.reshape(self.launch.column_shapes[out.value])
            total = self._along_own(joined(part.instruction, shaped), part)
            shape = [self.sizes[a] if a in part.axes else 1 for a in out.axes]
            # Arrays of a plan may have axes of size 1 that the region lacks.
            own = outputs[i] if outputs[i].ndim == len(shape) else outputs[i].squeeze()
            own[...] = total.reshape(shape)

    def _along_own(self, total: Any, part: Any) -> Any:
        """A column reduction without the axes along which its operand is constant."""
        inner = self.region.row_axes
        varies = total.shape[-1] != 1 or not set(inner).isdisjoint(part.axes)
        axes = [a for a in self.region.axes if a not in part.over and (varies or a not in inner)]
        whole = total.reshape([self.sizes[a] for a in axes])
        return whole[tuple(slice(None) if a in part.axes else 0 for a in axes)]
