"""The simulator of clusters against measured steps, and how long it takes for 10,000 machines.

    python benchmarks/cluster_simulator.py [--rounds 25] [--json]

- steps: a perceptron is timed with three sizes of batches; others are predicted from these.
- speed: seconds for 10,000 machines of 8 devices, by each method.
"""

import math
import time
from functools import partial

import harness
import numpy as np

import eagerflow as ef

BOUND = 0.20  # of the measured time
FITTED, PREDICTED = (32, 128, 512), (64, 256, 384)  # examples
METHODS = {
    "all-reduce": {},
    "parameter servers": {"method": "parameter-servers"},
    "asynchronous": {"method": "parameter-servers", "mode": "asynchronous", "staleness": 4},
    "pipeline": {"method": "pipeline", "stages": 16, "microbatches": 32},
}


def step_seconds(model, rounds):
    """The shortest step by its number of examples; all sizes in turn, as the machine changes."""
    calls = {}
    for batch in (*FITTED, *PREDICTED):
        x, y = np.ones((batch, 256), np.float32), np.ones((batch, 10), np.float32)
        calls[batch] = partial(model.train_on_batch, x, y)
        calls[batch]()
    times = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for batch, call in calls.items():
            times[batch] = min(times[batch], harness.time_round(call, 3))
    return times


def steps(rounds):
    """Rows of steps that are predicted from others."""
    layers = [ef.nn.Dense(n, activation="relu") for n in (512, 512)]
    model = ef.nn.Sequential([ef.nn.Input((256,)), *layers, ef.nn.Dense(10)])
    model.compile("adam", loss="mse")
    times = step_seconds(model, rounds)
    found = ef.cluster.calibrated(
        transfers=[(1e3, 1e-4), (1e6, 1e-3)], steps=[(b, times[b]) for b in FITTED]
    )
    work = ef.cluster.Workload.of(model, ef.cluster.Machines(1))
    rows = []
    for batch in PREDICTED:
        one = ef.cluster.simulate(found.workload(work, batch), found.machines(1)).last
        row = {"name": f"step of {batch}", "predicted": one.seconds, "measured": times[batch]}
        rows.append(row)
    return rows


def speed():
    """Seconds of a processor that simulations of 10,000 machines take."""
    machines = ef.cluster.Machines(10_000, devices_per_machine=8, jitter=0.05)
    work = ef.cluster.Workload(compute_seconds=0.2, gradients=[1e7] * 10, batch=32)
    rows = []
    for name, options in METHODS.items():
        start = time.process_time()
        ef.cluster.simulate(work, machines, **options)
        taken = time.process_time() - start
        rows.append({"name": f"10,000 machines, {name}", "seconds": taken})
        print(f"{rows[-1]['name']}: {taken:.2f} s")
    return rows


def shown(title, rows):
    """Print measured and predicted numbers, and the largest error."""
    print(f"{title} (bound {BOUND:.0%})")
    errors = [row["predicted"] / row["measured"] - 1 for row in rows]
    for row, error in zip(rows, errors, strict=True):
        print(f"  {row['name']:<24} {row['measured']:9.4g} {row['predicted']:9.4g} {error:+.1%}")
    worst = max(map(abs, errors))
    print(f"  largest error {worst:.1%}{'' if worst <= BOUND else ': beyond the bound'}")


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    measured = steps(options.rounds)
    shown("steps of one task in seconds, measured and predicted", measured)
    taken = speed()
    if options.json:
        versions = {"eagerflow": ef.__version__, "numpy": np.__version__}
        harness.save("cluster_simulator", [*measured, *taken], versions)


if __name__ == "__main__":
    main()
