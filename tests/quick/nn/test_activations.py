"""Activation functions: by formulas, and against Keras at its defaults and with arguments."""

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import keras_gradients, keras_on_torch, numbers

activations = ef.nn.activations
X = np.random.default_rng(0).normal(size=(3, 6)).astype("float32") * 2  # clear of all kinks

CALLS = [(name, ()) for name in activations.__all__ if name not in ("get", "threshold")]
CALLS += [
    ("celu", (0.5,)),
    ("elu", (0.5,)),
    ("gelu", (True,)),
    ("glu", (-1,)),
    ("hard_shrink", (1.2,)),
    ("leaky_relu", (0.05,)),
    ("log_softmax", (0,)),
    ("relu", (0.1,)),
    ("relu", (0.0, 1.5)),
    ("relu", (0.1, 1.5, 0.7)),
    ("soft_shrink", (1.2,)),
    ("softmax", (0,)),
    ("sparsemax", (0,)),
    ("squareplus", (0.5,)),
    ("threshold", (0.3, -2.0)),
]
by_call = pytest.mark.parametrize(("name", "args"), CALLS)


def value_and_gradient(function, x):
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
        loss = ef.sum(y * y)
    return y, tape.gradient(loss, x)


@by_call
def test_values_and_gradients_are_those_of_keras(name, args):
    keras = keras_on_torch()
    table = keras.src.activations.ALL_OBJECTS_DICT
    if name == "sparsemax":
        pytest.skip("Keras 3.15 adds up cumulative sums: its rows do not sum to 1")
    theirs = table[name]
    y, gradient = value_and_gradient(lambda x: getattr(activations, name)(x, *args), ef.tensor(X))
    np.testing.assert_allclose(y, numbers(theirs(X, *args)), rtol=2e-5, atol=1e-6)
    (wanted,) = keras_gradients(lambda x: (theirs(x, *args) ** 2).sum(), [X])
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


def test_every_name_of_keras_is_known():
    keras = keras_on_torch()
    for name in keras.src.activations.ALL_OBJECTS_DICT:
        assert callable(activations.get(name)), name


@pytest.mark.sampled(2)
@by_call
def test_captured_and_in_half_precision(name, args):
    def function(x):
        return getattr(activations, name)(x, *args)

    x = ef.tensor(X)
    np.testing.assert_allclose(ef.function(function)(x), function(x), rtol=1e-5, atol=1e-6)
    half = function(x.astype("bfloat16"))
    assert half.dtype == ef.bfloat16
    np.testing.assert_allclose(half.astype("float32"), function(x), rtol=0.03, atol=0.03)
    ef.testing.check_gradients(function, (x.astype("float64"),))


FORMULAS = {
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "hard_shrink": lambda x: x * (abs(x) > 0.5),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "soft_shrink": lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0),
    "sparse_plus": lambda x: np.where(x < -1, 0, np.where(x > 1, x, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "tanh_shrink": lambda x: x - np.tanh(x),
    "glu": lambda x: x[:, :3] / (1 + np.exp(-x[:, 3:])),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name):
    x = X.astype("float64")
    np.testing.assert_allclose(getattr(activations, name)(ef.tensor(x)), FORMULAS[name](x), 1e-12)


def test_sparsemax_is_the_nearest_distribution():
    """It beats every other distribution of a dense grid, and sums to 1."""
    rng = np.random.default_rng(1)
    for x in rng.normal(size=(20, 4)):
        found = activations.sparsemax(ef.tensor(x)).numpy()
        assert found.sum() == pytest.approx(1) and (found >= 0).all()
        others = rng.dirichlet(np.full(4, 0.5), 2000)
        assert (((others - x) ** 2).sum(1) >= ((found - x) ** 2).sum() - 1e-9).all()


def test_slopes_at_the_kinks():
    zero = ef.tensor([0.0, 0.0])
    for function, slope in (
        (lambda x: activations.celu(x, 0.5), 1),
        (lambda x: activations.squareplus(x, 0.0), 0.5),
        (activations.squareplus, 0.5),
        (activations.sparse_plus, 0.5),
    ):
        np.testing.assert_allclose(ef.grad(lambda x, f=function: ef.sum(f(x)))(zero), slope)


def test_far_from_zero_nothing_overflows():
    far = ef.tensor([-1e4, -300.0, 300.0, 1e4])
    for name, _ in CALLS:
        if name not in ("exponential", "glu", "threshold"):
            assert np.isfinite(getattr(activations, name)(far)).all(), name
    np.testing.assert_allclose(activations.squareplus(far)[:2], 1 / np.abs(far[:2]), rtol=1e-4)
    assert activations.relu(ef.tensor([-np.inf]), max_value=6.0).item() == 0
