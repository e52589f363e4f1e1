"""How threads share a kernel's work, in machine code.

Each thread that helps calls ``run`` once. There it takes the next piece of rows and columns that
nobody has taken, until none is left, so a piece costs an atomic addition instead of a call from
Python. After each stage it waits until all pieces are complete; it never waits for a thread that
has not come, only for pieces that somebody works on.

There are two ways of taking pieces: in their order (``driver``), or, each thread from its own part
of them, which is the same in every kernel (``shared_driver``): what a thread leaves in a core's
cache, it finds there again. Threads that are done with their part help the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from eagerflow.codegen.llvm.instructions import Code

RUN = "run"
SLOTS = ("rows", "whole", "height", "span", "blocks", "count")
"""What a frame holds for ``driver``: extents, those of a piece, and how many pieces there are."""
SHARED_SLOTS = (*SLOTS, "threads")
"""What the frame of ``shared_driver`` begins with: how many threads there are as well."""

COUNTER_WORDS = 16
"""64-bit words between two counters, so that no two of them share a cache line."""

_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}
"""The instruction for waiting in a loop on a machine, and what declares it."""


def counters(stages: int) -> int:
    """Words of the counters of ``driver``: of each stage and the last call, taken and done."""
    return COUNTER_WORDS * (2 * stages + 2)


def driver(stages: list[str], last: str | None, slots: list[str], triple: str) -> str:
    """The function ``run(frame, scratch, counters)`` over functions of pieces.

    ``stages`` are done one after the other; ``last`` is a function of all rows that one thread
    calls once at the end.
    """
    code = Code()
    with _run(code, {slot: slots.index(slot) for slot in SLOTS}):
        for number, name in enumerate(stages):
            taken, done = (_counter(code, 2 * number + i) for i in (0, 1))
            _take_pieces(code, name, taken, done, "%count")
            wait(code, done, "ult", "%count", triple)
        if last is not None:
            taken, done = (_counter(code, 2 * len(stages) + i) for i in (0, 1))
            first = code.value(f"atomicrmw add ptr {taken}, i64 1 monotonic")
            with code.where(code.value(f"icmp eq i64 {first}, 0")):
                _call(code, last, "0", "%rows", "0", "%whole")
                code.value(f"atomicrmw add ptr {done}, i64 1 release")
            wait(code, done, "ult", 1, triple)
    return code.text()


def shared_counters(stages: int, threads: int) -> int:
    """Words of the counters of ``shared_driver``.

    They count threads that have come; for each stage pieces done, and those taken of each part.
    """
    return COUNTER_WORDS * (1 + stages * (1 + threads))


def shared_driver(stages: Sequence[str], triple: str) -> str:
    """The function ``run(frame, scratch, counters)``; each thread begins with its own part."""
    code = Code()
    with _run(code, {slot: at for at, slot in enumerate(SHARED_SLOTS)}):
        own = code.value("atomicrmw add ptr %counters, i64 1 monotonic")
        own = code.value(f"urem i64 {own}, %threads")
        for number, name in enumerate(stages):
            before = code.value(f"mul i64 {code.value('add i64 %threads, 1')}, {number}")
            done = _counter(code, code.value(f"add i64 {before}, 1"))
            with code.loop("turn", 0, "%threads") as (turn, _):
                part = code.value(f"add i64 {own}, {turn}")
                _take_part(code, name, code.value(f"urem i64 {part}, %threads"), done)
            wait(code, done, "ult", "%count", triple)
    return code.text()


@contextmanager
def _run(code: Code, slots: dict[str, int]) -> Iterator[None]:
    with code.function(f"{RUN}(ptr %frame, ptr %scratch, ptr %counters)"):
        for slot, at in slots.items():
            code.line(f"%at_{slot} = getelementptr i64, ptr %frame, i64 {at}")
            code.line(f"%{slot} = load i64, ptr %at_{slot}, align 8")
        yield


def _counter(code: Code, number: str | int, first: str = "%counters") -> str:
    words: str | int
    if isinstance(number, int):
        words = number * COUNTER_WORDS
    else:
        words = code.value(f"mul i64 {number}, {COUNTER_WORDS}")
    return code.value(f"getelementptr i64, ptr {first}, i64 {words}")


def _call(code: Code, name: str, *ranges: str) -> None:
    given = ", ".join(f"i64 {x}" for x in ranges)
    code.line(f"call void @{name}({given}, ptr %frame, ptr %scratch)")


def _take_part(code: Code, name: str, part: str, done: str) -> None:
    """Take the pieces of one thread's part and work on them."""
    after = code.value(f"add i64 {part}, 1")
    products = [code.value(f"mul i64 {x}, %count") for x in (part, after)]
    first, end = (code.value(f"udiv i64 {x}, %threads") for x in products)
    size, taken = code.value(f"sub i64 {end}, {first}"), _counter(code, after, done)
    _take_pieces(code, name, taken, done, size, first)


def _take_pieces(code: Code, name: str, taken: str, done: str, count: str, first: str = "") -> None:
    """Take pieces from the number ``first`` on and work on them, until none is left."""
    take, end = (code.name(f"{word}_") for word in ("take", "end"))
    code.line(f"br label %{take}")
    code.label(take)
    number = code.value(f"atomicrmw add ptr {taken}, i64 1 acquire")
    code.go_on(code.value(f"icmp ult i64 {number}, {count}"), end)
    piece = code.value(f"add i64 {first}, {number}") if first else number
    row, block = code.value(f"udiv i64 {piece}, %blocks"), code.value(f"urem i64 {piece}, %blocks")
    ranges = [*_range(code, row, "%height", "%rows"), *_range(code, block, "%span", "%whole")]
    _call(code, name, *ranges)
    code.value(f"atomicrmw add ptr {done}, i64 1 release")
    code.line(f"br label %{take}")
    code.label(end)


def wait(code: Code, place: str, condition: str, number: str | int, triple: str) -> None:
    """Wait while what stands at an address compares to a number as a condition says."""
    pause, code.declarations["pause"] = _PAUSES.get(triple.partition("-")[0], ("", ""))
    again, after = (code.name(f"{word}_") for word in ("again", "after"))
    code.line(f"br label %{again}")
    code.label(again)
    found = code.value(f"load atomic i64, ptr {place} acquire, align 8")
    code.go_on(code.value(f"icmp {condition} i64 {found}, {number}"), after)
    code.line(pause)
    code.line(f"br label %{again}")
    code.label(after)


def _range(code: Code, number: str, size: str, end: str) -> tuple[str, str]:
    """Where a piece begins and ends."""
    first = code.value(f"mul i64 {number}, {size}")
    last = code.value(f"add i64 {first}, {size}")
    beyond = code.value(f"icmp ugt i64 {last}, {end}")
    return first, code.value(f"select i1 {beyond}, i64 {end}, i64 {last}")
