"""Transfer of objects between a process and its fork: arrays in shared memory.

A pipe takes 64 KiB at a time, so large arrays in it make both processes wait for each other
repeatedly, and are copied four times.
"""

from __future__ import annotations

import mmap
import os
import pickle
from typing import Any
from weakref import finalize

import numpy as np

__all__ = ["Transport"]

MIN_SHARED_BYTES = 1 << 14  # of an array that does not go through the pipe with the rest
_LINE = 64  # bytes of a cache line, at which arrays begin


class Transport:
    """Serializes an object on one side, and deserializes it on the other.

    With ``shared`` its arrays are in shared memory, if the system has memory files (Linux); so one
    object can be in transit at a time. The memory is anonymous, and freed when both processes have
    ended. It is for a process and its forks.

    >>> from eagerflow.nn.transport import Transport
    >>> transport = Transport()
    >>> transport.unpack(transport.pack({"x": np.arange(30_000)}))["x"][-1]
    np.int64(29999)
    """

    def __init__(self, shared: bool = True) -> None:
        self._file: int | None = None
        self._memory: Any = None
        create: Any = getattr(os, "memfd_create", None)
        if shared and create is not None:
            self._file = create("eagerflow")
            finalize(self, os.close, self._file).atexit = False  # threads may use it to the end

    def pack(self, thing: Any) -> bytes:
        """The bytes of ``thing``; raises errors of ``pickle`` for unsupported objects."""
        shared: list[memoryview] = []

        def goes_along(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if self._file is None or raw.nbytes < MIN_SHARED_BYTES:
                return True
            shared.append(raw)
            return False

        rest = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL, buffer_callback=goes_along)
        sizes = [raw.nbytes for raw in shared]
        places, end = _places(sizes)
        memory = self._seen(end, grow=True)
        for raw, place in zip(shared, places, strict=True):
            memory[place : place + raw.nbytes] = np.frombuffer(raw, np.uint8)
        return pickle.dumps((sizes, rest))

    def unpack(self, sent: bytes) -> Any:
        """The object packed on the other side, with memory of its own."""
        sizes, rest = pickle.loads(sent)
        places, end = _places(sizes)
        memory = self._seen(end, grow=False)
        arrays = [memory[p : p + n].copy() for p, n in zip(places, sizes, strict=True)]
        return pickle.loads(rest, buffers=arrays)

    def _seen(self, end: int, grow: bool) -> Any:
        """The shared memory as an array of bytes, of which ``end`` are needed."""
        if end and (self._memory is None or len(self._memory) < end):
            assert self._file is not None
            if grow:
                os.ftruncate(self._file, end)
            self._memory = np.frombuffer(mmap.mmap(self._file, end), np.uint8)
        return self._memory


def _places(sizes: list[int]) -> tuple[list[int], int]:
    """Where arrays of these sizes in bytes begin, and where the last one ends."""
    places, end = [], 0
    for size in sizes:
        places.append(end)
        end += -(-size // _LINE) * _LINE
    return places, end
