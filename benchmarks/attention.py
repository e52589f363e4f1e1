"""Attention eagerly, forward and with its gradients, against PyTorch's fused kernel.

    python benchmarks/attention.py [--rounds 15] [--json]

float32, two threads; q, k and v are views of one array (batch, length, 3, heads, width), as
networks have them. ``GFLOP/s`` are ours, forward and backward, where causal work counts as the
tiles of 32 queries that see keys: 2 products forward, 5 backward; beside them the share of the peak
of both cores, which a loop of multiplications and additions in registers reaches at the beginning.
"""

import ctypes
import threading
import time
from functools import reduce

import harness
import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

import eagerflow as ef
from eagerflow.primitives.llvm.staged_kernel import machine, processor
from eagerflow.primitives.llvm.vectors import VectorWriter
from eagerflow.runtime import machine_code

THREADS = 2
SECONDS, PAUSE = 0.03, 0.02
SHAPES = ((8, 8, 128, 32), (2, 4, 256, 32), (4, 8, 512, 64), (1, 16, 1024, 128), (2, 8, 64, 16))
TILE = 32
PEAK_ROUNDS = 20
SUMS = 24  # vectors of sums that a loop keeps in registers


def peak():
    """Floating-point operations a second of all threads, the best of some rounds."""
    lanes, _ = processor("float32")
    v = VectorWriter(machine(), "float32", lanes)
    with v.code.function("run(i64 %count, ptr %place)"):
        x = v.load("%place")
        with v.code.loop("i", 0, "%count", 1, [x] * SUMS) as (_, sums):
            sums[:] = [v.s.multiply_add(y, x, x) for y in sums]
        v.store(reduce(v.s.add, sums), "%place")
    library = machine_code.link(machine_code.compile_object(v.code.text()), "run")
    run = library.function("run", ctypes.c_int64, ctypes.c_void_p)
    count = 1_000_000

    def work(rates):
        place = np.full(64, 0.5, np.float32)
        start = time.perf_counter()
        run(count, place.ctypes.data)
        rates.append(count * SUMS * lanes * 2 / (time.perf_counter() - start))

    found = []
    for _ in range(PEAK_ROUNDS):
        rates = []
        threads = [threading.Thread(target=work, args=(rates,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.append(sum(rates))
    return max(found)


def scores_of(shape, is_causal):
    """How many scores there are in tiles that are not hidden as a whole."""
    batch, heads, length, _ = shape
    ends = [min(first + TILE, length) for first in range(0, length, TILE)]
    seen = [TILE * (end if is_causal else length) for end in ends]
    return batch * heads * sum(seen)


def calls_of(shape, is_causal):
    """For each library a forward call, and one with all gradients."""
    batch, heads, length, width = shape
    rng = np.random.default_rng(0)
    packed = rng.standard_normal((batch, length, 3, heads, width), np.float32)
    arrays = [packed[:, :, i].transpose(0, 2, 1, 3) for i in range(3)]
    weight = rng.standard_normal((batch, length, heads, width), np.float32).transpose(0, 2, 1, 3)
    own, own_weight = [ef.tensor(x) for x in arrays], ef.tensor(weight)
    theirs = [torch.from_numpy(x).requires_grad_() for x in arrays]
    their_weight = torch.from_numpy(weight)

    def forward():
        return [ef.dot_product_attention(*own, is_causal=is_causal)]

    def forward_torch():
        with torch.no_grad():
            return [scaled_dot_product_attention(*theirs, is_causal=is_causal)]

    def both():
        with ef.GradientTape() as tape:
            tape.watch(own)
            y = ef.dot_product_attention(*own, is_causal=is_causal)
        return tape.gradient(y, own, own_weight)

    def both_torch():
        y = scaled_dot_product_attention(*theirs, is_causal=is_causal)
        return torch.autograd.grad(y, theirs, their_weight)

    return {"forward": (forward, forward_torch), "and backward": (both, both_torch)}


def rows_of(shape, is_causal, rounds, top):
    """The rows of a shape: forward, and with the gradients."""
    rows = []
    for what, (ours, peers) in calls_of(shape, is_causal).items():
        name = f"{shape}{' causal' if is_causal else ''}, {what}"
        harness.agree(name, {"eagerflow": ours(), "PyTorch": peers()}, 1e-4)
        times = harness.measure({"eagerflow": ours, "PyTorch": peers}, rounds, SECONDS, PAUSE)
        ratio, spread = harness.ratio(times["eagerflow"], times["PyTorch"])
        middle = {who: float(np.median(t)) for who, t in times.items()}
        products = 2 if what == "forward" else 7
        rate = 2 * products * scores_of(shape, is_causal) * shape[3] / middle["eagerflow"]
        rows.append(
            {
                "name": name,
                "microseconds": {who: round(s * 1e6, 1) for who, s in middle.items()},
                "GFLOP/s": round(rate / 1e9),
                "share": round(rate / top, 2),
                "ratio": ratio,
                "spread": spread,
                "peer": "PyTorch",
                "target": 1.0,
            }
        )
    return rows


def main():
    options = harness.arguments(__doc__)
    torch.set_num_threads(THREADS)
    rows, top = [], peak()
    for shape in SHAPES:
        for is_causal in (True, False):
            rows += rows_of(shape, is_causal, options.rounds, top)
    harness.report("Attention (µs)", rows)
    print(f"\nThe peak of {THREADS} threads is {top / 1e9:.0f} GFLOP/s.")
    for row in rows:
        print(f"{row['name']:<48}{row['GFLOP/s']:>6} GFLOP/s, {row['share']:.2f} of the peak")
    if options.json:
        harness.save("attention", rows, {"eagerflow": ef.__version__, "torch": torch.__version__})


if __name__ == "__main__":
    main()
