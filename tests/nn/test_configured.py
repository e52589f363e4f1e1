"""Arguments that classes state: constructors, signatures, attributes, configurations, errors."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import initializers, losses, metrics, optimizers, schedules
from eagerflow.nn.arguments import choice, count, number, optional
from eagerflow.nn.configured import argument, inherited, named_classes


class Scaled(ef.nn.Dense):
    """A layer of a user's, with arguments beside those of its base."""

    units = inherited
    factor: float = argument(2.0, number(lambda x: x > 0, "not a factor", "a positive number"))
    activation = argument("relu")

    def __post_init__(self):
        self.square = self.factor**2

    def call(self, inputs):
        return super().call(inputs) * self.square


def names(cls):
    return list(inspect.signature(cls).parameters)


def test_signatures_list_every_argument_in_keras_order():
    common = ["name", "dtype", "trainable"]
    weighted = ["activation", "use_bias", "kernel_initializer", "bias_initializer"]
    assert names(ef.nn.Dense) == ["units", *weighted, *common]
    assert names(ef.nn.Conv2D)[:6] == [
        "filters",
        "kernel_size",
        "strides",
        "padding",
        "dilation_rate",
        "groups",
    ]
    assert names(ef.nn.Flatten) == common
    assert names(losses.Huber) == ["delta", "reduction", "name"]
    assert names(metrics.BinaryAccuracy) == ["name", "threshold"]
    assert names(initializers.TruncatedNormal) == ["mean", "stddev", "seed"]
    clipping = ["clipnorm", "clipvalue", "global_clipnorm", "name"]
    betas = ["beta_1", "beta_2", "epsilon"]
    assert names(optimizers.Adam) == ["learning_rate", *betas, "weight_decay", *clipping]
    assert names(optimizers.AdamW) == ["learning_rate", "weight_decay", *betas, *clipping]
    default = inspect.signature(optimizers.AdamW).parameters["weight_decay"]
    assert (default.default, default.annotation) == (0.004, "float | None")
    assert names(ef.nn.Dense.__init__)[0] == "self"
    assert names(ef.nn.Dense(2))[0] == "inputs"  # of an object, it is that of a call


def test_a_class_changes_places_and_defaults_of_its_base():
    assert names(Scaled)[:4] == ["units", "factor", "activation", "use_bias"]
    layer = Scaled(2, 3.0, kernel_initializer="ones", name="s")
    assert (layer.square, layer.units, layer.activation) == (9.0, 2, ef.relu)
    assert layer(ef.ones((1, 4))).tolist() == [[36.0, 36.0]]
    again = Scaled.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert layer.get_config()["activation"] == "relu"


def test_a_constructor_of_a_users_own_calls_that_of_its_base():
    class Wide(ef.nn.Dense):
        def __init__(self, width=3, **options):
            super().__init__(width * 2, "tanh", **options)

    assert names(Wide) == ["width", "options"]
    layer = Wide(2, name="wide", use_bias=False)
    assert (layer.units, layer.use_bias, layer.name) == (4, False, "wide")
    assert layer.get_config() == {"name": "wide", "width": 2, "use_bias": False}
    assert Wide.from_config(layer.get_config()).units == 4


def test_a_class_states_arguments_or_has_a_constructor():
    with pytest.raises(TypeError, match="Both states arguments: __post_init__ instead"):

        class Both(ef.nn.Layer):
            size: int = argument(1)

            def __init__(self):
                super().__init__()


def test_copies_keep_the_configuration():
    for made in (ef.nn.Conv2D(4, 3), optimizers.SGD(0.5, momentum=0.5), losses.Huber(2.0)):
        for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
            assert again.get_config() == made.get_config()


def test_names_of_classes_are_in_snake_case():
    found = named_classes(schedules.Schedule, short=schedules.CosineDecay)
    assert sorted(found) == [
        "cosine_decay",
        "exponential_decay",
        "piecewise_constant_decay",
        "short",
    ]
    assert isinstance(initializers.get("he_normal"), initializers.HeNormal)
    assert isinstance(metrics.get("mse"), metrics.MeanSquaredError)
    assert isinstance(optimizers.get("adam_w"), optimizers.AdamW)


def test_checks():
    assert (count(np.int64(3)), type(count(np.int64(3)))) == (3, int)
    assert optional(count)(None) is None
    assert choice("not a mode", "a", "b")("b") == "b"
    assert number(lambda x: x < 1, "large")(np.float32(0.5)) == 0.5


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: ef.nn.Dense(), TypeError, r"Dense\(\) missing a required argument: 'units'"),
        (lambda: losses.Huber(1, "sum", "h", 4), TypeError, r"Huber\(\) too many positional"),
        (lambda: Scaled(1, colour=3), TypeError, r"Scaled\(\) .*'colour'"),
        (lambda: Scaled(2, -1, name="s"), ef.errors.ArgumentError, "Scaled 's': factor: -1 is not"),
        (lambda: Scaled(0, name="s"), ef.errors.ArgumentError, "Scaled 's': units: 0 is out"),
        (lambda: Scaled(2, 1, "rellu"), ef.errors.ArgumentError, "activation: there is no 'rell"),
        (lambda: optimizers.SGD(momentum="x"), ef.errors.ArgumentError, "sgd: momentum: 'x' is"),
        (lambda: ef.nn.MaxPooling2D(2, strides=0), ef.errors.ArgumentError, "strides: 0 is out"),
        (lambda: count(True), ef.errors.ArgumentError, "True is out of range"),
        (lambda: count(1.0), ef.errors.ArgumentError, "an integer of at least 1"),
        (
            lambda: initializers.VarianceScaling(mode="fan"),
            ef.errors.ArgumentError,
            "VarianceScaling: mode: 'fan' is not a choice\n  expected: one of 'fan_in', ",
        ),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
