"""The simulator of clusters against measured steps, and how long it takes for 10,000 machines.

    python benchmarks/cluster_simulator.py [--rounds 25] [--only gpt] [--local] [--json]

- configurations: three networks, each in one process, data parallel over two tasks, with a
  parameter server beside them, and as a pipeline. Each is predicted from other runs alone: steps
  with other batches of one process and of one task, two tasks that run them at once, the optimizer
  alone, steps that do nothing but sum as many gradients of other sizes, messages. Losses of all
  configurations of a network agree first.
- speed: seconds for 10,000 machines of 8 devices, by each method.

Tasks are processes that Ray starts; ``--local`` takes threads of this process instead. All that a
network needs is timed in turn, as the machine changes. The shortest times count, on both sides, for
what else runs on the machine makes each a little longer; medians are told beside.
"""

import statistics
import threading
import time
from functools import partial
from typing import NamedTuple

import harness
import numpy as np
import work_cases
from cluster_transport import exchange, one_way

import eagerflow as ef
from eagerflow.runtime import threads

BOUND = 0.20  # of the measured time
TASKS, MICROBATCHES = 2, 2
SIZES = ("small", "large")
AGREEING, RTOL = 3, 2e-3
SUMMED = (4 << 20, 16 << 20)  # bytes of gradients; what less takes is lost in the run's own noise
MESSAGES = (4 << 10, 4 << 20)
METHODS = {
    "all-reduce": {},
    "parameter servers": {"method": "parameter-servers"},
    "asynchronous": {"method": "parameter-servers", "mode": "asynchronous", "staleness": 4},
    "pipeline": {"method": "pipeline", "stages": 16, "microbatches": 32},
}


class Case(NamedTuple):
    """A network by its batch; the batches that it is timed with, and the one to predict."""

    make: object
    fitted: tuple
    batch: int


CASES = {
    "perceptron": Case(work_cases.perceptron, (64, 384), 256),
    "cnn": Case(work_cases.convolutional, (8, 48), 32),
    "gpt": Case(partial(work_cases.gpt, layers=2), (1, 6), 4),
}


# What is timed -----------------------------------------------------------------------------------


class Network:
    """Steps of one network, each with weights of its own."""

    def __init__(self, case):
        self.case = case
        sizes = {*case.fitted, case.batch, case.batch // TASKS, case.batch // MICROBATCHES}
        self.works = {size: case.make(batch=size) for size in sizes}
        self.weights = len(self.works[case.batch].weights)

    def step(self):
        """A step on a batch of any of the sizes."""
        works = self.works
        weights = [ef.Variable(w) for w in works[self.case.batch].weights]
        optimizer = ef.nn.optimizers.Adam(work_cases.RATE)

        def step(*batch):
            with ef.GradientTape() as tape:
                loss = works[batch[0].shape[0]].ours([w.value for w in weights], *batch)
            optimizer.apply(tape.gradient(loss, weights), weights)
            return loss

        return step

    def call(self, size, wrap):
        """A call of a step, wrapped by a strategy or captured."""
        made, batch = wrap(self.step()), [ef.tensor(x) for x in self.works[size].batch]
        return lambda: float(made(*batch))

    def update(self):
        """The optimizer alone, with gradients that are there."""
        weights = [ef.Variable(w) for w in self.works[self.case.batch].weights]
        gradients = [ef.Variable(w, trainable=False) for w in weights]
        optimizer = ef.nn.optimizers.Adam(work_cases.RATE)
        return ef.function(lambda: optimizer.apply([g.value for g in gradients], weights))


def on_one_core(call):
    """The call with one thread, as a task of two has it on two cores."""

    def alone():
        with threads.Alone():
            return call()

    return alone


def at_once(calls):
    """All calls side by side."""

    def together():
        others = [threading.Thread(target=call) for call in calls[1:]]
        for thread in others:
            thread.start()
        calls[0]()
        for thread in others:
            thread.join()

    return together


def calls_of(network, cluster):
    """All that is timed for a network: what it is predicted from, and the configurations."""
    case = network.case
    small, large = case.fitted
    each = [ef.cluster.DataParallel(cluster, devices=[d]) for d in cluster.devices()[:TASKS]]
    tasks = [network.call(large, own.step) for own in each]
    both = ef.cluster.DataParallel(cluster)
    calls = {
        "process small": network.call(small, ef.function),
        "process large": network.call(large, ef.function),
        "task small": network.call(small, each[0].step),
        "task large": tasks[0],
        "tasks large": at_once(tasks),
        "update": on_one_core(network.update()),
        "nothing of 1": exchange(each[0], 16 * network.weights, network.weights)[0],
        "nothing of 2": exchange(both, 16 * network.weights, network.weights)[0],
    }
    for size in SUMMED:
        calls[f"sum of {size}"] = exchange(both, size, network.weights)[0]
    servers = ef.cluster.ParameterServer(cluster)
    pipeline = ef.cluster.Pipeline(cluster, microbatches=MICROBATCHES)
    configurations = {
        "one process": network.call(case.batch, ef.function),
        "data parallel, 2 tasks": network.call(case.batch, both.step),
        "parameter server, 2 + 1 tasks": network.call(case.batch, servers.step),
        "pipeline, 2 stages": network.call(case.batch, pipeline.step),
    }
    return calls, configurations


def agree(name, configurations):
    """Fail unless all configurations train alike; batch normalization is one of each part."""
    losses = {who: [[call() for _ in range(AGREEING)]] for who, call in configurations.items()}
    if name != "cnn":
        harness.agree(name, losses, RTOL)


def timed(calls, rounds):
    """Seconds of a call, round by round, all in turn."""
    taken = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(harness.time_round(call, 1))
    return taken


# What is predicted -------------------------------------------------------------------------------


def predictions(network, times, cluster):
    """Seconds of a step of each configuration, from the times of other runs."""
    case = network.case
    beside = times["nothing of 2"]
    sums = [(size, TASKS, max(times[f"sum of {size}"] - beside, 1e-6)) for size in SUMMED]
    ways = one_way(cluster, MESSAGES, 50)
    messages = [(size, statistics.median(t)) for size, t in zip(MESSAGES, ways, strict=True)]
    run, sizes = times["nothing of 1"], dict(zip(SIZES, case.fitted, strict=True))
    tasks = [(size, times[f"task {name}"] - run) for name, size in sizes.items()]
    more = {
        "steps": tasks,
        "update": times["update"],
        "together": [(TASKS, max(times["tasks large"] / times["task large"], 1.0))],
        "runs": [(1, run), (TASKS, beside)],
    }
    summed = ef.cluster.calibrated(all_reduces=sums, **more)
    sent = ef.cluster.calibrated(transfers=messages, **more)
    process = [(size, times[f"process {name}"]) for name, size in sizes.items()]
    alone = ef.cluster.calibrated(transfers=messages, steps=process)
    captured = ef.function(network.step())
    captured(*map(ef.tensor, network.works[case.fitted[-1]].batch))
    work = ef.cluster.Workload.of(captured, ef.cluster.Machines.measured(1))

    def seconds(found, count, **options):
        own = found.workload(work, case.batch / count)
        made = ef.cluster.simulate(own, found.machines(count), batch=case.batch, **options)
        return made.last.seconds

    rings = {"algorithm": "ring", "sharded": True, "overlap": False}
    servers = {"servers": 1, "own_machines": True, "overlap": False}
    return {
        "one process": seconds(alone, 1),
        "data parallel, 2 tasks": seconds(summed, TASKS, **rings),
        "parameter server, 2 + 1 tasks": seconds(
            summed, TASKS, method="parameter-servers", **servers
        ),
        "pipeline, 2 stages": seconds(sent, TASKS, method="pipeline", microbatches=MICROBATCHES),
    }


def configurations(name, cluster, rounds):
    """Rows of the configurations of a network."""
    network = Network(CASES[name])
    calls, measured = calls_of(network, cluster)
    agree(name, measured)
    taken = timed(calls | measured, rounds)
    least = {who: min(t) for who, t in taken.items()}
    print(f"\n{name}: " + ", ".join(f"{n} {1e3 * least[n]:.2f}" for n in calls) + " ms")
    rows = []
    for who, predicted in predictions(network, least, cluster).items():
        row = {"name": f"{name}, {who}", "predicted": predicted, "measured": least[who]}
        rows.append(row | {"quarters": statistics.quantiles(taken[who], n=4)})
        show(rows[-1])
    return rows


def show(row):
    """Print one row."""
    low, middle, high = (1e3 * t for t in row["quarters"])
    ratio = row["predicted"] / row["measured"]
    print(
        f"  {row['name']:<44}{1e3 * row['measured']:9.2f}{1e3 * row['predicted']:9.2f} {ratio:6.2f}"
        f"{'       ' if abs(ratio - 1) <= BOUND else ' missed'}"
        f"   {middle:.2f} ({low:.2f} to {high:.2f})",
        flush=True,
    )


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


def main():
    parser = harness.parser(__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="networks with this in their name")
    parser.add_argument("--local", action="store_true", help="threads in place of processes")
    options = parser.parse_args()
    rows = []
    print("ms of a step: shortest, predicted, their ratio; median (middle half)")
    with ef.cluster.Cluster({"worker": TASKS, "ps": 1}, local=options.local) as cluster:
        for name in (name for name in CASES if options.only in name):
            rows += configurations(name, cluster, options.rounds)
    near = sum(abs(row["predicted"] / row["measured"] - 1) <= BOUND for row in rows)
    print(f"\n{near} of {len(rows)} within {BOUND:.0%}\n")
    taken = speed()
    if options.json:
        versions = {"eagerflow": ef.__version__, "numpy": np.__version__}
        harness.save("cluster_simulator", [*rows, *taken], versions)


if __name__ == "__main__":
    main()
