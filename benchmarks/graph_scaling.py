"""Whether what is done to graphs takes time in proportion to their size.

    python benchmarks/graph_scaling.py [--rounds 3] [--nodes 1000 10000 100000] [--json]

Graphs of tanh, multiply and add that also look back at older values, on 4x4 float32: traced,
run through all passes, planned (as eager calls and with regions, whose machine code is found in
the cache from the second round on), saved, loaded, and placed on two devices. Seconds, and
microseconds for each node; what grows more than linearly shows in the last column, the time for
a node of the largest graph over that of the one before.
"""

import gc
import os
import statistics
import tempfile
import time
from pathlib import Path

import harness
import numpy as np

import eagerflow as ef

SIZE = 4
BACK = 50  # how far values look back
TARGET = 1.5  # times the time for a node, from the second largest graph to the largest
DEVICES = ["cpu:0", "cpu:1"]


def body(x, y, count):
    """As many ops; every third adds a value of long ago to the last one."""
    values = [x]
    for i in range(count // 3):
        old = values[max(0, i - BACK)] if i % 2 else y
        values.append(ef.tanh(values[-1]) * y + old)
    return values[-1]


def seconds(function):
    """Seconds that a call takes, and its result."""
    gc.collect()
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def stages(count, folder, x, y):
    """Seconds of each stage for a new graph of so many nodes; the results are compared."""
    found = {}
    found["trace"], graph = seconds(lambda: ef.capture.trace(lambda x, y: body(x, y, count), x, y))
    if len(graph.nodes) != count // 3 * 3:
        raise AssertionError(f"{len(graph.nodes)} nodes for {count} ops")
    eager = body(x, y, count).numpy()
    found["passes"], optimized = seconds(lambda: graph.optimized(final=True))
    found["gradient"], gradient = seconds(lambda: graph.gradient([*graph.outputs], [*graph.inputs]))
    if len(gradient.nodes) <= len(graph.nodes):
        raise AssertionError("the gradient has no nodes of its own")
    for numerics in ("exact", "fast"):
        # Of the graph that went through the passes: they have nothing more to do.
        taken, plan = seconds(lambda n=numerics: optimized.plan(n))
        found[f"plan, {numerics}"] = taken
        found[f"first run, {numerics}"], result = seconds(
            lambda p=plan: p.run((x._array, y._array))
        )
        rtol = 0 if numerics == "exact" else 1e-5
        np.testing.assert_allclose(result[0], eager, rtol=rtol, atol=rtol)
    path = folder / "graph.ef"
    found["save"], _ = seconds(lambda: graph.save(path))
    found["load"], loaded = seconds(lambda: ef.capture.load(path))
    if len(loaded.nodes) != len(graph.nodes):
        raise AssertionError("another graph was loaded")
    found["partition"], pieces = seconds(
        lambda: ef.capture.partition(graph, DEVICES, numerics="exact")
    )
    found["first run, partition"], result = seconds(lambda: pieces(x, y))
    np.testing.assert_array_equal(result.numpy(), eager)
    return found


def measured(options, x, y):
    """The median of each stage for each size."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        stages(options.nodes[0], Path(folder), x, y)  # what is imported or made once
        for count in options.nodes:
            rounds = [stages(count, Path(folder), x, y) for _ in range(options.rounds)]
            found[count] = {s: statistics.median(r[s] for r in rounds) for s in rounds[0]}
    return found


def rows_of(found):
    """The rows of the report."""
    sizes = list(found)
    rows = []
    for stage in found[sizes[0]]:
        per_node = {n: found[n][stage] / n * 1e6 for n in sizes}
        line = {
            "name": stage,
            "seconds": {str(n): round(found[n][stage], 4) for n in sizes},
            "microseconds_per_node": {str(n): round(t, 3) for n, t in per_node.items()},
            "target": TARGET,
        }
        if len(sizes) > 1:
            line["growth"] = round(per_node[sizes[-1]] / per_node[sizes[-2]], 3)
        rows.append(line)
    return rows


def show(rows):
    """Print the rows as a table."""
    sizes = list(rows[0]["seconds"])
    print(f"{'microseconds for each node':<28}" + "".join(f"{s:>12}" for s in sizes), end="")
    print(f"{'seconds':>12}   growth (at most {TARGET:g})")
    for row in rows:
        cells = "".join(f"{t:>12.2f}" for t in row["microseconds_per_node"].values())
        growth = row.get("growth")
        text = "" if growth is None else f"{growth:.2f}{' missed' * (growth > TARGET)}"
        print(f"{row['name']:<28}{cells}{row['seconds'][sizes[-1]]:>12.2f}   {text}")


def main():
    parser = harness.parser(__doc__)
    parser.set_defaults(rounds=3)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    options = parser.parse_args()
    ef.set_logical_devices("cpu", len(DEVICES))
    rng = np.random.default_rng(0)
    x, y = (ef.tensor(rng.uniform(0.5, 1.0, (SIZE, SIZE)).astype("f4")) for _ in range(2))
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("EAGERFLOW_CACHE", cache)  # so that the first round compiles
        rows = rows_of(measured(options, x, y))
    show(rows)
    if options.json:
        harness.save("graph_scaling", rows, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
