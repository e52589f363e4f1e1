"""A file of records: what is added waits in memory, and is written many at once."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections import deque

from eagerflow.handlers import raised_here
from eagerflow.summary.board import module

MOST_RECORDS, MOST_BYTES = 4096, 8 << 20  # that wait, before the next caller writes them


class RecordFile:
    """A new file of TensorBoard's record format, which its ``RecordWriter`` frames.

    A thread writes what waits every ``flush_secs`` seconds; handing it each record would cost
    several times what writing one does. What the system had against the file is raised, as the
    OSError it was, by all calls that follow; the file ends with a whole record then.
    """

    def __init__(self, path: str, flush_secs: float) -> None:
        self._writer = module("summary.writer.record_writer").RecordWriter
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115
        self._flush_secs = flush_secs
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._writing = threading.RLock()
        self._is_writing = False
        self._failure: OSError | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="eagerflow-summary")
        self._thread.start()

    def add(self, record: bytes) -> None:
        """Let a record wait, or write all that waits if it is much."""
        if self._failure is not None:
            raise self._failure
        self._waiting.append(record)
        self._bytes += len(record)
        if len(self._waiting) > MOST_RECORDS or self._bytes > MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all that waits."""
        with self._writing:
            if self._failure is not None:
                raise self._failure
            if self._is_writing:
                return  # a signal handler's call: the one that it interrupted goes on after it
            self._is_writing = True
            try:
                while self._waiting:
                    self._write(len(self._waiting))
            finally:
                self._is_writing = False

    def _write(self, count: int) -> None:
        """Write so many records, or none of them.

        They wait until they are in the file: an interrupt may write some twice, and loses none.
        """
        block = io.BytesIO()
        writer = self._writer(block)
        for i in range(count):
            writer.write(self._waiting[i])
        data = block.getbuffer()
        begin, written = self._file.tell(), 0
        try:
            while written < len(data):
                written += self._file.write(data[written:]) or 0
        except raised_here(OSError) as error:
            self._failure = error
            self._file.truncate(begin)
            raise
        self._bytes = 0
        for _ in range(count):
            self._waiting.popleft()

    def _run(self) -> None:
        while not self._closing.wait(self._flush_secs):
            try:
                self.flush()
            except raised_here(OSError):
                return  # it is kept for the next call

    def close(self) -> None:
        """Write all that waits, and close the file."""
        self._closing.set()
        with self._writing:
            try:
                self.flush()
            finally:
                self._file.close()


def new_path(folder: str, seconds: float, suffix: str) -> str:
    """A name for an event file as TensorBoard finds it, which no file has yet."""
    start = f"events.out.tfevents.{int(seconds):010d}.{socket.gethostname()}.{os.getpid()}"
    number = 0
    while os.path.lexists(path := os.path.join(folder, f"{start}.{number}{suffix}")):
        number += 1
    return path
