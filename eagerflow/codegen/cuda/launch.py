"""Execution of regions on GPUs with CuPy: compilation, buffers, arguments and launches.

Everything that depends only on shapes, strides and alignment is computed once and cached: a call
fills in addresses. Checked with a mock that runs kernels on the CPU; not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.cuda.binding import CudaBinding, Memory, Names, bind, choose, chunk_count
from eagerflow.codegen.cuda.modules import Module
from eagerflow.codegen.cuda.nest import Code, code, kernel_names, parameters, source
from eagerflow.codegen.cuda.tasks import CHUNK, Task, plan
from eagerflow.codegen.instructions import item_size
from eagerflow.codegen.layout import Entry, contiguous_strides
from eagerflow.codegen.region import Input, Output, Region
from eagerflow.extras import load
from eagerflow.locks import Locked, reentrant_lock

MAX_PREPARED_CALLS = 4096
MAX_PREPARED_LAYOUTS = 64  # cached by a CudaCall
ALIGNMENT_BYTES = 16  # of the widest load: the property of addresses that code depends on


class _Launch(NamedTuple):
    """One kernel's call: its name, its pointers by operand, and the other arguments."""

    name: str
    pointers: tuple[str, ...]
    numbers: tuple[np.int64, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@dataclass(frozen=True)
class CudaProgram:
    """A region prepared for arrays of given shapes, strides and alignment."""

    code: Code
    launches: tuple[_Launch, ...]
    buffers: tuple[tuple[str, int, str], ...]  # name, elements, type
    copied: tuple[str, ...]  # inputs that are read after they were overwritten

    @property
    def text(self) -> str:
        """The kernels as a module of their own."""
        return source([self.code])


_programs: dict[Any, CudaProgram] = {}
_ready: dict[Any, ReadyProgram] = {}
_lock = reentrant_lock()


def compute(
    region: Region, inputs: Sequence[Any], outputs: Sequence[Any], sizes: dict[str, int]
) -> None:
    """Compute a region on CuPy arrays of one GPU, on its current stream.

    ``inputs`` and ``outputs`` are checked arrays in the region's order, ``sizes`` the extents of
    its axes. Raises MissingExtraError without CuPy.
    """
    cupy = load("cupy", "cuda12", "a kernel on a GPU")
    device = outputs[0].device
    arrays = (*inputs, *outputs)
    places = [_memory(array) for array in arrays]
    key = (device.id, *_key(region, places, sizes))
    with device:
        ready = _ready.get(key)
        if ready is None:
            program, module = prepared_program(region, places, sizes), Module(cupy)
            ready = _kept(_ready, key, ReadyProgram(cupy, device.id, region, program, module))
        ready(arrays, [array.data.ptr for array in arrays])


class ReadyProgram:
    """A program on one GPU, which is current in calls: only addresses are filled in."""

    def __init__(
        self, cupy: Any, device: int, region: Region, program: CudaProgram, module: Module
    ) -> None:
        self._cupy, self._device = cupy, device
        self._module = module.add(program.code)
        operands = _names(region)
        self._copied = [operands.index(f"in {name}") for name in program.copied]
        self._buffers = [(count, dtype) for _, count, dtype in program.buffers]
        copies = [f"copy {name}" for name in program.copied]
        numbers = {
            name: number
            for number, name in enumerate([*operands, *copies, *(b[0] for b in program.buffers)])
        }
        self._launches = [
            (launch, [numbers[name] for name in launch.pointers]) for launch in program.launches
        ]
        self._functions: list[Any] = []

    def __call__(self, arrays: Sequence[Any], addresses: list[int]) -> None:
        """Start the kernels on the current stream; the region's operands are at ``addresses``.

        ``arrays`` are the operands themselves; those that are read late are copied.
        """
        if not self._functions:  # the compiler is only needed now
            names = [launch.name for launch, _ in self._launches]
            self._functions = [self._module.function(self._device, name) for name in names]
        # Buffers live until all kernels that use them are enqueued in the stream.
        kept = [self._cupy.array(arrays[i], order="C") for i in self._copied]
        kept += [self._cupy.empty(count, dtype) for count, dtype in self._buffers]
        pointers = [np.uint64(a) for a in addresses]
        pointers += [np.uint64(array.data.ptr) for array in kept]
        for function, (launch, places) in zip(self._functions, self._launches, strict=True):
            given = [pointers[i] for i in places]
            function(launch.grid, launch.block, (*given, *launch.numbers))


class CudaCall:
    """A region on CuPy arrays of known shapes, prepared once for each memory layout.

    ``call(device, inputs, outputs)`` fills the outputs on the current GPU, where all arrays are;
    kernels may still be running when it returns. Its kernels are in ``module`` with those of other
    regions. Several threads may call it at once.
    """

    def __init__(
        self,
        region: Region,
        sizes: dict[str, int],
        inputs: Sequence[Entry],
        outputs: Sequence[Entry],
        module: Module,
        cupy: Any,
    ) -> None:
        self._cupy, self._region, self._sizes, self._module = cupy, region, sizes, module
        self._entries = (*inputs, *outputs)
        self._words = [(i, e.word) for i, e in enumerate(inputs) if e.word]
        self._ready: dict[Any, ReadyProgram] = {}

    def expect(self, device: int) -> None:
        """Write the text for row-major arrays now; it is compiled in the first call."""
        strides = tuple(contiguous_strides(e.shape, e.dtype.itemsize) for e in self._entries)
        places = [(e.word or 0) * e.dtype.itemsize % ALIGNMENT_BYTES for e in self._entries]
        self._ready[device, strides, *places] = self._prepare(device, strides, places)

    def __call__(self, device: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Start the kernels on the current stream of this GPU."""
        arrays = (*inputs, *outputs)
        addresses = [a.data.ptr for a in arrays]
        strides = tuple([a.strides for a in arrays])
        for i, word in self._words:
            addresses[i] += word * strides[i][0]
        places = [a % ALIGNMENT_BYTES for a in addresses]
        key = (device, strides, *places)
        ready = self._ready.get(key)
        if ready is None:
            if len(self._ready) >= MAX_PREPARED_LAYOUTS:
                self._ready.clear()
            ready = self._ready[key] = self._prepare(device, strides, places)
        ready((), addresses)

    def _prepare(
        self, device: int, strides: Sequence[tuple[int, ...]], places: Sequence[int]
    ) -> ReadyProgram:
        """The prepared call for operands with these strides and addresses."""
        memories = [
            Memory(place, tuple([steps[axis] for axis in entry.axes]))
            for place, steps, entry in zip(places, strides, self._entries, strict=True)
        ]
        program = prepared_program(self._region, memories, self._sizes)
        return ReadyProgram(self._cupy, device, self._region, program, self._module)


def _names(region: Region) -> list[str]:
    """The names of operands, inputs first, among the pointers of a call."""
    return [f"in {p.name}" for p in region.inputs] + [f"out {p.name}" for p in region.outputs]


def _memory(array: Any) -> Memory:
    return Memory(array.data.ptr % ALIGNMENT_BYTES, tuple(array.strides))


def _key(region: Region, places: Sequence[Memory], sizes: dict[str, int]) -> tuple[Any, ...]:
    return region.key, tuple(places), tuple(sizes[a] for a in region.axes)


def _kept(cache: dict[Any, Any], key: Any, found: Any) -> Any:
    """Cache a result; the oldest one is evicted if there are many."""
    with Locked(_lock):
        if len(cache) >= MAX_PREPARED_CALLS:
            cache.pop(next(iter(cache)))
        return cache.setdefault(key, found)


def prepared_program(region: Region, places: list[Memory], sizes: dict[str, int]) -> CudaProgram:
    """The program for operands with these layouts, prepared once."""
    key = _key(region, places, sizes)
    found: CudaProgram = _programs.get(key) or _kept(_programs, key, prepare(region, places, sizes))
    return found


def prepare(region: Region, places: Sequence[Memory], sizes: dict[str, int]) -> CudaProgram:
    """Text and launches for operands with these layouts, inputs first."""
    return _Preparation(region, places, sizes).program()


class _Preparation:
    """The tasks of a call, bound in order."""

    def __init__(self, region: Region, places: Sequence[Memory], sizes: dict[str, int]) -> None:
        self.region, self.sizes = region, dict(sizes)
        self.modes = choose(region, sizes)
        self.tasks = plan(region, self.modes.split, self.modes.direct)
        self.places = dict(zip(_names(region), places, strict=True))
        self.copied = self._read_late()
        self.buffers: dict[str, tuple[int, str]] = {}
        self.chunks: dict[str, int] = {}  # of a buffer of partial results

    def program(self) -> CudaProgram:
        """The prepared call."""
        named = [Names(task) for task in self.tasks]
        bound = [self._bind(*own) for own in zip(self.tasks, named, strict=True)]
        layouts = [own.layout if own else None for own in bound]
        called = kernel_names(self.region, self.tasks, layouts)
        launches = [
            self._launch(name, task, names, own)
            for name, task, names, own in zip(called, self.tasks, named, bound, strict=True)
            if own
        ]
        buffers = tuple((name, *what) for name, what in self.buffers.items())
        text = code(self.region, self.tasks, layouts)
        return CudaProgram(text, tuple(launches), buffers, tuple(self.copied))

    def _read_late(self) -> list[str]:
        """Inputs that a task reads after another has overwritten them, so they are copied."""
        found = []
        overwritten: set[str] = set()
        for task in self.tasks:
            found += [p.name for p in task.inputs if p.name in overwritten]
            overwritten |= task.inplace
        return list(dict.fromkeys(found))

    def _bind(self, task: Task, names: Names) -> CudaBinding | None:
        sizes = dict(self.sizes)
        parts = [p.name for p in task.inputs if CHUNK in p.axes]
        if parts:
            sizes[CHUNK] = self.chunks[parts[0]]
        elif any(CHUNK in o.axes for o in task.outputs):
            sizes[CHUNK] = chunk_count(task, sizes, self.modes)
        for out in task.outputs:
            if out.name.startswith("%"):
                self.chunks[out.name] = sizes.get(CHUNK, 1)
                self.buffers[out.name] = prod(sizes[a] for a in out.axes), out.dtype
        return bind(task, names, lambda part: self._place(part, sizes), sizes, self.modes)

    def _place(self, part: Input | Output, sizes: dict[str, int]) -> Memory:
        found: Memory | None = self.places.get(self._pointer(part))
        if found is not None:
            return found
        shape = [sizes[a] for a in part.axes]
        return Memory(0, contiguous_strides(shape, item_size(part.dtype)))

    def _launch(self, name: str, task: Task, names: Names, bound: CudaBinding) -> _Launch:
        pointers = [
            self._pointer(part) for part in names.parts if isinstance(part, (Input, Output))
        ]
        numbers = tuple(np.int64(bound.values[n]) for n in parameters(task, bound.layout))
        return _Launch(name, tuple(pointers), numbers, bound.grid, bound.block)

    def _pointer(self, part: Input | Output) -> str:
        """The name of an operand among the pointers of a call."""
        own = f"{'out' if isinstance(part, Output) else 'in'} {part.name}"
        if part.name in self.copied and isinstance(part, Input):
            return f"copy {part.name}"
        if own in self.places:
            return own
        return part.name if part.name.startswith("%") else f"%{part.name}"
