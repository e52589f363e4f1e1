"""Recurrent layers of imported models against ONNX Runtime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx.single_nodes import check, normal, ours

fuzzed = settings(max_examples=25, deadline=None)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# With the alphas and betas of one direction, where ONNX Runtime has other defaults.
ACTIVATIONS = {
    "RNN": [
        (["Relu"], [], []),
        (["Softsign"], [], []),
        (["HardSigmoid"], [], []),
        (["LeakyRelu"], [0.2], []),
        (["Affine"], [0.4], [0.1]),
    ],
    "GRU": [
        (["HardSigmoid", "Softplus"], [], []),
        (["Tanh", "ScaledTanh"], [1.5], [0.7]),
        (["Sigmoid", "Elu"], [0.5], []),
    ],
    "LSTM": [
        (["HardSigmoid", "Tanh", "Relu"], [0.3], [0.4]),
        (["Sigmoid", "Softsign", "ThresholdedRelu"], [0.1], []),
    ],
}
STEPS, BATCH, FEATURES, UNITS = 5, 3, 2, 4


@st.composite
def nodes(draw, operator):
    """Inputs and attributes of a recurrent layer."""
    direction = draw(st.sampled_from(("forward", "reverse", "bidirectional")))
    count, gates = 1 + (direction == "bidirectional"), GATES[operator]
    attributes = {"hidden_size": UNITS, "direction": direction}
    state = (count, BATCH, UNITS)
    optional = st.booleans()
    inputs = [
        normal(STEPS, BATCH, FEATURES),
        normal(count, gates * UNITS, FEATURES),
        normal(count, gates * UNITS, UNITS),
        normal(count, 2 * gates * UNITS) if draw(optional) else None,
        np.array([2, 5, 3], "int32") if draw(optional) else None,
        normal(*state, seed=1) if draw(optional) else None,
    ]
    if operator == "LSTM":
        inputs.append(normal(*state, seed=2) if draw(optional) else None)
        inputs.append(normal(count, 3 * UNITS) if draw(optional) else None)
        attributes["input_forget"] = draw(st.sampled_from((0, 0, 1)))
    if operator == "GRU":
        attributes["linear_before_reset"] = draw(st.sampled_from((0, 1)))
    if draw(st.booleans()):
        names, alphas, betas = draw(st.sampled_from(ACTIVATIONS[operator]))
        attributes["activations"] = names * count
        if alphas:
            attributes["activation_alpha"] = alphas * count
        if betas:
            attributes["activation_beta"] = betas * count
    if draw(st.booleans()):
        attributes["clip"] = 0.5
    return inputs, attributes


@pytest.mark.sampled(3)
@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@fuzzed
@given(st.data())
def test_recurrent_layers(operator, data):
    inputs, attributes = data.draw(nodes(operator))
    outputs = 3 if operator == "LSTM" else 2
    check(operator, inputs, attributes, outputs=outputs, constants=(1, 2), free={0: (1,)})


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_the_batch_first(operator):
    gates = GATES[operator]
    x, w, r = normal(STEPS, BATCH, 2), normal(2, gates * UNITS, 2), normal(2, gates * UNITS, UNITS)
    h = normal(2, BATCH, UNITS, seed=1)
    attributes = {"hidden_size": UNITS, "direction": "bidirectional"}
    plain = ours(operator, [x, w, r, None, None, h], attributes, outputs=2)
    turned = [x.swapaxes(0, 1), w, r, None, None, h.swapaxes(0, 1)]
    y, last = ours(operator, turned, {**attributes, "layout": 1}, outputs=2)
    np.testing.assert_allclose(y, plain[0].transpose(2, 0, 1, 3), rtol=1e-6)
    np.testing.assert_allclose(last, plain[1].swapaxes(0, 1), rtol=1e-6)


def test_numbers_of_activations_are_taken_in_order():
    x, w, r = normal(4, 2, 3), normal(1, 6, 3), normal(1, 6, 2)
    attributes = {
        "hidden_size": 2,
        "activations": ["HardSigmoid", "ScaledTanh"],
        "activation_alpha": [0.3, 1.5],
        "activation_beta": [0.4, 0.7],
    }
    check("GRU", [x, w, r], attributes, outputs=2)
