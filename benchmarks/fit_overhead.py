"""What ``fit`` adds to a captured step, and how much of its work a Loader hides.

    python benchmarks/fit_overhead.py [--rounds 25] [--only loader] [--json]

First, an epoch of ``fit`` on arrays against a loop over the same batches with a captured step, for
each batch: both begin from the same weights, and must have the same ones after an epoch. Then, an
epoch of ``fit`` on a Loader whose ``map`` costs about as much for a batch as a step: in the loop
itself, in a thread, and in a process. The ratio is to the longer one of loading and training
alone, which is all that an epoch takes where one hides behind the other. That needs a core for
each: on two cores, say OPENBLAS_NUM_THREADS=1, or a step takes both of them.
"""

import statistics
from dataclasses import dataclass

import harness
import numpy as np

import eagerflow as ef

STEPS = 50  # of an epoch
SECONDS = 0.1  # of each timed block
TARGET = 1.05
WORKERS = {"in the loop": 0, "a thread": 1, "a process": "processes:1"}


def perceptron():
    return ef.nn.Sequential([ef.nn.Dense(256, "relu"), ef.nn.Dense(256, "relu"), ef.nn.Dense(10)])


def convolutions():
    return ef.nn.Sequential(
        [
            ef.nn.Conv2D(16, 3, padding="same", activation="relu"),
            ef.nn.MaxPooling2D(2),
            ef.nn.Conv2D(32, 3, padding="same", activation="relu"),
            ef.nn.Flatten(),
            ef.nn.Dense(10),
        ]
    )


# network, shape of an example, size of a batch
CASES = {
    "perceptron": (perceptron, (784,), 128),
    "convolutions": (convolutions, (16, 16, 3), 64),
    "small batches": (perceptron, (16,), 4),
}


def data(shape, batch):
    """The examples of an epoch."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * batch, *shape)).astype(np.float32)
    return x, rng.integers(0, 10, len(x))


def compiled(name):
    """A network, ready to be trained, with the same weights in each call."""
    make, shape, batch = CASES[name]
    ef.random.seed(0)
    model = make()
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(ef.nn.optimizers.Adam(1e-4), loss)
    model(np.zeros((batch, *shape), np.float32))
    return model


def fitted(model, x, y, batch):
    """An epoch of ``fit``."""
    return lambda: model.fit(x, y, batch, shuffle=False, verbose=0)


def looped(model, x, y, batch):
    """The same epoch in a loop of one's own; it gives the loss of the last step."""

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = model.loss(y, model(x, training=True))
        weights = model.trainable_weights
        model.optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    batches = [
        (ef.tensor(x[i : i + batch]), ef.tensor(y[i : i + batch])) for i in range(0, len(x), batch)
    ]

    def epoch():
        for x, y in batches:
            loss = step(x, y)
        return float(loss)

    return epoch


def fit_row(name, rounds):
    """Check that both ways train alike, and time them."""
    batch = CASES[name][2]
    x, y = data(*CASES[name][1:])
    models = {"fit": compiled(name), "step": compiled(name)}
    contestants = {
        "fit": fitted(models["fit"], x, y, batch),
        "step": looped(models["step"], x, y, batch),
    }
    for epoch in contestants.values():
        epoch()
    weights = {who: model.get_weights() for who, model in models.items()}
    harness.agree(f"{name}, weights after an epoch", weights, 1e-4)
    title = f"{name}, batch {batch}"
    return harness.compare(
        title, contestants, *contestants, rounds, seconds=SECONDS, target=TARGET, per=STEPS
    )


@dataclass
class Work:
    """A function of an example that takes its time, in NumPy, which releases Python's lock."""

    count: int

    def __call__(self, x, y):
        busy = np.linspace(0.0, 1.0, 2_000)
        for _ in range(self.count):
            busy = np.tanh(busy)
        return x + np.float32(0.0 * busy[0]), y


def work_like(seconds):
    """Work that takes about so long."""
    x, y = np.zeros(3, np.float32), np.int64(0)
    few, many = (1 / harness.calls_for(lambda n=n: Work(n)(x, y), 0.05) for n in (1, 33))
    each = (many - few) * 0.05 / 32
    return Work(max(1, round(seconds / each)))


def loader_rows(rounds):
    """Epochs on Loaders with each kind of workers, against loading alone and training alone."""
    name = "perceptron"
    batch = CASES[name][2]
    x, y = data(*CASES[name][1:])
    train = fitted(compiled(name), x, y, batch)
    train()
    work = work_like(harness.time_round(train, 5) / len(x))

    def loader(workers):
        return ef.nn.Loader((x, y), batch, map=work, workers=workers)

    alone = loader(0)
    contestants = {"train": train, "load": lambda: sum(1 for _ in alone)}
    for who, workers in WORKERS.items():
        model, batches = compiled(name), loader(workers)
        contestants[who] = lambda m=model, b=batches: m.fit(b, shuffle=False, verbose=0)
    times = harness.measure(contestants, rounds, SECONDS, pause=0.05)
    times["the longer"] = list(map(max, times["train"], times["load"]))
    rows = []
    for who in WORKERS:
        middle, spread = harness.ratio(times[who], times["the longer"])
        shown = {key: times[key] for key in ("train", "load", "the longer")} | {"fit": times[who]}
        rows.append(
            {
                "name": f"Loader, work {who}",
                "microseconds": {
                    key: round(statistics.median(t) / STEPS * 1e6, 3) for key, t in shown.items()
                },
                "ratio": middle,
                "spread": spread,
                "peer": "the longer",
                "target": None if who == "in the loop" else TARGET,
            }
        )
    return rows


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--only", default="", help="rows with this in their name")
    options = parser.parse_args()
    rows = [fit_row(name, options.rounds) for name in CASES if options.only in name]
    if rows:
        harness.report("fit against a captured step, for each batch (µs)", rows)
    if options.only in "loader":
        hidden = loader_rows(options.rounds)
        harness.report(
            "fit on a Loader against the longer of its parts, for each batch (µs)", hidden
        )
        rows += hidden
    if not rows:
        raise SystemExit(f"no row has {options.only!r} in its name")
    if options.json:
        harness.save("fit_overhead", rows, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
