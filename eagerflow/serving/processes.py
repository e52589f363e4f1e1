"""A worker process, as the server sees it, from its start to its end."""

from __future__ import annotations

import io
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from eagerflow.errors import ArgumentError
from eagerflow.runtime.channel import Channel, as_error
from eagerflow.settings import for_child

__all__ = ["Loaded", "Worker", "WorkerSettings"]

_log = logging.getLogger("eagerflow.serving")


class WorkerSettings(NamedTuple):
    """The number of worker processes, and their time limits.

    With 0 ``processes`` the server computes itself. Each worker has ``threads`` (None: the
    processors, shared between them). One that does not respond for ``seconds`` is replaced;
    ``load_seconds`` is the limit for loading and trying a version. A batch is begun ``attempts``
    times if its worker ends, then each of its requests as often. ``spares`` is the number of
    additional processes with all versions loaded: they bridge the second that a new process takes
    to start.

    >>> ef.serving.WorkerSettings(2, threads=3).checked().total
    3
    """

    processes: int = 0
    threads: int | None = None
    seconds: float = 60.0
    load_seconds: float = 600.0
    attempts: int = 3
    spares: int = 1

    @property
    def total(self) -> int:
        """The number of processes, with spares."""
        return self.processes + self.spares if self.processes else 0

    def checked(self) -> WorkerSettings:
        """These settings, validated; ArgumentError for invalid ones."""
        least = {"processes": 0, "threads": 1, "attempts": 1, "spares": 0}
        for name, bound in least.items():
            value = getattr(self, name)
            if name == "threads" and value is None:
                continue
            if type(value) is not int or value < bound:
                raise ArgumentError(
                    f"{value!r} is not a count",
                    op="workers",
                    argument=name,
                    expected=f"an integer of at least {bound}",
                )
        for name in ("seconds", "load_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ArgumentError(
                    f"{value!r} is no time",
                    op="workers",
                    argument=name,
                    expected="seconds, above 0",
                )
        if self.processes and not hasattr(socket, "send_fds"):
            raise ArgumentError(
                "workers need sockets that can pass files, which this system lacks",
                op="workers",
                argument="processes",
                hint="0 processes: the server computes itself",
            )
        return self


class Loaded(NamedTuple):
    """A version in the workers: the file of its graph, or of the graph that it is a signature of.

    The other fields say how it is tried.
    """

    key: int
    file: io.FileIO
    name: str
    number: int
    signature: str | None
    numerics: str
    sizes: Sequence[Mapping[str, int]]


class Worker:
    """A worker process; its methods raise EOFError if it has ended, or hung and was killed.

    ``command`` is its command line, to which two file descriptors and the number of threads are
    appended.
    """

    def __init__(self, command: Sequence[str], threads: int, settings: WorkerSettings) -> None:
        self._settings = settings
        self.keys: set[int] = set()
        (ours, theirs), (own, other) = socket.socketpair(), socket.socketpair()
        self._computing, self._managing = Channel(ours), Channel(own)
        files = theirs.fileno(), other.fileno()
        with theirs, other:
            try:
                self.process = subprocess.Popen(
                    [*command, *map(str, (*files, threads))],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=files,
                    env=_environment(threads),
                )
            except BaseException:
                ours.close()
                own.close()
                raise
        try:
            with self._until(self._managing, settings.load_seconds):
                self.pid = self._managing.receive()[0]["pid"]
        except BaseException:
            self.end()
            raise

    def load(self, version: Loaded) -> float:
        """Load and try a version; returns the seconds per row, or raises the worker's error."""
        file, told = version.file, version._asdict()
        del told["file"]
        with self._until(self._managing, self._settings.load_seconds):
            self._managing.send({"do": "load", **told})
            self._managing.send_file(file.fileno())
            answer = self._managing.receive()
        seconds = float(_checked(answer)[0]["seconds"])
        self.keys.add(version.key)
        return seconds

    def drop(self, key: int) -> None:
        """Drop a version."""
        self.keys.discard(key)
        with self._until(self._managing, self._settings.seconds):
            self._managing.send({"do": "drop", "key": key})
            answer = self._managing.receive()
        _checked(answer)

    def compute(self, key: int, inputs: Sequence[Any], outputs: Sequence[int]) -> list[Any]:
        """The outputs at these positions; raises the error of the graph."""
        with self._until(self._computing, self._settings.seconds):
            self._computing.send({"do": "compute", "key": key, "outputs": outputs}, inputs)
            answer = self._computing.receive()
        return _checked(answer)[1]

    @property
    def is_there(self) -> bool:
        """Whether the process is running."""
        return self._computing.is_there()

    @contextmanager
    def _until(self, channel: Channel, seconds: float) -> Iterator[None]:
        """Context manager of one message and its reply; a process that hangs in it is killed."""
        try:
            with channel.lock:
                channel.socket.settimeout(seconds)
                yield
        except TimeoutError:
            _log.error("worker %s has not answered for %g s", self.process.pid, seconds)
            self.kill()
            raise EOFError("the worker did not answer in time") from None
        except EOFError:
            raise
        except OSError:
            raise EOFError("the worker has ended") from None
        except BaseException:
            self.kill()  # since the next message on the connection may be the rest of the reply
            raise

    def kill(self) -> None:
        """Kill the process at once."""
        self.process.kill()

    def end(self, seconds: float = 0.0) -> None:
        """Close the connections, so that the process ends; kill it if it does not."""
        self._computing.close()
        self._managing.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.wait()


def _checked(answer: tuple[dict[str, Any], list[Any]]) -> tuple[dict[str, Any], list[Any]]:
    if "error" in answer[0]:
        raise as_error(answer[0]["error"])
    return answer


def _environment(threads: int) -> dict[str, str]:
    """The environment of a worker: the module search path of this process, and thread limits."""
    count = str(threads)
    wanted = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        wanted[name] = count
    return for_child(wanted)
