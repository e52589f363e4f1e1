"""What it takes to send between GPUs of two tasks: by NCCL, and by way of the hosts.

    python benchmarks/cluster_gpu.py [--rounds 25] [--json]

A graph sends an array from one GPU to the other and back, many times, with an addition at each
stop; a time is that of one way with its addition. Tasks are processes that Ray starts, once with
NCCL and once without; both have to give the same bits first. Needs two GPUs in this machine, CuPy
and NCCL, and says so where they are not there. Not run on a GPU yet.
"""

import os
import statistics

import harness
import numpy as np

import eagerflow as ef
from eagerflow.backends.cupy import count_devices

SIZES = {"4 KB": 4 << 10, "4 MB": 4 << 20, "64 MB": 64 << 20}
WAYS = 20
TARGET = 1.0  # of what it takes by way of the hosts
OPENING = 200  # runs in which the ways from GPU to GPU have to open
TASKS = [f"/job:worker/task:{i}" for i in (0, 1)]
GPUS = [f"{task}/device:gpu:0" for task in TASKS]
COSTS = ef.capture.CostModel({"*": ef.capture.Rates()})


def missing():
    """What there is not, in one sentence; None where all is there."""
    found = count_devices()
    if found < 2:
        return f"This benchmark needs two NVIDIA GPUs and CuPy; there are {found} that CuPy sees."
    library = ef.devices("gpu")[0].backend.peers
    return f"This benchmark needs NCCL: {library.missing}." if library.missing else None


def there_and_back(count):
    """An array of so many numbers that goes from GPU to GPU, and its sum at the end."""

    def f(x):
        for i in range(WAYS + 1):
            with ef.device(GPUS[i % 2]):
                x = x + 1.0
        with ef.device(GPUS[WAYS % 2]):
            return {"y": x, "sum": ef.sum(x)}

    return ef.capture.trace(f, ef.TensorSpec((count,), "float32"))


def past_host(cluster):
    """Bytes that have gone from GPU to GPU."""
    return [sum(row[-1] for row in task.past_host) for task in cluster.status().tasks]


def opened(cluster, run):
    """Run until both directions go from GPU to GPU."""
    for _ in range(OPENING):
        run()
        if all(past_host(cluster)):
            return
    raise SystemExit(f"no way from GPU to GPU has opened:\n{cluster.status()}")


def measured(setting, rounds):
    """Bits of each size, and the seconds of one way."""
    os.environ["EAGERFLOW_NCCL"] = setting
    found = {}
    devices = {"worker": {"gpu": 1}}
    with ef.cluster.Cluster({"worker": 2}, devices=devices, costs=COSTS) as cluster:
        for name, size in SIZES.items():
            feeds = {"x": np.random.default_rng(0).standard_normal(size // 4).astype("float32")}
            with ef.capture.Session(there_and_back(size // 4), cluster=cluster) as session:
                run = lambda s=session, f=feeds: s.run("sum", f)
                run()
                if setting == "on":
                    opened(cluster, run)
                bits = session.run("y", feeds).numpy().tobytes()
                taken = [harness.time_round(run, 3) / WAYS for _ in range(rounds)]
            found[name] = bits, taken
        print(cluster.status())
    return found


def row(name, ours, other):
    """A row of the report."""
    middle, spread = harness.ratio(ours, other)
    microseconds = {
        who: round(statistics.median(taken) * 1e6, 1)
        for who, taken in (("NCCL", ours), ("by the hosts", other))
    }
    return {
        "name": f"one way of {name}",
        "microseconds": microseconds,
        "ratio": middle,
        "spread": spread,
        "peer": "by the hosts",
        "target": TARGET,
    }


def main():
    options = harness.parser(__doc__).parse_args()
    if (what := missing()) is not None:
        raise SystemExit(what)
    ways = {setting: measured(setting, options.rounds) for setting in ("on", "off")}
    for name in SIZES:
        if ways["on"][name][0] != ways["off"][name][0]:
            raise SystemExit(f"{name}: the two ways have other bits")
    rows = [row(name, ways["on"][name][1], ways["off"][name][1]) for name in SIZES]
    harness.report("between GPUs of two tasks (µs)", rows)
    if options.json:
        harness.save("cluster_gpu", rows, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
