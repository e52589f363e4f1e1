"""What summaries add to a captured step of training, and what 1,000 scalars cost.

    python benchmarks/summaries.py [--rounds 25] [--json]

Each case is the same step twice: alone, and with the loss written at every tenth step and the
histograms of all gradients at every hundredth. Both begin from the same weights, and must have the
same ones after as many steps. The steps are those of the four works, and one of 0.2 ms. Apart from
that, 1,000 scalars are written, from the first call to the end of ``flush``.
"""

import statistics
import tempfile
import time

import harness
import numpy as np
from work_cases import EPSILON, RATE, WORKS, perceptron

import eagerflow as ef

CASES = {
    **{name: WORKS[name] for name in ("perceptron", "cnn", "gpt", "lstm")},
    "small perceptron": lambda: perceptron(16, (64, 64, 10)),
}
TARGET = dict.fromkeys(WORKS, 1.03)
STEPS = 100  # in each timed block, so that all kinds of steps are in it
SCALARS, MILLISECONDS = 1000, 60.0


def looped(work, writer):
    """A call is 100 steps of training, with summaries where there is a writer."""
    weights = [ef.Variable(w, name=f"weight_{i}") for i, w in enumerate(work.weights)]
    optimizer = ef.nn.optimizers.Adam(learning_rate=RATE, epsilon=EPSILON)

    @ef.function
    def step(number, *batch):
        with ef.GradientTape() as tape:
            loss = work.ours(weights, *batch)
        gradients = tape.gradient(loss, weights)
        optimizer.apply(gradients, weights)
        if writer is not None:
            writer.scalar("loss", loss, number, every=10)
            for weight, gradient in zip(weights, gradients, strict=True):
                writer.histogram(f"{weight.name}/gradient", gradient, number, every=100)
        return loss

    batch = list(map(ef.tensor, work.batch))
    number = 0

    def call():
        nonlocal number
        for _ in range(STEPS):
            step(number, *batch)
            number += 1

    return call, weights


def step_row(name, rounds, folder):
    """Check that both ways train alike, and time them."""
    with ef.summary.Writer(f"{folder}/{name}") as writer:
        ways = {who: looped(CASES[name](), w) for who, w in (("with", writer), ("without", None))}
        for call, _ in ways.values():
            call()
        weights = {who: [w.numpy() for w in found] for who, (_, found) in ways.items()}
        harness.agree(f"{name}, weights after {STEPS} steps", weights, 1e-3)
        times = {who: [] for who in ways}
        for number in range(rounds):
            for who in list(ways)[:: 1 if number % 2 else -1]:
                times[who].append(harness.time_round(ways[who][0], 1) / STEPS)
    middle, spread = harness.ratio(times["with"], times["without"])
    return {
        "name": name,
        "microseconds": {who: round(statistics.median(t) * 1e6, 3) for who, t in times.items()},
        "ratio": middle,
        "spread": spread,
        "peer": "without",
        "target": TARGET.get(name),
    }


def scalars(rounds, folder):
    """Milliseconds for 1,000 scalars, in the median of so many rounds."""
    found = []
    with ef.summary.Writer(f"{folder}/scalars") as writer:
        for _ in range(rounds):
            start = time.perf_counter()
            for step in range(SCALARS):
                writer.scalar("loss", 0.5, step)
            writer.flush()
            found.append((time.perf_counter() - start) * 1e3)
    return statistics.median(found)


def main():
    options = harness.arguments(__doc__.splitlines()[0])
    with tempfile.TemporaryDirectory() as folder:
        rows = [step_row(name, options.rounds, folder) for name in CASES]
        harness.report("captured steps with and without summaries", rows)
        milliseconds = scalars(options.rounds, folder)
    print(f"\n{SCALARS} scalars: {milliseconds:.1f} ms (target {MILLISECONDS:.0f} ms)")
    if options.json:
        rows.append({"name": f"{SCALARS} scalars", "milliseconds": milliseconds})
        harness.save("summaries", rows, {"eagerflow": ef.__version__, "numpy": np.__version__})


if __name__ == "__main__":
    main()
