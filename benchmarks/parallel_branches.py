"""Independent branches on two logical devices, against the same graph on one of them.

Each logical device has its share of the cores: with two on two cores, one each. The target is
0.6 of the one device's time. The second table compares predicted with measured step times, of
five graphs on one device and on two; the aim is 30 %.
"""

import statistics

import numpy as np
from harness import measure, parser, ratio, report, save

import eagerflow as ef

WHERE = ["cpu:0", "cpu:1"]
TARGET = 0.6


def values(*shape):
    """Ordinary numbers: zeros would be computed faster."""
    own = np.random.default_rng(sum(shape))
    return ef.tensor((own.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))


def products(x, *weights):
    """Two chains of matrix products."""
    a = b = x
    for w, v in zip(weights[::2], weights[1::2], strict=True):
        a, b = ef.tanh(a @ w), ef.tanh(b @ v)
    return (a * b).mean()


def elementary(x, y):
    """Two chains of elementary functions."""
    for _ in range(6):
        x, y = ef.sin(x) * 1.5 + ef.exp(-x * x), ef.sin(y) * 1.5 + ef.exp(-y * y)
    return x.sum() + y.sum()


def towers(x, y, *weights):
    """Two networks of their own inputs, and a loss of both, with the gradients of all weights."""

    def tower(h, own):
        for w in own:
            h = ef.tanh(h @ w)
        return h

    half = len(weights) // 2
    with ef.GradientTape() as tape:
        for w in weights:
            tape.watch(w)
        one, other = tower(x, weights[:half]), tower(y, weights[half:])
        loss = (one * one).mean() + (other * other).mean()
    return tape.gradient(loss, weights)


def convolutions(x, y, *filters):
    """Two stacks of convolutions."""
    for f in filters:
        x, y = ef.relu(ef.conv(x, f)), ef.relu(ef.conv(y, f))
    return x.mean() + y.mean()


def attention(x, y):
    """Softmax of scores of two inputs."""

    def rows(x):
        for _ in range(3):
            x = ef.softmax(x @ x.T * 0.1, axis=-1) @ x
        return x.sum()

    return rows(x) + rows(y)


CASES = {
    "products": (products, [values(512, 512) for _ in range(9)]),
    "elementary functions": (elementary, [values(600, 1000), values(600, 1000)]),
    "two towers, trained": (
        towers,
        [values(256, 512), values(256, 512), *(values(512, 512) for _ in range(6))],
    ),
    "convolutions": (
        convolutions,
        [values(8, 32, 32, 32), values(8, 32, 32, 32), *(values(3, 3, 32, 32) for _ in range(3))],
    ),
    "attention": (attention, [values(512, 256), values(512, 256)]),
}


def compared(name, f, args, rounds):
    """The row of a case, and predictions and measurements of both plans."""
    graph = ef.capture.trace(f, *args)
    plans = {
        "one device": ef.capture.partition(graph, WHERE[:1]),
        "two devices": ef.capture.partition(graph, WHERE),
    }
    results = {who: plan.run(args) for who, plan in plans.items()}
    for a, b in zip(*results.values(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4, err_msg=name)
    times = measure(
        {who: lambda plan=plan: plan.run(args) for who, plan in plans.items()}, rounds, 0.02
    )
    middle, spread = ratio(times["two devices"], times["one device"])
    row = {
        "name": name,
        "microseconds": {who: round(statistics.median(t) * 1e6, 1) for who, t in times.items()},
        "ratio": middle,
        "spread": spread,
        "best": round(min(times["two devices"]) / min(times["one device"]), 3),
        "target": TARGET,
    }
    told = {
        who: {
            "predicted": plan.bill.seconds * 1e3,
            "median": statistics.median(times[who]) * 1e3,
            "least": min(times[who]) * 1e3,
        }
        for who, plan in plans.items()
    }
    return row, told


def main():
    """Both tables."""
    arguments = parser(__doc__).parse_args()
    ef.set_logical_devices("cpu", 2)
    ef.capture.calibrate(WHERE, again=True)
    rows, told = [], {}
    for name, (f, args) in CASES.items():
        row, told[name] = compared(name, f, args, arguments.rounds)
        rows.append(row)
    report("two logical devices / one", rows)
    print("of the least times: " + ", ".join(f"{r['name']} {r['best']:.2f}" for r in rows))
    print(
        f"\n{'milliseconds':<24}{'plan':<14}{'predicted':>10}{'least':>10}{'median':>10}"
        f"{'least / predicted':>20}"
    )
    for name, plans in told.items():
        for who, t in plans.items():
            print(
                f"{name:<24}{who:<14}{t['predicted']:>10.2f}{t['least']:>10.2f}"
                f"{t['median']:>10.2f}{t['least'] / t['predicted']:>20.2f}"
            )
    if arguments.json:
        for row in rows:
            row["predictions"] = told[row["name"]]
        save("parallel_branches", rows, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
