"""Captured training steps with Adam, against PyTorch, torch.compile, jax.jit and their products.

    python benchmarks/captured_steps.py [--rounds 15] [--only demo] [--no-compile] [--json]

A perceptron 784-512-512-10 with batches of 128, and the demo's network with batches of 64; same
weights, same batch, two threads. Losses and gradients, and the losses of five steps, must agree
first; dropout, whose random numbers differ, is left out for that. Times are those of the whole
network. The first ratio is to the best peer, the second to the products of the step alone, by
``np.matmul`` at their shapes, with convolutions as the direct products that they are. ``fit`` is
one epoch of batches like these by ``model.fit``, for each batch.
"""

import os
import statistics
import warnings

import capture_cases as cases
import harness
import jax
import numpy as np
import torch
from fused_regions import QUIET, ratio_cell, share, timed

THREADS = 2
PEER_TARGET, LIMIT_TARGET = 0.85, 1.2
# Of each timed block: so long that the threads of one library, which go on spinning for some
# milliseconds after their last product, take little from the next one's time.
SECONDS = 0.2
STEPS = 5  # of which the losses are compared
RTOL = 1e-4
OURS, EAGER, FIT, PRODUCTS = "captured", "our eager", "our fit", "products"
PEERS = ("PyTorch", "PyTorch fused", "torch.compile", "jax.jit")


def contestants_of(case, compiled):
    """A step in each library."""
    found = {
        OURS: cases.our_step(case, captured=True),
        EAGER: cases.our_step(case, captured=False),
        "PyTorch": cases.torch_step(case),
        "PyTorch fused": cases.torch_step(case, fused=True),
        "jax.jit": cases.jax_step(case),
    }
    if compiled:
        found["torch.compile"] = cases.torch_step(case, fused=True, compiled=True)
    return found


def check(case, compiled):
    """Fail unless all libraries find the same losses and gradients."""
    gradients = {
        OURS: cases.our_gradients(case, captured=True),
        EAGER: cases.our_gradients(case, captured=False),
        "PyTorch": cases.torch_gradients(case),
        "jax.jit": cases.jax_gradients(case),
    }
    if compiled:
        gradients["torch.compile"] = cases.torch_gradients(case, compiled=True)
    scales = [np.abs(g).max() for g in gradients["PyTorch"]]
    if not all(0 < scale < np.inf for scale in scales):
        raise AssertionError(f"{case.name}: a gradient is all zeros, or not finite")
    relative = {
        who: [g / scale for g, scale in zip(found, scales, strict=True)]
        for who, found in gradients.items()
    }
    harness.agree(f"{case.name}, gradients", relative, RTOL)
    losses = {
        who: [[cases.number_of(step()) for _ in range(STEPS)]]
        for who, step in contestants_of(case, compiled).items()
    }
    harness.agree(f"{case.name}, losses of {STEPS} steps", losses, RTOL)
    (ours,) = losses[OURS]
    if not ours[-1] < ours[0]:
        raise AssertionError(f"{case.name}: the loss does not fall: {ours}")


def row(name, options):
    """Check one network and time its steps; gives the row of the report."""
    make = cases.CASES[name]
    check(make(dropout=False) if name == "demo" else make(), options.compile)
    case = make()
    calls = contestants_of(case, options.compile)
    for call in calls.values():
        call()
    calls |= {FIT: cases.our_fit(case), PRODUCTS: cases.products_of(case)}
    times, others = timed(calls, options.rounds, SECONDS)
    times[FIT] = [t / cases.FIT_STEPS for t in times[FIT]]
    medians = {who: statistics.median(t) for who, t in times.items()}
    peer = min((who for who in PEERS if who in times), key=medians.__getitem__)
    line = {
        "name": f"{name}, batch {len(case.x)}",
        "milliseconds": {who: round(t * 1e3, 4) for who, t in medians.items()},
        "gigaflops_of_products": round(
            sum(2 * a * b * c * n for a, b, c, n in case.products) / medians[PRODUCTS] / 1e9, 1
        ),
        "peer": peer,
        "target": PEER_TARGET,
        "of_products_target": LIMIT_TARGET,
        "others": others,
    }
    for key, who, other in (
        ("ratio", OURS, peer),
        ("of_products", OURS, PRODUCTS),
        ("fit_ratio", FIT, peer),
        ("eager_ratio", EAGER, "PyTorch"),
    ):
        line[key], line[f"{key}_spread"] = harness.ratio(times[who], times[other])
    return line


def show(line):
    """Print one row."""
    print(f"\n{line['name']}, milliseconds; others took {share(line).strip()}")
    for who, milliseconds in line["milliseconds"].items():
        print(f"  {who:<16}{milliseconds:>10.3f}")
    for key, words in (
        ("ratio", f"to the best peer, {line['peer']} (at most {PEER_TARGET})"),
        ("of_products", f"to the products alone (at most {LIMIT_TARGET})"),
    ):
        target = line["target" if key == "ratio" else f"{key}_target"]
        print(f"  {ratio_cell(line[key], line[f'{key}_spread'], target)}  {words}")
    print(f"  {line['fit_ratio']:>6.2f}  fit to the best peer")
    print(f"  {line['eager_ratio']:>6.2f}  our eager step to PyTorch's", flush=True)


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--only", default="", help="networks with this in their name")
    parser.add_argument(
        "--no-compile", dest="compile", action="store_false", help="leave torch.compile out"
    )
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # JAX has as many threads as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    rows = []
    for name in cases.CASES:
        if options.only in name:
            rows.append(row(name, options))
            show(rows[-1])
    if not rows:
        raise SystemExit(f"no network has {options.only!r} in its name")
    if any((line["others"] or 0) > QUIET for line in rows):
        print(f"\ndisturbed: others took more than {QUIET:.0%} of the processors; repeat it")
    if options.json:
        versions = {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
        harness.save("captured_steps", rows, versions)


if __name__ == "__main__":
    main()
