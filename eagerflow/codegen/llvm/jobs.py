"""Jobs: kernels prepared to run on arrays that differ only in addresses.

All arguments of a kernel are in a reusable *job*: the frame, the counters, working memory. A few
machine instructions check the strides and dtypes of the arrays, read the addresses from the array
objects and reset the counters.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.layout import Like
from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.driver import COUNTER_WORDS
from eagerflow.codegen.llvm.instructions import Code, literal
from eagerflow.codegen.llvm.team import library
from eagerflow.handlers import raised_here

# A job: its function, its frame, memory shared by threads, counters (see ``team``), memory for a
# single thread; the numbers of counters and operands; the number of checked operands, and the
# addresses of their dtypes, numbers of axes and strides; the type of arrays; the index of its step
# in a segment; then for each operand its slot in the frame, the offset of its address, its index in
# the tuple of the step's arrays, the array.
HEAD_WORDS = 11
FRAME, SHARED, COUNTERS, OWN, STEP = 1, 2, 3, 4, 10  # of them
_COLUMNS = 4  # of each operand
KIND_OFFSET = object.__basicsize__ + 8  # in a dtype: kind, letter, byte order, flags, number
# All except the flags, and the difference between "=" and "<".
KIND_BITS = ~(0xFF << 24 | 1 << 16 if sys.byteorder == "little" else 0xFF << 32)


def _text() -> str:
    """The functions ``fill_if_fit``, ``take`` and ``start``, and their parts."""
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
            function, frame, shared, counters, own = (code.word("ptr", "%job", i) for i in range(5))
            none = code.value(f"icmp eq ptr {shared}, null")
            memory = code.value(f"select i1 {none}, ptr {own}, ptr {shared}")
            code.line(f"call void {function}(ptr {frame}, ptr {memory}, ptr {counters})")
    _take(code)
    return code.text()


def _columns(code: Code) -> list[str]:
    """The addresses of a job's columns of operands."""
    count, start = code.word("i64", "%job", 6), code.at("%job", HEAD_WORDS, "i64")
    found = [start]
    for _ in range(_COLUMNS - 1):
        found.append(code.at(found[-1], count, "i64"))
    return found


def _fill(code: Code) -> None:
    """Write the arrays' addresses to the frame, and reset the counters."""
    with code.function("fill(ptr %job)"):
        frame, counters = (code.word("ptr", "%job", i) for i in (1, 3))
        lines, count = (code.word("i64", "%job", i) for i in (5, 6))
        slots, offsets, _, arrays = _columns(code)
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
    """Check that all are arrays, and the dtypes and strides of the first ones."""
    with code.function("differs(ptr %job)", "0"):
        count, looked, kind = (code.word("i64", "%job", i) for i in (6, 7, 9))
        table = code.word("ptr", "%job", 8)
        arrays = _columns(code)[-1]
        with code.loop("object", 0, count) as (i, _):
            own = code.word("i64", code.word("ptr", arrays, i), launch.TYPE_OFFSET, "i8")
            code.go_on(code.value(f"icmp eq i64 {own}, {kind}"), "different")
        with code.loop("operand", 0, looked, 1, [literal(0, "int64")]) as (k, place):
            wanted = code.at(table, place[0].text, "i64")
            array = code.word("ptr", arrays, k)
            dtype = code.word("ptr", array, launch.DTYPE_OFFSET, "i8")
            found = code.value(f"and i64 {code.word('i64', dtype, KIND_OFFSET, 'i8')}, {KIND_BITS}")
            code.go_on(
                code.value(f"icmp eq i64 {found}, {code.word('i64', wanted, 0)}"), "different"
            )
            axes = code.word("i64", wanted, 1)
            strides = code.word("ptr", array, launch.STRIDES_OFFSET, "i8")
            first = code.at(wanted, "2", "i64")
            with code.loop("axis", 0, axes) as (j, _):
                one, other = (code.word("i64", words, j) for words in (strides, first))
                code.go_on(code.value(f"icmp eq i64 {one}, {other}"), "different")
            after = code.value(f"add i64 {place[0].text}, 2")
            place[0] = place[0]._replace(text=code.value(f"add i64 {after}, {axes}"))
    code.lines[-1:] = ["different:", "  ret i64 1", "}"]


def _take(code: Code) -> None:
    """Fill jobs with arrays from a tuple of tuples; 1 at the first mismatch, else 0."""
    with (
        code.function("take(ptr %jobs, i64 %count, ptr %tuples)", "0"),
        code.loop("job", 0, "%count") as (i, _),
    ):
        job = code.word("ptr", "%jobs", i)
        code.line(f"call void @fetch(ptr {job}, ptr %tuples)")
        no = code.value(f"call i64 @fill_if_fit(ptr {job})")
        code.go_on(code.value(f"icmp eq i64 {no}, 0"), "different")
    code.lines[-1:] = ["different:", "  ret i64 1", "}"]
    offset = items_offset() or 0
    with code.function("fetch(ptr %job, ptr %tuples)"):
        count, step = (code.word("i64", "%job", i) for i in (6, 10))
        own = code.word("ptr", code.at("%tuples", offset), step)
        items, columns = code.at(own, offset), _columns(code)
        with code.loop("operand", 0, count) as (k, _):
            array = code.word("i64", items, code.word("i64", columns[2], k))
            code.line(f"store i64 {array}, ptr {code.at(columns[3], k, 'i64')}, align 8")


class _Functions(NamedTuple):
    """The functions that check arrays and fill frames, and the one that also runs a job.

    They return 0, or 1 if something is not an array, or has another dtype or other strides: then
    nothing was run.
    """

    fill_if_fit: Any
    start: Any
    take: Any


@cache
def functions() -> _Functions:
    """The functions, compiled or from the cache."""
    found = library(_text(), *_Functions._fields)
    one = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
    several = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.py_object)
    return _Functions(one(found["fill_if_fit"]), one(found["start"]), several(found["take"]))


@cache
def arrays_lie_open() -> bool:
    """Whether arrays' addresses, strides and dtypes are at the expected offsets."""
    if launch.address is not launch._quick_address:
        return False
    probe = np.zeros((3, 5, 2), np.int16)[::2, ::-1]
    try:
        if ctypes.c_uint64.from_address(id(probe) + launch.TYPE_OFFSET).value != id(np.ndarray):
            return False
        place = ctypes.c_uint64.from_address(id(probe) + launch.STRIDES_OFFSET).value
        found = (ctypes.c_int64 * probe.ndim).from_address(place)
        kinds = [_kind(x).to_bytes(8, sys.byteorder) for x in _probes()]
    except raised_here(ValueError, TypeError):
        return False
    words = [(x.kind + x.char + x.byteorder).ljust(8, "\0").encode() for x in _probes()]
    told = [
        (int.from_bytes(x, sys.byteorder) & KIND_BITS).to_bytes(8, sys.byteorder) for x in words
    ]
    return tuple(found) == probe.strides and [x[:3] for x in kinds] == [x[:3] for x in told]


def _probes() -> list[Any]:
    return [np.dtype(x) for x in ("float32", "int8", ">i8", "<i8")]


def _kind(dtype: Any) -> int:
    """The identity of a dtype: kind, byte order and number, in one word."""
    found: int = ctypes.c_int64.from_address(id(dtype) + KIND_OFFSET).value
    return found & KIND_BITS


@cache
def items_offset() -> int | None:
    """The offset of a tuple's objects; None if it is unknown."""
    probe = (object(), object(), object())
    for offset in (tuple.__basicsize__, tuple.__basicsize__ + 8):
        try:
            found = (ctypes.c_int64 * len(probe)).from_address(id(probe) + offset)
            if list(found) == [*map(id, probe)]:
                return offset
        except raised_here(ValueError, TypeError):
            return None
    return None


class Operands(NamedTuple):
    """The arrays of a job, the first of which must match ``likes``.

    Each has its slot in the frame, the offset of its address in bytes, and its index among those of
    the step.
    """

    slots: Sequence[int]
    offsets: Sequence[int]
    places: Sequence[int]
    likes: Sequence[Like] = ()


class Taking:
    """The function that passes the arrays of steps to jobs at some addresses."""

    def __init__(self, addresses: Sequence[int]) -> None:
        self._count = len(addresses)
        self._addresses = (ctypes.c_int64 * self._count)(*addresses)
        self._place = ctypes.addressof(self._addresses)
        self._take = functions().take

    def take(self, rows: tuple[Any, ...]) -> int:
        """Prepare the jobs for the arrays of all steps; 1 if some do not match, else 0."""
        found: int = self._take(self._place, self._count, rows)
        return found


class LayoutError(Exception):
    """An array differs in type, dtype or strides from those of the job."""


class Job:
    """A kernel with the complete state of one run at a time, except its arrays.

    ``frame`` and ``counters`` are ctypes arrays, ``shared`` the address of memory that its threads
    share, ``scratch`` is the working memory of each thread in bytes, ``pieces`` the largest number
    of helpers, ``step`` its index in a segment. ``held`` is kept alive by the job. If ``flags`` are
    not all zeros after a run, Python has to repeat the step. A job that ``prepares`` only writes
    memory of later jobs of its step, from constant arrays. ``taken`` are the addresses of functions
    that take arrays, ``run`` of the thread function. A job of one piece may be a ``whole``: the
    sequence of its functions, and its rows and columns.
    """

    prepares = False
    whole: tuple[Sequence[int], int, int] | None = None

    def __init__(
        self,
        entry: int,
        frame: Any,
        counters: Any,
        operands: Operands,
        pieces: int = 1,
        shared: int = 0,
        scratch: int = 0,
        step: int = 0,
        held: Any = None,
        flags: Any = None,
    ) -> None:
        self.flags = flags
        self.pieces, self.scratch, self.step = pieces, scratch, step
        self.frame, self.counters = frame, counters
        self.slots, self.places = operands.slots, operands.places
        own = np.empty(scratch + launch.VECTOR_ALIGNMENT_BYTES, np.uint8) if scratch else None
        table = [n for x in operands.likes for n in (_kind(x.dtype), len(x.strides), *x.strides)]
        looked = (ctypes.c_int64 * len(table))(*table)
        count = len(operands.slots)
        self.words = (ctypes.c_int64 * (HEAD_WORDS + _COLUMNS * count))(
            entry,
            ctypes.addressof(frame),
            shared,
            ctypes.addressof(counters),
            0 if own is None else launch.aligned_address(own),
            len(counters) // COUNTER_WORDS,
            count,
            len(operands.likes),
            ctypes.addressof(looked),
            id(np.ndarray),
            step,
            *operands.slots,
            *operands.offsets,
            *operands.places,
        )
        self.address = ctypes.addressof(self.words)
        self.taken = self.run = [self.address]
        # Written with each call: one object for each operand.
        first = self.address + 8 * (HEAD_WORDS + (_COLUMNS - 1) * count)
        self.objects: Any = (ctypes.c_int64 * count).from_address(first)
        self.arrays: tuple[Any, ...] = ()
        self.held = self.words, frame, counters, own, looked, held

    @property
    def own_scratch(self) -> int:
        """The address of memory for a single thread."""
        return int(self.words[OWN])

    def place_at(self, step: int, first: int) -> None:
        """Assign the arrays of another step, from this index on."""
        self.step = self.words[STEP] = step
        column = HEAD_WORDS + 2 * len(self.places)
        for i, place in enumerate(self.places):
            self.words[column + i] = first + place

    def fill(self, arrays: Sequence[Any]) -> None:
        """Prepare it for these arrays, one for each operand, and hold them until ``clear``.

        Raises LayoutError, and is not ready, if one has another type, another dtype or other
        strides.
        """
        self.arrays = ()
        self.objects[:] = [*map(id, arrays)]
        if functions().fill_if_fit(self.address):
            raise LayoutError("the layout of an array is not that of the kernel")
        self.arrays = tuple(arrays)

    def clear(self) -> None:
        """Release the arrays."""
        self.arrays = ()


def test_job(step: int) -> Job:
    """A job that ends the work of a team if the bool in the first array of a step is false."""
    none = (ctypes.c_int64 * 0)()
    return Job(0, (ctypes.c_int64 * 1)(), none, Operands((0,), (0,), (0,)), step=step)
