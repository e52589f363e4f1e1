"""Teams of threads that share kernels, in machine code.

A team is a list of jobs, each a kernel with its frame and its counters, run in order: no thread
begins one before all pieces of earlier ones are complete. The team's owner calls ``run`` once: it
opens the team, takes pieces of job after job, closes the team and waits until every helper has
left, all in one call of machine code. So no Python exception can intervene, and no thread works on
memory that its caller has released: helpers that arrive before or after find the team closed, and
leave.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from eagerflow.codegen.llvm import standby
from eagerflow.codegen.llvm.driver import COUNTER_WORDS, wait
from eagerflow.codegen.llvm.instructions import Code
from eagerflow.runtime import machine_code, threads
from eagerflow.runtime.cache import ObjectCache

# A team: its state on a cache line of its own, the number of jobs, their addresses. A job begins
# with its function and that one's arguments: frame, scratch memory (0 if it is each thread's own),
# counters. A job without function is a test: its frame begins with the address of a bool; if that
# is false, later jobs are skipped.
HEAD = COUNTER_WORDS + 1
_CLOSED = 1 << 32  # added to the number of helpers at work


def _text(triple: str) -> str:
    """The functions ``run`` and ``help``, their common part ``work``, and those of ``standby``."""
    code = Code()
    with code.function("work(ptr %team, i64 %scratch)"):
        start = code.at("%team", COUNTER_WORDS, "i64")
        count = code.word("i64", start, 0)
        jobs = code.at(start, "1", "i64")
        with code.loop("job", 0, count) as (k, _):
            job = code.word("ptr", jobs, k)
            function, frame, counters = (code.word("ptr", job, i) for i in (0, 1, 3))
            common = code.word("i64", job, 2)
            own = code.value(f"icmp eq i64 {common}, 0")
            memory = code.value(f"select i1 {own}, i64 %scratch, i64 {common}")
            tests = code.value(f"icmp eq ptr {function}, null")
            with code.where(tests):
                found = code.value(f"load i8, ptr {code.word('ptr', frame, 0)}")
                code.go_on(code.value(f"icmp ne i8 {found}, 0"), "stopped")
            with code.where(code.value(f"xor i1 {tests}, true")):
                code.line(f"call void {function}(ptr {frame}, i64 {memory}, ptr {counters})")
    code.lines[-1:] = ["stopped:", "  ret void", "}"]
    work = "call void @work(ptr %team, i64 %scratch)"
    with code.function("run(ptr %team, i64 %scratch)", "0"):
        code.value(f"atomicrmw sub ptr %team, i64 {_CLOSED} acq_rel")
        code.line(work)
        code.value(f"atomicrmw add ptr %team, i64 {_CLOSED} acq_rel")
        wait(code, "%team", "ne", _CLOSED, triple)
    with code.function("help(ptr %team, i64 %scratch)", "0"):
        state = code.value("atomicrmw add ptr %team, i64 1 acq_rel")
        with code.where(code.value(f"icmp ult i64 {state}, {_CLOSED}")):
            code.line(work)
        code.value("atomicrmw sub ptr %team, i64 1 acq_rel")
    return code.text() + standby.text(triple)


def library(text: str, *names: str) -> dict[str, int]:
    """The addresses of functions of a module in LLVM's text form, which is never unloaded."""
    target = machine_code.host()
    whole = f'target triple = "{target.triple}"\n{text}'
    key = "\n".join([whole, target.key, machine_code.version()])
    compile_now = partial(machine_code.compile_object, whole, target)
    content = ObjectCache().load_or_make(key, compile_now)
    found = machine_code.link(content, *names)
    _held.append(found)
    return {name: found.address(name) for name in names}


_held: list[Any] = []


@cache
def functions() -> tuple[Any, Any, standby.Board]:
    """``run(team, scratch)`` and ``help(team, scratch)``, and the board of running teams.

    All release Python's lock.
    """
    found = library(_text(machine_code.host().triple), "run", "help", "post", "stand_by")
    number, place = ctypes.c_int64, ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(number, place, number)
    post = ctypes.CFUNCTYPE(number, place, place, number)(found["post"])
    stand_by = ctypes.CFUNCTYPE(number, place, number, number, place, number)(found["stand_by"])
    board = standby.Board(post, stand_by)
    threads.after_calls(board.helper)
    return kind(found["run"]), kind(found["help"]), board


_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Team:
    """Jobs that threads run together. ``jobs`` are their addresses; ``held`` keeps them alive."""

    __slots__ = (
        "_board",
        "_forks",
        "_held",
        "_help",
        "_run",
        "_scratch",
        "_words",
        "address",
        "work",
    )

    def __init__(
        self, jobs: Sequence[int], held: Any, scratch: Callable[[], Any] | None = None
    ) -> None:
        self._words = (ctypes.c_int64 * (HEAD + len(jobs)))(
            _CLOSED, *[0] * (COUNTER_WORDS - 1), len(jobs), *jobs
        )
        self.address = ctypes.addressof(self._words)
        self._held = held
        self._forks = _forks
        self._scratch = scratch
        self._run, self._help, self._board = functions()
        self.work = self.owner(0)
        """Run the jobs as the team's owner, and return 0; no Python code runs in it."""

    def owner(self, scratch: int) -> Callable[[], int]:
        """A call that runs the jobs with memory at this address, and with invited helpers.

        It returns 0; no Python code runs in it.
        """
        return partial(self._run, ctypes.c_void_p(self.address), ctypes.c_int64(scratch))

    def limit(self, count: int) -> None:
        """Limit the number of jobs from now on."""
        self._words[COUNTER_WORDS] = count

    def run(self, helpers: int) -> None:
        """Run the jobs, with a number of helpers of the pool; return when none is at work."""
        memory = None if self._scratch is None else self._scratch()  # held during the call
        address = 0 if memory is None else memory[1]
        if helpers < 1 or not standby.can_work_in(memory):
            self.invite(helpers)
            self._run(self.address, address)
        else:
            self.invite(helpers, self._board.waiting())
            self._board.run(self.address, address)

    def invite(self, helpers: int, there: int = 0) -> None:
        """Invite threads of the pool to help with the work that is about to begin.

        Threads that are ``there`` already are not invited.
        """
        if self._forks != _forks:  # an invited helper stayed behind in the parent
            self._words[0], self._forks = _CLOSED, _forks
        if helpers > 0:
            threads.invite(self.help, helpers - there)

    def help(self) -> None:
        """Help while the team is open."""
        memory = None if self._scratch is None else self._scratch()  # held during the call
        self._help(self.address, 0 if memory is None else memory[1])
