"""Numbers in a file that ask for more than it holds, and what nodes may not say."""

import numpy as np
import pytest

pytest.importorskip("onnx")

import eagerflow as ef
from tests.onnx.single_nodes import normal, ours

HUGE = 10**12
PIXELS = (1, 1, 5, 5)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("HannWindow", [np.array(HUGE)], {}),
        ("DFT", [normal(1, 8, 1), np.array(HUGE), np.array(1)], {}),
        ("DFT", [normal(1, 8, 1), np.array(2**19 - 1), np.array(1)], {}),
        ("MelWeightMatrix", [np.array(n) for n in (HUGE, 256, 16000, 0.0, 8e3)], {}),
        ("Resize", [normal(*PIXELS), None, None, np.array([1, 1, 5, HUGE])], {"mode": "linear"}),
        ("AffineGrid", [normal(1, 2, 3), np.array([1, 1, HUGE, 2])], {}),
        (
            "MaxPool",
            [normal(*PIXELS)],
            {"kernel_shape": [10**6] * 2, "pads": [10**6] * 4, "dilations": [2, 2]},
        ),
        ("AveragePool", [normal(*PIXELS)], {"kernel_shape": [1, 1], "pads": [0, 0, 0, HUGE]}),
        ("MaxRoiPool", [normal(*PIXELS), normal(2, 5)], {"pooled_shape": [10**6, 10**6]}),
    ],
)
def test_numbers_that_ask_for_too_much(operator, inputs, attributes):
    stored = range(1, len(inputs)) if len(inputs) > 1 else ()
    if operator in ("HannWindow", "MelWeightMatrix"):
        stored = range(len(inputs))
    with pytest.raises(ef.errors.EagerflowError):
        ours(operator, inputs, attributes, opset=21, constants=stored)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "reason"),
    [
        ("MaxPool", [normal(*PIXELS)], {"kernel_shape": [2]}, "spatial axes"),
        ("Conv", [normal(*PIXELS), normal(1, 1, 2, 2)], {"kernel_shape": [3, 3]}, "kernel_shape"),
        ("Conv", [normal(*PIXELS), normal(1, 1, 2, 2)], {"auto_pad": "BEFORE"}, "auto_pad"),
        ("Resize", [normal(*PIXELS)], {}, "scales or sizes"),
        (
            "RNN",
            [normal(*s) for s in ((2, 1, 1), (1, 1, 1), (1, 1, 1))],
            {"activations": ["Sine"]},
            "activation",
        ),
        ("LSTM", [normal(*s) for s in ((2, 1, 1),) * 3], {"direction": "up"}, "direction"),
        ("BatchNormalization", [normal(*PIXELS), *[normal(1)] * 4], {"spatial": 0}, "spatial"),
    ],
)
def test_invalid_node_attributes_are_refused(operator, inputs, attributes, reason):
    opset = 7 if operator == "BatchNormalization" else 13
    model = _unchecked(operator, inputs, attributes, opset)
    with pytest.raises(ef.errors.ArgumentError, match=reason):
        ef.capture.import_onnx(model.SerializeToString())


def _unchecked(operator, inputs, attributes, opset):
    """A model whose outputs are not inferred, for ONNX's inference refuses some of these too."""
    from onnx import TensorProto, helper

    names = [f"x{i}" for i in range(len(inputs))]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    node = helper.make_node(operator, names, ["y"], **attributes)
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "one", values, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_dropout_in_training():
    x = np.ones((100, 100), "float32")
    inputs = [x, np.float32(0.25), np.array(True)]
    y, stays = ours("Dropout", inputs, outputs=2, opset=13, constants=(1, 2))
    np.testing.assert_array_equal(y, np.where(stays, np.float32(1 / 0.75), 0))
    assert abs(stays.mean() - 0.75) < 0.03
    with pytest.raises(ef.errors.ArgumentError, match="seed"):
        ours("Dropout", inputs, {"seed": 3}, opset=13, constants=(1, 2))
    (same,) = ours("Dropout", [x, np.float32(0.25)], opset=13, constants=(1,))
    np.testing.assert_array_equal(same, x)
