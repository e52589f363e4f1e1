"""Keras's applications on our backend and on JAX: ``python -m tests.keras.applications [names]``.

Each is built with random weights in a process with the JAX backend, which writes the weights, the
outputs for two pictures, the gradients of their weighted sum by all weights, and its time; ours
takes the weights and has to give the same outputs and gradients, in float64 but for Keras's batch
normalization, where rounding hardly turns a unit on or off. Then each makes a training step.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIZES = {
    "MobileNetV3Small": 96,
    "ResNet50": 64,
    "EfficientNetB0": 64,
    "ConvNeXtTiny": 64,
    "InceptionV3": 96,
    "NASNetMobile": 64,
}
CLASSES = 10
NEAR = 1e-5  # of the largest element: Keras normalizes batches in float32, also of float64


def built(name, size):
    import keras

    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(0)
    options = {"input_shape": (size, size, 3), "weights": None}
    options |= {"classes": CLASSES, "classifier_activation": None}
    return getattr(keras.applications, name)(**options)


def pictures(size):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 255, (2, size, size, 3))
    return x, rng.standard_normal((2, CLASSES))


def jax_gradients(model, x, weights):
    import jax

    def total(trainable):
        state = [v.value for v in model.non_trainable_variables]
        return (model.stateless_call(trainable, state, x, training=False)[0] * weights).sum()

    return jax.jit(jax.grad(total))([v.value for v in model.trainable_variables])


def our_gradients(model, x, weights):
    import eagerflow as ef

    with ef.GradientTape() as tape:
        total = ef.sum(model(x, training=False) * weights)
    return tape.gradient(total, [v.value for v in model.trainable_variables])


def write(name, path):
    """Compute the reference, in the process of the JAX backend."""
    model, (x, weights) = built(name, SIZES[name]), pictures(SIZES[name])
    start = time.perf_counter()
    outputs = np.asarray(model(x, training=False))
    gradients = jax_gradients(model, x, weights)
    seconds = time.perf_counter() - start
    found = {f"weight{i}": w for i, w in enumerate(model.get_weights())}
    found |= {f"gradient{i}": np.asarray(g) for i, g in enumerate(gradients)}
    np.savez(path, outputs=outputs, seconds=seconds, **found)


def far(actual, expected):
    """The largest difference, in parts of the largest element."""
    scale = np.abs(expected).max() or 1.0
    return float(np.abs(actual - expected).max() / scale)


def compare(name, path):
    """Compare our results with those written by the JAX backend."""
    import keras

    model, (x, weights) = built(name, SIZES[name]), pictures(SIZES[name])
    with np.load(path) as expected:
        model.set_weights([expected[f"weight{i}"] for i in range(len(model.weights))])
        start = time.perf_counter()
        outputs = np.asarray(model(x, training=False))
        gradients = our_gradients(model, x, weights)
        seconds = time.perf_counter() - start
        off = far(outputs, expected["outputs"])
        scale = max(np.abs(expected[f"gradient{i}"]).max() for i in range(len(gradients)))
        wrong = max(
            float(np.abs(np.asarray(g) - expected[f"gradient{i}"]).max() / scale)
            for i, g in enumerate(gradients)
        )
        theirs = float(expected["seconds"])
    before = model.get_weights()
    model.compile(
        keras.optimizers.SGD(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    loss = model.train_on_batch(x, np.arange(2))
    moved = sum(not np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    print(
        f"{name}: {len(before)} weights; outputs differ by {off:.1e}, gradients by {wrong:.1e}; "
        f"{seconds:.1f} s (JAX {theirs:.1f}); a step: loss {loss:.4f}, {moved} weights moved"
    )
    if not (off < NEAR and wrong < NEAR and np.isfinite(loss) and moved > len(before) // 3):
        raise SystemExit(f"{name} differs")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[], choices=[*SIZES, []])
    parser.add_argument("--write", type=Path, help="a file for the results of the JAX backend")
    parser.add_argument("--compare", type=Path, help="such a file")
    options = parser.parse_args()
    if options.write:
        write(options.names[0], options.write)
        return
    if options.compare:
        import eagerflow.keras  # noqa: F401

        compare(options.names[0], options.compare)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or SIZES:
            path = Path(folder, f"{name}.npz")
            command = [sys.executable, "-m", "tests.keras.applications", name]
            peer = dict(os.environ, KERAS_BACKEND="jax", JAX_ENABLE_X64="1")
            subprocess.run([*command, "--write", path], env=peer, check=True)
            subprocess.run([*command, "--compare", path], check=True)


if __name__ == "__main__":
    main()
