"""Signals, quantized tensors and optimizers' updates of imported models."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.onnx.single_nodes import check, normal, ours

# Signals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 7, 8, 30, 64, 97, 120, 143, 512])
@pytest.mark.parametrize("inverse", [0, 1])
def test_transforms_of_any_length(length, inverse):
    x = normal(2, length, 3, 2, dtype="float64")
    z = x[..., 0] + 1j * x[..., 1]
    inputs = [x, None, np.array(1)]
    (y,) = ours("DFT", inputs, {"inverse": inverse}, opset=20, constants=(2,), free={0: (0,)})
    wanted = (np.fft.ifft if inverse else np.fft.fft)(z, axis=1)
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [1, 2, 9, 30, 97, 128])
@pytest.mark.parametrize("wanted", [None, 5, 130])
def test_half_spectra_and_back(length, wanted):
    x = normal(2, length, 1, dtype="float64")
    size = wanted or length
    count = None if wanted is None else np.array(wanted)
    inputs, stored = [x, count, np.array(1)], (1, 2)
    (half,) = ours("DFT", inputs, {"onesided": 1}, opset=20, constants=stored)
    found = np.fft.rfft(x[..., 0], size)
    np.testing.assert_allclose(half[..., 0] + 1j * half[..., 1], found, rtol=1e-9, atol=1e-9)
    inputs = [half, np.array(size), np.array(1)]
    (back,) = ours("DFT", inputs, {"onesided": 1, "inverse": 1}, opset=20, constants=stored)
    padded = np.zeros((2, size))
    padded[:, : min(size, length)] = x[:, :size, 0]
    np.testing.assert_allclose(back[..., 0], padded, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(windowed, onesided):
    x, length = normal(2, 50, 1), np.array(16)
    window = np.hanning(16).astype("float32") if windowed else None
    inputs = [x, np.array(7), window, length]
    check("STFT", inputs, {"onesided": onesided}, opset=17, constants=(1, 3), atol=1e-4)


@pytest.mark.parametrize("operator", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [2, 9, 10])
def test_windows(operator, periodic, size):
    check(operator, [np.array(size)], {"periodic": periodic}, opset=17, constants=(0,))


# Quantized tensors -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("each", [False, True])
def test_to_quantized_and_back(dtype, each):
    x = normal(2, 3, 4) * np.float32(300)
    scale = np.array([0.5, 2, 0.1], "float32") if each else np.float32(0.7)
    zero = np.array([3, 0, 100], dtype) if each else np.array(100, dtype)
    check("QuantizeLinear", [x, scale, zero], {"axis": 1}, opset=21)
    (q,) = ours("QuantizeLinear", [x, scale, zero], {"axis": 1}, opset=21)
    check("DequantizeLinear", [q, scale, zero], {"axis": 1}, opset=21)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_blocks(axis):
    x, block = normal(6, 4, 10), 4
    shape = list(x.shape)
    shape[axis] = -(-shape[axis] // block)
    scale = np.abs(normal(*shape)) + np.float32(0.1)
    zero = np.random.default_rng(0).integers(0, 200, shape).astype("uint8")
    attributes = {"axis": axis, "block_size": block}
    check("QuantizeLinear", [x, scale, zero], attributes, opset=21)
    (q,) = ours("QuantizeLinear", [x, scale, zero], attributes, opset=21)
    check("DequantizeLinear", [q, scale, zero], attributes, opset=21)


def test_infinite_numbers_are_limited():
    x = np.array([np.inf, -np.inf, 3e38, -3e38], "float32")
    (y,) = ours("QuantizeLinear", [x, np.float32(1), np.int8(5)], opset=13)
    np.testing.assert_array_equal(y, [127, -128, 127, -128])


def test_integer_products():
    random = np.random.default_rng(0)
    a = random.integers(0, 255, (2, 3, 300)).astype("uint8")
    # ONNX Runtime adds two products in 16 bits on some processors: these fit.
    b = random.integers(-64, 64, (300, 4)).astype("int8")
    check("MatMulInteger", [a, b, np.uint8(7), np.int8(-5)])
    check("MatMulInteger", [a, b, np.uint8(7), np.array([1, -2, 3, 0], "int8")])
    scales = [np.array(s, "float32") for s in (0.02, 0.03, 0.9)]
    zeros = [np.array(128, "uint8"), np.array(0, "int8"), np.array(100, "uint8")]
    inputs = [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]]
    check("QLinearMatMul", inputs, atol=1)


# Training ----------------------------------------------------------------------------------------

TRAINING = "ai.onnx.preview.training"


@pytest.mark.parametrize("step", [0, 3])
def test_updates_of_several_tensors(step):
    rate, count = np.float32(0.1), np.array(step)
    state = [np.abs(normal(3, 2, seed=i)) for i in range(8)]
    attributes = {"norm_coefficient": 0.01, "epsilon": 1e-3}
    found = ours("Adam", [rate, count, *state], attributes, outputs=6, domain=TRAINING)
    for i in range(2):
        x, g, mean, square = state[i::2]
        g = 0.01 * x + g
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        fixed = rate
        if step:
            fixed = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        wanted = [x - fixed * mean / (np.sqrt(square) + 1e-3), mean, square]
        for y, w in zip(found[i::2], wanted, strict=True):
            np.testing.assert_allclose(y, w, rtol=1e-3)
