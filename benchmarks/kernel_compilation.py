"""How long generated kernels take before they run: compiled cold, and loaded from disk.

100 different regions of five kinds (softmax, layer norm, GELU, ELU, SiLU with column sums), first
one after the other, then by two threads at once, then again from the disk cache. All results are
compared with those of NumPy's steps.
"""

import importlib
import os
import statistics
import tempfile
import threading
import time

import harness
import numpy as np

COUNT = 100
TARGETS = {"cold, median": 40, "from disk, median": 2, "100 kernels, two threads": 2000}


def regions(first):
    """Regions that differ in a constant, so that each needs code of its own."""
    builder = importlib.import_module("eagerflow.codegen.builder")
    found = []
    for i in range(first, first + COUNT):
        b = builder.Builder(f"region{i}", "m n")
        x, y = b.input("x", "float32", "m n"), b.input("y", "float32", "n")
        v = x * (1 + i / 100) + y
        if i % 5 == 0:
            out = b.exp(v - b.max(v, "n"))
            out = out * b.reciprocal(b.sum(out, "n"))
        elif i % 5 == 1:
            out = (v - b.mean(v, "n")) * b.rsqrt(b.variance(v, "n") + 1e-5) * y
        elif i % 5 == 2:
            out = v * 0.5 * (b.tanh((v + v * v * v * 0.044715) * 0.79788456) + 1.0)
        elif i % 5 == 3:
            out = b.select(b.less(v, 0), b.expm1(v), v)
        else:
            out = v * b.sigmoid(v)
            b.output("columns", b.sum(out, "m"))
        b.output("out", out)
        found.append(b.region())
    return found


def run_all(kernel, chosen, arrays, times):
    """Run each region once; the times of these first calls, in milliseconds."""
    for region in chosen:
        start = time.perf_counter()
        kernel.run(region, arrays)
        times.append((time.perf_counter() - start) * 1e3)


def check(kernel, chosen, arrays):
    """Machine code and NumPy agree."""
    for region in chosen[:10]:
        pairs = zip(
            kernel.run(region, arrays), kernel.run(region, arrays, way="numpy"), strict=True
        )
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def measure():
    os.environ["EAGERFLOW_CACHE"] = tempfile.mkdtemp()
    kernel = importlib.import_module("eagerflow.codegen.kernel")
    launch = importlib.import_module("eagerflow.codegen.llvm.launch")
    rng = np.random.default_rng(0)
    arrays = tuple(rng.standard_normal(s).astype("f4") for s in ((64, 1000), (1000,)))
    start = time.perf_counter()
    kernel.run(regions(1000)[0], arrays)
    found = {"the first kernel, with llvmlite's import": (time.perf_counter() - start) * 1e3}
    check(kernel, regions(2000), arrays)
    cold, disk = [], []
    run_all(kernel, regions(0), arrays, cold)
    launch.clear()
    run_all(kernel, regions(0), arrays, disk)
    halves = regions(3000)
    threads = [
        threading.Thread(target=run_all, args=(kernel, halves[i::2], arrays, [])) for i in range(2)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found["100 kernels, two threads"] = (time.perf_counter() - start) * 1e3
    found["cold, median"], found["cold, longest"] = statistics.median(cold), max(cold)
    found["from disk, median"], found["from disk, longest"] = statistics.median(disk), max(disk)
    return found


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    found = measure()
    rows = []
    for name, taken in found.items():
        target = TARGETS.get(name)
        missed = " missed" if target and taken > target else ""
        print(f"{name:<42}{taken:>9.2f} ms   {f'at most {target}' if target else ''}{missed}")
        rows.append({"name": name, "milliseconds": round(taken, 3), "target": target})
    if options.json:
        harness.save("kernel_compilation", rows, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
