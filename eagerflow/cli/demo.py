"""``eagerflow demo``: a first session, a network trained on real digits, and its graph.

The code is written as a user would write it, with public names only; the first tutorial is the same
program, with explanations.
"""

from __future__ import annotations

import ast
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import eagerflow as ef
from eagerflow import extras
from eagerflow.cli.demo_graph import show_graph

__all__ = ["add_demo", "build_network", "load_digits", "run_demo"]

BATCH_SIZE = 64
MIN_ACCURACY = 0.98  # of the held-out digits

SESSION = (
    "x = ef.tensor([[1.0, 2.0], [3.0, 4.0]])",
    "x @ x + 0.5",
    "x[x > 1.5]",
    "f = lambda x: (ef.sin(x) * x).sum()",
    "ef.grad(f)(x)",
    "x @ ef.ones((3, 2))",
)


def add_demo(commands: Any) -> None:
    """Add the command to the parser's commands."""
    demo = commands.add_parser(
        "demo", help="a first session, then a network trained on handwritten digits"
    )
    demo.add_argument(
        "--output",
        type=Path,
        default=Path("eagerflow-demo"),
        metavar="FOLDER",
        help="where the picture goes (default: %(default)s)",
    )
    demo.add_argument("--epochs", type=int, default=12, help="default: %(default)s")
    demo.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    demo.set_defaults(run=lambda o: run_demo(o.output, o.epochs, o.seed))


def run_demo(output: Path, epochs: int = 12, seed: int = 0) -> int:
    """Run the demo; returns 0 if the network is as accurate as promised, else 1."""
    datasets = extras.load("sklearn.datasets", "demo", "eagerflow demo")
    extras.load("matplotlib", "demo", "eagerflow demo")
    started = time.perf_counter()
    print("At the prompt\n")
    play_session(SESSION)

    print("\nTraining on handwritten digits\n")
    (x, y), (x_test, y_test) = load_digits(datasets, seed)
    print(f"{len(x)} digits to learn from, {len(x_test)} held out, 8x8 grey values each\n")
    print(code_of(build_network, train))
    ef.random.seed(seed)
    model = train(build_network(), x, y, epochs)
    trained = time.perf_counter() - started
    model.summary()

    probabilities = ef.softmax(model.predict(x_test)).numpy()
    predicted = probabilities.argmax(axis=1)
    accuracy = float((predicted == y_test).mean())
    picture = draw_predictions(output, x_test, y_test, probabilities)
    wrong = int((predicted != y_test).sum())
    right = f"{accuracy:.2%} of the held-out digits are right ({wrong} of {len(y_test)} wrong)"
    print(f"\n{right}")
    is_same, facts = show_graph(model, x, y, x_test, output)
    if accuracy < MIN_ACCURACY:
        print(f"\n{right}: that is less than the {MIN_ACCURACY:.0%} that this demo promises")
        return 1
    if not is_same:
        return 1
    print("\nIn short\n")
    for fact in (right, f"{trained:.1f} s of training, with all imports and compilations", *facts):
        print(f"  {fact}")
    print(f"\npictures: {picture}, {picture.with_name('graph.svg')}")
    print(f"next:     eagerflow serve {picture.with_name('digits.ef')}")
    return 0


def code_of(*functions: Callable[..., Any]) -> str:
    """The code of functions, without their documentation."""
    found = []
    for f in functions:
        tree = ast.parse(inspect.getsource(f)).body[0]
        assert isinstance(tree, ast.FunctionDef)
        lines = inspect.getsource(f).splitlines()
        end = tree.body[0].end_lineno or 0
        found.append("\n".join([lines[0], *lines[end:], ""]))
    return "\n".join(found)


def train(model: ef.nn.Sequential, x: Any, y: Any, epochs: int) -> ef.nn.Sequential:
    """Train a network by Adam, with a rate that falls to 0."""
    steps = epochs * -(-len(x) // BATCH_SIZE)
    model.compile(
        optimizer=ef.nn.optimizers.Adam(ef.nn.schedules.CosineDecay(3e-3, max(steps, 1))),
        loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x, y, batch_size=BATCH_SIZE, epochs=epochs)
    return model


def play_session(lines: tuple[str, ...]) -> None:
    """Run lines as at Python's prompt, and print their results, readable errors included."""
    names: dict[str, Any] = {"ef": ef}
    for line in lines:
        print(f">>> {line}")
        try:
            if " = " in line.split("(")[0]:
                exec(line, names)
            else:
                print(repr(eval(line, names)))
        except ef.errors.EagerflowError as error:
            print(f"{type(error).__name__}: {error}")


def load_digits(datasets: Any, seed: int = 0) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """The digits of scikit-learn, four fifths for training and a fifth held out.

    Images are float32 of shape (number, 8, 8, 1) with values from 0 to 1, labels int64.
    """
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x = (images[order].reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    y = labels[order].astype(np.int64)
    held_out = len(y) // 5
    return (x[held_out:], y[held_out:]), (x[:held_out], y[:held_out])


def build_network() -> ef.nn.Sequential:
    """Two convolutions, one pooling, one dense layer; returns a logit for each digit."""
    layers = ef.nn
    return layers.Sequential(
        [
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("relu"),
            layers.Conv2D(64, 3, padding="same", use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.Activation("relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dropout(0.4),
            layers.Dense(10),
        ]
    )


def draw_predictions(output: Path, x: Any, y: Any, probabilities: Any) -> Path:
    """Draw digits with the network's predictions, doubtful ones first; returns the file."""
    figure_module = extras.load("matplotlib.figure", "demo", "the picture of the demo")
    rows, columns = 4, 10
    order = np.argsort(probabilities.max(axis=1))
    chosen = np.concatenate([order[: 2 * columns], order[-2 * columns :]])
    figure = figure_module.Figure(figsize=(columns * 0.95, rows * 1.3), layout="constrained")
    for position, i in enumerate(chosen):
        axes = figure.add_subplot(rows, columns, position + 1)
        axes.imshow(x[i, :, :, 0], cmap="gray_r")
        axes.set_axis_off()
        guess = int(probabilities[i].argmax())
        right = guess == y[i]
        title = f"{guess}  {probabilities[i].max():.0%}" + ("" if right else f"\nit is {y[i]}")
        axes.set_title(title, fontsize=9, color="black" if right else "crimson")
    figure.suptitle("Held-out digits: the network's 20 most doubtful guesses, and 20 certain ones")
    if not output.exists():
        output.mkdir(parents=True)
        (output / ".gitignore").write_text("*\n")  # no file of a repository
    path = output / "digits.png"
    figure.savefig(path, dpi=130)
    return path.resolve()
