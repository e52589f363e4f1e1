"""Quantized graphs in ONNX Runtime: QuantizeLinear and DequantizeLinear, 8 and 4 bits.

``test_ops.py`` has the samples of their ops.
"""

import numpy as np
import pytest

import eagerflow as ef
from tests.capture.quantization.test_quantizing import dense
from tests.onnx.writing.models import exact_bytes, exported, run

rng = np.random.default_rng(0)


def names(model):
    return [node.op_type for node in model.graph.node]


def kinds(model):
    """The numbers of the element types of constants: 3 is int8, 22 int4."""
    return [tensor.data_type for tensor in model.graph.initializer]


def check(graph, x, path, quantum=0.0, **how):
    """The model, which gives the same but for a few numbers that are ``quantum`` apart."""
    model = exported(graph, path, **how)
    (found,) = run(path, {"x": x}).values()
    wanted = graph(x).numpy()
    np.testing.assert_allclose(found, wanted, atol=quantum + 2e-5 * abs(wanted).max())
    assert np.mean(abs(found - wanted) > 1e-5 * abs(wanted).max()) < 0.3
    back = ef.capture.import_onnx(path)
    (again,) = back(x).values()
    np.testing.assert_allclose(again.numpy(), wanted, atol=quantum + 2e-5 * abs(wanted).max())
    return model, back


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_dense_networks(mode, tmp_path):
    graph, weights, data = dense((24, 64, 7))
    found = ef.capture.quantize(graph, [data(50)], mode=mode).graph
    hidden = np.maximum(data(50) @ weights[0][0].numpy() + weights[0][1].numpy(), 0)
    quantum = float(hidden.max() / 255 * abs(weights[1][0].numpy()).max() * 1.5)
    model, back = check(found, data(40), tmp_path / "model.onnx", quantum)
    assert names(model).count("QuantizeLinear") == 2
    assert names(model).count("DequantizeLinear") == 4
    assert kinds(model).count(3) == 2
    small = [node.op.name for node in back.optimized(final=True).nodes]
    assert small.count("integer_matmul") == 2


@exact_bytes
def test_products_of_integers_are_exact(tmp_path):
    """What a plan makes of a graph, exported: sums of integers are equal to the last bit."""
    graph, _, data = dense((24, 64, 7))
    found = ef.capture.quantize(graph, [data(50)]).graph.optimized(final=True)
    assert names(exported(found, tmp_path / "model.onnx")).count("MatMulInteger") == 2
    x = data(40)
    (y,) = run(tmp_path / "model.onnx", {"x": x}).values()
    np.testing.assert_allclose(y, found(x).numpy(), rtol=1e-6, atol=1e-6)


def test_convolutions(tmp_path):
    w = ef.tensor(rng.standard_normal((3, 3, 4, 6)).astype("float32"))
    spec = ef.TensorSpec(("n", 8, 9, 4), "float32", name="x")
    graph = ef.capture.trace(lambda x: ef.conv(x, w, strides=2), spec)
    x = rng.standard_normal((3, 8, 9, 4)).astype("float32")
    for mode in ("static", "dynamic", "weights"):
        found = ef.capture.quantize(graph, [x], mode=mode).graph
        model, _ = check(found, x, tmp_path / "model.onnx")
        assert kinds(model).count(3) == 1 + (mode == "dynamic")  # its zero point
        whole = exported(found.optimized(final=True), tmp_path / "whole.onnx")
        assert ("ConvInteger" in names(whole)) == (mode != "weights")
        (y,) = run(tmp_path / "whole.onnx", {"x": x}).values()
        np.testing.assert_allclose(y, found(x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("opset", [21, 20])
def test_weights_in_groups(bits, opset, tmp_path):
    graph, _, data = dense((64, 32, 10))
    found = ef.capture.quantize(graph, mode="weights", bits=bits, group_size=16).graph
    x = data(20)
    model = exported(found, tmp_path / "model.onnx", opset=opset)
    (y,) = run(tmp_path / "model.onnx", {"x": x}).values()
    np.testing.assert_allclose(y, found(x).numpy(), atol=1e-4)
    if opset == 21:
        assert kinds(model).count(3 if bits == 8 else 22) == 2
        assert names(model).count("DequantizeLinear") == 2
        _, back = check(found, x, tmp_path / "model.onnx")
        assert "weight_matmul" in [node.op.name for node in back.optimized(final=True).nodes]
    whole = exported(found.optimized(final=True), tmp_path / "whole.onnx", opset=opset)
    assert "MatMul" in names(whole)
    (y,) = run(tmp_path / "whole.onnx", {"x": x}).values()
    np.testing.assert_allclose(y, found(x).numpy(), atol=1e-4)
