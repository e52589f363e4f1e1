"""Kernels that are no regions: made from a writer's text, kept on disk, run by all threads.

Nothing is imported here that a program at a prompt does without: ``generated`` opens the door.
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
MAX_KEPT_KERNELS = 1024  # of each kind


@cache
def machine() -> Any:
    """The package of modules that write, link and launch kernels, loaded now."""
    generated._machinery()
    return _package


@cache
def processor(dtype: str) -> tuple[int, int]:
    """Elements of a vector, and how many vectors the processor holds in registers."""
    target = machine_code.host()
    many = target.has_avx512 or target.triple.startswith(("aarch64", "arm64"))
    return target.vector_bytes // (8 if dtype == "float64" else 4), 32 if many else 16


class Operand(NamedTuple):
    """An array of a segment's step: its place among them, and what it must have."""

    place: int
    like: Like


class StagedKernel(Generic[Writer]):
    """Functions of pieces of work, which threads share out among them stage by stage.

    They are written by ``writer_class(code, frame, *arguments)``; ``writer`` is one that writes
    nothing, and knows how much memory the stages need.
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
        """A frame with which up to ``many`` threads work on rows and columns.

        Their numbers, and those of a piece, are in ``cut``. ``values`` are what the frame holds:
        numbers, or arrays whose addresses the functions get, or an array with the numbers that
        follow it. ``turns`` says how often stages are done that are repeated.
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
        """Run on a frame that is filled, with the other threads that it counts on."""
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
        """A job of a segment's step, on a frame that is filled but for the operands.

        ``held`` lives as long as the job; see ``jobs.Job`` for ``flags``.
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
    """Memory of so many bytes that the threads of a call share while it runs."""

    size: int


class Held(NamedTuple):
    """A constant array that belongs to the call."""

    array: Any


class Flags(NamedTuple):
    """Bytes that a run sets, not to 0 for the pieces that have to be computed again."""

    pieces: int


class StagedCall:
    """A kernel, how its work is cut, and what its frame holds: to be run, or to be a job.

    ``values`` are numbers, arrays that it reads and writes, a Room, Flags or Held array, or one of
    these in a tuple with the numbers that follow it in the frame. ``parallel`` says whether other
    threads help, ``turns`` how often stages are done that are repeated.
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
        """Do it; gives the flags, or None where it has none."""
        held = []  # until the call is over

        def memory(size: int) -> int:
            # Each power of two has memory of its own: small kernels leave the large ones' alone.
            held.append(aligned(f"stages {size.bit_length()}", size))
            start: int = machine().launch.address(held[0])
            return start

        found, _, flags = _with_memory(self.values, memory)
        self.kernel.start(self.kernel.filled(self.cut, self.many, self.turns, **found))
        return flags

    def fixed(self, *arrays: Any) -> FixedStages | None:
        """What does it in a segment, for the arrays of a step that lie like these.

        None where it works on copies, or where two arrays begin at the same place: which one the
        kernel is to read can't be told then.
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
        """The same, where the caller knows which arrays of the step its arrays are."""
        rest = {name: value for name, value in self.values.items() if name not in operands}
        return FixedStages(self, operands, rest)


class FixedStages(NamedTuple):
    """A ``StagedCall`` for arrays of known shapes and strides, as a step of a plan's segment."""

    call: StagedCall
    operands: dict[str, Operand]
    rest: dict[str, Any]
    """What the frame holds besides."""

    @property
    def workspace(self) -> int:
        """Bytes of memory that all threads share while it runs."""
        firsts: Any = (v[0] if type(v) is tuple else v for v in self.rest.values())
        return sum(
            machine().launch.whole_lines(first.size) for first in firsts if type(first) is Room
        )

    @property
    def movable(self) -> bool:
        """Whether it may be done before or after its neighbours."""
        firsts: Any = (v[0] if type(v) is tuple else v for v in self.rest.values())
        return not any(type(first) is Flags for first in firsts)

    @property
    def chain_rows(self) -> None:
        """It begins no chain."""

    def member(self, rows: int) -> None:
        """It is part of no chain."""

    def new_jobs(self, step: int, workspace: int) -> list[Any]:
        """Its one job."""
        kernel = self.call.kernel
        found, held, flags = _with_memory(self.rest, lambda size: workspace)
        frame = kernel.filled(self.call.cut, self.call.many, self.call.turns, **found)
        return [kernel.job(frame, self.operands, step, held, flags)]


def _with_memory(
    values: dict[str, Any], memory: Callable[[int], int]
) -> tuple[dict[str, Any], list[Any], Any]:
    """What a frame is filled with, the constants in it, and its flags, if there are any.

    ``memory`` gives the address of so many bytes, in which all rooms are.
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
    """A value, or a tuple, with another one in the first place."""
    return (first, *value[1:]) if type(value) is tuple else first


def kept(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results, which hold kernels, are kept by its arguments."""
    found = lru_cache(MAX_KEPT_KERNELS)(make)
    # Before the modules are taken apart, whose help a library needs to go.
    atexit.register(found.cache_clear)
    return found


def aligned(name: str, size: int) -> Any:
    """Memory of so many bytes that this thread uses again, placed for vectors."""
    whole = threads.scratch(f"program {name}", (size + 64,), np.uint8)
    return whole[-machine().launch.address(whole) % 64 :]


def new_lines(size: int) -> Any:
    """New memory of so many bytes, placed for vectors."""
    whole = np.empty(size + 64, np.uint8)
    return whole[-machine().launch.address(whole) % 64 :]
