"""NVIDIA GPUs: CuPy, an optional package.

Importing this module loads nothing; the first GPU that is counted or used loads CuPy. Status: names
and signatures were checked against CuPy 14.2 itself, the logic of devices and transfers against a
mock in ``tests/backends``. Nothing here has yet run on a GPU; the tests marked ``gpu`` do where
there is one. The kernels of captured functions have run on that mock too, compiled for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from eagerflow.backends.base import PlacedBackend
from eagerflow.backends.cublaslt import CublasLt, cublaslt
from eagerflow.backends.cuda_graphs import CudaGraph
from eagerflow.backends.nccl import Nccl
from eagerflow.dtypes import DType
from eagerflow.errors import DeviceError, MissingExtraError
from eagerflow.runtime.properties import cached_property

if TYPE_CHECKING:  # the machinery of regions is loaded when it is first used
    from eagerflow.codegen.cuda.modules import Module
    from eagerflow.codegen.layout import Entry
    from eagerflow.codegen.region import Region

__all__ = ["CupyBackend", "count_devices"]

MAX_STORED_BYTES = 1 << 9
"""Host arrays of up to so many bytes are passed as kernel arguments; larger ones are copied."""
_DEFAULT_STREAM_OF_THREAD = 2  # cudaStreamPerThread


@cache
def count_devices() -> int:
    """The number of GPUs that CuPy sees; 0, without an error, without CuPy or a driver."""
    try:
        import cupy
    except ImportError:
        return 0
    try:
        count: int = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0
    return count


class CupyBackend(PlacedBackend):
    """Arrays of CuPy on NVIDIA GPUs.

    CUDA has a current device per thread, and CuPy refuses arrays of another one. With more
    logical devices than GPUs, these share the GPUs in turn.
    """

    name = "cupy"
    fuses = True
    records = True
    marks = True

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            installed = "" if isinstance(error, ModuleNotFoundError) else f": {error}"
            raise MissingExtraError(
                f"GPUs need CuPy, which cannot be imported{installed}",
                hint="pip install 'eagerflow[cuda12]', or eagerflow[cuda13] for CUDA 13",
            ) from error
        if not count_devices():
            raise DeviceError("CuPy sees no GPU", hint="nvidia-smi shows driver and GPUs")
        self.xp = cupy
        self.array_type = cupy.ndarray
        self._store_words: Any = None
        self._products: dict[int, CublasLt | None] = {}

    def on(self, index: int) -> Any:
        return self.xp.cuda.Device(index % count_devices())

    def locate(self, array: Any) -> int:
        index: int = array.device.id
        return index

    # Captured functions ------------------------------------------------------------------

    def kernel_module(self) -> Module:
        from eagerflow.codegen.cuda.modules import Module

        return Module(self.xp)

    def region_call(
        self,
        region: Region,
        sizes: dict[str, int],
        inputs: Sequence[Entry],
        outputs: Sequence[Entry],
        index: int,
        module: Module,
    ) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        from eagerflow.codegen.cuda.launch import CudaCall

        call = CudaCall(region, sizes, inputs, outputs, module, self.xp)
        call.expect(self.on(index).id)
        return lambda given, made: call(made[0].device.id, given, made)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        return CudaGraph(self.xp, work)

    def products(self, index: int) -> CublasLt | None:
        with self.on(index) as gpu:
            if gpu.id not in self._products:
                self._products[gpu.id] = cublaslt(self.xp)
            return self._products[gpu.id]

    def queue(self) -> tuple[int, int]:
        stream: int = self.xp.cuda.get_current_stream().ptr
        # With per-thread default streams, all of these share one number.
        return stream, get_ident() if stream == _DEFAULT_STREAM_OF_THREAD else 0

    def address(self, array: Any) -> int:
        found: int = array.data.ptr
        return found

    def renamed(self, array: Any) -> Any:
        return self.xp.ndarray(array.shape, array.dtype, memptr=array.data)

    def store(self, array: Any, values: Any) -> None:
        if isinstance(values, self.array_type):
            self.xp.copyto(array, self.receive(values, array.device.id))
            return
        values = np.asarray(values, array.dtype)
        if values.nbytes > MAX_STORED_BYTES:
            array.set(values)
            return
        if self._store_words is None:
            from eagerflow.codegen.cuda.words import WordStore

            self._store_words = WordStore(self.xp)
        self._store_words(array.device.id, array.data.ptr, values)

    # Transfers ---------------------------------------------------------------------------

    def asarray(self, obj: Any, dtype: DType | None, index: int = 0) -> Any:
        with self.on(index):
            # The user may change the memory after this call, so the copy has to be complete.
            return self.xp.asarray(obj, dtype=dtype, blocking=True)

    def receive(self, array: Any, index: int = 0) -> Any:
        if not isinstance(array, self.array_type):
            return super().receive(array, index)
        source, target = array.device, self.on(index)
        if source.id == target.id:
            return array
        # Each GPU has streams of its own: the values must be complete before the copy starts, and
        # their memory must not be reused before the copy is complete.
        source.synchronize()
        with source:
            packed = self.xp.ascontiguousarray(array)
            source.synchronize()
        with target:
            copied = self.xp.array(packed)
            target.synchronize()
        return copied

    def copy(self, array: Any) -> Any:
        with array.device:
            return array.copy()

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        with array.device:
            values: np.ndarray[Any, Any] = array.get()
        return values

    @cached_property
    def peers(self) -> Nccl:
        return Nccl(self.xp, self.on)

    # Memory and time ---------------------------------------------------------------------

    def synchronize(self) -> None:
        for index in range(count_devices()):
            self.on(index).synchronize()

    def mark(self) -> Any:
        made = self.xp.cuda.Event()
        made.record()
        return made

    def seconds_between(self, first: Any, last: Any) -> float:
        last.synchronize()
        milliseconds: float = self.xp.cuda.get_elapsed_time(first, last)
        return milliseconds * 1e-3

    def memory_stats(self, index: int) -> dict[str, int]:
        """Bytes used by arrays, held by the pool, allowed (0: all), free and in total."""
        with self.on(index) as gpu:
            pool = self.xp.get_default_memory_pool()
            free, total = gpu.mem_info
            return {
                "bytes_in_use": pool.used_bytes(),
                "bytes_reserved": pool.total_bytes(),
                "bytes_limit": pool.get_limit(),
                "device_bytes_free": free,
                "device_bytes": total,
            }

    def set_memory_limit(self, index: int, size: int | None) -> None:
        with self.on(index):
            self.xp.get_default_memory_pool().set_limit(size=size or 0)

    def empty_cache(self, index: int) -> None:
        with self.on(index):
            self.xp.get_default_memory_pool().free_all_blocks()
