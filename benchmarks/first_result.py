"""How long the first captured training step takes, with a cold and with a warm kernel cache.

    python benchmarks/first_result.py [--rounds 5] [--only demo] [--no-compile] [--json]

The works of works.py, and the demo's network. Each measurement is a process of its own: the time
of the first call, from which the function is not captured yet until the loss is there. Imports,
weights and data come before. The limits are made of the median of later eager steps. The cold cache
is a folder made for the process; the warm one was filled by another process. JAX and torch.compile
keep nothing on disk.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import capture_cases as networks
import harness
import numpy as np
import work_cases as works

COLD, WARM = 0.5, 0.05  # seconds over three eager steps
EAGER_STEPS = 3
LATER = 20  # steps whose median counts
RTOL = 1e-3  # of losses of five steps
CASES = works.WORKS | {"demo": networks.demo_case}


def step_of(way, name):
    """The step that a process times."""
    cases, case = networks if name == "demo" else works, CASES[name]()
    if way in ("captured", "eager"):
        return cases.our_step(case, captured=way == "captured")
    if way == "jax.jit":
        return cases.jax_step(case)
    import torch  # not above: our own processes do without it
    import torch._inductor.config

    torch.set_num_threads(os.cpu_count())
    torch._inductor.config.force_disable_caches = True
    return cases.torch_step(case, fused=True, compiled=True)


def work(way, name):
    """In a process of its own: the seconds of the first step and of later ones, and the losses."""
    step = step_of(way, name)
    times, losses = [], []
    for _ in range(1 + LATER):
        start = time.perf_counter()
        losses.append(works.number_of(step()))
        times.append(time.perf_counter() - start)
    later = statistics.median(times[1:])
    print(json.dumps({"first": times[0], "later": later, "losses": losses}))


def process(way, name, cache):
    """What one such process has measured."""
    environment = os.environ | {"EAGERFLOW_CACHE": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    command = [sys.executable, __file__, "--work", way, "--network", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way}, {name}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def row(name, options, folder):
    """All ways for one network, in turn; gives the row of the report."""
    ways = ["captured, cold", "captured, warm", "eager", "jax.jit"]
    ways += ["torch.compile"] * options.compile
    found = {way: [] for way in ways}
    warm = folder / f"{name} warm"
    process("captured", name, warm)  # fills the cache, and the file system's
    for turn in range(options.rounds):
        for way in ways:
            cold = folder / f"{name} {turn} {way}"
            cache = warm if way == "captured, warm" else cold
            found[way].append(process(way.partition(",")[0], name, cache))
    check(name, {way: runs[0]["losses"] for way, runs in found.items()})
    first = {way: statistics.median(r["first"] for r in runs) for way, runs in found.items()}
    eager = statistics.median(r["later"] for r in found["eager"])
    later = {way: statistics.median(r["later"] for r in runs) for way, runs in found.items()}
    return {
        "name": name,
        "first_seconds": {way: round(t, 4) for way, t in first.items()},
        "spread": {
            way: [round(f(r["first"] for r in runs), 4) for f in (min, max)]
            for way, runs in found.items()
        },
        "later_seconds": {way: round(t, 5) for way, t in later.items()},
        "limits": {
            "captured, cold": round(EAGER_STEPS * eager + COLD, 4),
            "captured, warm": round(EAGER_STEPS * eager + WARM, 4),
        },
        "of_jax": round(first["captured, cold"] / first["jax.jit"], 3),
    }


def check(name, losses):
    """Fail unless the steps compute the same; with dropout, whose numbers differ, ours alone."""
    if name == "demo":
        losses = {way: found for way, found in losses.items() if way.startswith(("cap", "eager"))}
    some = {way: [np.array(found[:5])] for way, found in losses.items()}
    harness.agree(f"{name}, losses", some, RTOL)


def show(line):
    """Print one row."""
    print(f"\n{line['name']}: seconds until the first loss (least to most), and of later steps")
    for way, seconds in line["first_seconds"].items():
        low, high = line["spread"][way]
        limit = line["limits"].get(way)
        missed = " missed" if limit is not None and seconds > limit else ""
        text = "" if limit is None else f"   at most {limit:.3f}{missed}"
        later = line["later_seconds"][way]
        print(f"  {way:<16}{seconds:>8.3f} ({low:.3f} to {high:.3f}){later:>10.5f}{text}")
    missed = " missed" if line["of_jax"] > 1 else ""
    print(f"  {line['of_jax']:.2f} of jax.jit's first (at most 1){missed}", flush=True)


def main():
    parser = harness.parser(__doc__)
    parser.set_defaults(rounds=5)
    parser.add_argument("--only", default="", help="networks with this in their name")
    parser.add_argument(
        "--no-compile", dest="compile", action="store_false", help="leave torch.compile out"
    )
    parser.add_argument("--work", help="for the processes that this script starts")
    parser.add_argument("--network", default="", help="for the processes that this script starts")
    options = parser.parse_args()
    if options.work:
        work(options.work, options.network)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in CASES:
            if options.only in name:
                rows.append(row(name, options, Path(folder)))
                show(rows[-1])
    if not rows:
        raise SystemExit(f"no network has {options.only!r} in its name")
    if options.json:
        harness.save("first_result", rows, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
