"""The division of a kernel's work among threads, in machine code.

Each helping thread calls ``run`` once. There it takes the next free piece of rows and columns,
until none is left, so a piece costs an atomic addition instead of a call from Python. After each
stage it waits until all pieces are complete; it never waits for a thread that has not arrived, only
for pieces in progress.

Pieces are taken in order (``driver``), or by each thread from its own part, which is the same in
every kernel (``shared_driver``), so that a thread's data stay in its core's cache. Threads that
have finished their part help others.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager

from eagerflow.codegen.llvm.instructions import Code

RUN = "run"
SLOTS = ("rows", "whole", "height", "span", "blocks", "count")
"""The frame's head for ``driver``: extents, those of a piece, and the number of pieces."""
SHARED_SLOTS = (*SLOTS, "threads", "turns")
"""The frame's head for ``shared_driver``: also the number of threads, and the number of turns of
repeated stages."""

COUNTER_WORDS = 16
"""64-bit words between two counters, so that they do not share a cache line."""

PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}
"""The instruction for a spin loop on a machine, and its declaration."""


def counters(stages: int) -> int:
    """Words of the counters of ``driver``: for each stage and the last call, taken and done."""
    return COUNTER_WORDS * (2 * stages + 2)


def driver(stages: list[str], last: str | None, slots: list[str], triple: str) -> str:
    """The function ``run(frame, scratch, counters)`` over functions of pieces.

    ``stages`` are run one after the other; ``last`` is a function of all rows that one thread calls
    once at the end.
    """
    code = Code()
    with _run(code, {slot: slots.index(slot) for slot in SLOTS}):
        for number, name in enumerate(stages):
            taken, done = (_counter(code, 2 * number + i) for i in (0, 1))
            _take_pieces(code, name, taken, done, "%count")
            wait(code, done, "ult", "%count", triple)
        if last is not None:
            with by_one_thread(code, triple, 2 * len(stages)):
                _call(code, last, "0", "%rows", "0", "%whole")
    return code.text()


def shared_counters(stages: int, threads: int) -> int:
    """Words of the counters of ``shared_driver``.

    They count arrived threads; for each stage, completed pieces, and those taken of each part.
    """
    return COUNTER_WORDS * (1 + stages * (1 + threads))


def shared_driver(stages: Sequence[str], repeated: Container[str], triple: str) -> str:
    """The function ``run(frame, scratch, counters)``; each thread begins with its own part.

    ``repeated`` stages are run ``turns`` times, each after the previous turn is complete; their
    functions take the number of the turn after the range of columns.
    """
    code = Code()
    with _run(code, {slot: at for at, slot in enumerate(SHARED_SLOTS)}):
        own = code.value("atomicrmw add ptr %counters, i64 1 monotonic")
        own = code.value(f"urem i64 {own}, %threads")
        for number, name in enumerate(stages):
            before = code.value(f"mul i64 {code.value('add i64 %threads, 1')}, {number}")
            done = _counter(code, code.value(f"add i64 {before}, 1"))
            needed = "%count"
            if name in repeated:
                with code.loop("turn", 0, "%turns") as (turn, _):
                    wait(code, done, "ult", code.number("mul", turn, "%count"), triple)
                    _take_parts(code, name, own, done, turn)
                needed = code.number("mul", "%turns", "%count")
            else:
                _take_parts(code, name, own, done)
            wait(code, done, "ult", needed, triple)
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


def _take_parts(code: Code, name: str, own: str, done: str, turn: str = "") -> None:
    """Take the pieces of all threads' parts, beginning with the own part, and run them."""
    with code.loop("near", 0, "%threads") as (near, _):
        part = code.number("urem", code.number("add", own, near), "%threads")
        after = code.number("add", part, 1)
        products = [code.number("mul", x, "%count") for x in (part, after)]
        first, end = (code.number("udiv", x, "%threads") for x in products)
        size, taken = code.number("sub", end, first), _counter(code, after, done)
        if turn:
            _take_pieces_of_turn(code, name, taken, done, size, first, turn)
        else:
            _take_pieces(code, name, taken, done, size, first)


def _take_pieces(code: Code, name: str, taken: str, done: str, count: str, first: str = "") -> None:
    """Take pieces from ``first`` on and run them, until none is left."""
    take, end = (code.name(f"{word}_") for word in ("take", "end"))
    code.line(f"br label %{take}")
    code.label(take)
    number = code.value(f"atomicrmw add ptr {taken}, i64 1 acquire")
    code.go_on(code.value(f"icmp ult i64 {number}, {count}"), end)
    _work(code, name, code.value(f"add i64 {first}, {number}") if first else number, done)
    code.line(f"br label %{take}")
    code.label(end)


def _take_pieces_of_turn(
    code: Code, name: str, taken: str, done: str, count: str, first: str, turn: str
) -> None:
    """The same in a stage of several turns, with a counter that continues from turn to turn.

    A piece is taken by compare-and-exchange, so that none of the next turn is taken.
    """
    before = code.number("mul", turn, count)
    last = code.number("add", before, count)
    take, end = (code.name(f"{word}_") for word in ("take", "end"))
    code.line(f"br label %{take}")
    code.label(take)
    number = code.value(f"load atomic i64, ptr {taken} monotonic, align 8")
    code.go_on(code.value(f"icmp ult i64 {number}, {last}"), end)
    after = code.number("add", number, 1)
    found = code.value(f"cmpxchg ptr {taken}, i64 {number}, i64 {after} acquire monotonic")
    code.go_on(code.value(f"extractvalue {{i64, i1}} {found}, 1"), take)
    piece = code.number("add", first, code.number("sub", number, before))
    _work(code, name, piece, done, turn)
    code.line(f"br label %{take}")
    code.label(end)


def _work(code: Code, name: str, piece: str, done: str, *more: str) -> None:
    """Run a piece, and count it as done."""
    row, block = code.value(f"udiv i64 {piece}, %blocks"), code.value(f"urem i64 {piece}, %blocks")
    ranges = [*_range(code, row, "%height", "%rows"), *_range(code, block, "%span", "%whole")]
    _call(code, name, *ranges, *more)
    code.value(f"atomicrmw add ptr {done}, i64 1 release")


@contextmanager
def by_one_thread(code: Code, triple: str, number: int = 0) -> Iterator[None]:
    """Context manager: the code within is run by the first thread; others wait for it.

    The counter with this index counts arrived threads, the next one completion.
    """
    taken, done = _counter(code, number), _counter(code, number + 1)
    first = code.value(f"atomicrmw add ptr {taken}, i64 1 monotonic")
    with code.where(code.value(f"icmp eq i64 {first}, 0")):
        yield
        code.value(f"atomicrmw add ptr {done}, i64 1 release")
    wait(code, done, "ult", 1, triple)


def wait(code: Code, place: str, condition: str, number: str | int, triple: str) -> None:
    """Spin while the number at an address satisfies a condition."""
    pause, code.declarations["pause"] = PAUSES.get(triple.partition("-")[0], ("", ""))
    again, after = (code.name(f"{word}_") for word in ("again", "after"))
    code.line(f"br label %{again}")
    code.label(again)
    found = code.value(f"load atomic i64, ptr {place} acquire, align 8")
    code.go_on(code.value(f"icmp {condition} i64 {found}, {number}"), after)
    code.line(pause)
    code.line(f"br label %{again}")
    code.label(after)


def _range(code: Code, number: str, size: str, end: str) -> tuple[str, str]:
    """The bounds of a piece."""
    first = code.value(f"mul i64 {number}, {size}")
    last = code.value(f"add i64 {first}, {size}")
    beyond = code.value(f"icmp ugt i64 {last}, {end}")
    return first, code.value(f"select i1 {beyond}, i64 {end}, i64 {last}")
