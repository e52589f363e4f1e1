"""A process that computes batches for a server: ``python -m eagerflow.serving.worker FILE FILE``.

The two file descriptors are connections to the server: the first for computations, the second to
load and drop versions meanwhile. The process ends when a connection is closed.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from eagerflow.capture.saving.file import map_open
from eagerflow.recorder import with_recorder
from eagerflow.runtime import threads
from eagerflow.runtime.channel import Channel, described
from eagerflow.serving.model import ModelVersion

__all__ = ["main"]

Answer = tuple[dict[str, Any], Sequence[Any]]
_log = logging.getLogger("eagerflow.serving")


class _Worker:
    """The loaded versions of a worker, by the server's keys."""

    def __init__(self) -> None:
        self.versions: dict[int, ModelVersion] = {}

    def compute(self, message: dict[str, Any], arrays: Sequence[Any], channel: Channel) -> Answer:
        """Compute the outputs of a batch."""
        version = self.versions[message["key"]]
        return {}, with_recorder(None, version.compute, arrays, message["outputs"])

    def load(self, message: dict[str, Any], arrays: Sequence[Any], channel: Channel) -> Answer:
        """Load a version from the file sent along with the message, and try it."""
        with io.FileIO(channel.receive_file()) as file:
            graph = map_open(file)
        name, number, numerics = (message[key] for key in ("name", "number", "numerics"))
        if message["signature"] is not None:
            graph = graph.signature(message["signature"])
        version = ModelVersion(name, number, graph, numerics)
        with_recorder(None, version.try_out, message["sizes"])
        self.versions[message["key"]] = version
        return {"seconds": version.seconds}, ()

    def drop(self, message: dict[str, Any], arrays: Sequence[Any], channel: Channel) -> Answer:
        """Drop a version."""
        version = self.versions.pop(message["key"], None)
        if version is not None:
            version.release()
        return {}, ()


Handler = Callable[[dict[str, Any], Sequence[Any], Channel], Answer]


def _answer(channel: Channel, handlers: dict[str, Handler]) -> None:
    """Reply to messages until the connection is closed, then end the process."""
    try:
        while True:
            message, arrays = channel.receive()
            try:
                answer, found = handlers[message.pop("do")](message, arrays, channel)
            except EOFError:
                raise
            except Exception as error:
                _log.debug("a request failed", exc_info=True)
                answer, found = {"error": described(error)}, ()
            channel.send(answer, found)
    except EOFError:
        os._exit(0)  # at once, even while the other thread computes: no receiver is left


def main(computing: int, managing: int, thread_count: int) -> None:
    """Serve messages over two open connections, computing with so many threads."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server ends us, when it has its results
    threads.set_threads(thread_count)
    worker = _Worker()
    channels = [Channel(socket.socket(fileno=file)) for file in (computing, managing)]
    try:
        channels[1].send({"pid": os.getpid()})
    except EOFError:  # the server has ended meanwhile
        return
    handlers: dict[str, Handler] = {"load": worker.load, "drop": worker.drop}
    threading.Thread(target=_answer, args=(channels[1], handlers), daemon=True).start()
    _answer(channels[0], {"compute": worker.compute})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
