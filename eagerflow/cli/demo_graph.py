"""The second half of ``eagerflow demo``: the trained network as a graph."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import eagerflow as ef

__all__ = ["show_graph"]

BATCH_SIZE = 64
TIMED_STEPS = 30

LOADER = """
import sys
import numpy as np
import eagerflow as ef

graph = ef.capture.load(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], graph(x)["logits"].numpy())
print(f"a new process, without the model's code: {graph!r}")
"""


def show_graph(model: Any, x: Any, y: Any, x_test: Any, output: Path) -> tuple[bool, list[str]]:
    """Capture, draw, save, load and verify; returns whether all results are the same, and facts."""
    output = output.resolve()
    print("\nThe same step, op by op and captured\n")
    facts = [compare_steps(model, x[:BATCH_SIZE], y[:BATCH_SIZE])]

    print("\nThe network as a graph\n")
    graph = ef.capture.trace(
        predictions(model), ef.TensorSpec(("batch", 8, 8, 1), "float32", name="x")
    )
    print(graph)
    graph.draw(output / "graph.svg")
    saved = output / "digits.ef"
    graph.save(saved)
    print()
    expected = model.predict(x_test, verbose=0)
    same = np.allclose(expected, run_elsewhere(saved, x_test), rtol=1e-4, atol=1e-4)
    if same:
        size = saved.stat().st_size / 1024
        facts.append(f"{size:.0f} KiB in one file: the same predictions without the model's code")
    else:
        print("the graph's predictions are not those of the model")

    print("\nIn every way\n")
    report = ef.capture.verify(predictions(model), [ef.tensor(x_test[:BATCH_SIZE])])
    print(report)
    return bool(report) and same, facts


def predictions(model: Any) -> Callable[[Any], dict[str, Any]]:
    """A function of images alone, for capture."""

    def predict(x: Any) -> dict[str, Any]:
        return {"logits": model(x, training=False)}

    return predict


def compare_steps(model: Any, x: Any, y: Any) -> str:
    """Time a training step of a copy of the model, eagerly and captured, in turn; a sentence."""
    network = type(model).from_config(model.get_config())
    optimizer = ef.nn.optimizers.Adam(1e-3)
    loss_of = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(images: Any, labels: Any) -> Any:
        with ef.GradientTape() as tape:
            loss = loss_of(labels, network(images, training=True))
        weights = network.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    captured = ef.function(step)
    images, labels = ef.tensor(x), ef.tensor(y)
    step(images, labels)
    started = time.perf_counter()
    captured(images, labels)
    first = time.perf_counter() - started
    times: dict[Any, list[float]] = {step: [], captured: []}
    for _ in range(TIMED_STEPS):
        for way, own in times.items():
            started = time.perf_counter()
            way(images, labels)
            own.append(time.perf_counter() - started)
    eager, replayed = (statistics.median(own) * 1e3 for own in times.values())
    count = len(captured.graphs[0].nodes)
    print(f"eager     {eager:6.2f} ms a step")
    print(f"captured  {replayed:6.2f} ms a step")
    print(f"the first captured step, traced and compiled, took {first * 1e3:.0f} ms: {count} nodes")
    return f"{eager / replayed:.1f} times as fast: the captured step, by one line, @ef.function"


def run_elsewhere(saved: Path, x: Any) -> Any:
    """The logits computed by a process that has only the file."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "images.npy", Path(folder) / "logits.npy"
        np.save(given, x)
        command = [sys.executable, "-c", LOADER, str(saved), str(given), str(made)]
        subprocess.run(command, check=True)
        return np.load(made)
