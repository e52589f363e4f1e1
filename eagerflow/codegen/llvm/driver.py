"""How threads share a kernel's work, in machine code.

Each thread that helps calls ``run`` once. There it takes the next piece of rows and columns that
nobody has taken, until none is left, so a piece costs an atomic addition instead of a call from
Python. Where the work has stages, a thread waits between them until all pieces are complete; it
never waits for a thread that has not come, only for pieces that somebody works on.
"""

from __future__ import annotations

from eagerflow.codegen.llvm.instructions import Code

__all__ = ["LINE", "RUN", "SLOTS", "driver", "pause_of"]

RUN = "run"
SLOTS = ("rows", "whole", "height", "span", "blocks", "count")
"""What a frame holds for it: extents, those of a piece, and how many pieces there are."""

LINE = 16
"""64-bit words between two counters, so that no two of them share a cache line."""

_PAUSES = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}


def pause_of(triple: str) -> tuple[str, str]:
    """The instruction for waiting in a loop on a machine, and what declares it."""
    return _PAUSES.get(triple.partition("-")[0], ("", ""))


def driver(stages: list[str], last: str | None, slots: list[str], triple: str) -> str:
    """The function ``run(frame, scratch, counters)`` over functions of pieces.

    ``stages`` are done one after the other; ``last`` is a function of all rows that one thread
    calls once at the end.
    """
    code = Code()
    pause, declaration = pause_of(triple)
    code.lines.append(f"define void @{RUN}(ptr %frame, ptr %scratch, ptr %counters) nounwind {{")
    code.label("entry")
    for slot in SLOTS:
        code.line(f"%at_{slot} = getelementptr i64, ptr %frame, i64 {slots.index(slot)}")
        code.line(f"%{slot} = load i64, ptr %at_{slot}, align 8")
    for number, name in enumerate(stages):
        waits = number + 1 < len(stages) or last is not None
        _stage(code, number, name, pause if waits else None)
    if last is not None:
        taken = _counter(code, 2 * len(stages))
        first = code.value(f"atomicrmw add ptr {taken}, i64 1 monotonic")
        mine = code.value(f"icmp eq i64 {first}, 0")
        call, done = code.name("last"), code.name("done")
        code.line(f"br i1 {mine}, label %{call}, label %{done}")
        code.label(call)
        _call(code, last, "0", "%rows", "0", "%whole")
        code.line(f"br label %{done}")
        code.label(done)
    code.line("ret void")
    code.lines.append("}")
    return "\n".join([*code.lines, declaration])


def _counter(code: Code, number: int) -> str:
    return code.value(f"getelementptr i64, ptr %counters, i64 {number * LINE}")


def _call(code: Code, name: str, *ranges: str) -> None:
    given = ", ".join(f"i64 {x}" for x in ranges)
    code.line(f"call void @{name}({given}, ptr %frame, ptr %scratch)")


def _stage(code: Code, number: int, name: str, pause: str | None) -> None:
    """Take pieces and work on them; unless ``pause`` is None, wait until all are complete."""
    taken, complete = _counter(code, 2 * number), _counter(code, 2 * number + 1)
    take, work, wait, after = (code.name(f"{w}_") for w in ("take", "work", "wait", "after"))
    code.line(f"br label %{take}")
    code.label(take)
    i = code.value(f"atomicrmw add ptr {taken}, i64 1 acquire")
    more = code.value(f"icmp ult i64 {i}, %count")
    code.line(f"br i1 {more}, label %{work}, label %{wait}")
    code.label(work)
    row, block = code.value(f"udiv i64 {i}, %blocks"), code.value(f"urem i64 {i}, %blocks")
    ranges = [*_range(code, row, "%height", "%rows"), *_range(code, block, "%span", "%whole")]
    _call(code, name, *ranges)
    code.value(f"atomicrmw add ptr {complete}, i64 1 release")
    code.line(f"br label %{take}")
    code.label(wait)
    if pause is not None:
        found = code.value(f"load atomic i64, ptr {complete} acquire, align 8")
        ended = code.value(f"icmp uge i64 {found}, %count")
        again = code.name("again_")
        code.line(f"br i1 {ended}, label %{after}, label %{again}")
        code.label(again)
        code.line(pause)
        code.line(f"br label %{wait}")
    else:
        code.line(f"br label %{after}")
    code.label(after)


def _range(code: Code, number: str, size: str, end: str) -> tuple[str, str]:
    """Where a piece begins and ends."""
    first = code.value(f"mul i64 {number}, {size}")
    last = code.value(f"add i64 {first}, {size}")
    beyond = code.value(f"icmp ugt i64 {last}, {end}")
    return first, code.value(f"select i1 {beyond}, i64 {end}, i64 {last}")
