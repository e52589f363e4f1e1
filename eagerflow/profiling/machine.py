"""The peak performance of this machine's processor and memory, as a reference for rates.

Both are measured by all threads that kernels use, once per machine, in a quarter of a second,
and stored on disk (``EAGERFLOW_CACHE``).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from eagerflow.codegen.llvm.team import library
from eagerflow.primitives.llvm.staged_kernel import machine
from eagerflow.primitives.llvm.vectors import VectorWriter
from eagerflow.runtime import machine_code, threads
from eagerflow.runtime.measured import remembered
from eagerflow.runtime.processor import processor_name

_SUMS = 12  # independent sums, which hide latency
ROUNDS = 1 << 20
TRIES = 20
PRODUCT_SIZE = 1024
MEMORY_BYTES = 3 << 25  # of three arrays together, more than fits in caches
_FORMAT = 1  # of the data on disk


class Machine(NamedTuple):
    """Peak float32 operations and bytes per second, in billions of both."""

    gigaflops: float
    gigabytes: float


def measured(again: bool = False) -> Machine:
    """The peaks of this machine, measured at the first call or anew.

    >>> measured().gigaflops > 0 and measured().gigabytes > 0
    True
    """
    count = threads.thread_count()
    key = f"peaks of {processor_name()} with {count} threads, format {_FORMAT}"
    return remembered(key, lambda: [measured_peak(count), memory_gigabytes(count)], _read, again)  # type: ignore[no-any-return]


def _read(found: Any) -> Machine:
    gigaflops, gigabytes = found
    return Machine(float(gigaflops), float(gigabytes))


def _together(count: int, work: Callable[[], float]) -> float:
    """The maximum total rate of ``count`` threads, in several tries."""
    best = 0.0
    for _ in range(TRIES):
        found: list[float] = []
        team = [threading.Thread(target=lambda: found.append(work())) for _ in range(count)]  # noqa: B023
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        best = max(best, sum(found))
    return best


def measured_peak(count: int) -> float:
    """Float32 operations per second, in billions, of machine code or else of a product."""
    if not machine_code.available():
        return _product_gigaflops()
    return peak_gigaflops(count)


def peak_gigaflops(count: int) -> float:
    """Float32 operations per second of ``count`` threads, in billions: multiply-adds only."""
    function, lanes = _multiply_adds()

    def work() -> float:
        data = (ctypes.c_float * ((_SUMS + 1) * lanes))(*range(lanes, (_SUMS + 2) * lanes))
        start = perf_counter()
        function(ROUNDS, ctypes.addressof(data))
        return 2 * lanes * _SUMS * ROUNDS / (perf_counter() - start) / 1e9

    return _together(count, work)


def _multiply_adds() -> tuple[Any, int]:
    """A function of a count and a vector that makes some multiply-adds in each round."""
    lanes = machine_code.host().vector_bytes // 4
    v = VectorWriter(machine(), "float32", lanes)
    with v.code.function("peak(i64 %count, ptr %data)"):
        x = v.load("%data")
        sums = [v.load("%data", (1 + i) * v.size) for i in range(_SUMS)]
        with v.code.loop("round", 0, "%count", 1, sums) as (_, carried):
            for i, value in enumerate(carried):
                carried[i] = v.s.multiply_add(x, x, value)
        for i, value in enumerate(carried):
            v.store(value, "%data", (1 + i) * v.size)
    address = library(v.code.text(), "peak")["peak"]
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address), lanes


def _product_gigaflops() -> float:
    """The rate of NumPy's matrix product, used without machine code of ours."""
    a = np.ones((PRODUCT_SIZE, PRODUCT_SIZE), np.float32)

    def work() -> float:
        start = perf_counter()
        a.dot(a)
        return 2.0 * PRODUCT_SIZE**3 / (perf_counter() - start) / 1e9

    return _together(1, work)


def memory_gigabytes(count: int) -> float:
    """Bytes per second read and written by ``count`` threads, in billions, adding large arrays."""

    def work() -> float:
        a = np.ones(MEMORY_BYTES // 12 // count, np.float32)
        out = np.zeros_like(a)
        start = perf_counter()
        np.add(a, a, out)
        return 2.0 * a.nbytes / (perf_counter() - start) / 1e9

    return _together(count, work)
