"""Data parallelism: two workers with a core each, against one core with the same batch.

python benchmarks/cluster_training.py [--rounds 9] [--json] [--local]

Steps of the GPT and of the convolutional network of ``works.py``, with Adam. Tasks are processes
that Ray starts; ``--local`` takes threads of this process instead. Losses of the first steps agree
before anything is timed. The ratio is throughput over that of one core.
"""

import statistics

import harness
import numpy as np
import work_cases

import eagerflow as ef
from eagerflow.runtime import threads

WORKS = {"gpt": work_cases.gpt, "cnn": work_cases.convolutional}
TARGET, WORKERS, AGREEING = 1.8, 2, 3  # the ratio to reach; steps that are compared


def training(work, part):
    """A step on a batch or on a part of it, which trains weights of its own and gives the loss."""
    weights = [ef.Variable(w) for w in work.weights]
    optimizer = ef.nn.optimizers.Adam(work_cases.RATE)
    losses = {len(w.batch[0]): w.ours for w in (work, part)}

    def step(*batch):
        with ef.GradientTape() as tape:
            loss = losses[batch[0].shape[0]]([w.value for w in weights], *batch)
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step


def measured(name, cluster, rounds):
    """A row of the report for a work."""
    work = WORKS[name]()
    part = WORKS[name](batch=len(work.batch[0]) // WORKERS)
    batch = [ef.tensor(x) for x in work.batch]
    captured = ef.function(training(work, part))
    several = ef.cluster.DataParallel(cluster).step(training(work, part))

    def one():
        with threads.Alone():
            return float(captured(*batch))

    def two():
        return float(several(*batch))

    losses = [(one(), two()) for _ in range(AGREEING)]
    if name != "cnn":  # each replica normalizes its own part of a batch
        np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-3)
    taken = {"one core": [], "workers": []}
    for _ in range(rounds):
        taken["one core"].append(harness.time_round(one, 3))
        taken["workers"].append(harness.time_round(two, 3))
    ratios = [a / b for a, b in zip(taken["one core"], taken["workers"], strict=True)]
    quarters = statistics.quantiles(ratios, n=4)
    return {
        "name": f"{work.name}, {WORKERS} workers",
        "microseconds": {n: round(statistics.median(t) * 1e6) for n, t in taken.items()},
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(quarters[0], 3), round(quarters[2], 3)],
        "peer": "one core",
        "target": TARGET,
    }


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--local", action="store_true", help="threads in place of processes")
    options = parser.parse_args()
    with ef.cluster.Cluster({"worker": WORKERS}, local=options.local) as cluster:
        rows = [measured(name, cluster, options.rounds) for name in WORKS]
    for row in rows:
        print(row)
    return rows


if __name__ == "__main__":
    main()
