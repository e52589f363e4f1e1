"""Column reductions: the parts of blocks of rows are combined, in machine code."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.driver import COUNTER_WORDS, by_one_thread
from eagerflow.codegen.llvm.instructions import Code, Emitter, Operand
from eagerflow.codegen.llvm.jobs import Job, Operands
from eagerflow.codegen.llvm.memory import Memory, Span
from eagerflow.codegen.llvm.team import library
from eagerflow.codegen.reductions import JOINS, ROWS_OF_A_LINE, identity
from eagerflow.runtime import machine_code

KINDS = ("float32", "float64", "int32", "int64")
"""Types of results with machine code."""


def _text(instruction: str, dtype: str, clears: bool, lanes: int, triple: str) -> str:
    """The function ``join``: a single thread runs it, and ``clears`` resets the parts."""
    code = Code()
    s = Emitter(code)
    memory = Memory(code, s, lanes, half_hardware=False)
    head = "join(ptr %frame, ptr %scratch, ptr %counters)"
    with code.function(head), by_one_thread(code, triple):
        result, parts = (code.word("ptr", "%frame", i) for i in (0, 1))
        count, size = (code.word("i64", "%frame", i) for i in (2, 3))
        none = s.splat(s.constant(identity(instruction, dtype), dtype), lanes)
        join = getattr(s, JOINS[instruction])
        with code.loop("element", 0, size, lanes) as (i, _):
            left = Operand(code.value(f"sub i64 {size}, {i}"), "uint64", 0)
            mask = s.less(memory.iota, left).text
            with code.loop("group", 0, count, ROWS_OF_A_LINE, [none]) as (first, total):
                after = Operand(code.number("add", first, ROWS_OF_A_LINE), "uint64", 0)
                end = s.minimum(after, Operand(count, "uint64", 0)).text
                with code.loop("part", first, end, 1, [none]) as (k, carried):
                    at = code.value(f"add i64 {code.value(f'mul i64 {k}, {size}')}, {i}")
                    part = memory.load(Span(parts, dtype, at), mask)
                    if clears:
                        memory.store(Span(parts, dtype, at), none, mask)
                    carried[0] = join(carried[0], part)
                total[0] = join(total[0], carried[0])
            memory.store(Span(result, dtype, i), total[0], mask)
    return code.text()


@cache
def _join(instruction: str, dtype: str, clears: bool) -> int:
    """The address of the function for a reduction."""
    target = machine_code.host()
    lanes = target.vector_bytes // (4 if dtype.endswith("32") else 8)
    return library(_text(instruction, dtype, clears, lanes, target.triple), "join")["join"]


def join_job(instruction: str, dtype: str, parts: Any, place: int, step: int, clears: bool) -> Job:
    """The job that combines ``parts``, an array (parts, ...), and resets them for the next run.

    The result is a contiguous array, at the index ``place`` among those of a segment's step. Of
    several results from the same parts, only the last one ``clears`` them.
    """
    count = len(parts)
    parts.fill(identity(instruction, dtype))
    frame = (ctypes.c_int64 * 4)(0, launch.address(parts), count, parts.size // count)
    counters = (ctypes.c_int64 * (2 * COUNTER_WORDS))()
    operands = Operands([0], [0], [place])
    return Job(_join(instruction, dtype, clears), frame, counters, operands, step=step, held=parts)
