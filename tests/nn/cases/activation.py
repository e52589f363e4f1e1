"""Activation functions as layers; ``tests/quick/nn/test_activations.py`` has the functions."""

import numpy as np

from tests.nn.cases import case

KEEP = np.array([[True, True, False, True], [False, False, True, True]])


def relu(slope, most, threshold):
    def reference(weights, x):
        return np.where(x > threshold, np.minimum(x, most), slope * (x - threshold))

    return reference


def softmax(axes, keep=True):
    def reference(weights, x):
        e = np.exp(x) * keep
        return e / e.sum(axes, keepdims=True)

    return reference


def prelu(weights, x):
    return np.where(x > 0, x, weights[0] * x)


CASES = [
    case("Activation", "relu", _reference=relu(0, np.inf, 0)),
    case("Activation", "softmax", _reference=softmax(-1)),
    case("ReLU", _reference=relu(0, np.inf, 0)),
    case("ReLU", 0.5, _reference=relu(0, 0.5, 0)),
    case("ReLU", 6.0, _reference=relu(0, 6, 0)),
    case("ReLU", negative_slope=0.1, _reference=relu(0.1, np.inf, 0)),
    case("ReLU", 0.8, 0.1, 0.3, _reference=relu(0.1, 0.8, 0.3)),
    case("ReLU", threshold=0.3, inputs=[(2, 3, 4)], _reference=relu(0, np.inf, 0.3)),
    case("LeakyReLU", _reference=relu(0.3, np.inf, 0)),
    case("LeakyReLU", 0.01, _reference=relu(0.01, np.inf, 0)),
    case("ELU", _reference=lambda w, x: np.where(x > 0, x, np.expm1(x))),
    case("ELU", alpha=0.5),
    case("PReLU", "random_normal", inputs=[(2, 3, 4)], _reference=prelu),
    case("PReLU", "ones", "l2", "non_neg", shared_axes=[1, 2], inputs=[(2, 3, 4, 5)]),
    case("Softmax", _reference=softmax(-1)),
    case("Softmax", 1, inputs=[(2, 3, 4)], _reference=softmax(1)),
    case("Softmax", [1, 2], inputs=[(2, 3, 4)], _reference=softmax((1, 2))),
    case("Softmax", call={"mask": KEEP[:1]}, _reference=softmax(-1, KEEP[:1])),
    case("Softmax", call={"mask": KEEP[:1].astype("float32")}, _reference=softmax(-1, KEEP[:1])),
]
