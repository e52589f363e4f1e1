"""Who holds arrays, as machine code sees it: before kernels write over what nobody else may see.

A count of references is only worth something at the very moment at which the writing begins. So
the counts are looked at by machine code that keeps the interpreter's lock, and whoever calls it
goes on to the writing with no bytecode in between (``guard.in_one_call``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from eagerflow.codegen.llvm import launch
from eagerflow.codegen.llvm.team import library

_HEAD_WORDS = 4  # words of a table before its pairs
_TEXT = """
define i64 @held(ptr %table) nounwind {{
entry:
  %count = load i64, ptr %table, align 8
  %type = word i64 %table, 1
  %limit = word i32 %table, 2
  %array_limit = word i32 %table, 3
  %pairs = getelementptr i64, ptr %table, i64 {head}
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k_next, %owners ], [ %k_next, %owner ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %pair, label %alone
pair:
  %k_next = add i64 %k, 1
  %twice = mul i64 %k, 2
  %at_holder = getelementptr i64, ptr %pairs, i64 %twice
  %holder = load ptr, ptr %at_holder, align 8
  %array = word ptr %at_holder, 1
  %holder_count = load i32, ptr %holder, align 8
  %holder_held = icmp ugt i32 %holder_count, %limit
  br i1 %holder_held, label %held, label %look
look:
  %array_count = load i32, ptr %array, align 8
  %array_held = icmp ugt i32 %array_count, %array_limit
  br i1 %array_held, label %held, label %owners
owners:
  %object = phi ptr [ %array, %look ], [ %base, %owner_array ]
  %base = field ptr %object, {base}
  %none = icmp eq ptr %base, null
  br i1 %none, label %next, label %owner
owner:
  %own_type = field i64 %base, {type}
  %is_array = icmp eq i64 %own_type, %type
  br i1 %is_array, label %owner_array, label %next
owner_array:
  %owner_count = load i32, ptr %base, align 8
  %owner_held = icmp ugt i32 %owner_count, 1
  br i1 %owner_held, label %held, label %owners
held:
  ret i64 1
alone:
  ret i64 0
}}
"""


@cache
def _held() -> Any:
    text = _TEXT.format(head=_HEAD_WORDS, type=launch.TYPE_OFFSET, base=launch.OWNER_OFFSET)
    address = library(text, "held")["held"]
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)


@cache
def counts_lie_open() -> bool:
    """Whether objects and arrays of this Python have their counts and owners where we look."""
    count, word = ctypes.c_uint32.from_address, ctypes.c_uint64.from_address
    probe = np.zeros(3, np.int16)
    view = probe[1:]
    try:
        before = count(id(probe)).value
        more = [probe, probe]
        after = count(id(probe)).value
        owner = word(id(view) + launch.OWNER_OFFSET).value
    except (ValueError, TypeError):
        return False
    return after == before + len(more) and owner == id(probe)


class Holders:
    """Asks whether anybody but the caller refers to arrays, or to the objects that hold them.

    ``objects`` and ``arrays`` are how many references the caller itself has to each object and
    to each array. An array's memory may belong to another one, which only it may refer to.
    """

    def __init__(self, count: int, objects: int, arrays: int) -> None:
        self._words = (ctypes.c_int64 * (_HEAD_WORDS + 2 * count))(
            count, id(np.ndarray), objects, arrays
        )
        self.ask = partial(_held(), ctypes.addressof(self._words))
        """Gives 1 if there is anybody else, 0 if not; no Python code runs in it."""

    def look_at(self, objects: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Take these, which have to stay alive, for the questions to come."""
        self._words[0] = len(arrays)
        end = _HEAD_WORDS + 2 * len(arrays)
        self._words[_HEAD_WORDS:end:2] = [*map(id, objects)]
        self._words[_HEAD_WORDS + 1 : end : 2] = [*map(id, arrays)]
