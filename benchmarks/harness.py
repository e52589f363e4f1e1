"""Side-by-side timing: all contestants in turn, in one process, after their results agree.

A row is a dict from contestant to a function without arguments. ``compare`` checks that all
compute the same, then runs them A B A B ..., and reports the median of each, its spread, and the
median of the ratios to the peer of the same round, which other load on the machine moves least.
"""

import argparse
import gc
import json
import platform
import statistics
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"


def parser(description):
    """The options that all benchmarks share, for a script that adds its own."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--rounds", type=int, default=25, help="how often each is timed")
    made.add_argument("--json", action="store_true", help="append a line to results/")
    return made


def arguments(description):
    """The command line of a benchmark without options of its own."""
    return parser(description).parse_args()


def calls_for(function, seconds):
    """How many calls take about this long."""
    calls = 1
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            function()
        taken = time.perf_counter() - start
        if taken > seconds / 4:
            return max(1, int(calls * seconds / taken))
        calls *= 4


def time_round(function, calls):
    """Seconds a call, over one uninterrupted run of calls."""
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def agree(name, results, rtol):
    """Fail unless all contestants computed the same numbers."""
    first, *others = results.items()
    for other, values in others:
        for a, b in zip(first[1], values, strict=True):
            np.testing.assert_allclose(
                np.asarray(a),
                np.asarray(b),
                rtol=rtol,
                atol=rtol,
                err_msg=f"{name}: {first[0]} and {other} differ",
            )


def measure(contestants, rounds, seconds, pause=0.0):
    """Seconds a call of each contestant, round by round: A B A B ...

    Each is timed over about ``seconds``. After a ``pause``, in which the threads of the one
    before fall asleep, a call that is not timed wakes those of the next.
    """
    calls = {who: calls_for(f, seconds) for who, f in contestants.items()}
    times = {who: [] for who in contestants}
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for who, f in contestants.items():
                if pause:
                    time.sleep(pause)
                    f()
                times[who].append(time_round(f, calls[who]))
            gc.collect()
    finally:
        if enabled:
            gc.enable()
    return times


def ratio(a, b):
    """The median of the ratios of each round, and their middle half."""
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return round(statistics.median(ratios), 3), [round(low, 3), round(high, 3)]


def compare(name, contestants, ours, peer, rounds=25, seconds=0.02, target=None, per=1, pause=0.0):
    """Time all contestants in turn; gives the row of the report.

    ``per`` divides the times, for functions that do something several times over; ``pause`` is
    that of ``measure``.
    """
    times = measure(contestants, rounds, seconds, pause)
    middle, spread = ratio(times[ours], times[peer])
    return {
        "name": name,
        "microseconds": {
            who: round(statistics.median(t) / per * 1e6, 3) for who, t in times.items()
        },
        "ratio": middle,
        "spread": spread,
        "peer": peer,
        "target": target,
    }


def report(title, rows):
    """Print the rows as a table."""
    print(f"\n{title}")
    names = list(dict.fromkeys(who for row in rows for who in row["microseconds"]))
    width = max(len(row["name"]) for row in rows)
    print(
        " " * width + "".join(f"{name:>12}" for name in names) + "     ratio (middle half)   target"
    )
    for row in rows:
        cells = "".join(f"{row['microseconds'].get(name, float('nan')):>12.2f}" for name in names)
        low, high = row["spread"]
        target = "" if row["target"] is None else f"{row['target']:g}"
        miss = " missed" if row["target"] is not None and row["ratio"] > row["target"] else ""
        print(
            f"{row['name']:<{width}}{cells}   {row['ratio']:>6.2f} ({low:.2f} to {high:.2f})"
            f"   {target}{miss}"
        )


def save(benchmark, rows, versions):
    """Append one JSON line with the rows and what they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    line = {
        "benchmark": benchmark,
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "python": platform.python_version(),
        "versions": versions,
        "rows": rows,
    }
    with (RESULTS / f"{benchmark}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0]}, {len(models)} cores" if models else platform.processor()
