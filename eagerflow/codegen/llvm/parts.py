"""Overwriting of parts of arrays, in machine code without allocations, so that it cannot fail.

A part consists of runs of elements at some positions of the flattened array. One thread writes them
in order, so that the last of overlapping runs wins.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from eagerflow.codegen.llvm.driver import COUNTER_WORDS, by_one_thread
from eagerflow.codegen.llvm.instructions import Code
from eagerflow.codegen.llvm.jobs import Job, Operands
from eagerflow.codegen.llvm.team import library
from eagerflow.runtime import machine_code

# A frame: the addresses of the array, of the positions of runs, and of the values; the number of
# runs, the bytes of a run and of an element.
_COUNT, _RUN, _ITEM, _WORDS = 3, 4, 5, 6
_MOVED_BYTES = (128, 16, 4, 1)  # at once, while so many are left


def _text(triple: str) -> str:
    """The function ``write``."""
    code = Code()
    head = "write(ptr %frame, ptr %scratch, ptr %counters)"
    with code.function(head), by_one_thread(code, triple):
        array, places, values = (code.word("ptr", "%frame", i) for i in range(3))
        count, run, item = (code.word("i64", "%frame", i) for i in (_COUNT, _RUN, _ITEM))
        ends = [code.number("sub", run, code.number("urem", run, size)) for size in _MOVED_BYTES]
        with code.loop("run", 0, count) as (k, _):
            target = code.step(array, code.word("i64", places, k), item)
            source = code.step(values, k, run)
            for begin, end, size in zip(("0", *ends), ends, _MOVED_BYTES, strict=False):
                kind = f"<{size} x i8>"
                with code.loop("byte", begin, end, size) as (i, _):
                    moved = code.value(f"load {kind}, ptr {code.at(source, i)}, align 1")
                    code.line(f"store {kind} {moved}, ptr {code.at(target, i)}, align 1")
    return code.text()


@cache
def _write() -> int:
    """The address of the function."""
    return library(_text(machine_code.host().triple), "write")["write"]


class PartJob(Job):
    """Overwrites the part of an array given to ``ready``."""

    def __init__(self) -> None:
        frame, counters = (ctypes.c_int64 * _WORDS)(), (ctypes.c_int64 * (2 * COUNTER_WORDS))()
        super().__init__(_write(), frame, counters, Operands((0, 1, 2), (0, 0, 0), (0, 1, 2)))

    def ready(self, array: Any, places: Any, values: Any) -> None:
        """Set the array, positions in it in elements, and a row of values for each.

        All are contiguous and have to stay alive until it is done; positions are int64.
        """
        self.frame[_COUNT:] = values.shape[0], values.shape[1] * values.itemsize, values.itemsize
        self.fill((array, places, values))
