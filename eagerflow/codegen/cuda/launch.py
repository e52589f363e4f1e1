"""Running regions on GPUs: compiling, buffers, arguments and launches, by CuPy.

Everything that depends on shapes, strides and alignment alone is found once and kept. Checked
on a look-alike that runs kernels on the CPU; not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.cuda.binding import (
    CudaBinding,
    CudaLayout,
    Memory,
    Names,
    bind,
    choose,
    chunk_count,
)
from eagerflow.codegen.cuda.nest import kernel_name, parameters, source
from eagerflow.codegen.cuda.tasks import CHUNK, Task, plan
from eagerflow.codegen.instructions import item_size
from eagerflow.codegen.layout import contiguous_strides
from eagerflow.codegen.region import Input, Output, Region
from eagerflow.extras import load
from eagerflow.locks import Locked, reentrant_lock

OPTIONS = ("--std=c++17", "--fmad=false")
"""What the compiler is told: nothing is contracted, so the GPU computes the bits of the CPU."""

MAX_PREPARED_CALLS = 4096


class _Launch(NamedTuple):
    """One kernel's call: its name, its pointers by operand, and the other arguments."""

    name: str
    pointers: tuple[str, ...]
    numbers: tuple[np.int64, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@dataclass(frozen=True)
class CudaProgram:
    """A region made ready for arrays of given shapes, strides and alignment."""

    text: str
    launches: tuple[_Launch, ...]
    buffers: tuple[tuple[str, int, str], ...]  # name, elements, type
    copied: tuple[str, ...]  # inputs that are read after they have been overwritten


_programs: dict[Any, CudaProgram] = {}
_modules: dict[tuple[int, str], Any] = {}
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
    places = [_memory(array) for array in (*inputs, *outputs)]
    program = _prepared(region, places, sizes)
    with device:
        arrays = _by_pointer(region, (*inputs, *outputs))
        pointers = {name: array.data.ptr for name, array in arrays.items()}
        kept = []  # buffers live until all kernels that use them are in the stream
        for name in program.copied:
            kept.append(cupy.array(arrays[f"in {name}"], order="C"))
            pointers[f"copy {name}"] = kept[-1].data.ptr
        for name, count, dtype in program.buffers:
            kept.append(cupy.empty(count, dtype))
            pointers[name] = kept[-1].data.ptr
        module = _module(cupy, device.id, program.text)
        for launch in program.launches:
            kernel = module.get_function(launch.name)
            given = [np.uint64(pointers[name]) for name in launch.pointers]
            kernel(launch.grid, launch.block, (*given, *launch.numbers))


def _by_pointer(region: Region, operands: Sequence[Any]) -> dict[str, Any]:
    """Operands, inputs first, by what they are called among the pointers of a call."""
    names = [f"in {p.name}" for p in region.inputs] + [f"out {p.name}" for p in region.outputs]
    return dict(zip(names, operands, strict=True))


def _memory(array: Any) -> Memory:
    return Memory(array.data.ptr % 16, tuple(array.strides))


def _module(cupy: Any, device: int, text: str) -> Any:
    module = _modules.get((device, text))
    if module is None:
        with Locked(_lock):
            module = _modules.get((device, text))
            if module is None:
                module = _modules[device, text] = cupy.RawModule(code=text, options=OPTIONS)
    return module


def _prepared(region: Region, places: list[Memory], sizes: dict[str, int]) -> CudaProgram:
    key = (region.key, tuple(places), tuple(sizes[a] for a in region.axes))
    program = _programs.get(key)
    if program is None:
        program = prepare(region, places, sizes)
        with Locked(_lock):
            if len(_programs) >= MAX_PREPARED_CALLS:
                _programs.pop(next(iter(_programs)))  # the oldest
            _programs[key] = program
    return program


def prepare(region: Region, places: Sequence[Memory], sizes: dict[str, int]) -> CudaProgram:
    """Text and launches for operands at these places, inputs first."""
    return _Preparation(region, places, sizes).program()


class _Preparation:
    """The tasks of a call, bound one after the other."""

    def __init__(self, region: Region, places: Sequence[Memory], sizes: dict[str, int]) -> None:
        self.region, self.sizes = region, dict(sizes)
        self.modes = choose(region, sizes)
        self.tasks = plan(region, self.modes.split, self.modes.direct)
        self.places = _by_pointer(region, places)
        self.copied = self._read_late()
        self.buffers: dict[str, tuple[int, str]] = {}
        self.chunks: dict[str, int] = {}  # of a buffer of partial results

    def program(self) -> CudaProgram:
        """The call, made ready."""
        layouts: list[CudaLayout | None] = []
        launches = []
        for number, task in enumerate(self.tasks):
            names = Names(task)
            bound = self._bind(task, names)
            layouts.append(bound.layout if bound else None)
            if bound:
                launches.append(self._launch(task, names, bound, number))
        text = source(self.region, self.tasks, layouts)
        buffers = tuple((name, *what) for name, what in self.buffers.items())
        return CudaProgram(text, tuple(launches), buffers, tuple(self.copied))

    def _read_late(self) -> list[str]:
        """Inputs that a task reads after another has overwritten them, so a copy is read."""
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

    def _launch(self, task: Task, names: Names, bound: CudaBinding, number: int) -> _Launch:
        pointers = [
            self._pointer(part) for part in names.parts if isinstance(part, (Input, Output))
        ]
        numbers = tuple(np.int64(bound.values[n]) for n in parameters(task, bound.layout))
        name = kernel_name(self.region, number)
        return _Launch(name, tuple(pointers), numbers, bound.grid, bound.block)

    def _pointer(self, part: Input | Output) -> str:
        """What an operand is called among the pointers of a call."""
        own = f"{'out' if isinstance(part, Output) else 'in'} {part.name}"
        if part.name in self.copied and isinstance(part, Input):
            return f"copy {part.name}"
        if own in self.places:
            return own
        return part.name if part.name.startswith("%") else f"%{part.name}"
