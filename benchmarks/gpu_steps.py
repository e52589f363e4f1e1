"""Captured training steps on a GPU against PyTorch's, compiled and with CUDA graphs.

    python benchmarks/gpu_steps.py [--rounds 15] [--only gpt] [--json]

The works of ``works.py``. PyTorch runs eagerly with its fused Adam, and with ``torch.compile`` in
the modes "reduce-overhead" and "max-autotune", which both replay CUDA graphs; products are of full
float32 on all sides. The losses of some steps must agree first; they are also what makes all ready.
Each time is that of a row of steps with one wait for the GPU behind it. Not run on a GPU yet.
"""

import statistics
from functools import partial

import harness
import work_cases as cases

import eagerflow as ef
from eagerflow.backends.cupy import count_devices
from eagerflow.extras import load_if_there

STEPS = 20  # between two waits for the GPU
CHECKED = 8  # steps whose losses are compared; recordings are made in the fourth and fifth
LOSS_RTOL = 3e-3
SECONDS = 0.2
OURS, TARGET = "captured", 1.0
MODES = ("reduce-overhead", "max-autotune")


def missing():
    """What there is not, in one sentence; None where all is there."""
    if not count_devices():
        return "This benchmark needs an NVIDIA GPU and CuPy (pip install 'eagerflow[cuda12]')."
    torch = load_if_there("torch")
    if torch is None or not torch.cuda.is_available():
        return "This benchmark needs a PyTorch that sees the GPU (pip install torch)."
    return None


def contestants_of(work):
    """A step in each library, whose arrays are on the GPU; our own one first."""
    import torch

    found = {OURS: cases.our_step(work, captured=True)}
    with torch.device("cuda"):
        found["PyTorch"] = cases.torch_step(work, fused=True)
        for mode in MODES:
            found[mode] = cases.torch_step(work, fused=True, compiled=True, mode=mode)
    return found


def row_of_steps(step, wait):
    """Some steps, and one wait for the GPU."""
    for _ in range(STEPS):
        step()
    wait()


def row(work, options):
    """Check one network and time its steps; gives the row of the report."""
    import torch

    steps = contestants_of(work)
    losses = {who: [[cases.number_of(s()) for _ in range(CHECKED)]] for who, s in steps.items()}
    harness.agree(f"{work.name}, losses of {CHECKED} steps", losses, LOSS_RTOL)
    wait = torch.cuda.synchronize  # for all streams of the GPU, whoever's they are
    calls = {who: partial(row_of_steps, step, wait) for who, step in steps.items()}
    times = harness.measure(calls, options.rounds, SECONDS)
    medians = {who: statistics.median(t) / STEPS for who, t in times.items()}
    peer = min((who for who in medians if who != OURS), key=medians.__getitem__)
    middle, spread = harness.ratio(times[OURS], times[peer])
    return {
        "name": work.name,
        "microseconds": {who: round(t * 1e6, 2) for who, t in medians.items()},
        "ratio": middle,
        "spread": spread,
        "peer": peer,
        "target": TARGET,
    }


def main():
    parser = harness.parser(__doc__)
    parser.set_defaults(rounds=15)
    parser.add_argument("--only", default="", help="works with this in their name")
    options = parser.parse_args()
    if (what := missing()) is not None:
        raise SystemExit(what)
    import torch

    works = [work for make in cases.WORKS.values() if options.only in (work := make()).name]
    if not works:
        raise SystemExit(f"no work has {options.only!r} in its name")
    with ef.device("gpu:0"):  # states of recurrences begin where the context says
        rows = [row(work, options) for work in works]
    harness.report(f"training steps on {torch.cuda.get_device_name()}, microseconds", rows)
    if options.json:
        harness.save("gpu_steps", rows, {"torch": torch.__version__})


if __name__ == "__main__":
    main()
