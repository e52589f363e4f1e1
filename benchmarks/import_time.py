"""How long ``import eagerflow`` takes next to ``import numpy``, each in processes of its own.

python benchmarks/import_time.py [--rounds 25] [--json]
"""

import os
import statistics
import subprocess
import sys

import harness
import numpy as np

CODE = "import time; start = time.perf_counter(); import {0}; print(time.perf_counter() - start)"


def seconds(module):
    """Seconds that the import takes in a new process."""
    command = [sys.executable, "-c", CODE.format(module)]
    # An installed package has its bytecode; without it the compiler would be timed.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(result.stdout)


def main():
    options = harness.arguments(__doc__)
    times = {"eagerflow": [], "numpy": []}
    for _ in range(options.rounds + 2):  # the first two warm the file cache
        for module, taken in times.items():
            taken.append(seconds(module))
    ratios = [a / b for a, b in zip(times["eagerflow"][2:], times["numpy"][2:], strict=True)]
    quarter = statistics.quantiles(ratios, n=4)
    row = {
        "name": "import",
        "microseconds": {
            who: round(statistics.median(taken[2:]) * 1e6) for who, taken in times.items()
        },
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(quarter[0], 3), round(quarter[2], 3)],
        "peer": "numpy",
        "target": 1.5,
    }
    harness.report("import time (µs)", [row])
    if options.json:
        harness.save("import_time", [row], {"numpy": np.__version__})


if __name__ == "__main__":
    main()
