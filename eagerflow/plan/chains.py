"""Chains: steps of a segment that go through their rows together in one job.

A chain begins with a product or with the step that computes its rows. A step joins it if its rows
depend only on the same rows of the arrays of the other steps; steps in between are postponed to
the end of the chain, if they work on other memory. Arrays are compared by memory range: the
buffers of a plan are the same in each run, and other results of a segment are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.llvm.chains import Access, Member, height_of

MIN_PASSED_BYTES = 1 << 23
"""Bytes of a product's operand or result from which a chain pays: less stays in the last-level
cache anyway, where a product that may also be divided along its columns is faster."""
MAX_STEPS = 8  # of a chain
MAX_WAITING = 3  # steps postponed to the end of a chain

Arrays = Sequence[Any]


class Chain(NamedTuple):
    """Indices of steps, and their parts in the chain; without ``members`` a single step."""

    steps: list[int]
    members: list[Member]


class Touched(NamedTuple):
    """The memory range from ``start`` to ``end`` that a step accesses; see Access."""

    start: int
    end: int
    access: Access


def in_step(one: Touched, other: Touched) -> bool:
    """Whether a later step of a chain conflicts with an earlier one in the same rows only."""
    a, b = one.access, other.access
    if one.end <= other.start or other.end <= one.start or not (a.writes or b.writes):
        return True
    if a.when < b.when or a.when == b.when != 0:
        return True  # ordered, regardless of the pieces
    if a.row is None or a.row != b.row:
        return False
    end = max(one.start + a.size, other.start + b.size)
    return end - min(one.start, other.start) <= a.row


def _bounds(array: Any) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def _touched(member: Member, arrays: Arrays) -> list[Touched]:
    found = []
    for access in member.accesses:
        array = arrays[access.place]
        if access.row is None:
            found.append(Touched(*_bounds(array), access))
            continue
        start = array.ctypes.data + access.offset
        found.append(Touched(start, start + access.row * (member.rows - 1) + access.size, access))
    return found


def _apart(arrays: Arrays, inputs: int, others: Arrays, other_inputs: int) -> bool:
    """Whether two steps can be exchanged."""
    for i, a in enumerate(arrays):
        for k, b in enumerate(others):
            if (i >= inputs or k >= other_inputs) and np.may_share_memory(a, b):
                return False
    return True


def chains(
    natives: Sequence[Any], rows: Sequence[Arrays], inputs: Sequence[int], threads: int
) -> Iterator[Chain]:
    """Steps as chains and single steps, in the order of execution.

    ``natives`` are the steps' machine code calls, or None, ``rows`` their arrays, of which
    the first ``inputs`` are read.
    """
    done: set[int] = set()
    for number in range(len(natives)):
        if number in done:
            continue
        chain = _grown(number, natives, rows, inputs, done, threads)
        done.update(chain.steps)
        yield chain


def _grown(
    first: int,
    natives: Sequence[Any],
    rows: Sequence[Arrays],
    inputs: Sequence[int],
    done: set[int],
    threads: int,
) -> Chain:
    """The longest chain that begins with a step."""
    count = _rows_from(first, natives, rows, done)
    found, touched = Chain([], []), list[Touched]()
    waiting: list[int] = []
    for number in range(first, len(natives)) if count else ():
        native = natives[number]
        if number in done:
            continue
        if native is None or not native.movable or len(found.steps) == MAX_STEPS:
            break
        member = native.member(count)
        if member is not None:
            own = _touched(member, rows[number])
            if (
                all(in_step(a, b) for a in touched for b in own)
                and all(_apart(rows[number], inputs[number], rows[w], inputs[w]) for w in waiting)
                and height_of([*found.members, member], threads)
            ):
                found.steps.append(number)
                found.members.append(member)
                touched += own
                continue
        if number == first or len(waiting) == MAX_WAITING:
            break
        waiting.append(number)
    return found if len(found.steps) > 1 else Chain([first], [])


def _rows_from(
    first: int, natives: Sequence[Any], rows: Sequence[Arrays], done: set[int]
) -> int | None:
    """The rows of a chain that begins with a step: those of it, or of the next one."""
    for number in range(first, min(first + 2, len(natives))):
        native = natives[number]
        if native is None or number in done:
            return None
        if (count := native.chain_rows) is not None:
            read, *_, made = rows[number]
            return int(count) if max(read.nbytes, made.nbytes) >= MIN_PASSED_BYTES else None
    return None
