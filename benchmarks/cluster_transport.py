"""What it takes to start tasks, to send between two of them, to sum gradients, and to run a graph.

python benchmarks/cluster_transport.py [--rounds 25] [--json] [--local]

Tasks are processes that Ray starts; ``--local`` takes threads of this process instead. Gradients
are summed as training does it: in a step of DataParallel whose gradients take one multiplication.
What such a step takes with weights of 16 bytes is told beside and taken off; the gradients, their
sum, the update and the new weights of both tasks stay in.
"""

import statistics
import time

import harness
import numpy as np

import eagerflow as ef

SENDS = {"4 KB": (4 << 10, 250), "4 MB": (4 << 20, 700)}  # bytes, and the target in microseconds
SUMS = {"in one weight": 1, "in two weights": 2}
SUMMED_BYTES, SUM_TARGET = 4 << 20, 1500
AGREEING = 3  # steps after which all have the same weights
RUN_TARGET, START_TARGET = 250, 6e6
COSTS = ef.capture.CostModel({"*": ef.capture.Rates()})


def row(name, seconds, target):
    """A row of the report, of times in seconds."""
    quarter = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
    middle = statistics.median(seconds)
    return {
        "name": name,
        "microseconds": {"eagerflow": round(middle * 1e6, 1), "target": target},
        "ratio": round(middle * 1e6 / target, 3),
        "spread": [round(quarter[0] * 1e6 / target, 3), round(quarter[2] * 1e6 / target, 3)],
        "peer": "target",
        "target": 1.0,
    }


def one_way(cluster, sizes, count):
    """Seconds from one worker to another: there and back, without the way of the empty answer."""
    one, two = cluster.tasks[:2]
    way = {"peer": two.name, "ends": None}
    message = {"do": "measure", "sizes": [0, *sizes], "count": count, **way}
    empty, *others = cluster.client.ask(one, message)[0]["seconds"]
    back = statistics.median(empty) / 2
    return [[seconds - back for seconds in taken] for taken in others]


def sends(cluster, rounds):
    """What goes from one worker to another."""
    taken = one_way(cluster, [size for size, _ in SENDS.values()], 10 * rounds)
    return [
        row(f"send {name}", seconds, target)
        for (name, (_, target)), seconds in zip(SENDS.items(), taken, strict=True)
    ]


def exchange(strategy, size, count):
    """A step that does next to nothing but sum gradients of so many bytes, and its weights."""
    values = np.random.default_rng(0).standard_normal(size // 4).astype("float32")
    parts = np.array_split(values, count)
    weights = [ef.Variable(part) for part in parts]
    factors = [ef.Variable(part, trainable=False) for part in parts]
    optimizer = ef.nn.optimizers.SGD(0.5)

    def step(x):
        scale = ef.mean(x)
        optimizer.apply([f.value * scale for f in factors], weights)

    own, x = strategy.step(step), ef.tensor([1.0, 2.0])
    return lambda: own(x), weights


def agreeing(strategy, size, count):
    """The step, once some of its like have given the bits that they give in this process."""
    found = []
    for own in (ef.cluster.DataParallel(devices=["cpu:0", "cpu:1"]), strategy):
        call, weights = exchange(own, size, count)
        for _ in range(AGREEING):
            call()
        own.merge()
        found.append([w.numpy() for w in weights])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    return call


def sums(cluster, rounds):
    """Gradients of 4 MB, summed over two workers, without what a run takes besides."""
    found = []
    strategy = ef.cluster.DataParallel(cluster)
    for name, count in SUMS.items():
        large, small = (agreeing(strategy, size, count) for size in (SUMMED_BYTES, 16 * count))
        taken = [
            (harness.time_round(large, 10), harness.time_round(small, 10)) for _ in range(rounds)
        ]
        whole, beside = (statistics.median(t) * 1e3 for t in zip(*taken, strict=True))
        print(f"sum of 4 MB {name}: a step {whole:.2f} ms, of 16 bytes {beside:.2f} ms")
        found.append(row(f"sum of 4 MB {name}", [a - b for a, b in taken], SUM_TARGET))
    return found


def runs(cluster, rounds):
    """A registered run of nearly nothing in one task, and in all three."""
    found = []
    x = ef.tensor(np.zeros(4, "float32"))
    for count in (1, 3):
        places = cluster.devices()[:count]

        def step(x, places=places):
            made = {}
            for i, place in enumerate(places):
                with ef.device(place):
                    made[f"y{i}"] = x + 1.0
            return made

        graph = ef.capture.trace(step, ef.TensorSpec((4,), "float32"))
        names = [f"y{i}" for i in range(count)]
        with ef.capture.Session(graph, cluster=cluster) as session:
            call = lambda s=session, n=names: s.run(n, {"x": x})
            call()
            taken = [harness.time_round(call, 20) for _ in range(rounds)]
        found.append(row(f"run over {count}, a task", [t / count for t in taken], RUN_TARGET))
    return found


def main():
    options = harness.parser(__doc__)
    options.add_argument("--local", action="store_true", help="threads in place of processes")
    options = options.parse_args()
    ef.set_logical_devices("cpu", 2)
    begin = time.perf_counter()
    with ef.cluster.Cluster({"worker": 2, "ps": 1}, local=options.local, costs=COSTS) as cluster:
        rows = [row("start of 3 tasks", [time.perf_counter() - begin], START_TARGET)]
        for part in (sends, sums, runs):
            rows += part(cluster, options.rounds)
    harness.report("cluster (µs)", rows)
    if options.json:
        harness.save("cluster_transport", rows, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
