"""Layers: values against PyTorch, building, freezing, errors."""

import math

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import torch

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def channels_first(x):
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))


def channels_last(x):
    return x.detach().numpy().transpose(0, 2, 3, 1)


def test_dense_is_a_product_and_a_bias():
    layer = ef.nn.Dense(4, activation="tanh", bias_initializer="ones")
    x = random(3, 5)
    y = layer(x)
    kernel, bias = layer.get_weights()
    np.testing.assert_allclose(y, np.tanh(x @ kernel + bias), rtol=1e-5, atol=1e-6)
    assert layer(random(2, 7, 5)).shape == (2, 7, 4)
    assert ef.nn.Dense(4, use_bias=False)(x).shape == (3, 4)


@pytest.mark.parametrize(
    ("strides", "padding", "dilation", "groups"),
    [(1, "valid", 1, 1), ((2, 1), "valid", 1, 2), (1, "valid", 2, 1), (1, "same", 1, 1)],
)
def test_conv2d_is_that_of_pytorch(strides, padding, dilation, groups):
    layer = ef.nn.Conv2D(
        6,
        3,
        strides=strides,
        padding=padding,
        dilation_rate=dilation,
        groups=groups,
        bias_initializer="random_normal",
    )
    x = random(2, 9, 8, 4)
    y = layer(x).numpy()
    kernel, bias = layer.get_weights()
    expected = torch.nn.functional.conv2d(
        channels_first(x),
        torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()),
        torch.from_numpy(bias),
        stride=strides,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    np.testing.assert_allclose(y, channels_last(expected), rtol=1e-4, atol=1e-5)


def test_pooling_is_that_of_pytorch():
    x = random(2, 8, 6, 3)
    for layer, function in (
        (ef.nn.MaxPooling2D(2), torch.nn.functional.max_pool2d),
        (ef.nn.AveragePooling2D(2), torch.nn.functional.avg_pool2d),
    ):
        wanted = channels_last(function(channels_first(x), 2))
        np.testing.assert_allclose(layer(x), wanted, 1e-5, 1e-6)
    y = ef.nn.MaxPooling2D((3, 2), strides=1)(x)
    expected = torch.nn.functional.max_pool2d(channels_first(x), (3, 2), stride=1)
    np.testing.assert_allclose(y, channels_last(expected))
    np.testing.assert_allclose(ef.nn.GlobalAveragePooling2D()(x), x.mean((1, 2)), 1e-4, 1e-6)
    np.testing.assert_allclose(ef.nn.GlobalMaxPooling2D()(x), x.max((1, 2)))


def test_batch_normalization_is_that_of_pytorch():
    layer = ef.nn.BatchNormalization(momentum=0.9, epsilon=1e-3)
    peer = torch.nn.BatchNorm2d(3, eps=1e-3, momentum=0.1)
    for _ in range(3):
        x = random(4, 5, 5, 3) * 2 + 1
        y = layer(x, training=True)
        expected = peer(channels_first(x))
        np.testing.assert_allclose(y, channels_last(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, peer.running_mean.numpy(), rtol=1e-5)
    # PyTorch follows the unbiased variance, Keras (and the paper's formula) the biased one.
    biased = (peer.running_var.numpy() - 0.9**3) * 99 / 100 + 0.9**3
    np.testing.assert_allclose(layer.moving_variance, biased, rtol=1e-4)
    y = layer(x)
    mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(variance + 1e-3), rtol=1e-4, atol=1e-5)
    before = layer.moving_mean.numpy()
    layer.trainable = False
    layer(x, training=True)
    assert (layer.moving_mean.numpy() == before).all()


def test_layer_normalization_is_that_of_pytorch():
    x = random(4, 5, 6)
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x), (6,), eps=1e-3)
    np.testing.assert_allclose(ef.nn.LayerNormalization()(x), expected.numpy(), 1e-4, 1e-5)
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x), (5, 6), eps=1e-3)
    layer = ef.nn.LayerNormalization(axis=(1, 2))
    np.testing.assert_allclose(layer(x), expected.numpy(), 1e-4, 1e-5)
    assert [w.shape for w in layer.weights] == [(5, 6), (5, 6)]


def test_flatten_reshape_and_activation():
    x = random(2, 3, 4)
    assert ef.nn.Flatten()(x).shape == (2, 12)
    assert ef.nn.Flatten()(random(2)).shape == (2, 1)
    assert ef.nn.Reshape((4, -1))(x).shape == (2, 4, 3)
    np.testing.assert_allclose(ef.nn.Activation("relu")(x), np.maximum(x, 0))
    np.testing.assert_allclose(ef.nn.Activation(ef.abs)(x), np.abs(x))


# The tree -----------------------------------------------------------------------------------


class Block(ef.nn.Layer):
    def __init__(self, width, **options):
        super().__init__(**options)
        self.parts = [ef.nn.Dense(width), {"a": ef.nn.Dense(width)}]
        self.norm = ef.nn.BatchNormalization()
        self.scale = ef.Variable(1.0, name="scale")

    def call(self, inputs):
        first, second = self.parts
        return self.norm(second["a"](first(inputs))) * self.scale


def test_weights_are_found_in_attributes_lists_and_dicts():
    block = Block(3, name="block")
    assert [w.name for w in block.weights] == ["scale"]
    block(random(2, 4))
    assert len(block.weights) == 9
    assert len(block.trainable_weights) == 7
    assert len({id(w) for w in block.weights}) == 9
    walked = [type(layer).__name__ for layer in block.walk()]
    assert walked == ["Block", "Dense", "Dense", "BatchNormalization"]


def test_freezing_and_freeing():
    block = Block(3)
    block(random(2, 4))
    block.parts[0].trainable = False
    assert len(block.trainable_weights) == 5
    block.trainable = False
    assert block.trainable_weights == []
    with ef.GradientTape() as tape:
        block(random(2, 4), training=True)
    assert tape.watched_variables() == ()
    block.trainable = True
    assert len(block.trainable_weights) == 7
    assert not block.norm.moving_mean.trainable


def test_a_layer_frozen_before_it_is_built_stays_frozen():
    layer = ef.nn.Dense(2, trainable=False)
    layer(random(1, 3))
    assert layer.trainable_weights == []
    layer.trainable = True
    assert len(layer.trainable_weights) == 2


def test_training_reaches_layers_below():
    class Outer(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.dropout = ef.nn.Dropout(0.5)

        def call(self, inputs):
            return self.dropout(inputs)

    x = ef.ones((50,))
    outer = Outer()
    assert (outer(x).numpy() == 1).all()
    assert (outer(x, training=True).numpy() != 1).any()
    assert (outer(x).numpy() == 1).all()


def test_inputs_become_the_dtype_of_the_layer():
    layer = ef.nn.Dense(2)
    assert layer(np.ones((1, 3))).dtype == "float32"
    assert layer([[1.0, 2.0, 3.0]]).shape == (1, 2)
    wide = ef.nn.Dense(2, dtype="float64")
    assert wide(random(1, 3)).dtype == "float64"
    assert wide.kernel.dtype == "float64"


def test_weights_in_and_out():
    layer = ef.nn.Dense(2)
    layer(random(1, 3))
    values = [np.ones((3, 2), np.float32), np.zeros(2, np.float32)]
    layer.set_weights(values)
    values[0][:] = 5
    assert (layer.get_weights()[0] == 1).all()
    with pytest.raises(ef.errors.ShapeError, match="1 arrays for 2 weights"):
        layer.set_weights(values[:1])
    with pytest.raises(ef.errors.ShapeError, match="another shape"):
        layer.set_weights([values[1], values[0]])
    assert (layer.get_weights()[0] == 1).all()


def built(layer, *shape):
    layer(random(*shape))
    return layer


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: ef.nn.Dense(0), ef.errors.ArgumentError, "units"),
    (lambda: ef.nn.Dense(3, "rellu"), ef.errors.ArgumentError, "'relu'"),
    (lambda: ef.nn.Dense(3, kernel_initializer="he"), ef.errors.ArgumentError, "he_normal"),
    (lambda: ef.nn.Dense(3, color="red"), TypeError, "color"),
    (lambda: ef.nn.Dense(3)(random(4)), ef.errors.ShapeError, "no feature axis"),
    (lambda: built(ef.nn.Dense(3), 2, 4)(random(2, 5)), ef.errors.ShapeError, "size 4"),
    (lambda: ef.nn.Conv2D(3, 3, padding="full"), ef.errors.ArgumentError, "'same'"),
    (lambda: ef.nn.Conv2D(3, (3, 3, 3)), ef.errors.ArgumentError, "kernel_size"),
    (lambda: ef.nn.Conv2D(3, 3, groups=2), ef.errors.ArgumentError, "groups"),
    (lambda: ef.nn.Conv2D(3, 3)(random(5, 8, 8)), ef.errors.ShapeError, "channels"),
    (lambda: built(ef.nn.Conv2D(3, 3), 1, 8, 8, 2)(random(1, 8, 8, 3)), ef.errors.ShapeError,
     "size 2 along the last axis"),
    (lambda: ef.nn.MaxPooling2D()(random(8, 8, 3)), ef.errors.ShapeError, "4 axes"),
    (lambda: ef.nn.BatchNormalization()(random(8)), ef.errors.ShapeError, "channel axis"),
    (lambda: ef.nn.Dropout(1.5), ef.errors.ArgumentError, "rate"),
    (lambda: ef.nn.Layer()(random(2)), ef.errors.ArgumentError, "not define call"),
    (lambda: ef.nn.Sequential([ef.nn.Dense]), ef.errors.ArgumentError, "ef.nn.Dense"),
    (lambda: ef.nn.Sequential([ef.nn.Input((3,))])(random(2, 4)), ef.errors.ShapeError, "batch, 3"),
])  # fmt: skip
def test_errors_name_the_layer_and_the_expected_argument(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_errors_from_inside_name_the_layer():
    model = ef.nn.Sequential([ef.nn.Dense(2, name="wide"), lambda x: x @ ef.ones((3, 3))])
    with pytest.raises(ef.errors.ShapeError) as caught:
        model(random(1, 4))
    assert any("Sequential" in note for note in caught.value.__notes__)


def test_initializers_have_keras_variances():
    shape = (3, 3, 50, 100)
    fan_in, fan_out = 450, 900
    for name, variance in (
        ("glorot_uniform", 2 / (fan_in + fan_out)),
        ("glorot_normal", 2 / (fan_in + fan_out)),
        ("he_normal", 2 / fan_in),
        ("he_uniform", 2 / fan_in),
        ("lecun_normal", 1 / fan_in),
        ("lecun_uniform", 1 / fan_in),
        ("random_normal", 0.0025),
        ("random_uniform", 0.01 / 12),
    ):
        x = ef.nn.initializers.get(name)(shape).numpy()
        assert x.shape == shape
        assert abs(x.mean()) < 4 * np.sqrt(variance / x.size)
        assert x.var() == pytest.approx(variance, rel=0.03), name


def test_activation_names_match_keras():
    """Formulas of Keras 3.10's documentation, at its defaults."""
    x = np.linspace(-4, 4, 41)
    sigmoid = 1 / (1 + np.exp(-x))
    hard = np.clip(x + 3, 0, 6) / 6
    softplus = np.log1p(np.exp(x))
    selu = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))
    expected = {
        "relu": np.maximum(x, 0),
        "relu6": np.clip(x, 0, 6),
        "leaky_relu": np.where(x > 0, x, 0.2 * x),
        "elu": np.where(x > 0, x, np.expm1(x)),
        "selu": selu,
        "exponential": np.exp(x),
        "gelu": x / 2 * np.array([math.erfc(-v / math.sqrt(2)) for v in x]),
        "linear": x,
        "hard_sigmoid": hard,
        "hard_silu": x * hard,
        "hard_swish": x * hard,
        "mish": x * np.tanh(softplus),
        "sigmoid": sigmoid,
        "silu": x * sigmoid,
        "swish": x * sigmoid,
        "log_sigmoid": np.log(sigmoid),
        "softplus": softplus,
        "softsign": x / (1 + np.abs(x)),
        "tanh": np.tanh(x),
        "softmax": np.exp(x) / np.exp(x).sum(),
        "log_softmax": x - np.log(np.exp(x).sum()),
    }
    for name, wanted in expected.items():
        found = ef.nn.activations.get(name)(ef.tensor(x))
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("activation", ["gelu", ef.gelu, ef.relu, ef.nn.activations.gelu, "swish"])
def test_activations_come_back_from_configurations(activation):
    x = np.linspace(-4, 4, 41)
    layer = ef.nn.Dense(2, activation)
    again = ef.nn.Dense.from_config(layer.get_config())
    np.testing.assert_array_equal(again.activation(x), layer.activation(x))


def test_a_model_is_built_for_a_shape():
    model = ef.nn.Sequential([ef.nn.Dense(2), ef.nn.Dense(3)])
    with pytest.raises(ef.errors.ShapeError, match="no feature axis"):
        model.build((None,))
    model.build((None, 4))
    assert model.built and model.count_params() == 19
    model.build((None, 4))
    assert model.count_params() == 19 and model(ef.ones((5, 4))).shape == (5, 3)
    assert model.compute_output_shape((None, 4)) == (None, 3)
