"""Whole training steps of all kinds and sizes, eager and captured, against the best of the peers.

    python benchmarks/works.py [--grid] [--rounds 9] [--only gpt] [--compile] [--json]

Without ``--grid`` the four works of docs/performance.md, with it the other sizes too. Losses,
gradients and the losses of three steps must agree first. All run with two threads, in turn, in one
process. The share of the peak is that of the products of a step, over what a loop of multiply-adds
in registers reaches on two threads of this machine.
"""

import math
import os
import statistics
import warnings

import harness
import jax
import numpy as np
import torch
import work_cases as cases
from fused_regions import QUIET, share, timed
from peak import peak_gigaflops

THREADS = 2
TARGET, EAGER_TARGET = 0.85, 1.0
STEPS = 3
RTOL, LOSS_RTOL = 2e-4, 3e-3  # Adam makes much of small gradients
SECONDS = 0.15
OURS, EAGER = "captured", "our eager"
PEERS = ("PyTorch", "PyTorch fused", "torch.compile", "jax.jit")


def contestants_of(work, compiled):
    """A step in each library."""
    found = {
        OURS: cases.our_step(work, captured=True),
        EAGER: cases.our_step(work, captured=False),
        "PyTorch": cases.torch_step(work),
        "PyTorch fused": cases.torch_step(work, fused=True),
        "jax.jit": cases.jax_step(work),
    }
    if compiled:
        found["torch.compile"] = cases.torch_step(work, fused=True, compiled=True)
    return found


def check(work, compiled):
    """Fail unless all find the same losses and gradients."""
    gradients = {
        OURS: cases.our_gradients(work, captured=True),
        EAGER: cases.our_gradients(work, captured=False),
        "PyTorch": cases.torch_gradients(work),
        "jax.jit": cases.jax_gradients(work),
    }
    scales = [np.abs(g).max() for g in gradients["PyTorch"]]
    if not all(0 < scale < np.inf for scale in scales):
        raise AssertionError(f"{work.name}: a gradient is all zeros, or not finite")
    relative = {
        who: [g / scale for g, scale in zip(found, scales, strict=True)]
        for who, found in gradients.items()
    }
    harness.agree(f"{work.name}, gradients", relative, RTOL)
    losses = {
        who: [[cases.number_of(step()) for _ in range(STEPS)]]
        for who, step in contestants_of(work, compiled).items()
    }
    harness.agree(f"{work.name}, losses of {STEPS} steps", losses, LOSS_RTOL)


def row(work, options, peak):
    """Check one network and time its steps; gives the row of the report."""
    check(work, options.compile)
    calls = contestants_of(work, options.compile)
    for call in calls.values():
        call()
    times, others = timed(calls, options.rounds, SECONDS)
    medians = {who: statistics.median(t) for who, t in times.items()}
    peer = min((who for who in PEERS if who in times), key=medians.__getitem__)
    eager_peer = min(("PyTorch", "PyTorch fused"), key=medians.__getitem__)
    line = {
        "name": work.name,
        "family": work.family,
        "milliseconds": {who: round(t * 1e3, 4) for who, t in medians.items()},
        "peer": peer,
        "of_peak": round(work.flops / medians[OURS] / 1e9 / peak, 3),
        "others": others,
    }
    for key, who, other in (("ratio", OURS, peer), ("eager_ratio", EAGER, eager_peer)):
        line[key], line[f"{key}_spread"] = harness.ratio(times[who], times[other])
    return line


def show(line):
    """Print one row."""
    times = "".join(f"{t:>9.3f}" for t in line["milliseconds"].values())
    print(
        f"{line['name']:<44}{times}  {line['ratio']:>5.2f} of {line['peer']:<14}"
        f"eager {line['eager_ratio']:>5.2f}  peak {line['of_peak']:>5.0%}  others{share(line)}",
        flush=True,
    )


def mean_ratio(rows, key):
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(line[key]) for line in rows))


def main():
    parser = harness.parser(__doc__)
    parser.set_defaults(rounds=9)
    parser.add_argument("--only", default="", help="works with this in their name")
    parser.add_argument("--grid", action="store_true", help="the other sizes too")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # JAX has as many threads as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    makers = [*cases.WORKS.values(), *(cases.grid() if options.grid else ())]
    peak = peak_gigaflops(THREADS)
    print(f"peak {peak:.0f} GFLOP/s; milliseconds of {OURS}, {EAGER}, {', '.join(PEERS)}")
    rows = []
    for make in makers:
        work = make()
        if options.only in work.name:
            rows.append(row(work, options, peak))
            show(rows[-1])
    if not rows:
        raise SystemExit(f"no work has {options.only!r} in its name")
    print(f"geometric means: captured {mean_ratio(rows, 'ratio'):.2f} (at most {TARGET}), ", end="")
    print(f"eager {mean_ratio(rows, 'eager_ratio'):.2f} of PyTorch (at most {EAGER_TARGET})")
    if any((line["others"] or 0) > QUIET for line in rows):
        print(f"disturbed: others took more than {QUIET:.0%} of the processors; repeat it")
    if options.json:
        versions = {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
        harness.save("works", rows, versions | {"peak_gigaflops": round(peak, 1)})


if __name__ == "__main__":
    main()
