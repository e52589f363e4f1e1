"""Trains the network of ``eagerflow demo`` for a hundred steps, and writes it for others to run.

``python digits.py FOLDER`` makes in the folder

    digits.onnx  images ``x`` to ``logits``, with the weights after the hundred steps
    step.onnx    one step of training: ``x`` and ``y`` to ``loss``, with the weights before them
    step_alone.onnx, initial.onnx       the same in two files: the step, and those weights
    images.f32, labels.i64              the digits that are held out, as plain numbers
    train_images.f32, train_labels.i64  the digits to learn from
    expected.json                       the losses and logits that eagerflow found
"""

import json
import sys
from pathlib import Path

import sklearn.datasets

import eagerflow as ef
from eagerflow.cli.demo import build_network, load_digits

BATCH, STEPS = 64, 100


def main(folder: Path) -> None:
    """Train, and write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    (x, y), (x_test, y_test) = load_digits(sklearn.datasets)
    x_test.tofile(folder / "images.f32")
    y_test.tofile(folder / "labels.i64")
    x.tofile(folder / "train_images.f32")
    y.tofile(folder / "train_labels.i64")

    ef.random.seed(0)
    model = build_network()
    optimizer = ef.nn.optimizers.Adam(3e-3)
    loss_of = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)

    @ef.function(input_signature=[ef.TensorSpec(("batch", 8, 8, 1), "float32")])
    def classify(x):
        return {"logits": model(x, training=False)}

    @ef.function(
        input_signature=[
            ef.TensorSpec((BATCH, 8, 8, 1), "float32"),
            ef.TensorSpec((BATCH,), "int64"),
        ]
    )
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}

    ef.capture.export_onnx(step, folder / "step.onnx")
    # ONNX Runtime's JavaScript feeds no input that has a value in the file.
    ef.capture.export_onnx(step, folder / "step_alone.onnx", initial=folder / "initial.onnx")
    losses = []
    for i in range(STEPS):
        start = i % (len(x) // BATCH) * BATCH
        losses.append(float(step(x[start : start + BATCH], y[start : start + BATCH])["loss"]))
    ef.capture.export_onnx(classify, folder / "digits.onnx")

    logits = classify(x_test)["logits"].numpy()
    right = int((logits.argmax(axis=1) == y_test).sum())
    found = {"right": right, "logits": logits[0].tolist(), "losses": losses}
    (folder / "expected.json").write_text(json.dumps(found))
    print(f"{STEPS} steps: loss {losses[0]:.6f} to {losses[-1]:.6f}")
    print(f"{right} of {len(y_test)} digits are right")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
