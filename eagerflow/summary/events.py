"""Event files of TensorBoard, written with its own messages and record format."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from eagerflow.errors import SessionError
from eagerflow.files.atomic import as_path, refuse
from eagerflow.handlers import raised_here
from eagerflow.summary.board import message
from eagerflow.summary.records import RecordFile, new_path

VERSION = "brain.Event:2"  # of the format, in the first record


class EventFile:
    """A new event file in a folder, which is created; a thread writes the records.

    ``flush_secs`` is the longest time that records are buffered. Each method raises FileFormatError
    for errors of the file system, including earlier ones of the thread, and SessionError if the
    file is closed, or was opened before a fork. Several threads may add records.
    """

    def __init__(self, logdir: str | os.PathLike[str], flush_secs: float, suffix: str) -> None:
        self.logdir = as_path(logdir)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open = True
        self._event, self._summary = message("event", "Event"), message("summary", "Summary")
        now = time.time()
        try:
            os.makedirs(self.logdir, exist_ok=True)
            self._records = RecordFile(new_path(self.logdir, now, suffix), flush_secs)
            self._add(self._event(wall_time=now, file_version=VERSION))
            self.flush()
        except raised_here(OSError) as error:
            refuse(error, "written", self.logdir)

    def check_open(self) -> None:
        """Raise SessionError if records cannot be added any more."""
        if not self._open:
            raise SessionError("the writer is closed", op="ef.summary", received=self.logdir)
        if os.getpid() != self._process:
            raise SessionError(
                "the writer belongs to the process that this one was forked from",
                op="ef.summary",
                received=self.logdir,
                hint="make a Writer of its own in each process",
            )

    def add_values(self, values: Any, step: int) -> None:
        """Add the values of a step, which come from ``eagerflow.summary.plugins``."""
        self._add(
            self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        )

    def add_graph(self, graph: bytes) -> None:
        """Add a GraphDef."""
        self._add(self._event(wall_time=time.time(), graph_def=graph))

    def _add(self, event: Any) -> None:
        self.check_open()
        try:
            self._records.add(event.SerializeToString())
        except raised_here(OSError) as error:
            refuse(error, "written", self.logdir)

    def flush(self) -> None:
        """Write all records; then they can be read even if this process crashes."""
        self.check_open()
        try:
            self._records.flush()
        except raised_here(OSError) as error:
            refuse(error, "written", self.logdir)

    def close(self) -> None:
        """Write all records and close the file; further calls do nothing."""
        with self._lock:
            if not self._open or os.getpid() != self._process:
                return
            self._open = False
        try:
            self._records.close()
        except raised_here(OSError) as error:
            refuse(error, "written", self.logdir)
