"""Layers that normalize, beyond the tables: masks, running statistics, adapt, power iteration."""

import json

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import keras_on_torch, numbers

rng = np.random.default_rng(0)


def random(*shape):
    return rng.normal(size=shape).astype("float32")


# Batch normalization ------------------------------------------------------------------------------


def test_statistics_use_only_unmasked_values():
    x = random(4, 5, 3)
    mask = rng.random((4, 5)) < 0.6
    layer = ef.nn.BatchNormalization(momentum=0.0, epsilon=0.0)
    outputs = layer(ef.tensor(x), training=True, mask=ef.tensor(mask))
    kept = x[mask]
    np.testing.assert_allclose(layer.moving_mean.value, kept.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance.value, kept.var(0), rtol=1e-5)
    np.testing.assert_allclose(outputs, (x - kept.mean(0)) / kept.std(0), rtol=1e-4, atol=1e-5)


def test_input_mask_is_applied_and_propagated():
    x = random(2, 3, 4)
    x[1, 1:] = 0
    model = ef.nn.Sequential([ef.nn.Masking(), ef.nn.BatchNormalization(momentum=0.0)])
    outputs = model(ef.tensor(x), training=True)
    kept = x[(x != 0).any(-1)]
    np.testing.assert_allclose(model.layers[1].moving_mean.value, kept.mean(0), atol=1e-6)
    np.testing.assert_array_equal(ef.nn.masks.mask_of(outputs), (x != 0).any(-1))


def test_a_batch_of_which_nothing_counts():
    layer = ef.nn.BatchNormalization()
    outputs = layer(ef.ones((2, 3)), training=True, mask=ef.tensor([False, False]))
    assert np.isfinite(outputs).all()


def test_running_statistics_are_those_of_keras():
    keras = keras_on_torch()
    ours, theirs = (n.BatchNormalization(momentum=0.8) for n in (ef.nn, keras.layers))
    for _ in range(3):
        x = random(4, 6, 3) + 2
        mask = rng.random((4, 6)) < 0.5
        found = ours(ef.tensor(x), training=True, mask=ef.tensor(mask))
        wanted = theirs(x, training=True, mask=mask)
        np.testing.assert_allclose(found, numbers(wanted), rtol=1e-4, atol=1e-5)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["BatchNormalization", "LayerNormalization", "RMSNormalization", "UnitNormalization"]
)
def test_mixed_precision_keeps_weights_and_statistics_in_float32(name):
    x = random(64, 8) * 3 + 1
    mixed, full = (getattr(ef.nn, name)(dtype=d) for d in ("mixed_bfloat16", None))
    for training in (True, False):
        found, wanted = (layer(ef.tensor(x), training=training) for layer in (mixed, full))
        assert found.dtype == ef.bfloat16
        np.testing.assert_allclose(found.astype("float32"), wanted, rtol=0.03, atol=0.03)
    assert all(w.dtype == ef.float32 for w in mixed.weights)


# Normalization with the statistics of a data set --------------------------------------------------

DATA = random(20, 4, 3) * 3 + 1


@pytest.mark.parametrize("axis", [-1, (1, 2), [-1, 1], None, 1])
def test_adapt_to_arrays_tensors_and_batches(axis):
    kept = [] if axis is None else np.atleast_1d(axis) % 3
    others = tuple(i for i in range(3) if i not in kept)
    wanted = (DATA - DATA.mean(others, keepdims=True)) / DATA.std(others, keepdims=True)
    batches = [DATA[:7], DATA[7:8], DATA[8:]]
    pairs = ((ef.tensor(b), None) for b in batches)
    for data in (DATA, ef.tensor(DATA), batches, pairs):
        layer = ef.nn.Normalization(axis)
        layer.adapt(data)
        np.testing.assert_allclose(layer(ef.tensor(DATA)), wanted, rtol=1e-4, atol=1e-5)
        back = ef.nn.Normalization(axis, invert=True)
        back.adapt(DATA)
        np.testing.assert_allclose(back(ef.tensor(wanted)), DATA, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [-1, (1, 2), None])
def test_adapt_is_that_of_keras(axis):
    keras = keras_on_torch()
    ours, theirs = (n.Normalization(axis) for n in (ef.nn, keras.layers))
    theirs.adapt(DATA)  # its iterables ask for TensorFlow
    for data in (DATA, [DATA[:5], DATA[5:]]):
        ours.adapt(data)
        for a, b in zip(ours.weights[:2], theirs.get_weights()[:2], strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-5)
        found, wanted = ours(ef.tensor(DATA)), theirs(DATA)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_adapt_anew_forgets_and_a_model_sees_it():
    layer = ef.nn.Normalization()
    model = ef.nn.Sequential([layer])
    layer.adapt(DATA)
    predict = ef.function(model)
    predict(ef.tensor(DATA))
    layer.adapt(DATA * 2)
    np.testing.assert_allclose(predict(ef.tensor(DATA * 2)).numpy().std((0, 1)), 1, rtol=1e-4)
    assert int(layer.count.numpy()) == 80


def test_given_statistics_as_arrays_survive_the_configuration():
    layer = ef.nn.Normalization(mean=np.array([1.0, 2.0]), variance=np.array([4.0, 9.0]))
    again = ef.nn.Normalization.from_config(json.loads(json.dumps(layer.get_config())))
    np.testing.assert_allclose(again(ef.tensor([[3.0, 5.0]])), [[1, 1]])
    assert again(ef.tensor([[3, 5]])).dtype == ef.float32  # integers too


# Spectral normalization ---------------------------------------------------------------------------


def sigma(kernel):
    return np.linalg.svd(kernel.numpy().reshape(-1, kernel.shape[-1]))[1][0]


def test_power_iteration_goes_on_from_call_to_call():
    layer = ef.nn.SpectralNormalization(ef.nn.Conv2D(5, 3))
    x = ef.tensor(random(2, 6, 6, 4))
    first = layer(x)
    np.testing.assert_array_equal(layer(x), first)  # inference changes nothing
    step = ef.function(lambda x: layer(x, training=True))
    for _ in range(60):
        step(x)
    assert sigma(layer.layer.kernel) == pytest.approx(1, abs=1e-3)
    shapes = {w.name.split("/")[-1]: w.shape for w in layer.weights}
    assert shapes == {"vector_u": (1, 5), "kernel": (3, 3, 4, 5), "bias": (5,)}
    assert len(layer.trainable_weights) == 2


@pytest.mark.parametrize("iterations", [1, 3])
def test_power_iteration_is_that_of_keras(iterations):
    keras = keras_on_torch()
    x, kernel, bias, u = random(3, 4), random(4, 5), random(5), random(1, 5)
    ours = ef.nn.SpectralNormalization(ef.nn.Dense(5), iterations)
    theirs = keras.layers.SpectralNormalization(keras.layers.Dense(5), iterations)
    ours(ef.tensor(x)), theirs(x)
    assert [w.shape for w in ours.weights] == [w.shape for w in theirs.weights]
    for layer in (ours, theirs):
        layer.layer.kernel.assign(kernel)
        layer.layer.bias.assign(bias)
        layer.vector_u.assign(u)
    for _ in range(3):
        found, wanted = ours(ef.tensor(x), training=True), theirs(x, training=True)
        np.testing.assert_allclose(found, numbers(wanted), rtol=1e-4, atol=1e-5)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_kernel_of_zeros_stays():
    layer = ef.nn.SpectralNormalization(ef.nn.Dense(2, kernel_initializer="zeros"))
    np.testing.assert_array_equal(layer(ef.ones((1, 3)), training=True), 0)
    np.testing.assert_array_equal(layer.layer.kernel.value, 0)


def test_wrapped_layer_trains_and_is_restored_from_config():
    layer = ef.nn.SpectralNormalization(ef.nn.Dense(2, activation="tanh"), power_iterations=2)
    model = ef.nn.Sequential([layer])
    model.compile("sgd", "mse")
    x = random(8, 3)
    model.fit(x, x[:, :2], epochs=2, verbose=0)
    again = ef.nn.SpectralNormalization.from_config(json.loads(json.dumps(layer.get_config())))
    again(ef.tensor(x))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(ef.tensor(x)), layer(ef.tensor(x)))


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: ef.nn.GroupNormalization(0), "Argument", "0 is out of range"),
    (lambda: ef.nn.GroupNormalization(3)(ef.ones((2, 4))), "Shape", "cannot be divided"),
    (lambda: ef.nn.GroupNormalization(3)(ef.nn.Input((5, None))), "Shape", "unknown number"),
    (lambda: ef.nn.LayerNormalization(3)(ef.ones((2, 4))), "Shape", "axis 3"),
    (lambda: ef.nn.Normalization(mean=1.0), "Argument", "one statistic is given"),
    (lambda: ef.nn.Normalization(mean=[1.0, 2.0], variance=1.0)(ef.ones((2, 3))),
     *("Shape", "mean and variance do not fit")),
    (lambda: ef.nn.Normalization(mean=1.0, variance=1.0).adapt(DATA), "Argument", "were given"),
    (lambda: ef.nn.Normalization().adapt([]), "Argument", "there are no data"),
    (lambda: ef.nn.Normalization().adapt([DATA, DATA[..., :2]]), "Shape", "do not fit"),
    (lambda: ef.nn.SpectralNormalization(ef.nn.Dense(2), 0), "Argument", "out of range"),
    (lambda: ef.nn.SpectralNormalization(len), "Argument", "not a layer"),
    (lambda: ef.nn.SpectralNormalization(ef.nn.Flatten())(ef.ones((2, 3))),
     *("Argument", "neither kernel nor embeddings")),
    (lambda: ef.nn.LocalResponseNormalization(-1), "Argument", "out of range"),
])  # fmt: skip
def test_errors_state_the_expected_argument(call, error, words):
    with pytest.raises(getattr(ef.errors, f"{error}Error"), match=words):
        call()
