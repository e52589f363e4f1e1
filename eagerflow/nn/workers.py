"""Work done ahead of its use, in threads or processes, with results in the order of the jobs.

Threads take jobs, one at a time, and put the results into a queue, within a limit ahead of the
consumer. Each process serves one thread, which sends it the jobs and waits for it, so there is only
one kind of queue.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import finalize

from eagerflow.errors import EagerflowError
from eagerflow.handlers import raised_here
from eagerflow.locks import Locked
from eagerflow.nn.transport import Transport

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["Ahead"]

Work = Callable[[Any], Any]

# A copy of the process needs no pickled data and functions; elsewhere it would be unsafe.
START = "fork" if sys.platform == "linux" else "spawn"


class Ahead(Iterable[Any]):
    """The results of ``work(job)`` for each job, in their order, prepared by workers.

    At most ``ahead`` of them are queued or in progress. An error of ``work`` or of the iterator of
    jobs is raised in place of its result. When this object is freed or closed, no thread or process
    remains.

    >>> from eagerflow.nn.workers import Ahead
    >>> list(Ahead(range(5), str, workers=2, processes=False, ahead=3))
    ['0', '1', '2', '3', '4']
    """

    def __init__(
        self, jobs: Iterable[Any], work: Work, workers: int, processes: bool, ahead: int
    ) -> None:
        self._line = line = _Line(iter(jobs), max(ahead, workers))
        self.close = finalize(self, line.close)  # before anything begins that has to end
        servants: list[Work] = [work] * workers
        if processes:
            servants = [line.own(_Servant(work)) for _ in range(workers)]
        for servant in servants:
            thread = threading.Thread(target=line.serve, args=(servant,), daemon=True)
            line.threads.append(thread)
            thread.start()

    def __iter__(self) -> Iterator[Any]:
        while (found := self._line.take()) is not None:
            yield found[0]


class _Line:
    """Jobs that are drawn, their results, and the threads that work on them."""

    def __init__(self, jobs: Iterator[Any], ahead: int) -> None:
        self.jobs, self.ahead = jobs, ahead
        self.threads: list[threading.Thread] = []
        self.servants: list[_Servant] = []
        self.process = os.getpid()
        self.drawing = threading.Lock()
        # Guards all later attributes. Condition's own __enter__ and __exit__ may be interrupted by
        # signal handlers, whose errors would leave the lock held forever.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.drawn = self.taken = 0
        self.ended = False
        self.results: dict[int, tuple[Any, BaseException | None]] = {}

    def own(self, servant: _Servant) -> _Servant:
        self.servants.append(servant)
        return servant

    def serve(self, work: Work) -> None:
        """Work until there are no more jobs; the function of a thread."""
        while (drawn := self.draw()) is not None:
            number, job = drawn
            found: tuple[Any, BaseException | None]
            try:
                found = work(job), None
            except BaseException as error:
                found = None, error
            with Locked(self.lock):
                self.results[number] = found
                self.changed.notify_all()
            del drawn, job, found

    def draw(self) -> tuple[int, Any] | None:
        """The next job and its number, as soon as the limit allows; None at the end."""
        with self.drawing:
            with Locked(self.lock):
                self.changed.wait_for(lambda: self.ended or self.drawn < self.taken + self.ahead)
                if self.ended:
                    return None
            try:
                job = next(self.jobs)
            except BaseException as error:
                with Locked(self.lock):
                    self.ended = True
                    if not isinstance(error, StopIteration):
                        self.results[self.drawn] = None, error
                        self.drawn += 1
                    self.changed.notify_all()
                return None
            with Locked(self.lock):
                self.drawn += 1
                return self.drawn - 1, job

    def take(self) -> tuple[Any] | None:
        """The next result; None after the last one."""
        if self.process != os.getpid():
            raise EagerflowError(
                "batches are prepared for another process",
                op="Loader",
                hint="a new iterator in each process that was forked: iter(loader)",
            )
        with Locked(self.lock):
            self.changed.wait_for(
                lambda: self.taken in self.results or (self.ended and self.taken >= self.drawn)
            )
            if self.taken not in self.results:
                return None
            found, error = self.results.pop(self.taken)
            self.taken += 1
            self.changed.notify_all()
        if error is not None:
            raise error
        return (found,)

    def close(self) -> None:
        """End the threads and processes, and drop prepared results."""
        if self.process != os.getpid():
            return  # they are the parent's, and here are only their shadows
        with Locked(self.lock):
            self.ended = True
            self.changed.notify_all()
        for servant in self.servants:
            servant.stop()
        if threading.current_thread() not in self.threads:  # else garbage is collected in one
            for thread in self.threads:
                if thread.ident is not None:
                    thread.join()
        self.results.clear()


# Processes ----------------------------------------------------------------------------------------


class _Servant:
    """A process that does the work of one thread."""

    def __init__(self, work: Work) -> None:
        import multiprocessing.connection  # takes as long to load as all layers

        context: Any = multiprocessing.get_context(START)
        self.wait = multiprocessing.connection.wait
        self.ours, theirs = context.Pipe()
        self.jobs, self.answers = (Transport(shared=START == "fork") for _ in range(2))
        given = self.ours, theirs, self.jobs, self.answers, work
        self.process = context.Process(target=_serve, args=given, daemon=True)
        self.process.start()
        theirs.close()

    def __call__(self, job: Any) -> Any:
        packed = self.jobs.pack(job)
        try:
            self.ours.send_bytes(packed)
            # Its end is also noticed if another process holds its end of the pipe.
            if self.ours not in self.wait([self.ours, self.process.sentinel]):
                raise EOFError
            packed = self.ours.recv_bytes()
        except raised_here(EOFError, OSError):
            self.process.join()
            raise EagerflowError(
                f"a worker process ended with exit code {self.process.exitcode}",
                op="Loader",
                hint="workers=4, which are threads, show where; -9 is often a lack of memory",
            ) from None
        found, error = self.answers.unpack(packed)
        if error is not None:
            raise error
        return found

    def stop(self) -> None:
        self.process.kill()  # it holds no state that needs a clean shutdown
        self.process.join()


def _serve(
    ours: Connection, theirs: Connection, jobs: Transport, answers: Transport, work: Work
) -> None:
    """Run jobs until the other end is closed; the function of a process."""
    ours.close()  # otherwise this process would keep its own pipe open after the other has died
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    while True:
        try:
            packed = theirs.recv_bytes()
        except raised_here(EOFError, OSError):
            return
        try:
            answer = answers.pack((work(jobs.unpack(packed)), None))
        except raised_here(Exception) as error:
            answer = answers.pack((None, _with_story(error)))
        try:
            theirs.send_bytes(answer)
        except raised_here(OSError):
            return


def _with_story(error: Exception) -> Exception:
    """An error in transferable form, with its traceback as text."""
    story = "in a worker process:\n" + "".join(traceback.format_exception(error))
    error.add_note(story)
    try:
        pickle.loads(pickle.dumps(error))  # some errors can be pickled and not unpickled
    except raised_here(Exception):
        return EagerflowError(story, op="Loader")
    return error
