"""Whole training steps of all kinds and sizes, eager and captured, against the best of the peers.

    python benchmarks/works.py [--grid] [--eager] [--rounds 9] [--only gpt] [--compile] [--json]

Without ``--grid`` the four works of docs/performance.md, with it the other sizes too. ``--eager``
leaves out all that is compiled: our eager steps against PyTorch's. Losses, gradients and the losses
of three steps must agree first. All run with two threads, in turn, in one process. The share of the
peak is that of the products of a step, over what a loop of multiply-adds in registers reaches on
two threads of this machine.
"""

import math
import os
import statistics
import warnings
from typing import NamedTuple

import harness
import jax
import numpy as np
import torch
import work_cases as cases
from fused_regions import QUIET, share, timed
from peak import peak_gigaflops

THREADS = 2
STEPS = 3
RTOL, LOSS_RTOL = 2e-4, 3e-3  # Adam makes much of small gradients
SECONDS = 0.15
OURS, EAGER = "captured", "our eager"
PEERS = ("PyTorch", "PyTorch fused", "torch.compile", "jax.jit")
EAGER_PEER = "PyTorch"


class Aim(NamedTuple):
    """What a ratio should be over all cells, in the geometric mean, and in each."""

    mean: float
    most: float


AIM, GRID_AIM, EAGER_AIM = Aim(0.85, 0.85), Aim(0.8, 1.15), Aim(1.0, 1.3)


def contestants_of(work, options):
    """A step in each library; our own ones first."""
    eager = {EAGER: cases.our_step(work, captured=False)}
    plain = {EAGER_PEER: cases.torch_step(work)}
    if options.eager:
        return eager | plain
    found = {OURS: cases.our_step(work, captured=True)} | eager | plain
    found["PyTorch fused"] = cases.torch_step(work, fused=True)
    found["jax.jit"] = cases.jax_step(work)
    if options.compile:
        found["torch.compile"] = cases.torch_step(work, fused=True, compiled=True)
    return found


def gradients_of(work, options):
    """The loss and its gradients in each library."""
    found = {
        EAGER_PEER: cases.torch_gradients(work),
        EAGER: cases.our_gradients(work, captured=False),
    }
    if not options.eager:
        found[OURS] = cases.our_gradients(work, captured=True)
        found["jax.jit"] = cases.jax_gradients(work)
    return found


def check(work, options):
    """Fail unless all find the same losses and gradients."""
    gradients = gradients_of(work, options)
    scales = [np.abs(g).max() for g in gradients[EAGER_PEER]]
    if not all(0 < scale < np.inf for scale in scales):
        raise AssertionError(f"{work.name}: a gradient is all zeros, or not finite")
    relative = {
        who: [g / scale for g, scale in zip(found, scales, strict=True)]
        for who, found in gradients.items()
    }
    harness.agree(f"{work.name}, gradients", relative, RTOL)
    losses = {
        who: [[cases.number_of(step()) for _ in range(STEPS)]]
        for who, step in contestants_of(work, options).items()
    }
    harness.agree(f"{work.name}, losses of {STEPS} steps", losses, LOSS_RTOL)


def row(work, options, peak):
    """Check one network and time its steps; gives the row of the report."""
    check(work, options)
    calls = contestants_of(work, options)
    for call in calls.values():
        call()
    times, others = timed(calls, options.rounds, SECONDS)
    medians = {who: statistics.median(t) for who, t in times.items()}
    first = next(iter(medians))
    line = {
        "name": work.name,
        "family": work.family,
        "milliseconds": {who: round(t * 1e3, 4) for who, t in medians.items()},
        "of_peak": round(work.flops / medians[first] / 1e9 / peak, 3),
        "others": others,
    }
    ratios = [("eager_ratio", EAGER, EAGER_PEER)]
    if not options.eager:
        line["peer"] = min((who for who in PEERS if who in times), key=medians.__getitem__)
        ratios.append(("ratio", OURS, line["peer"]))
    for key, who, other in ratios:
        line[key], line[f"{key}_spread"] = harness.ratio(times[who], times[other])
    return line


def show(line):
    """Print one row."""
    times = "".join(f"{t:>9.3f}" for t in line["milliseconds"].values())
    ours = f"{line['ratio']:>5.2f} of {line['peer']:<14}" if "ratio" in line else ""
    print(
        f"{line['name']:<44}{times}  {ours}eager {line['eager_ratio']:>5.2f}"
        f"  peak {line['of_peak']:>5.0%}  others{share(line)}",
        flush=True,
    )


def mean_ratio(rows, key):
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(line[key]) for line in rows))


def summarize(rows, key, what, aim):
    """Print the geometric means, of all rows and of each family, and the cells above the aims."""
    if not all(key in line for line in rows):
        return
    families = dict.fromkeys(line["family"] for line in rows)
    parts = {f: mean_ratio([r for r in rows if r["family"] == f], key) for f in families}
    each = ", ".join(f"{family} {mean:.2f}" for family, mean in parts.items())
    print(f"{what}: geometric mean {mean_ratio(rows, key):.2f} (at most {aim.mean}): {each}")
    ordered = sorted(rows, key=lambda line: -line[key])
    for bound, more in ((aim.most, math.inf), (1.0, aim.most)):
        cells = [f"{r['name']} {r[key]:.2f}" for r in ordered if bound < r[key] <= more]
        print(f"  {len(cells)} of {len(rows)} cells above {bound}" + ":" * bool(cells))
        for cell in cells:
            print(f"    {cell}")


def main():
    parser = harness.parser(__doc__)
    parser.set_defaults(rounds=9)
    parser.add_argument("--only", default="", help="works with this in their name")
    parser.add_argument("--grid", action="store_true", help="the other sizes too")
    parser.add_argument("--eager", action="store_true", help="eager steps and their peer alone")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # JAX has as many threads as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    makers = [*cases.WORKS.values(), *(cases.grid() if options.grid else ())]
    peak = peak_gigaflops(THREADS)
    rows = []
    for make in makers:
        work = make()
        if options.only in work.name:
            rows.append(row(work, options, peak))
            if len(rows) == 1:
                who = ", ".join(rows[0]["milliseconds"])
                print(f"peak {peak:.0f} GFLOP/s; milliseconds of {who}")
            show(rows[-1])
    if not rows:
        raise SystemExit(f"no work has {options.only!r} in its name")
    summarize(rows, "ratio", "captured / best peer", GRID_AIM if options.grid else AIM)
    summarize(rows, "eager_ratio", f"eager / {EAGER_PEER} eager", EAGER_AIM)
    if any((line["others"] or 0) > QUIET for line in rows):
        print(f"disturbed: others took more than {QUIET:.0%} of the processors; repeat it")
    if options.json:
        versions = {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
        harness.save("works", rows, versions | {"peak_gigaflops": round(peak, 1)})


if __name__ == "__main__":
    main()
