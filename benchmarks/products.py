"""Products of matrices: generated kernels against NumPy's OpenBLAS, PyTorch and jax.

    python benchmarks/products.py [--rounds 7] [--json] [--threads 2] [--only squares]
        [--dtype int8]

All write into memory that is there already, but for jax, which takes none. "plan" is a segment of
a plan, with a few products in one call; "eager" a call from Python for each. The ratio is that of
the plan to the best other library. The peak is that of benchmarks/peak.py. Threads of OpenBLAS wait
for more work for a tenth of a second, and take time from others: there is a pause before each
contestant. Where the environment sets OPENBLAS_CORETYPE, NumPy computes with those kernels.
"""

import os
import sys

import harness
import jax
import ml_dtypes
import numpy as np
import torch
from peak import peak_gigaflops

import eagerflow as ef
from eagerflow.plan.segments import Segment, SegmentStep
from eagerflow.primitives import matrix_product
from eagerflow.runtime import blas

SECONDS, PAUSE = 0.02, 0.12
TOO_SLOW = 0.1  # seconds of a call, from which a library is left out
SEGMENT_SECONDS, MAX_COPIES = 0.001, 16  # of a segment, about, and products in it
TOLERANCES = {"float32": 1e-3, "float64": 1e-10, "bfloat16": 0.05, "float16": 0.01, "int8": 0}
TORCH = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def straight(rng, shape, dtype):
    """Numbers in row-major order."""
    if dtype == "int8":
        return rng.integers(-128, 128, shape, np.int8)
    return rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


def turned(rng, shape, dtype):
    """Matrices whose columns lie in one piece."""
    return straight(rng, (*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2)


SIZES = (64, 128, 192, 256, 384, 512, 768, 1024, 2048)
SQUARES = [((), n, n, n, straight, straight) for n in SIZES]
FEW_ROWS = [
    ((), m, k, n, straight, straight)
    for k, n in ((256, 1024), (1024, 256), (512, 512))
    for m in (8, 16, 32, 64, 128)
]
GRADIENTS = [((), 1024, k, 256, turned, straight) for k in (32, 128, 512, 1024)]
TO_INPUTS = [((), m, 1024, 256, straight, turned) for m in (32, 128, 1024)]
STACKS = [
    ((64,), 128, 32, 128, straight, turned),
    ((64,), 128, 128, 32, straight, straight),
    ((16,), 64, 64, 64, straight, straight),
]
GROUPS = {
    "squares": SQUARES,
    "rows": FEW_ROWS,
    "gradients": GRADIENTS + TO_INPUTS,
    "stacks": STACKS,
    "few": [SQUARES[i] for i in (1, 3, 5, 7)] + [FEW_ROWS[2]],
}


def as_torch(x):
    """The same memory as PyTorch's."""
    if x.dtype.name in TORCH:
        return torch.from_numpy(x.view(np.int16)).view(TORCH[x.dtype.name])
    return torch.from_numpy(x)


def in_jax(a, b, made):
    """A call of jax, whose own arrays lie in memory as these do."""
    turns = [x.strides[-1] != x.itemsize for x in (a, b)]

    def product(*given):
        given = [x.swapaxes(-1, -2) if t else x for x, t in zip(given, turns, strict=True)]
        return jax.numpy.matmul(*given, preferred_element_type=made)

    straight = [x.swapaxes(-1, -2) if t else x for x, t in zip((a, b), turns, strict=True)]
    held, compiled = jax.device_put(straight), jax.jit(product)
    return lambda: compiled(*held).block_until_ready()


def in_plan(a, b, out, work):
    """A call of a segment, and how many products it makes."""
    step = SegmentStep(None, 2, None, lambda given, made: matrix_product.fixed(*given, *made))
    copies = max(1, min(MAX_COPIES, int(SEGMENT_SECONDS * 400 / work)))
    segment, rows = Segment([step] * copies), ((a, b, out),) * copies

    def call():
        segment(rows)
        return out

    return call, copies


def contestants(a, b):
    """For each library a call that multiplies."""
    dtype = a.dtype.name
    made = np.int32 if dtype == "int8" else a.dtype
    shape = (*a.shape[:-1], b.shape[-1])
    own, theirs, third = (np.empty(shape, made) for _ in range(3))
    with_jax = in_jax(a, b, made)
    with_torch = as_torch(a), as_torch(b)
    found = {"eager": lambda: matrix_product.multiply(a, b, own)}
    if dtype.startswith("float"):
        multiply = np.dot if a.ndim == 2 else np.matmul
        found["NumPy"] = lambda: multiply(a, b, out=theirs)
    elif dtype == "bfloat16":
        found["NumPy"] = lambda: np.matmul(a, b, out=theirs)
    if dtype != "int8":  # which PyTorch multiplies for quantised layers alone
        to = as_torch(third)
        found["PyTorch"] = lambda: torch.matmul(*with_torch, out=to)
    found["jax"] = with_jax
    return found


def values(x):
    """An array of a library as NumPy's, of floats that all can be compared in."""
    return np.asarray(x.double() if isinstance(x, torch.Tensor) else x, dtype=np.float64)


def row_of(dtype, case, rounds, peak):
    """The report's row of one product."""
    batch, m, k, n, lay_a, lay_b = case
    rng = np.random.default_rng(0)
    a, b = lay_a(rng, (*batch, m, k), dtype), lay_b(rng, (*batch, k, n), dtype)
    work = 2e-9 * int(np.prod(batch)) * m * k * n
    whole = np.empty((*batch, m, n), np.int32 if dtype == "int8" else a.dtype)
    segment, copies = in_plan(a, b, whole, work)
    calls = {"plan": segment, **contestants(a, b)}
    marks = ["ᵀ" if lay is turned else "" for lay in (lay_a, lay_b)]
    front = f"{batch[0]} of " if batch else ""
    name = f"{dtype} {front}({m}×{k}){marks[0]}·({k}×{n}){marks[1]}"
    tolerance = TOLERANCES[dtype] * k**0.5
    results = {who: [values(call())] for who, call in calls.items()}
    harness.agree(name, results, tolerance)
    quick = {who: call for who, call in calls.items() if harness.time_round(call, 1) < TOO_SLOW}
    times = harness.measure(quick if len(quick) > 2 else calls, rounds, SECONDS, PAUSE)
    times["plan"] = [t / copies for t in times["plan"]]
    middle = {who: float(np.median(t)) for who, t in times.items()}
    peer = min((t, who) for who, t in middle.items() if who not in ("plan", "eager"))[1]
    ratio, spread = harness.ratio(times["plan"], times[peer])
    return {
        "name": name,
        "microseconds": {who: round(t * 1e6, 1) for who, t in middle.items()},
        "GFLOP/s": {who: round(work / t) for who, t in middle.items()},
        "share": round(work / middle["plan"] / peak, 2),
        "ratio": ratio,
        "spread": spread,
        "peer": peer,
        "target": None if dtype != "float32" else 0.67 if m <= 128 and not batch else 1.0,
    }


def show(row):
    """Print GFLOP/s, the share of the peak, and the ratio."""
    cells = "".join(f"{who:>10}{rate:>4}" for who, rate in row["GFLOP/s"].items())
    low, high = row["spread"]
    ratio = f"{row['ratio']:.2f} ({low:.2f} to {high:.2f}) of {row['peer']}"
    print(f"{row['name']:<40}{cells}   share {row['share']:.2f}, {ratio}", flush=True)


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=GROUPS, nargs="*", default=list(GROUPS)[:4])
    parser.add_argument("--dtype", choices=TOLERANCES, nargs="*", default=["float32"])
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    if len(cores) < len(os.sched_getaffinity(0)):  # so that all pools are made for so many
        os.sched_setaffinity(0, cores)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    torch.set_num_threads(options.threads)
    jax.config.update("jax_enable_x64", True)
    peak = peak_gigaflops(options.threads)
    kernels = f"OpenBLAS's kernels for {blas.kernels()}"
    print(f"{options.threads} threads, {kernels}, peak {peak:.0f} GFLOP/s (float32)")
    rows = []
    for dtype in options.dtype:
        for case in (case for group in options.only for case in GROUPS[group]):
            top = peak / (2 if dtype == "float64" else 1)
            rows.append(row_of(dtype, case, options.rounds, top))
            show(rows[-1])
    if options.json:
        own = {"eagerflow": ef.__version__, "threads": options.threads}
        others = {x.__name__: x.__version__ for x in (np, torch, jax)}
        harness.save("products", rows, own | others)


if __name__ == "__main__":
    main()
