"""Chains: kernels that a thread runs one after the other on the same rows.

A product computes rows for a region, whose rows another product reads: no thread waits for all
rows, and a kernel's results are still in the core's own cache when the next one reads them. A piece
of a chain is a range of rows, processed by all of its kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from eagerflow.codegen.llvm.driver import RUN, SHARED_SLOTS, shared_counters, shared_driver
from eagerflow.codegen.llvm.instructions import Code, Emitter, Operand
from eagerflow.codegen.llvm.jobs import Job, Operands
from eagerflow.codegen.llvm.team import library
from eagerflow.runtime import machine_code

MAX_HEIGHT = 128  # rows of a piece
PIECE_BYTES = 1 << 20  # of the rows that a kernel reads and writes
PIECES_OF_A_THREAD = 4

_SLOTS = (*SHARED_SLOTS, "members", "table")
_WORDS = 7  # of a member in the table: its function, its frame, its ranges


class Access(NamedTuple):
    """The access of a kernel to an array of its step.

    The rows of a chain are ``row`` bytes apart, and ``size`` bytes of each are accessed, from
    ``offset`` on. Without ``row``, each may access the whole array.
    """

    place: int
    offset: int
    row: int | None
    size: int
    writes: bool
    when: int = 0
    """-1 before all pieces of the chain, 1 after them; such accesses have no ``row``."""


class Ranges(NamedTuple):
    """The rows and columns of a piece: their number, their end, and their granularity."""

    rows: int
    row_end: int
    together: int
    columns: int
    column_end: int


class Member(NamedTuple):
    """A step as part of a chain of ``rows``.

    ``function`` computes a piece, with the frame of the step's job ``main``; ``cut(frame, height)``
    returns the ranges of pieces of ``height`` rows, which begin at multiples of ``alignment``.
    """

    rows: int
    function: int
    main: int
    alignment: int
    accesses: tuple[Access, ...]
    cut: Callable[[Any, int], Ranges]
    block: int = 1
    """Rows that are computed together, for a product."""


def _text(triple: str) -> str:
    """The function of a piece, and the driver of all pieces."""
    code = Code()
    s = Emitter(code)

    def least(a: str, b: str) -> str:
        found: Any = s.minimum(Operand(a, "uint64", 0), Operand(b, "uint64", 0))
        return str(found.text)

    def part(first: str, count: str, end: str) -> tuple[str, str]:
        """A range of a given length from a multiple of it on; everything if the length is 0."""
        whole = code.value(f"icmp eq i64 {count}, 0")
        last = least(code.value(f"add i64 {first}, {count}"), end)
        return first, code.value(f"select i1 {whole}, i64 {end}, i64 {last}")

    head = "piece(i64 %r0, i64 %r1, i64 %c0, i64 %c1, ptr %frame, ptr %scratch)"
    with code.function(head):
        count = code.word("i64", "%frame", _SLOTS.index("members"))
        table = code.word("ptr", "%frame", _SLOTS.index("table"))
        with code.loop("member", 0, count) as (k, _):
            own = code.at(table, code.number("mul", k, _WORDS), "i64")
            function, frame = (code.word("ptr", own, i) for i in (0, 1))
            rows, row_end, together, columns, column_end = (
                code.word("i64", own, i) for i in range(2, _WORDS)
            )
            row, last = part(code.number("mul", "%r0", rows), rows, row_end)
            first, end = part(code.number("mul", "%r0", columns), columns, column_end)
            with code.loop("rows", row, last, together) as (r, _):
                until = least(code.number("add", r, together), last)
                given = ", ".join(f"i64 {x}" for x in (r, until, first, end))
                code.line(f"call void {function}({given}, ptr {frame}, ptr %scratch)")
    return code.text() + shared_driver(["piece"], (), triple)


@cache
def _entry() -> int:
    return library(_text(machine_code.host().triple), RUN)[RUN]


def height_of(members: Sequence[Member], threads: int) -> int | None:
    """Rows of a piece of a chain; None if its kernels do not agree on pieces."""
    rows = members[0].rows
    step = max(m.alignment for m in members)
    if any(step % m.alignment for m in members) or step > min(MAX_HEIGHT, -(-rows // threads)):
        return None
    widest = max(sum(a.size for a in m.accesses if a.row) for m in members)
    height = min(-(-rows // (PIECES_OF_A_THREAD * threads)), PIECE_BYTES // max(widest, 1))
    if step == 1:
        step = max(m.block for m in members)
    return min(max(height // step, 1) * step, MAX_HEIGHT // step * step)


def chain_job(members: Sequence[Member], own: Sequence[Job], threads: int) -> Job:
    """The job that runs the members' jobs, piece by piece."""
    height = height_of(members, threads)
    assert height is not None, "checked before a chain is made"
    count = -(-members[0].rows // height)
    many = min(count, threads)
    words: list[int] = []
    for member, job in zip(members, own, strict=True):
        ranges = member.cut(job.frame, height)
        words += [member.function, ctypes.addressof(job.frame), *ranges]
    table = (ctypes.c_int64 * len(words))(*words)
    frame = (ctypes.c_int64 * len(_SLOTS))(
        *(count, 1, 1, 1, 1, count, many, 1), len(members), ctypes.addressof(table)
    )
    return Job(
        _entry(),
        frame,
        (ctypes.c_int64 * shared_counters(1, many))(),
        Operands((), (), ()),
        many,
        scratch=max(job.scratch for job in own),
        held=(table, own),
    )
