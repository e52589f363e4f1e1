"""A file of records, buffered in memory and written in batches."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections import deque

from eagerflow.handlers import raised_here
from eagerflow.summary.board import module

MOST_RECORDS, MOST_BYTES = 4096, 8 << 20  # buffered, before the next caller writes them


class RecordFile:
    """A new file of TensorBoard's record format, which its ``RecordWriter`` frames.

    A thread writes buffered records every ``flush_secs`` seconds; passing it each record would cost
    several times as much as writing it. After an OSError, all further calls raise it again; the
    file then ends with a complete record.
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
        """Buffer a record, or write all buffered ones if they are large."""
        if self._failure is not None:
            raise self._failure
        self._waiting.append(record)
        self._bytes += len(record)
        if len(self._waiting) > MOST_RECORDS or self._bytes > MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write all buffered records."""
        with self._writing:
            if self._failure is not None:
                raise self._failure
            if self._is_writing:
                return  # called in a signal handler: the interrupted call continues afterwards
            self._is_writing = True
            try:
                while self._waiting:
                    self._write(len(self._waiting))
            finally:
                self._is_writing = False

    def _write(self, count: int) -> None:
        """Write ``count`` records, or none of them.

        They stay buffered until they are in the file: an interrupt may write some twice, but loses
        none.
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
                return  # kept for the next call

    def close(self) -> None:
        """Write all buffered records, and close the file."""
        self._closing.set()
        with self._writing:
            try:
                self.flush()
            finally:
                self._file.close()


def new_path(folder: str, seconds: float, suffix: str) -> str:
    """A name for a new event file, in the form that TensorBoard expects."""
    start = f"events.out.tfevents.{int(seconds):010d}.{socket.gethostname()}.{os.getpid()}"
    number = 0
    while os.path.lexists(path := os.path.join(folder, f"{start}.{number}{suffix}")):
        number += 1
    return path
