"""What the processor reaches at most: multiply-adds on values in registers, on all threads asked.

python benchmarks/peak.py
"""

import ctypes
import threading
import time

from eagerflow.codegen.llvm.team import library
from eagerflow.primitives.llvm.staged_kernel import machine
from eagerflow.primitives.llvm.vectors import VectorWriter
from eagerflow.runtime import machine_code

SUMS = 12  # that go on side by side, which hides the wait for each
ROUNDS, TRIES = 1 << 20, 20


def _loop():
    """A function of a count and a vector that makes ``SUMS`` multiply-adds in each round."""
    lanes = machine_code.host().vector_bytes // 4
    v = VectorWriter(machine(), "float32", lanes)
    with v.code.function("peak(i64 %count, ptr %data)"):
        x = v.load("%data")
        sums = [v.load("%data", (1 + i) * v.size) for i in range(SUMS)]
        with v.code.loop("round", 0, "%count", 1, sums) as (_, carried):
            for i, value in enumerate(carried):
                carried[i] = v.s.multiply_add(x, x, value)
        for i, value in enumerate(carried):
            v.store(value, "%data", (1 + i) * v.size)
    address = library(v.code.text(), "peak")["peak"]
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(address), lanes


def peak_gigaflops(threads):
    """Float32 operations of so many threads together, in billions a second."""
    function, lanes = _loop()

    def work(found):
        data = (ctypes.c_float * ((SUMS + 1) * lanes))(*range(lanes, (SUMS + 2) * lanes))
        start = time.perf_counter()
        function(ROUNDS, ctypes.addressof(data))
        found.append(2 * lanes * SUMS * ROUNDS / (time.perf_counter() - start) / 1e9)

    best = 0.0
    for _ in range(TRIES):
        found = []
        team = [threading.Thread(target=work, args=(found,)) for _ in range(threads)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
        best = max(best, sum(found))
    return best


if __name__ == "__main__":
    for count in (1, 2):
        print(f"{count} threads: {peak_gigaflops(count):.0f} GFLOP/s")
