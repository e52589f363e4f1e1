"""Standby: after its work, a thread of the pool spins for a moment, waiting for more.

Waking a thread takes as long as a small kernel. So after its call a helper spins for ``SECONDS`` in
machine code, without Python's lock, before it sleeps. A running team is posted on a *board*, where
spinning threads see it. Its owner removes it, and waits until no thread is about to enter it, all
in one call of machine code: so a team outlives all threads that have read its address.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eagerflow.codegen.llvm.driver import COUNTER_WORDS, PAUSES

SECONDS = 1e-4
MEMORY_BYTES = 1 << 18  # of working memory for a helper on standby
_LINE_BYTES = 8 * COUNTER_WORDS
_TRIALS, _TRIAL_TURNS = 8, 2_000

# The board, each part on a cache line of its own: the team (0 for none, 1 while one is posted) and
# the number of teams so far; the number of helpers about to enter it, and on standby.
_ENTERING, _WAITING, _WORDS = (i * COUNTER_WORDS for i in (1, 2, 4))

_TEXT = """
define i64 @post(ptr %board, ptr %team, i64 %scratch) nounwind {{
entry:
  %found = cmpxchg ptr %board, i64 0, i64 1 seq_cst seq_cst
  %mine = extractvalue {{i64, i1}} %found, 1
  br i1 %mine, label %put, label %other
other:
  %alone = call i64 @run(ptr %team, i64 %scratch)
  ret i64 0
put:
  %at_number = getelementptr i64, ptr %board, i64 1
  %before = atomicrmw add ptr %at_number, i64 1 seq_cst
  %address = ptrtoint ptr %team to i64
  store atomic i64 %address, ptr %board seq_cst, align 8
  %done = call i64 @run(ptr %team, i64 %scratch)
  store atomic i64 0, ptr %board seq_cst, align 8
  %at_entering = getelementptr i64, ptr %board, i64 {entering}
  br label %look
look:
  %entering = load atomic i64, ptr %at_entering seq_cst, align 8
  %none = icmp eq i64 %entering, 0
  br i1 %none, label %end, label %wait
wait:
  {pause}
  br label %look
end:
  ret i64 0
}}

define i64 @stand_by(ptr %board, i64 %turns, i64 %scratch, ptr %calls, i64 %known) nounwind {{
entry:
  %at_number = getelementptr i64, ptr %board, i64 1
  %at_entering = getelementptr i64, ptr %board, i64 {entering}
  %at_waiting = getelementptr i64, ptr %board, i64 {waiting}
  br label %begin
begin:
  %last = phi i64 [0, %entry], [%number, %out]
  %more_wait = atomicrmw add ptr %at_waiting, i64 1 seq_cst
  br label %look
look:
  %turn = phi i64 [0, %begin], [%next, %wait]
  %team = load atomic i64, ptr %board seq_cst, align 8
  %number = load atomic i64, ptr %at_number seq_cst, align 8
  %there = icmp ugt i64 %team, 1
  %new = icmp ne i64 %number, %last
  %good = and i1 %there, %new
  br i1 %good, label %enter, label %wait
wait:
  {pause}
  %calls_now = load atomic i64, ptr %calls monotonic, align 8
  %no_call = icmp eq i64 %calls_now, %known
  %next = add i64 %turn, 1
  %early = icmp ult i64 %next, %turns
  %more = and i1 %early, %no_call
  br i1 %more, label %look, label %leave
enter:
  %fewer_wait = atomicrmw sub ptr %at_waiting, i64 1 seq_cst
  %one_enters = atomicrmw add ptr %at_entering, i64 1 seq_cst
  %now = load atomic i64, ptr %board seq_cst, align 8
  %same = icmp eq i64 %now, %team
  br i1 %same, label %help, label %out
help:
  %address = inttoptr i64 %team to ptr
  %helped = call i64 @help(ptr %address, i64 %scratch)
  br label %out
out:
  %one_leaves = atomicrmw sub ptr %at_entering, i64 1 seq_cst
  br label %begin
leave:
  %gone = atomicrmw sub ptr %at_waiting, i64 1 seq_cst
  ret i64 0
}}
"""


def text(triple: str) -> str:
    """The functions ``post`` and ``stand_by``, which use ``run`` and ``help`` of teams."""
    pause, _ = PAUSES.get(triple.partition("-")[0], ("", ""))
    return _TEXT.format(entering=_ENTERING, waiting=_WAITING, pause=pause)


def _aligned(memory: Any) -> int:
    """The first address in an array that begins a cache line."""
    start: int = memory.ctypes.data
    return -(-start // _LINE_BYTES) * _LINE_BYTES


def can_work_in(memory: tuple[Any, int] | None) -> bool:
    """Whether a helper can use its own memory in place of this memory of the team's owner."""
    if memory is None:
        return True
    own = memory[0]  # a list is shared by all threads
    return own.__class__ is np.ndarray and own.nbytes <= MEMORY_BYTES


class Board:
    """The board on which running teams are visible to helpers on standby. There is one, forever."""

    def __init__(self, post: Any, stand_by: Any) -> None:
        """``post`` and ``stand_by`` are the functions in machine code."""
        memory = np.zeros(_WORDS + COUNTER_WORDS, np.int64)
        # Threads may read it during Python's shutdown.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        self.address = _aligned(memory)
        self._words = (ctypes.c_int64 * _WORDS).from_address(self.address)
        self._post, self._stand_by = post, stand_by
        self._turns = self._measured()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._clear)

    def _clear(self) -> None:
        self._words[:] = [0] * _WORDS  # the threads on standby do not exist in the child

    def waiting(self) -> int:
        """The number of helpers on standby."""
        found: int = self._words[_WAITING]
        return found

    def run(self, team: int, scratch: int) -> None:
        """Run a team, with helpers on standby; none works on it or knows of it afterwards."""
        self._post(self.address, team, scratch)

    def helper(self, calls: int) -> Callable[[int], int]:
        """The call that makes a thread help all running teams until none has run for ``SECONDS``.

        It also ends if the number at the address ``calls`` changes.
        """
        memory = np.empty(MEMORY_BYTES + _LINE_BYTES, np.uint8)
        call, given = self._stand_by, (self.address, self._turns, _aligned(memory), calls)

        def stand_by(known: int, held: Any = memory) -> int:
            found: int = call(*given, known)
            return found

        return stand_by

    def _measured(self) -> int:
        """Turns of the loop that take ``SECONDS``."""
        board = (ctypes.c_int64 * _WORDS)()
        address, taken = ctypes.addressof(board), []
        number, place = ctypes.c_int64, ctypes.c_void_p
        kind = ctypes.PYFUNCTYPE(number, place, number, number, place, number)  # keeps the lock
        trial = partial(kind(ctypes.cast(self._stand_by, place).value or 0), address)
        for _ in range(_TRIALS):  # some of which may be descheduled
            start = time.perf_counter()
            trial(_TRIAL_TURNS, 0, address, 0)
            taken.append(time.perf_counter() - start)
        return max(1, int(_TRIAL_TURNS * SECONDS / max(min(taken), 1e-9)))
