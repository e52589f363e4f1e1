"""CUDA graphs: what is started on a GPU's stream, kept to be started again in one launch.

A graph holds the addresses and numbers that its kernels were given while it was recorded, so it
may be launched where all of them are what they were. Checked on a look-alike of CuPy; not run on a
GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.handlers import suppress
from eagerflow.runtime.collector import young


class CudaGraph:
    """What ``work()`` starts on the GPU that is current, which is recorded and not run.

    A call starts it on the stream that is current then. Raises what ``work`` raises, and CuPy's
    errors where it waits for the GPU, or calls a library that cannot be recorded, as cuBLAS through
    CuPy. The memory that it takes meanwhile is the graph's own. Several threads may record at once.
    """

    def __init__(self, cupy: Any, work: Callable[[], None]) -> None:
        self._memory = cupy.cuda.MemoryPool()
        # The stream that most work is on cannot be recorded, nor one that waits for it.
        stream = cupy.cuda.Stream(non_blocking=True)
        with cupy.cuda.using_allocator(self._memory.malloc), stream, young():
            try:
                # In CuPy's mode of recording, "relaxed", other threads may allocate meanwhile.
                stream.begin_capture()
                work()
            except BaseException:
                with suppress(Exception):  # what was recorded is perhaps invalid
                    stream.end_capture()
                raise
            self._graph = stream.end_capture()

    def __call__(self) -> None:
        self._graph.launch()
