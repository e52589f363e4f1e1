"""Kernels outside of regions: compiled from a writer's code, cached on disk, run by all threads.

Imports of code generation are deferred, for fast start-up: ``generated`` loads it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from eagerflow.codegen import generated, llvm
from eagerflow.codegen.layout import Like, like
from eagerflow.primitives.llvm.stage_writer import StageWriter
from eagerflow.runtime import machine_code, threads

Writer = TypeVar("Writer", bound=StageWriter)

_package: Any = llvm
MAX_KEPT_KERNELS = 1024  # cached, of each kind


@cache
def machine() -> Any:
    """The package that writes, links and launches kernels, imported on first use."""
    generated._machinery()
    return _package


@cache
def processor(dtype: str) -> tuple[int, int]:
    """Elements of a vector, and the number of vector registers."""
    target = machine_code.host()
    many = target.has_avx512 or target.triple.startswith(("aarch64", "arm64"))
    return target.vector_bytes // (8 if dtype == "float64" else 4), 32 if many else 16


class Operand(NamedTuple):
    """An array of a segment's step: its index, and its required layout."""

    place: int
    like: Like


class StagedKernel(Generic[Writer]):
    """A kernel of functions on pieces of work, which threads share stage by stage.

    They are written by ``writer_class(code, frame, *arguments)``; ``writer`` is one without code,
    for the memory requirements of the stages.
    """

    def __init__(self, writer_class: type[Writer], *arguments: Any) -> None:
        launch, driver, target = machine().launch, machine().driver, machine_code.host()
        frame = [*driver.SHARED_SLOTS, *writer_class.slots]
        self.writer = writer_class(None, frame, *arguments)
        self.scratch = self.writer.scratch
        self.at = {name: i for i, name in enumerate(frame)}
        self.stages = len(writer_class.stages)
        self.frame = ctypes.c_int64 * len(frame)
        source = launch.source_digest(os.path.dirname(__file__))
        own = f"{writer_class.__module__}.{writer_class.__qualname__} {arguments}"

        def text() -> str:
            module = writer_class(machine(), frame, *arguments).module()
            stages, repeated = writer_class.stages, writer_class.repeated
            return module + driver.shared_driver(stages, repeated, target.triple)

        content = launch.compiled(f"{own}\n{source}", text, target)
        self.linked = launch.Linked(content, writer_class.stages)

    @property
    def function(self) -> Any:
        """``run(frame, scratch, counters)``."""
        return self.linked.run

    def filled(
        self, cut: tuple[int, int, int, int], many: int, turns: int = 1, **values: Any
    ) -> Any:
        """A frame for up to ``many`` threads to work on rows and columns.

        Their numbers, and those of a piece, are in ``cut``. ``values`` are the frame's contents:
        numbers, arrays, which are passed as addresses, or an array with the numbers that follow it.
        ``turns`` is the repetition count of repeated stages.
        """
        rows, whole, height, span = cut
        frame = self.frame()
        blocks = -(-whole // span)
        count = -(-rows // height) * blocks
        frame[:8] = [rows, whole, height, span, blocks, count, max(1, min(count, many)), turns]
        for name, value in values.items():
            place = self.at[name]
            if isinstance(value, tuple):
                value, *more = value
                frame[place + 1 : place + 1 + len(more)] = more
            frame[place] = value if isinstance(value, int) else machine().launch.address(value)
        return frame

    def start(self, frame: Any) -> None:
        """Run on a complete frame, with the number of other threads in it."""
        launch, many = machine().launch, frame[self.at["threads"]]
        taken = (ctypes.c_int64 * machine().driver.shared_counters(self.stages, many))()
        own = launch.scratch_of_segment(self.scratch)
        launch.share(self.function, frame, taken, own, min(many - 1, threads.helpers()))

    def job(
        self,
        frame: Any,
        operands: dict[str, Operand],
        step: int,
        held: Any = None,
        flags: Any = None,
    ) -> Any:
        """A job of a segment's step, on a frame that lacks only the operands.

        ``held`` is kept alive by the job; see ``jobs.Job`` for ``flags``.
        """
        jobs, many = machine().jobs, frame[self.at["threads"]]
        taken = (ctypes.c_int64 * machine().driver.shared_counters(self.stages, many))()
        places, likes = zip(*operands.values(), strict=True)
        slots = [self.at[name] for name in operands]
        entry = ctypes.cast(self.function, ctypes.c_void_p).value or 0
        made = jobs.Job(
            entry,
            frame,
            taken,
            jobs.Operands(slots, [0] * len(slots), places, likes),
            many,
            0,
            self.scratch,
            step,
            (self, held, flags),
            flags,
        )
        if frame[self.at["count"]] == 1 and not self.writer.repeated:
            functions = [*self.linked.pieces.values()]
            made.whole = functions, frame[self.at["rows"]], frame[self.at["whole"]]
        return made


class Room(NamedTuple):
    """Memory of a given size that the threads of a call share."""

    size: int


class Held(NamedTuple):
    """A constant array that belongs to the call."""

    array: Any


class Flags(NamedTuple):
    """Bytes that a run sets to nonzero for pieces that have to be recomputed."""

    pieces: int


class Prepared:
    """A kernel with its division of work and all contents of its frame but addresses.

    ``values`` are numbers, a Room, Flags or Held array, or one of these in a tuple with the numbers
    that follow it in the frame. ``parallel`` enables other threads, ``turns`` is the repetition
    count of repeated stages.
    """

    __slots__ = ("cut", "flags", "held", "kernel", "parallel", "rooms", "size", "template", "turns")

    def __init__(
        self,
        kernel: StagedKernel[Any],
        cut: tuple[int, int, int, int],
        parallel: bool,
        turns: int = 1,
        /,
        **values: Any,
    ) -> None:
        self.kernel, self.cut, self.parallel, self.turns = kernel, cut, parallel, turns
        self.held: list[Any] = []
        self.rooms: list[tuple[int, int]] = []
        """Slots of the frame with the offsets of their memory."""
        self.size = 0
        """Bytes of memory for all of them."""
        self.flags: tuple[int, int] | None = None
        """The slot of the flags, and their number."""
        self.template = kernel.filled(cut, 1, turns, **self._numbers(values))

    def _numbers(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values with a zero in place of each address that is not known yet."""
        found = {}
        for name, value in values.items():
            first, *more = value if type(value) is tuple else (value,)
            kind, slot = type(first), self.kernel.at[name]
            if kind is Room:
                self.rooms.append((slot, self.size))
                self.size += machine().launch.whole_lines(first.size)
            elif kind is Flags:
                self.flags = slot, first.pieces
            elif kind is Held:
                self.held.append(first.array)
            number = 0 if kind in (Room, Flags) else first.array if kind is Held else first
            found[name] = (number, *more)
        return found

    def on(self, **arrays: Any) -> StagedCall:
        """The call that reads and writes these arrays, which have the kernel's names.

        An array may stand in a tuple with the numbers that follow it in the frame.
        """
        return StagedCall(self, arrays)

    def frame(self, memory: int) -> tuple[Any, Any]:
        """A frame that lacks the operands, with its flags, if it has any.

        ``memory`` is the address of the memory that all threads share.
        """
        frame, at = self.kernel.frame.from_buffer_copy(self.template), self.kernel.at
        many = 1 + threads.helpers() if self.parallel else 1
        frame[at["threads"]] = max(1, min(frame[at["count"]], many))
        for slot, offset in self.rooms:
            frame[slot] = memory + offset
        if self.flags is None:
            return frame, None
        slot, pieces = self.flags
        flags = np.zeros(pieces, np.uint8)
        frame[slot] = machine().launch.address(flags)
        return frame, flags


class StagedCall(NamedTuple):
    """A prepared kernel with its arrays: to run, or as a job."""

    prepared: Prepared
    arrays: dict[str, Any]

    def run(self) -> Any:
        """Run it; returns the flags, or None if it has none."""
        prepared, held, memory = self.prepared, None, 0
        kernel, address = prepared.kernel, machine().launch.address
        if size := prepared.size:
            # Each power of two has memory of its own: small kernels do not touch the large ones'.
            held = aligned(f"stages {size.bit_length()}", size)  # kept alive until the call's end
            memory = address(held)
        frame, flags = prepared.frame(memory)
        for name, value in self.arrays.items():
            slot = kernel.at[name]
            if type(value) is tuple:
                value, *more = value
                frame[slot + 1 : slot + 1 + len(more)] = more
            frame[slot] = address(value)
        kernel.start(frame)
        return flags

    def fixed(self, *arrays: Any) -> FixedStages | None:
        """The call as part of a segment, for arrays of a step with these layouts.

        None if it works on copies, or if two arrays begin at the same address, which makes operands
        ambiguous.
        """
        address = machine().launch.address
        places = {address(x): i for i, x in enumerate(arrays)}
        if len(places) < len(arrays):
            return None
        operands = {}
        for name, value in self.arrays.items():
            first = value[0] if type(value) is tuple else value
            place = places.get(address(first))
            if place is None:
                return None
            operands[name] = Operand(place, *like(arrays[place]))
        return self.placed(operands)

    def placed(self, operands: dict[str, Operand]) -> FixedStages:
        """The same, for given indices of its arrays in the step."""
        numbers = {
            self.prepared.kernel.at[name] + 1: value[1:]
            for name, value in self.arrays.items()
            if type(value) is tuple
        }
        return FixedStages(self.prepared, operands, numbers)


class FixedStages(NamedTuple):
    """A prepared kernel for arrays of known shapes and strides, as a step of a plan's segment."""

    prepared: Prepared
    operands: dict[str, Operand]
    numbers: dict[int, Any]
    """Numbers that follow the operands in the frame, by the slot of the first one."""

    @property
    def workspace(self) -> int:
        """Bytes of memory that all threads share during a run."""
        return self.prepared.size

    @property
    def movable(self) -> bool:
        """Whether it may be reordered with its neighbors."""
        return self.prepared.flags is None

    @property
    def chain_rows(self) -> None:
        """Does not begin chains."""

    def member(self, rows: int) -> None:
        """Not part of chains."""

    def new_jobs(self, step: int, workspace: int) -> list[Any]:
        """Its single job."""
        prepared = self.prepared
        frame, flags = prepared.frame(workspace)
        for slot, numbers in self.numbers.items():
            frame[slot : slot + len(numbers)] = numbers
        return [prepared.kernel.job(frame, self.operands, step, prepared.held, flags)]


def kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that caches results, which hold kernels, by the arguments."""
    found = lru_cache(MAX_KEPT_KERNELS)(make)
    # Registered before module teardown, as a library needs it to unload.
    atexit.register(found.cache_clear)
    return found


def aligned(name: str, size: int) -> Any:
    """Reusable memory of this thread, aligned for vectors."""
    whole = threads.scratch(f"program {name}", (size + 64,), np.uint8)
    return whole[-machine().launch.address(whole) % 64 :]


def new_lines(size: int) -> Any:
    """New memory, aligned for vectors."""
    whole = np.empty(size + 64, np.uint8)
    return whole[-machine().launch.address(whole) % 64 :]
