"""CUDA graphs: work on a GPU's stream, recorded and replayed in one launch.

A graph holds the addresses and numbers that its kernels had during recording, so it may only be
launched while these are unchanged. Checked with a mock of CuPy; not run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerflow.handlers import suppress
from eagerflow.runtime.collector import young


class CudaGraph:
    """The work that ``work()`` starts on the current GPU, recorded without running it.

    A call launches it on the current stream. Raises errors of ``work``, and CuPy's errors if it
    synchronizes, or calls a library that cannot be recorded, such as cuBLAS through CuPy. Memory
    that it allocates belongs to the graph. Several threads may record at once.
    """

    def __init__(self, cupy: Any, work: Callable[[], None]) -> None:
        self._memory = cupy.cuda.MemoryPool()
        # The default stream cannot be recorded, nor one that waits for it.
        stream = cupy.cuda.Stream(non_blocking=True)
        with cupy.cuda.using_allocator(self._memory.malloc), stream, young():
            try:
                # In CuPy's capture mode "relaxed", other threads may allocate meanwhile.
                stream.begin_capture()
                work()
            except BaseException:
                with suppress(Exception):  # the recording may be invalid
                    stream.end_capture()
                raise
            self._graph = stream.end_capture()

    def __call__(self) -> None:
        self._graph.launch()
