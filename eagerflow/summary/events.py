"""An event file: what TensorBoard reads, in the messages and the form of its own library."""

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
    """A new event file in a folder, which is made; a thread writes what is added.

    ``flush_secs`` is how long records may wait in memory. Each method raises FileFormatError for
    what the system has against the file, also if it was the thread that met it, and SessionError
    where the file is closed, or was opened in the process that this one was forked from. Several
    threads may add records.
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
        """SessionError where nothing can be added any more."""
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
        """Add values for a step, which come from ``eagerflow.summary.plugins``."""
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
        """Write all that was added; then it can be read whatever happens to this process."""
        self.check_open()
        try:
            self._records.flush()
        except raised_here(OSError) as error:
            refuse(error, "written", self.logdir)

    def close(self) -> None:
        """Write all that was added, and close the file; once is enough."""
        with self._lock:
            if not self._open or os.getpid() != self._process:
                return
            self._open = False
        try:
            self._records.close()
        except raised_here(OSError) as error:
            refuse(error, "written", self.logdir)
