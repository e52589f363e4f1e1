"""Initializers: distributions, seeds, fans of every rank, and what they give exactly."""

import json
from itertools import product

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import keras_on_torch

initializers = ef.nn.initializers
RANDOM = [
    "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal", "LecunUniform",
    "Orthogonal", "RandomNormal", "RandomUniform", "TruncatedNormal", "VarianceScaling",
]  # fmt: skip


@pytest.mark.parametrize("name", RANDOM)
def test_seeds_and_configurations(name):
    cls = getattr(initializers, name)
    one, other = cls(seed=1), cls(seed=2)
    np.testing.assert_array_equal(one((5, 4)), one((5, 4)))
    assert (one((5, 4)) != other((5, 4))).any()
    free = cls()
    assert (free((5, 4)) != free((5, 4))).any()
    config = json.loads(json.dumps({"class_name": name, "config": one.get_config()}))
    np.testing.assert_array_equal(initializers.get(config)((5, 4)), one((5, 4)))
    assert one((5, 4), "float64").dtype == ef.float64


@pytest.mark.parametrize(("shape", "fans"), [
    ((), (1, 1)), ((900,), (900, 900)), ((300, 200), (300, 200)), ((3, 100, 50), (300, 150)),
    ((3, 2, 60, 40), (360, 240)), ((2, 3, 2, 30, 20), (360, 240)),
])  # fmt: skip
def test_fans_of_every_rank(shape, fans):
    for mode, fan in zip(("fan_in", "fan_out", "fan_avg"), (*fans, sum(fans) / 2), strict=True):
        limit = np.sqrt(3 * 2.5 / fan)
        draw = initializers.VarianceScaling(2.5, mode, "uniform", seed=0)(shape).numpy()
        assert abs(draw).max() <= limit
        if draw.size > 100:
            assert abs(draw).max() > 0.98 * limit


def test_fans_along_given_axes():
    axes = {"input_axes": (0,), "output_axes": [1, 2]}
    scaling = initializers.VarianceScaling(1.0, "fan_in", "uniform", 0, **axes)
    draw = scaling((400, 3, 50)).numpy()
    assert 0.98 * np.sqrt(3 / 400) < abs(draw).max() <= np.sqrt(3 / 400)
    glorot = initializers.GlorotUniform(0, (0,), (1, 2))((400, 3, 50)).numpy()
    assert 0.98 * np.sqrt(6 / 550) < abs(glorot).max() <= np.sqrt(6 / 550)


@pytest.mark.parametrize(("made", "mean", "spread", "most"), [
    (initializers.RandomNormal(1.0, 0.5, 0), 1.0, 0.5, np.inf),
    (initializers.TruncatedNormal(1.0, 0.5, 0), 1.0, 0.5 * 0.87962566, 1.0),
    (initializers.RandomUniform(0.0, 2.0, 0), 1.0, 2 / np.sqrt(12), 1.0),
    (initializers.HeNormal(0), 0.0, np.sqrt(2 / 500), 2 * np.sqrt(2 / 500) / 0.87962566),
    (initializers.VarianceScaling(1.0, "fan_out", "untruncated_normal", 0),
     *(0.0, np.sqrt(1 / 400), np.inf)),
])  # fmt: skip
def test_distributions(made, mean, spread, most):
    draw = made((500, 400)).numpy().astype("float64") - mean
    assert abs(draw.mean()) < 4 * spread / np.sqrt(draw.size)
    assert draw.std() == pytest.approx(spread, rel=0.01)
    assert abs(draw).max() <= most * (1 + 1e-6)
    bell = (abs(draw) < spread).mean()
    flat = isinstance(made, initializers.RandomUniform)
    assert bell == pytest.approx(1 / np.sqrt(3) if flat else 0.68, abs=0.05)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 3, 4), (2, 2, 3, 20)])
def test_orthogonal(shape):
    w = initializers.Orthogonal(gain=2.0, seed=0)(shape).numpy().reshape(-1, shape[-1])
    small = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_orthogonal_prefers_no_sign():
    draws = [initializers.Orthogonal(seed=i)((2, 2)).numpy() for i in range(200)]
    assert 0.4 < np.mean([np.linalg.det(w) > 0 for w in draws]) < 0.6
    assert 0.4 < np.mean([w[0, 0] > 0 for w in draws]) < 0.6


def test_constants():
    np.testing.assert_array_equal(initializers.Constant(0.5)((2, 3)), np.full((2, 3), 0.5))
    rows = initializers.Constant(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(rows((2, 3)), [[1, 2, 3]] * 2)
    again = initializers.Constant.from_config(json.loads(json.dumps(rows.get_config())))
    np.testing.assert_array_equal(again((3,)), [1, 2, 3])
    np.testing.assert_array_equal(initializers.Identity(2.0)((2, 3)), 2 * np.eye(2, 3))


def test_stft_is_that_of_keras():
    keras = keras_on_torch()
    pytest.importorskip("scipy", reason="SciPy is not installed")
    windows = [None, "hann", "hamming", "blackman", np.linspace(0.1, 1, 8)]
    for choices in product(("real", "imag"), windows, ("density", "spectrum", None), (False, True)):
        kernel, wanted = (n.initializers.STFT(*choices)((8, 1, 5)) for n in (ef.nn, keras))
        np.testing.assert_allclose(kernel, wanted, atol=2e-6, err_msg=str(choices))


def test_stft_is_a_fourier_transform():
    frame = np.random.default_rng(0).normal(size=8)
    real, imag = (initializers.STFT(s, None)((8, 1, 5), "float64")[:, 0] for s in ("real", "imag"))
    found = frame @ real.numpy() + 1j * (frame @ imag.numpy())
    np.testing.assert_allclose(found, np.fft.rfft(frame), atol=1e-12)
    assert initializers.STFT()((8, 2, 5)).shape == (8, 2, 5)


def test_every_name_of_keras_is_known():
    keras = keras_on_torch()
    for name, cls in keras.src.initializers.ALL_OBJECTS_DICT.items():
        if name not in ("Initializer", "initializer"):
            base = cls.__name__
            assert type(initializers.get(name)).__name__ == base, name


@pytest.mark.parametrize(("size", "bound"), [("small", 0.1), ("medium", 0.05), ("large", 0.04)])
def test_language_models_begin_within_bounds_and_without_biases(size, bound):
    model = ef.nn.networks.lstm_language_model(size, vocabulary=50, units=8)
    for weight in model.weights:
        largest = np.abs(weight.numpy()).max()
        if weight.ndim == 1:
            assert largest == 0, weight.name
        else:
            assert 0.9 * bound < largest <= bound * 1.0001, weight.name


@pytest.mark.parametrize(("make", "error", "words"), [
    (lambda: initializers.VarianceScaling(0.0), ef.errors.ArgumentError, "0.0 is not positive"),
    (lambda: initializers.VarianceScaling(1.0, "fan"), ef.errors.ArgumentError, "not a choice"),
    (lambda: initializers.STFT("left"), ef.errors.ArgumentError, "not a side"),
    (lambda: initializers.STFT(window="square"), ef.errors.ArgumentError, "no 'square'"),
    (lambda: initializers.STFT()((4, 3)), ef.errors.ShapeError, "STFT"),
    (lambda: initializers.STFT("real", [1.0])((4, 1, 3)), ef.errors.ShapeError, "window of 4"),
    (lambda: initializers.Identity()((4,)), ef.errors.ShapeError, "Identity"),
    (lambda: initializers.Orthogonal()((4,)), ef.errors.ShapeError, "at least 2 axes"),
    (lambda: initializers.get("glorot"), ef.errors.ArgumentError, "there is no 'glorot'"),
])  # fmt: skip
def test_bad_arguments(make, error, words):
    with pytest.raises(error, match=words):
        make()
