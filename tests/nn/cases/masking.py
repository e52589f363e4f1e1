"""Layers that pass their inputs on."""

import numpy as np

from tests.nn.cases import case

STEPS = np.array([[[1, 2], [0, 3], [0, 0]], [[0, 0], [4, 5], [0, 0]]], "float32")

CASES = [
    case("Identity", _reference=lambda weights, x: x),
    case("Masking", inputs=[STEPS], _reference=lambda weights, x: x),
    case("Masking", 3.0, inputs=[np.where(STEPS == 0, 3, STEPS).astype("float32")]),
    case("Lambda", "ef.square", _keras=None, _reference=lambda weights, x: x * x),
    case("Lambda", "ef.sum", arguments={"axis": 1}, _keras=None, _reference=lambda w, x: x.sum(1)),
]
