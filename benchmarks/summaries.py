"""What summaries add to a captured step of training, and what 1,000 scalars cost.

    python benchmarks/summaries.py [--rounds 25] [--json]

Each case is the same step twice: alone, and with the loss and the accuracy written at every tenth
step and the histograms of all gradients at every hundredth. Both begin from the same weights, and
must have the same ones after as many steps. Apart from that, 1,000 scalars are written, from
the first call to the end of ``flush``.
"""

import statistics
import tempfile
import time

import harness
import numpy as np
from fit_overhead import CASES, compiled, data

import eagerflow as ef

SECONDS = 0.2  # of each timed block
TARGET = {"perceptron": 1.03, "convolutions": 1.03}  # small batches: steps of 0.2 ms
SCALARS, MILLISECONDS = 1000, 60.0
MANY = 100  # steps that are compared


def looped(name, writer):
    """A call is one step of training, with summaries where there is a writer."""
    model = compiled(name)
    _, shape, batch = CASES[name]
    x, y = (ef.tensor(part[:batch]) for part in data(shape, batch))

    @ef.function
    def step(x, y, number):
        with ef.GradientTape() as tape:
            guess = model(x, training=True)
            loss = model.loss(y, guess)
        weights = model.trainable_weights
        gradients = tape.gradient(loss, weights)
        model.optimizer.apply(gradients, weights)
        if writer is not None:
            right = ef.argmax(guess, axis=-1) == y
            writer.scalar("loss", loss, number, every=10)
            writer.scalar("accuracy", right.astype("float32").mean(), number, every=10)
            for weight, gradient in zip(weights, gradients, strict=True):
                writer.histogram(f"{weight.name}/gradient", gradient, number, every=100)
        return loss

    number = 0

    def call():
        nonlocal number
        step(x, y, number)
        number += 1

    return call, model


def step_row(name, rounds, folder):
    """Check that both ways train alike, and time them."""
    with ef.summary.Writer(f"{folder}/{name}") as writer:
        ways = {"with": looped(name, writer), "without": looped(name, None)}
        for call, _ in ways.values():
            for _ in range(MANY):
                call()
        weights = {who: model.get_weights() for who, (_, model) in ways.items()}
        harness.agree(f"{name}, weights after {MANY} steps", weights, 1e-4)
        calls = {who: call for who, (call, _) in ways.items()}
        title = f"{name}, batch {CASES[name][2]}"
        target = TARGET.get(name)
        return harness.compare(title, calls, "with", "without", rounds, SECONDS, target)


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
