"""Which steps of a segment go through their rows together, as chains of one job.

A chain begins with a product or with what makes its rows. Steps join it whose rows depend on the
same rows alone of what its others read and write; what stands between them may wait until the
chain is done, as long as it works on other memory. Arrays are compared as they lie in memory: the
buffers of a plan are the same in each run, and what else a segment writes belongs to it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.llvm.chains import Access, Member, height_of

MIN_PASSED_BYTES = 1 << 23
"""Of what a product reads or makes, from which a chain pays: less stays in the last cache anyway,
where a product is quicker that may be cut along its columns too."""
MAX_STEPS = 8  # of a chain
MAX_WAITING = 3  # steps that are done after a chain though they stand before its end

Arrays = Sequence[Any]


class Chain(NamedTuple):
    """Numbers of steps, and how they take part; without ``members`` it is one step alone."""

    steps: list[int]
    members: list[Member]


class _Touched(NamedTuple):
    """The memory from ``start`` to ``end`` that a step reads or writes, and how; see Access."""

    start: int
    end: int
    access: Access


def _in_step(one: _Touched, other: _Touched) -> bool:
    """Whether a later step of a chain touches nothing of an earlier one's but in the same rows."""
    a, b = one.access, other.access
    if one.end <= other.start or other.end <= one.start or not (a.writes or b.writes):
        return True
    if a.when < b.when or a.when == b.when != 0:
        return True  # in their order, whatever the pieces do
    if a.row is None or a.row != b.row:
        return False
    end = max(one.start + a.size, other.start + b.size)
    return end - min(one.start, other.start) <= a.row


def _bounds(array: Any) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def _touched(member: Member, arrays: Arrays) -> list[_Touched]:
    found = []
    for access in member.accesses:
        array = arrays[access.place]
        if access.row is None:
            found.append(_Touched(*_bounds(array), access))
            continue
        start = array.ctypes.data + access.offset
        found.append(_Touched(start, start + access.row * (member.rows - 1) + access.size, access))
    return found


def _apart(arrays: Arrays, inputs: int, others: Arrays, other_inputs: int) -> bool:
    """Whether two steps can change places."""
    for i, a in enumerate(arrays):
        for k, b in enumerate(others):
            if (i >= inputs or k >= other_inputs) and np.may_share_memory(a, b):
                return False
    return True


def chains(
    natives: Sequence[Any], rows: Sequence[Arrays], inputs: Sequence[int], threads: int
) -> Iterator[Chain]:
    """Steps as chains and alone, in the order in which they are to be done.

    ``natives`` are what does the steps in machine code, or None, ``rows`` their arrays, of which
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
    found, touched = Chain([], []), list[_Touched]()
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
                all(_in_step(a, b) for a in touched for b in own)
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
