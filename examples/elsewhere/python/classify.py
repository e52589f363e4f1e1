"""Reads handwritten digits: ``python classify.py [FOLDER]``. Needs onnxruntime and NumPy alone."""

import sys

import numpy as np
import onnxruntime as ort

folder = sys.argv[1] if len(sys.argv) > 1 else "digits"
x = np.fromfile(f"{folder}/images.f32", np.float32).reshape(-1, 8, 8, 1)
labels = np.fromfile(f"{folder}/labels.i64", np.int64)

session = ort.InferenceSession(f"{folder}/digits.onnx")
(logits,) = session.run(["logits"], {"x": x})

print("logits of the first:", *(f"{value:.4f}" for value in logits[0]))
print(f"{(logits.argmax(axis=1) == labels).sum()} of {len(labels)} digits are right")
