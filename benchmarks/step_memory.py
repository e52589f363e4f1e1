"""Peak memory of captured training steps, against PyTorch's eager ones.

    python benchmarks/step_memory.py [--rounds 3] [--replays 1000] [--only gpt] [--json]

The works of works.py, the demo's network with batches of 64, and twelve dense layers of 1024 with
batches of 256, with Adam; each measurement is a process of its own. A tiny network of the same kind
trains first, so that libraries are loaded and threads started; then the weights and the batch are
made, and from there on the peak of the resident memory counts: of the first step, which captures
and compiles, and of later ones; the higher one is compared. Growth is what the resident memory
gained over the replays after that. Linux only.
"""

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile

import capture_cases as networks
import harness
import numpy as np
import work_cases as works

import eagerflow as ef

WAYS = ("captured", "eager", "PyTorch")
WARM = 5  # steps before the later ones
LATER = 20
TARGET = 1.0  # times PyTorch's
GROWTH = 1.0  # MB that measuring itself may move


def deep_case():
    """Twelve layers of 1024: 12.6 million weights, and activations of a megabyte for each layer."""
    return networks.perceptron_case(256, (1024,) * 13, "12 layers of 1024")


CASES = works.WORKS | {"demo": networks.demo_case, "12 layers of 1024": deep_case}
TINY = {
    "perceptron": lambda: works.perceptron(4, (8, 8, 10)),
    "cnn": lambda: works.convolutional(2, 8, (3, 4, 8)),
    "gpt": lambda: works.gpt(1, 8, 16, 1, 2, 16),
    "lstm": lambda: works.recurrent("lstm", 2, 4, 4, 8),
    "lstm op": lambda: works.recurrent("lstm", 2, 4, 4, 8, "op"),
    "demo": lambda: networks.demo_case(batch=2),
    "12 layers of 1024": lambda: networks.perceptron_case(4, (8, 8, 10)),
}
DROPOUT = ("demo",)  # whose numbers differ from library to library
MANY = ("perceptron", "demo")  # whose steps are short


def memory(field):
    """A line of this process's status, in MB."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
    raise AssertionError(f"/proc/self/status has no {field}")


def forget_peak():
    """Let the peak begin again at what is resident now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def settle():
    """Give back what is free, so that it is not used again unseen."""
    gc.collect()
    ef.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)


def step_of(way, name, table):
    """A step of one library, of the network that a table has under this name."""
    cases, case = works if name in works.WORKS else networks, table[name]()
    if way == "PyTorch":
        return cases.torch_step(case, fused=True)
    return cases.our_step(case, captured=way == "captured")


def work(way, name, replays):
    """In a process of its own: megabytes over what was resident with weights and batch."""
    if way == "PyTorch":
        import torch

        torch.set_num_threads(os.cpu_count())
    warm = step_of(way, name, TINY)
    for _ in range(3):
        warm()
    del warm
    step = step_of(way, name, CASES)
    settle()
    base = memory("VmRSS")
    forget_peak()
    losses = [works.number_of(step())]
    first = memory("VmHWM") - base
    for _ in range(WARM):
        losses.append(works.number_of(step()))
    forget_peak()
    for _ in range(LATER):
        losses.append(works.number_of(step()))
    later, steady = memory("VmHWM") - base, memory("VmRSS")
    for _ in range(replays):
        step()
    grown = memory("VmRSS") - steady
    print(json.dumps({"first": first, "later": later, "grown": grown, "losses": losses}))


def process(way, name, replays, cache):
    """What one such process has measured."""
    environment = os.environ | {"EAGERFLOW_CACHE": cache}
    command = [sys.executable, __file__, "--work", way, "--network", name]
    command += ["--replays", str(replays)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way}, {name}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def replays_of(name, options):
    """How many replays must not grow: those of large networks take long."""
    return options.replays if name in MANY else options.replays // 10


def row(name, options, cache):
    """All ways for one network, in turn; gives the row of the report."""
    found = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            found[way].append(process(way, name, replays_of(name, options), cache))
    firsts = {way: [np.array(runs[0]["losses"][:1])] for way, runs in found.items()}
    if name not in DROPOUT:
        harness.agree(f"{name}, first loss", firsts, 1e-4)
    harness.agree(f"{name}, first loss", {w: firsts[w] for w in ("captured", "eager")}, 1e-4)
    line = {"name": name, "replays": replays_of(name, options), "target": TARGET}
    for key in ("first", "later", "grown"):
        line[key] = {
            way: round(statistics.median(r[key] for r in runs), 2) for way, runs in found.items()
        }
    line["peak"] = {way: max(line["first"][way], line["later"][way]) for way in WAYS}
    line["ratio"] = round(line["peak"]["captured"] / line["peak"]["PyTorch"], 3)
    return line


def show(line):
    """Print one row."""
    print(f"\n{line['name']}, MB over weights and batch")
    grown = f"grown in {line['replays']}"
    print(f"{'':<16}{'first step':>12}{'later steps':>12}{grown:>18}")
    for way in WAYS:
        print(
            f"  {way:<14}{line['first'][way]:>12.1f}{line['later'][way]:>12.1f}"
            f"{line['grown'][way]:>18.2f}"
        )
    missed = " missed" if line["ratio"] > TARGET else ""
    print(f"  peak: {line['ratio']:.2f} of PyTorch's (at most {TARGET:g}){missed}")
    grown = line["grown"]["captured"]
    print(f"  growth: {grown:.2f} MB (none){' missed' if grown > GROWTH else ''}", flush=True)


def main():
    parser = harness.parser(__doc__)
    parser.set_defaults(rounds=3)
    parser.add_argument(
        "--replays", type=int, default=1000, help="of small networks; a tenth of the others"
    )
    parser.add_argument("--only", default="", help="networks with this in their name")
    parser.add_argument("--work", help="for the processes that this script starts")
    parser.add_argument("--network", default="", help="for the processes that this script starts")
    options = parser.parse_args()
    if options.work:
        work(options.work, options.network, options.replays)
        return
    with tempfile.TemporaryDirectory() as cache:
        rows = []
        for name in CASES:
            if options.only in name:
                rows.append(row(name, options, cache))
                show(rows[-1])
    if not rows:
        raise SystemExit(f"no network has {options.only!r} in its name")
    if options.json:
        import torch  # not above: the processes that measure ours do without it

        versions = {"numpy": np.__version__, "torch": torch.__version__}
        harness.save("step_memory", rows, versions)


if __name__ == "__main__":
    main()
