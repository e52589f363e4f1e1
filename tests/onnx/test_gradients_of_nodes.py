"""Gradients of imported nodes against finite differences."""

import numpy as np
import pytest

pytest.importorskip("onnx")

import eagerflow as ef
from eagerflow.graph.run import interpret
from eagerflow.testing import check_gradients
from tests.onnx.single_nodes import model_of, normal


def _wide(*shape):
    return normal(*shape, dtype="float64")


OUTPUTS = {"strides": [2, 3], "output_padding": [1, 0]}
SOFTSIGN = {"hidden_size": 2, "activations": ["Sigmoid", "Softsign", "Tanh"]}
ROI = [_wide(1, 2, 5, 5), np.array([[0.3, 0.4, 3.6, 3.1]]), np.array([0])]
KEYS = _wide(1, 1, 4, 2)
NODES = {  # with opset 21, if there is no other
    "convolution": ("Conv", [_wide(1, 2, 5, 4), _wide(4, 1, 2, 2)], {"group": 2}),
    "transposed": ("ConvTranspose", [_wide(1, 2, 3, 3), _wide(2, 2, 3, 2)], OUTPUTS),
    "deformed": ("DeformConv", [_wide(1, 2, 4, 4), _wide(3, 2, 2, 2), _wide(1, 8, 3, 3) * 0.3], {}),
    "dilated maxima": (
        "MaxPool",
        [_wide(1, 2, 6, 5)],
        {"kernel_shape": [2] * 2, "dilations": [2, 1]},
    ),
    "norms": ("LpPool", [_wide(1, 2, 5)], {"kernel_shape": [2], "p": 3}),
    "memory": (
        "LSTM",
        [_wide(3, 2, 2), _wide(1, 8, 2), _wide(1, 8, 2), None, np.array([2, 3], "int32")],
        SOFTSIGN,
    ),
    "gates": ("GRU", [_wide(3, 2, 2), _wide(1, 6, 2), _wide(1, 6, 2)], {"hidden_size": 2}),
    "attention": (
        "Attention",
        [_wide(1, 2, 3, 2), KEYS, KEYS],
        {"softcap": 1.5, "is_causal": 1},
        23,
    ),
    "rotation": ("RotaryEmbedding", [_wide(1, 1, 3, 4), _wide(1, 3, 2), _wide(1, 3, 2)], {}, 23),
    "norm of layers": ("LayerNormalization", [_wide(2, 3, 4), _wide(4), _wide(4)], {}),
    "grid": ("GridSample", [_wide(1, 2, 3, 4), _wide(1, 2, 2, 2) * 0.4], {}, 20),
    "regions": (
        *("RoiAlign", ROI),
        {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
        16,
    ),
    "spectrum": ("DFT", [_wide(1, 6, 1)], {"onesided": 1}, 20),
    "resized": (
        "Resize",
        [_wide(1, 1, 4, 5), None, np.array([1, 1, 1.5, 0.7], "float32")],
        {"mode": "cubic"},
    ),
}
STORED = {"resized": (2,), "memory": (4,), "regions": (1, 2)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NODES)
def test_gradients_of_imported_nodes(name):
    operator, inputs, attributes, *opset = NODES[name]
    stored = STORED.get(name, ())
    model = model_of(operator, inputs, attributes, opset=(*opset, 21)[0], constants=stored)
    graph = ef.capture.import_onnx(model.SerializeToString())
    free = [ef.tensor(x) for i, x in enumerate(inputs) if x is not None and i not in stored]
    check_gradients(lambda *xs: interpret(graph, xs)[0], free, order=1)
