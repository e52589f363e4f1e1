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


class StagedCall:
    """A kernel with its division of work and the contents of its frame: to run, or as a job.

    ``values`` are numbers, arrays that it reads and writes, a Room, Flags or Held array, or one of
    these in a tuple with the numbers that follow it in the frame. ``parallel`` enables other
    threads, ``turns`` is the repetition count of repeated stages.
    """

    __slots__ = ("cut", "kernel", "many", "turns", "values")

    def __init__(
        self,
        kernel: StagedKernel[Any],
        cut: tuple[int, int, int, int],
        parallel: bool,
        turns: int = 1,
        /,
        **values: Any,
    ) -> None:
        self.kernel, self.cut, self.turns, self.values = kernel, cut, turns, values
        self.many = 1 + threads.helpers() if parallel else 1

    def run(self) -> Any:
        """Run it; returns the flags, or None if it has none."""
        held = []  # kept alive until the call has ended

        def memory(size: int) -> int:
            # Each power of two has memory of its own: small kernels do not touch the large ones'.
            held.append(aligned(f"stages {size.bit_length()}", size))
            start: int = machine().launch.address(held[0])
            return start

        found, _, flags = _with_memory(self.values, memory)
        self.kernel.start(self.kernel.filled(self.cut, self.many, self.turns, **found))
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
        operands, rest = {}, {}
        for name, value in self.values.items():
            first = value[0] if type(value) is tuple else value
            if not isinstance(first, np.ndarray):
                rest[name] = value
                continue
            place = places.get(address(first))
            if place is None:
                return None
            operands[name] = Operand(place, *like(arrays[place]))
            if type(value) is tuple:
                rest[name] = (0, *value[1:])
        return FixedStages(self, operands, rest)

    def placed(self, operands: dict[str, Operand]) -> FixedStages:
        """The same, for given indices of its arrays in the step."""
        rest = {name: value for name, value in self.values.items() if name not in operands}
        return FixedStages(self, operands, rest)


class FixedStages(NamedTuple):
    """A ``StagedCall`` for arrays of known shapes and strides, as a step of a plan's segment."""

    call: StagedCall
    operands: dict[str, Operand]
    rest: dict[str, Any]
    """The other contents of the frame."""

    @property
    def workspace(self) -> int:
        """Bytes of memory that all threads share during a run."""
        firsts: Any = (v[0] if type(v) is tuple else v for v in self.rest.values())
        return sum(
            machine().launch.whole_lines(first.size) for first in firsts if type(first) is Room
        )

    @property
    def movable(self) -> bool:
        """Whether it may be reordered with its neighbors."""
        firsts: Any = (v[0] if type(v) is tuple else v for v in self.rest.values())
        return not any(type(first) is Flags for first in firsts)

    @property
    def chain_rows(self) -> None:
        """Does not begin chains."""

    def member(self, rows: int) -> None:
        """Not part of chains."""

    def new_jobs(self, step: int, workspace: int) -> list[Any]:
        """Its single job."""
        kernel = self.call.kernel
        found, held, flags = _with_memory(self.rest, lambda size: workspace)
        frame = kernel.filled(self.call.cut, self.call.many, self.call.turns, **found)
        return [kernel.job(frame, self.operands, step, held, flags)]


def _with_memory(
    values: dict[str, Any], memory: Callable[[int], int]
) -> tuple[dict[str, Any], list[Any], Any]:
    """The contents of a frame, the constants in it, and its flags, if there are any.

    ``memory`` returns the address of memory of a given size for all Rooms.
    """
    found = values.copy()
    held: list[Any] = []
    rooms: dict[str, int] = {}
    size, flags = 0, None
    for name, value in values.items():
        first = value[0] if type(value) is tuple else value
        kind = type(first)
        if kind is Room:
            rooms[name] = size
            size += machine().launch.whole_lines(first.size)
        elif kind is Held:
            held.append(first.array)
            found[name] = _with_first(value, first.array)
        elif kind is Flags:
            flags = np.zeros(first.pieces, np.uint8)
            found[name] = _with_first(value, flags)
    if rooms:
        start = memory(size)
        for name, at in rooms.items():
            found[name] = _with_first(values[name], start + at)
    return found, held, flags


def _with_first(value: Any, first: Any) -> Any:
    """A value, or a tuple with its first element replaced."""
    return (first, *value[1:]) if type(value) is tuple else first


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
