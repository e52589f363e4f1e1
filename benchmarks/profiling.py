"""What a profile costs, and whether its times add up: steps of four networks, eager and captured.

    python benchmarks/profiling.py

A step runs with and without a profile, in turn; what opening one costs is told apart. The times of
all rows and of what is between them are compared with a clock outside of the profile, and the
profile's time with that of steps that nobody looks at.
"""

import gc
import statistics
import time

import numpy as np
from harness import calls_for, parser, ratio, report, save, time_round
from work_cases import WORKS, our_step

import eagerflow as ef

TARGET = 1.05


def measure(name, step, rounds, seconds):
    """The rows of one step: what the profile costs, and how much of the time it accounts for."""
    for _ in range(2):
        with ef.profile():
            step()
    calls = calls_for(step, seconds)
    times = {"profiled": [], "plain": []}
    shares, differences, opening = [], [], []
    gc.disable()
    try:
        for number in range(rounds):
            for who in list(times)[:: 1 if number % 2 else -1]:
                if who == "plain":
                    times[who].append(time_round(step, calls))
                    continue
                begin = time.perf_counter()
                with ef.profile() as p:
                    opened = time.perf_counter()
                    times[who].append(time_round(step, calls))
                    end = time.perf_counter()
                opening.append(opened - begin + time.perf_counter() - end)
                rows = sum(row.seconds for row in p.rows)
                differences.append(abs(rows + p.other - (end - opened)) / (end - opened))
                kernels = sum(part.seconds for part in p.own_parts if not part.facts.is_call)
                shares.append((p.accounted / p.seconds, kernels / p.seconds))
            gc.collect()
    finally:
        gc.enable()
    middle, spread = ratio(times["profiled"], times["plain"])
    accounted, kernels = (statistics.median(share) for share in zip(*shares, strict=True))
    print(
        f"{name}: {accounted:.1%} of the time in rows, of which kernels {kernels:.1%}; rows "
        f"and what is between them differ from the clock by {statistics.median(differences):.1%}"
        f"; to open and close it takes {statistics.median(opening) * 1e3:.2f} ms"
    )
    return {
        "name": name,
        "microseconds": {who: statistics.median(t) * 1e6 for who, t in times.items()},
        "ratio": middle,
        "spread": spread,
        "peer": "plain",
        "target": TARGET,
        "accounted": accounted,
        "kernels": kernels,
        "difference": statistics.median(differences),
    }


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("works", nargs="*", default=["perceptron", "cnn", "gpt", "lstm"])
    options.add_argument("--seconds", type=float, default=0.1, help="of a round")
    found = options.parse_args()
    all_rows = [
        measure(
            f"{work}, {'captured' if captured else 'eager'}",
            our_step(WORKS[work](), captured),
            found.rounds,
            found.seconds,
        )
        for work in found.works
        for captured in (False, True)
    ]
    report("steps under a profile, µs", all_rows)
    if found.json:
        save("profiling", all_rows, {"eagerflow": ef.__version__, "numpy": np.__version__})
