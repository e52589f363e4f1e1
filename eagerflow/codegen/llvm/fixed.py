"""Calls whose arrays differ in nothing but their addresses, at the least cost.

All that a kernel is told stands in a *job* that is kept: the frame, the counters, memory for
what it keeps. A few machine instructions look whether the arrays have the strides that they
should have, fetch the addresses from the arrays themselves, set the counters to zero and run
the kernel, so that a call from Python is one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.driver import COUNTER_WORDS
from eagerflow.codegen.llvm.instructions import Code, literal
from eagerflow.codegen.llvm.team import Team, library
from eagerflow.codegen.reductions import ufunc
from eagerflow.runtime import threads

# A job: what runs, its three arguments, how many counters and operands there are; how many of
# have their strides looked at, and where their number of axes and their strides are; the type of
# arrays; then for each operand its slot in the frame, what to add to its address, the array.
_HEAD_WORDS = 9


def _text() -> str:
    """The functions ``fill_if_fit`` and ``start``, and what they are made of."""
    code = Code()
    _fill(code)
    _differs(code)
    with code.function("fill_if_fit(ptr %job)", "%no"):
        code.line("%no = call i64 @differs(ptr %job)")
        with code.where(code.value("icmp eq i64 %no, 0")):
            code.line("call void @fill(ptr %job)")
    with code.function("start(ptr %job)", "%no"):
        code.line("%no = call i64 @fill_if_fit(ptr %job)")
        with code.where(code.value("icmp eq i64 %no, 0")):
            function, *given = (code.word("ptr", "%job", i) for i in range(4))
            code.line(f"call void {function}({', '.join(f'ptr {x}' for x in given)})")
    return code.text()


def _fill(code: Code) -> None:
    """Put the arrays' addresses into the frame, and zeros into the counters."""
    with code.function("fill(ptr %job)"):
        frame, counters = (code.word("ptr", "%job", i) for i in (1, 3))
        lines, count = (code.word("i64", "%job", i) for i in (4, 5))
        slots = code.at("%job", _HEAD_WORDS, "i64")
        offsets = code.at(slots, count, "i64")
        arrays = code.at(offsets, count, "i64")
        with code.loop("operand", 0, count) as (k, _):
            slot, offset = (code.word("i64", table, k) for table in (slots, offsets))
            data = code.word("i64", code.word("ptr", arrays, k), launch.DATA_OFFSET, "i8")
            where = code.value(f"add i64 {data}, {offset}")
            target = code.at(frame, slot, "i64")
            code.line(f"store i64 {where}, ptr {target}, align 8")
        with code.loop("counter", 0, lines) as (i, _):
            word = code.value(f"mul i64 {i}, {COUNTER_WORDS}")
            counter = code.at(counters, word, "i64")
            code.line(f"store i64 0, ptr {counter}, align 8")


def _differs(code: Code) -> None:
    """Look whether all are arrays, and whether the first of them have the strides they should."""
    with code.function("differs(ptr %job)", "0"):
        count, looked, kind = (code.word("i64", "%job", i) for i in (5, 6, 8))
        table = code.word("ptr", "%job", 7)
        skipped = code.value(f"mul i64 {count}, 2")
        slots = code.at("%job", _HEAD_WORDS, "i64")
        arrays = code.at(slots, skipped, "i64")
        with code.loop("object", 0, count) as (i, _):
            own = code.word("i64", code.word("ptr", arrays, i), launch.TYPE_OFFSET, "i8")
            code.go_on(code.value(f"icmp eq i64 {own}, {kind}"), "different")
        with code.loop("operand", 0, looked, 1, [literal(0, "int64")]) as (k, place):
            wanted = code.at(table, place[0].text, "i64")
            axes = code.word("i64", wanted, 0)
            strides = code.word("ptr", code.word("ptr", arrays, k), launch.STRIDES_OFFSET, "i8")
            first = code.at(wanted, "1", "i64")
            with code.loop("axis", 0, axes) as (j, _):
                one, other = (code.word("i64", words, j) for words in (strides, first))
                code.go_on(code.value(f"icmp eq i64 {one}, {other}"), "different")
            after = code.value(f"add i64 {place[0].text}, 1")
            place[0] = place[0]._replace(text=code.value(f"add i64 {after}, {axes}"))
    code.lines[-1:] = ["different:", "  ret i64 1", "}"]


@cache
def _functions() -> tuple[Any, Any]:
    """What looks at a job's arrays and fills its frame, and what also runs it.

    They give 0, or 1 where an array is none, or has other strides: then nothing was done.
    """
    found = library(_text(), "fill_if_fit", "start")
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
    return kind(found["fill_if_fit"]), kind(found["start"])


@cache
def _open() -> bool:
    """Whether arrays lie open: their addresses and strides are where they are looked for."""
    if launch.address is not launch._quick_address:
        return False
    probe = np.zeros((3, 5, 2), np.int16)[::2, ::-1]
    try:
        if ctypes.c_uint64.from_address(id(probe) + launch.TYPE_OFFSET).value != id(np.ndarray):
            return False
        place = ctypes.c_uint64.from_address(id(probe) + launch.STRIDES_OFFSET).value
        found = (ctypes.c_int64 * probe.ndim).from_address(place)
    except (ValueError, TypeError):
        return False
    return tuple(found) == probe.strides


def possible(call: Any) -> bool:
    """Whether a prepared call needs nothing but its arrays' addresses."""
    return not (call.copies or call.lookups or call.saved) and _open()


class _Job:
    """All that one run at a time needs besides its arrays."""

    def __init__(self, call: FixedCall) -> None:
        own = call.launch
        self.threads = call.threads
        self.frame = own.frame_type.from_buffer_copy(own.template)
        self.counters = own.code.counters()
        self.partial = own.partial_columns(self.frame)
        # Arrays, and the number to fill them with.
        self.partials = [(array, own.neutral[name]) for name, array in self.partial.items()]
        self.held = own.reserve(self.frame) if own.variant == "stages" else []
        self.scratch = 0
        if own.scratch:
            if own.variant == "stages":
                self.scratch = launch.address(self.held[-1])
            else:
                size = own.scratch + launch.VECTOR_ALIGNMENT_BYTES
                self.held = [np.empty(size, np.uint8)]
                self.scratch = launch.aligned_address(self.held[-1])
        count = len(call.slots)
        self.words = (ctypes.c_int64 * (_HEAD_WORDS + 3 * count))(
            call.entry,
            ctypes.addressof(self.frame),
            self.scratch,
            ctypes.addressof(self.counters),
            len(self.counters) // COUNTER_WORDS,
            count,
            call.looked,
            ctypes.addressof(call.strides),
            id(np.ndarray),
            *call.slots,
            *call.offsets,
        )
        self.address = ctypes.addressof(self.words)
        # What is written with each call: one object for each operand.
        first = self.address + 8 * (_HEAD_WORDS + 2 * count)
        self.places: Any = (ctypes.c_int64 * count).from_address(first)
        apart = own.scratch and own.variant != "stages"  # each thread needs memory of its own
        held = self.words, self.frame, self.counters, self.held, self.partials, own.code
        self.team = Team([self.address], held, own.own_scratch if apart else None)


class FixedCall:
    """A ``launch.KernelCall`` for arrays like those that it was made for, whatever their addresses.

    ``strides`` are those of the first inputs, which are looked at, and ``offsets`` bytes to add
    to the addresses of inputs. Nothing else is checked: shapes and dtypes have to be those that
    it was made for. Several threads may call it at once.
    """

    def __init__(
        self, call: launch.KernelCall, strides: Sequence[Sequence[int]], offsets: Sequence[int]
    ) -> None:
        self.call, self.launch = call, call.launch
        own = call.launch
        self.entry: int = ctypes.cast(own.code.function, ctypes.c_void_p).value or 0
        self.inputs = len(call.region.inputs)
        self.direct = call.direct
        self.slots = own.pointers
        self.offsets = [*offsets, *[0] * (len(self.slots) - len(offsets))]
        self.threads = own.count if own.parallel else 1
        table = [n for own in strides for n in (len(own), *own)]
        self.looked, self.strides = len(strides), (ctypes.c_int64 * len(table))(*table)
        self._fill, self._start = _functions()
        self.joins = [self._join(i) for i in call.columns]
        self._jobs: list[_Job] = [_Job(self)]

    def new_job(self) -> _Job:
        """What one call at a time needs."""
        return _Job(self)

    def fill(self, job: _Job, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        """Make a job ready for arrays, and give 0; 1, and nothing is done, where they differ."""
        job.places[:] = [*map(id, inputs), *map(id, outputs)]
        found: int = self._fill(job.address)
        return found

    @property
    def can_wait(self) -> bool:
        """Whether a job is all that has to be run, by any thread, some time after it is filled."""
        own = self.launch
        return not self.joins and not (own.scratch and own.variant != "stages")

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        """Fill ``outputs`` with what the region computes from ``inputs``, and give 0.

        Where an input has other strides, or something is no array, nothing is done, and it
        gives 1.
        """
        try:
            job = self._jobs.pop()
        except IndexError:
            job = _Job(self)
        if self.joins:
            given = [*map(id, inputs), *[id(outputs[i]) for i in self.direct]]
            for array, neutral in job.partials:
                array.fill(neutral)
        else:
            given = [*map(id, inputs), *map(id, outputs)]
        job.places[:] = given
        helpers = min(self.threads - 1, threads.helpers()) if self.threads > 1 else 0
        if helpers:
            differs: int = self._fill(job.address)
            if not differs:
                job.team.run(helpers)
        else:
            differs = self._start(job.address)
        if not differs:
            for join in self.joins:
                join(job, outputs)
        self._jobs.append(job)
        return differs

    def _join(self, number: int) -> Any:
        """What brings a column reduction's parts into its output."""
        call = self.call
        out = call.region.outputs[number]
        part: Any = call.region.statement(out.value)
        blocks, middle, across = self.launch.column_shapes[out.value]
        reduce = ufunc(part.instruction).reduce
        if middle * across != prod(call.sizes[a] for a in out.axes) or out.dtype != part.dtype:
            return lambda job, outputs: call._join_one(job.partial, outputs, number)

        def join(job: _Job, outputs: Sequence[Any]) -> None:
            lines, result = job.partial[out.value], outputs[number]
            if not result.flags.c_contiguous:
                call._join_one(job.partial, outputs, number)
            elif blocks == 1:
                result[...] = lines.reshape(result.shape)
            else:
                reduce(lines, 0, None, result.reshape(middle, across))

        return join
