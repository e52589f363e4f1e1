"""Trains on handwritten digits: ``python train.py [FOLDER]``. Needs onnxruntime and NumPy alone."""

import sys

import numpy as np
import onnxruntime as ort

BATCH, STEPS = 64, 100

folder = sys.argv[1] if len(sys.argv) > 1 else "digits"
images = np.fromfile(f"{folder}/train_images.f32", np.float32).reshape(-1, 8, 8, 1)
labels = np.fromfile(f"{folder}/train_labels.i64", np.int64)

options = ort.SessionOptions()
options.log_severity_level = 3  # else it warns that weights are inputs, as they have to be
session = ort.InferenceSession(f"{folder}/step.onnx", options)
outputs = [output.name for output in session.get_outputs()]

state = {}  # at first the values in the file; what a step gives is what the next one takes
for step in range(STEPS):
    start = step % (len(labels) // BATCH) * BATCH
    batch = {"x": images[start : start + BATCH], "y": labels[start : start + BATCH]}
    loss, *after = session.run(outputs, batch | state)
    state = {name.removesuffix("/next"): a for name, a in zip(outputs[1:], after, strict=True)}
    print(f"step {step + 1} loss {loss:.6f}")
