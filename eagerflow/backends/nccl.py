"""Transfers between GPUs of two processes: NCCL, through ``cupy.cuda.nccl``.

Names and signatures were checked against CuPy 14.2 with NCCL 2.32. The logic has run on a mock, and
on no GPU yet.

Arrays are sent as bytes, so that each dtype is preserved. CuPy's communicators block: the
constructor returns when the other end calls its own, and the first transfer when the other end
begins its own, since they connect then. If the other end has died meanwhile, they never return.
Later calls enqueue a kernel in a stream and return, and the kernel waits for that of the other end.
If a communicator is aborted, these kernels end without an error, even with incomplete data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from eagerflow.extras import load_if_there

__all__ = ["Nccl", "NcclEnd", "Staged"]

UNIQUE_ID_BYTES = 128
INSTALL = "CuPy finds no NCCL (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13)"


class Staged(NamedTuple):
    """An array's numbers in memory of their own, and the event after which they are complete."""

    array: Any
    ready: Any


class Nccl:
    """NCCL as found by CuPy. ``on`` returns the context of a device by its index.

    ``version`` is its name with its version, or "" with the reason in ``missing``.
    """

    def __init__(self, xp: Any, on: Callable[[int], Any]) -> None:
        self._xp, self._on = xp, on
        with warnings.catch_warnings():  # CuPy warns of a library that it does not find
            warnings.simplefilter("ignore")
            self._module = load_if_there("cupy.cuda.nccl")
        if self._module is None or not self._module.available:
            self.version, self.missing = "", INSTALL
            return
        found = self._module.get_version()
        make = "RCCL" if xp.cuda.runtime.is_hip else "NCCL"
        self.version = f"{make} {found // 10000}.{found // 100 % 100}.{found % 100}"
        self.missing = ""

    def place(self, index: int) -> str:
        """An identifier of a GPU within a machine, also for processes that see some of them."""
        with self._on(index) as gpu:
            found: str = gpu.pci_bus_id
        return found

    def unique_id(self) -> bytes:
        """The id that both ends of a new pair need; the caller has to be one of them."""
        found: bytes = self._module.get_unique_id()
        return found

    def end(self, index: int, unique_id: bytes, rank: int) -> NcclEnd:
        """Create one end of a pair on a device; returns when the other end, of rank 1 - rank,
        joins.

        Raises errors of the library if that fails.
        """
        return NcclEnd(self._xp, self._module, self._on(index), unique_id, rank)

    def staged(self, array: Any, dtype: Any) -> Staged:
        """The current values of an array, copied in row-major order and as this dtype."""
        return _staged(self._xp, array, dtype)


def _staged(xp: Any, array: Any, dtype: Any) -> Staged:
    with array.device:
        copied = array.astype(dtype, order="C", copy=True)
        ready = xp.cuda.Event()
        ready.record()
    return Staged(copied, ready)


class NcclEnd:
    """One end of a communicator of two devices, for one thread; arrays go one way at a time."""

    def __init__(self, xp: Any, module: Any, gpu: Any, unique_id: bytes, rank: int) -> None:
        self._xp, self._module, self._gpu = xp, module, gpu
        self._other = 1 - rank
        with gpu:
            self._communicator = module.NcclCommunicator(2, unique_id, rank)
            self._stream = xp.cuda.Stream(non_blocking=True)
            self._over = xp.cuda.Event()
        self._at_work: Sequence[Any] = ()  # arrays whose memory is in use

    def send(self, staged: Sequence[Staged]) -> None:
        """Begin to send arrays."""
        with self._gpu:
            for one in staged:
                self._stream.wait_event(one.ready)
            self._start(self._communicator.send, [one.array for one in staged])

    def receive(self, specs: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Begin to receive arrays of these shapes and dtypes, which are new."""
        with self._gpu:
            made = [self._xp.empty(shape, dtype) for shape, dtype in specs]
            free = self._xp.cuda.Event()
            free.record()  # the memory may still be in use by earlier work
            self._stream.wait_event(free)
            self._start(self._communicator.recv, made)
        return made

    def _start(self, call: Callable[..., None], arrays: Sequence[Any]) -> None:
        module, self._at_work = self._module, arrays
        module.groupStart()
        try:
            for x in arrays:
                size = x.size * x.dtype.itemsize
                call(x.data.ptr, size, module.NCCL_UINT8, self._other, self._stream.ptr)
        finally:
            module.groupEnd()
        self._over.record(self._stream)

    def meet(self, sends: bool) -> None:
        """Begin to send or receive one byte: the two ends connect at their first transfer."""
        if sends:
            with self._gpu:
                byte = self._xp.empty((1,), np.uint8)
            self.send([_staged(self._xp, byte, np.uint8)])
        else:
            self.receive([((1,), np.uint8)])

    def is_done(self) -> bool:
        """Whether all transfers are complete; raises errors of the library."""
        with self._gpu:
            done: bool = self._over.done
            self._communicator.check_async_error()
        if done:
            self._at_work = ()
        return done

    def abort(self) -> None:
        """Abort pending transfers and the communicator."""
        with self._gpu:
            self._communicator.abort()
