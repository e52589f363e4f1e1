"""Reference counts of arrays, checked by machine code before kernels overwrite memory.

A reference count is only valid at the moment at which the writing begins. So the counts are read by
machine code that holds the interpreter's lock, and the caller proceeds to the writing with no
bytecode in between (``guard.in_one_call``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.instructions import Code
from eagerflow.codegen.llvm.team import library
from eagerflow.handlers import raised_here

_HEAD_WORDS = 4  # words of a table before its pairs


def _text() -> str:
    """The function ``held``, which returns 1 if there are other references, else 0."""
    code = Code()
    with code.function("held(ptr %table)", "0"):
        count, kind = (code.word("i64", "%table", i) for i in (0, 1))
        limit, array_limit = (code.word("i32", "%table", i) for i in (2, 3))
        pairs = code.at("%table", _HEAD_WORDS, "i64")
        with code.loop("pair", 0, count) as (k, _):
            pair = code.value(f"getelementptr [2 x i64], ptr {pairs}, i64 {k}")
            holder, array = (code.word("ptr", pair, i) for i in (0, 1))
            for counted, most in ((holder, limit), (array, array_limit)):
                _leave_if_held(code, counted, most)
            before = code.current
            code.line("br label %owners")
            code.label("owners")
            code.line(f"%object = phi ptr [{array}, %{before}], [%base, %owner_array]")
            code.line(f"%at_base = getelementptr i8, ptr %object, i64 {launch.OWNER_OFFSET}")
            code.line("%base = load ptr, ptr %at_base, align 8")
            code.go_on(code.value("icmp ne ptr %base, null"), "free")
            owner = code.word("i64", "%base", launch.TYPE_OFFSET, "i8")
            code.go_on(code.value(f"icmp eq i64 {owner}, {kind}"), "free")
            _leave_if_held(code, "%base", "1")
            code.line("br label %owner_array")
            code.label("owner_array")
            code.line("br label %owners")
            code.label("free")
    code.lines[-1:] = ["held:", "  ret i64 1", "}"]
    return code.text()


def _leave_if_held(code: Code, counted: str, most: str) -> None:
    """Branch out if an object has more references than these."""
    found = code.word("i32", counted, 0)
    code.go_on(code.value(f"icmp ule i32 {found}, {most}"), "held")


@cache
def _held() -> Any:
    address = library(_text(), "held")["held"]
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)


@cache
def counts_lie_open() -> bool:
    """Whether this Python has reference counts and owners at the known offsets."""
    count, word = ctypes.c_uint32.from_address, ctypes.c_uint64.from_address
    probe = np.zeros(3, np.int16)
    view = probe[1:]
    try:
        before = count(id(probe)).value
        more = [probe, probe]
        after = count(id(probe)).value
        owner = word(id(view) + launch.OWNER_OFFSET).value
    except raised_here(ValueError, TypeError):
        return False
    return after == before + len(more) and owner == id(probe)


class Holders:
    """Checks for other references to arrays, or to the objects that hold them.

    ``objects`` and ``arrays`` are the numbers of the caller's own references to each object and to
    each array. An array's memory may belong to a base, which only it may refer to.
    """

    def __init__(self, count: int, objects: int, arrays: int) -> None:
        self._words = (ctypes.c_int64 * (_HEAD_WORDS + 2 * count))(
            count, id(np.ndarray), objects, arrays
        )
        self.ask = partial(_held(), ctypes.c_void_p(ctypes.addressof(self._words)))
        """Returns 1 if there are other references, else 0; no Python code runs in it."""

    def look_at(self, objects: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Set the objects and arrays, which have to stay alive, for later checks."""
        self._words[0] = len(arrays)
        end = _HEAD_WORDS + 2 * len(arrays)
        self._words[_HEAD_WORDS:end:2] = [*map(id, objects)]
        self._words[_HEAD_WORDS + 1 : end : 2] = [*map(id, arrays)]
