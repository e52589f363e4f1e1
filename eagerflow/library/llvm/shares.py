"""How threads share the pieces of a program: each begins with its own part of them.

Thread after thread gets the same part in every program, so what one leaves in a core's cache,
the next one finds there. Who is done helps the others. As in ``driver``, stages follow each
other, and a thread waits for pieces that somebody works on, never for a thread that has not come.
"""

from __future__ import annotations

from typing import Any

__all__ = ["LINE", "RUN", "SLOTS", "counters", "driver"]

RUN = "run"
SLOTS = ("rows", "whole", "height", "span", "blocks", "count", "threads")
"""What a frame holds for it: extents, those of a piece, and how many pieces and threads."""

LINE = 16
"""64-bit words between two counters, so that no two of them share a cache line."""


def counters(stages: int, threads: int) -> int:
    """Words of the counters: threads that have come; for each stage pieces done, and taken."""
    return LINE * (1 + stages * (1 + threads))


def driver(code: Any, stages: list[str], pause: str) -> str:
    """The function ``run(frame, scratch, counters)`` over functions of pieces."""
    code.lines.append(f"define void @{RUN}(ptr %frame, ptr %scratch, ptr %counters) nounwind {{")
    code.label("entry")
    for at, slot in enumerate(SLOTS):
        code.line(f"%at_{slot} = getelementptr i64, ptr %frame, i64 {at}")
        code.line(f"%{slot} = load i64, ptr %at_{slot}, align 8")
    own = code.value("atomicrmw add ptr %counters, i64 1 monotonic")
    own = code.value(f"urem i64 {own}, %threads")
    for number, name in enumerate(stages):
        words = code.value("add i64 %threads, 1")
        words = code.value(f"mul i64 {words}, {number * LINE}")
        words = code.value(f"add i64 {words}, {LINE}")
        done = code.value(f"getelementptr i64, ptr %counters, i64 {words}")
        with code.loop("turn", "0", "%threads") as (turn, _):
            part = code.value(f"add i64 {own}, {turn}")
            _part(code, name, code.value(f"urem i64 {part}, %threads"), done)
        if number + 1 < len(stages):
            _wait(code, done, pause)
    code.line("ret void")
    code.lines.append("}")
    return "\n".join(code.lines)


def _part(code: Any, name: str, part: str, done: str) -> None:
    """Take pieces of a part and work on them, until none is left."""
    value = code.value
    first, after = (
        value(f"udiv i64 {value(f'mul i64 {x}, %count')}, %threads")
        for x in (part, value(f"add i64 {part}, 1"))
    )
    size = value(f"sub i64 {after}, {first}")
    words = value(f"mul i64 {value(f'add i64 {part}, 1')}, {LINE}")
    taken = value(f"getelementptr i64, ptr {done}, i64 {words}")
    take, work, end = (code.name(f"{word}_") for word in ("take", "work", "end"))
    code.line(f"br label %{take}")
    code.label(take)
    number = value(f"atomicrmw add ptr {taken}, i64 1 acquire")
    more = value(f"icmp ult i64 {number}, {size}")
    code.line(f"br i1 {more}, label %{work}, label %{end}")
    code.label(work)
    piece = value(f"add i64 {first}, {number}")
    row, block = value(f"udiv i64 {piece}, %blocks"), value(f"urem i64 {piece}, %blocks")
    ranges = [*_range(code, row, "%height", "%rows"), *_range(code, block, "%span", "%whole")]
    given = ", ".join(f"i64 {x}" for x in ranges)
    code.line(f"call void @{name}({given}, ptr %frame, ptr %scratch)")
    value(f"atomicrmw add ptr {done}, i64 1 release")
    code.line(f"br label %{take}")
    code.label(end)


def _wait(code: Any, done: str, pause: str) -> None:
    """Wait until all pieces are complete."""
    wait, again, after = (code.name(f"{word}_") for word in ("wait", "again", "after"))
    code.line(f"br label %{wait}")
    code.label(wait)
    found = code.value(f"load atomic i64, ptr {done} acquire, align 8")
    ended = code.value(f"icmp uge i64 {found}, %count")
    code.line(f"br i1 {ended}, label %{after}, label %{again}")
    code.label(again)
    code.line(pause)
    code.line(f"br label %{wait}")
    code.label(after)


def _range(code: Any, number: str, size: str, end: str) -> tuple[str, str]:
    """Where a piece begins and ends."""
    first = code.value(f"mul i64 {number}, {size}")
    last = code.value(f"add i64 {first}, {size}")
    beyond = code.value(f"icmp ugt i64 {last}, {end}")
    return first, code.value(f"select i1 {beyond}, i64 {end}, i64 {last}")
