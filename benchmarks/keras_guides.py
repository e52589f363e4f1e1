"""Keras on eagerflow and Keras on JAX: the programs of examples/keras, first steps and later ones.

    python benchmarks/keras_guides.py [--rounds 3] [--epochs 6] [--only vae gan] [--json]

Each measurement is a process of its own, of the two backends in turn. Both begin with other
weights, as Keras's initializers draw from the backend's generator, so losses are printed, and must
have come down alike: not further apart than LOSSES. "first" is from the beginning of ``main`` to
the end of the first batch, "epoch" the median of the later epochs; JAX works ahead, so an epoch
ends when its loss is there. The target is 1.15 for epochs, and below 1 for first steps.
"""

import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import harness

PROGRAMS = Path(__file__).parents[1] / "examples" / "keras"
NAMES = "functional subclassing custom_loop transfer seq2seq text timeseries vae gan".split()
BACKENDS = "eagerflow", "jax"
LOSSES = 0.35  # of the larger one
TARGET, FIRST = 1.15, 1.0


def clock_of(start):
    """A callback that notes when batches and epochs end, counted from ``start``."""
    import keras

    class Clock(keras.callbacks.Callback):
        first = None

        def __init__(self):
            super().__init__()
            self.epochs, self.began = [], None

        def on_train_batch_end(self, batch, logs=None):
            if self.first is None:
                float(next(iter(logs.values())))  # waits for it
                self.first = time.perf_counter() - start

        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 0:
                self.epochs = []  # of the last fit alone
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            float(next(iter(logs.values())))
            self.epochs.append(time.perf_counter() - self.began)

    return Clock()


def work(backend, name, epochs):
    """In a process of its own: seconds to the first result and of a later epoch, and the loss."""
    if backend == "eagerflow":
        import eagerflow.keras  # noqa: F401
    else:
        os.environ["KERAS_BACKEND"] = backend
    sys.path.insert(0, str(PROGRAMS))
    program = importlib.import_module(name)
    clock = clock_of(time.perf_counter())
    history = program.main(epochs=epochs, callbacks=[clock], verbose=0)
    losses = {k: float(v[-1]) for k, v in history.items() if "loss" in k and "val" not in k}
    found = {"first": clock.first, "epoch": statistics.median(clock.epochs[2:])}
    print(json.dumps(found | {"losses": losses}))


def process(backend, name, epochs):
    """What one such process has measured."""
    command = [sys.executable, __file__, "--work", backend, "--program", name]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [*command, "--epochs", str(epochs)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} on {backend}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def check_losses(name, found):
    """Fail where the losses of the two backends are too far apart."""
    for loss in found["jax"][0]["losses"]:
        ours, peer = (
            statistics.median(run["losses"][loss] for run in found[backend]) for backend in BACKENDS
        )
        if not math.isfinite(ours) or abs(ours - peer) > LOSSES * max(abs(ours), abs(peer)):
            raise SystemExit(f"{name}: {loss} is {ours:.4f} on eagerflow, {peer:.4f} on JAX")


def rows(name, options):
    """Two rows of the report: first results, and epochs."""
    found = {backend: [] for backend in BACKENDS}
    process("eagerflow", name, 3)  # fills the caches
    for _ in range(options.rounds):
        for backend in BACKENDS:
            found[backend].append(process(backend, name, options.epochs))
    check_losses(name, found)
    made = []
    for what, target in (("first", FIRST), ("epoch", TARGET)):
        times = {backend: [run[what] for run in runs] for backend, runs in found.items()}
        middle, spread = harness.ratio(times["eagerflow"], times["jax"])
        medians = {who: round(statistics.median(t) * 1e6) for who, t in times.items()}
        made.append(
            {
                "name": f"{name}, {what}",
                "microseconds": medians,
                "ratio": middle,
                "spread": spread,
                "peer": "jax",
                "target": target,
                "losses": {who: runs[-1]["losses"] for who, runs in found.items()},
            }
        )
    return made


def main():
    """Run the programs that are asked for."""
    parser = harness.parser(__doc__.splitlines()[0])
    parser.set_defaults(rounds=3)
    parser.add_argument("--epochs", type=int, default=6, help="epochs of each run")
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--work", choices=BACKENDS)
    parser.add_argument("--program", choices=NAMES)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.program, options.epochs)
        return
    table = []
    for name in options.only:
        table += rows(name, options)
        harness.report("Keras on eagerflow and on JAX", table[-2:])
    harness.report("Keras on eagerflow and on JAX", table)
    if options.json:
        harness.save("keras_guides", table, ["keras", "jax"])


if __name__ == "__main__":
    main()
