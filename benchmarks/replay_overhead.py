"""What replay costs for each node, capture for each op, and a call for each Variable.

    python benchmarks/replay_overhead.py [--rounds 15] [--nodes 10000] [--json]

A chain of tiny ops on 4x4 float32: tanh, multiply and add in turn. Replay is set beside the same
NumPy calls with ``out=``, written down one after the other; what it takes more is overhead.
Capture is timed as ``ef.capture.trace`` does it, and from a function's first call to its first
result. Calls read, and in a second row assign, 1, 10 and 50 Variables, set beside the same
replay without the call around it, and without Variables.
"""

import gc
import statistics
import time

import harness
import jax
import numpy as np
import torch

import eagerflow as ef

SIZE = 4
REPLAY_TARGET, CAPTURE_TARGET = 1.0, 15.0  # microseconds, for a node and for an op
VARIABLES = (1, 10, 50)


def chain(tanh, x, y, count):
    """tanh, multiply, add, in turn; values stay within bounds and do not settle."""
    for _ in range(count // 3):
        x = tanh(x) * y + y
    return x


def straight_line(count):
    """The same in NumPy, one line for each op, into three arrays in turn."""
    steps = (
        "    tanh(a, a)",
        "    multiply(a, y, a)",
        "    add(a, y, a)",
    )
    lines = ["def run(x, y, a):", "    tanh(x, a)", *steps[1:]]
    for _ in range(count // 3 - 1):
        lines += steps
    names = {"tanh": np.tanh, "multiply": np.multiply, "add": np.add}
    exec("\n".join([*lines, "    return a"]), names)
    return names["run"]


def once(function):
    """Microseconds of one call, with garbage out of the way."""
    gc.collect()
    start = time.perf_counter()
    result = function()
    return (time.perf_counter() - start) * 1e6, result


def replay_rows(options, x, y):
    """Replay of the chain, exact and fast, for each node."""
    count = options.nodes // 3 * 3
    raw = straight_line(count)
    array, other, memory = x.numpy(), y.numpy(), np.empty((SIZE, SIZE), np.float32)
    graph = ef.capture.trace(lambda x, y: chain(ef.tanh, x, y, count), x, y)
    calls = {"NumPy": lambda: raw(array, other, memory)}
    for numerics in ("exact", "fast"):
        plan = graph.plan(numerics)
        calls[numerics] = lambda plan=plan: plan.run((array, other))[0]
    captured = ef.function(lambda x, y: chain(ef.tanh, x, y, count))
    calls["a call"] = lambda: captured(x, y).numpy()
    harness.agree("chain", {who: [np.array(call())] for who, call in calls.items()}, 1e-5)
    times = harness.measure(calls, options.rounds, 0.02)
    rows = []
    for who in ("exact", "fast", "a call"):
        ratio, spread = harness.ratio(times[who], times["NumPy"])
        own, peer = (statistics.median(times[k]) / count * 1e6 for k in (who, "NumPy"))
        over = statistics.median(
            (a - b) / count * 1e6 for a, b in zip(times[who], times["NumPy"], strict=True)
        )
        rows.append(
            {
                "name": f"replay of {count} nodes, {who}, per node",
                "microseconds": {"eagerflow": round(own, 4), "NumPy": round(peer, 4)},
                "over_numpy": round(over, 4),
                "ratio": ratio,
                "spread": spread,
                "peer": "NumPy",
                "target": REPLAY_TARGET,
                "value": round(own, 4),
            }
        )
    return rows


def capture_rows(options, x, y):
    """Capture of the chain, for each op, beside JAX's and torch.fx's tracing."""
    count = options.nodes // 3 * 3

    def ours(x, y):
        return chain(ef.tanh, x, y, count)

    def first_call():
        return ef.function(ours)(x, y)

    array, other = jax.numpy.asarray(x.numpy()), jax.numpy.asarray(y.numpy())
    calls = {
        "ef.capture.trace": lambda: ef.capture.trace(ours, x, y),
        "jax.make_jaxpr": lambda: jax.make_jaxpr(lambda a, b: chain(jax.numpy.tanh, a, b, count))(
            array, other
        ),
        "torch.fx": lambda: torch.fx.symbolic_trace(lambda a, b: chain(torch.tanh, a, b, count)),
        "first call": first_call,
    }
    graph = calls["ef.capture.trace"]()
    if len(graph.nodes) != count:
        raise AssertionError(f"{len(graph.nodes)} nodes for {count} ops")
    times = {who: [] for who in calls}
    for _ in range(max(3, options.rounds // 5)):
        for who, call in calls.items():
            times[who].append(once(call)[0] / count)
    median = {who: round(statistics.median(t), 3) for who, t in times.items()}
    return [
        {
            "name": f"{who}, per op",
            "value": median[who],
            "target": CAPTURE_TARGET if who == "ef.capture.trace" else None,
        }
        for who in calls
    ]


def function_of(held, assigned):
    """A captured function that reads all these Variables, and perhaps assigns them."""

    @ef.function
    def function(x):
        total = x
        for v in held:
            total = total + v
            if assigned:
                v.assign(v * 0.5 + x)
        return total

    return function


def call_row(options, x, count, assigned):
    """A call of a function of so many Variables, beside its plan alone."""
    rng = np.random.default_rng(count)
    held = [ef.Variable(rng.standard_normal((SIZE, SIZE)).astype("f4")) for _ in range(count)]
    function = function_of(held, assigned)
    graph = function.graph(x)
    plan = graph.plan()
    arrays = [x.numpy(), *(np.array(v.numpy()) for v in held)]
    expected = sum(arrays[1:], arrays[0])
    np.testing.assert_allclose(function(x), expected, rtol=1e-5, atol=1e-5)
    calls = {"call": lambda: function(x), "plan": lambda: plan.run(arrays)}
    times = harness.measure(calls, options.rounds, 0.01)
    own, inner = (statistics.median(times[who]) * 1e6 for who in ("call", "plan"))
    over = statistics.median(
        (a - b) * 1e6 for a, b in zip(times["call"], times["plan"], strict=True)
    )
    return {
        "name": f"call, {count} Variables {'read and assigned' if assigned else 'read'}",
        "value": round(own, 3),
        "target": None,
        "nodes": len(graph.nodes),
        "facts": len(next(iter(function._entries.items.values())).ledger),
        "in_place": sum(len(update.pairs) for update in plan.updates),
        "plan": round(inner, 3),
        "over_plan": round(over, 3),
        "over_plan_per_variable": round(over / count, 3),
    }


def call_rows(options, x):
    """Calls of functions of few and of many Variables."""
    return [
        call_row(options, x, count, assigned) for assigned in (False, True) for count in VARIABLES
    ]


def show(rows):
    """Print all rows, microseconds."""
    print(f"{'microseconds':<52}{'eagerflow':>10}   target")
    for row in rows:
        target = row["target"]
        missed = " missed" if target is not None and row["value"] > target else ""
        more = ", ".join(
            f"{key.replace('_', ' ')} {row[key]:g}"
            for key in (
                "over_numpy",
                "ratio",
                "facts",
                "plan",
                "over_plan",
                "over_plan_per_variable",
            )
            if key in row
        )
        limit = "" if target is None else f"{target:g}"
        print(f"{row['name']:<52}{row['value']:>10.3f}   {limit:<3}{missed:<8} {more}")


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=10_000, help="length of the chain")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x, y = (ef.tensor(rng.uniform(0.5, 1.5, (SIZE, SIZE)).astype("f4")) for _ in range(2))
    rows = replay_rows(options, x, y) + capture_rows(options, x, y) + call_rows(options, x)
    show(rows)
    if options.json:
        versions = {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
        harness.save("replay_overhead", rows, versions)


if __name__ == "__main__":
    main()
