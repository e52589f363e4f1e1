"""Models as functions of their weights: values, gradients, ensembles, captured calls, errors."""

import numpy as np
import pytest

import eagerflow as ef

nn = ef.nn
call = nn.functional_call
X = np.linspace(-1, 1, 20, dtype="float32").reshape(5, 4)
CASES = {
    "dense": (lambda: nn.Sequential([nn.Dense(3, activation="tanh"), nn.Dense(2)]), X),
    "lstm": (lambda: nn.LSTM(3), X.reshape(1, 5, 4)),
    "cells": (lambda: nn.RNN(nn.GRUCell(3)), X.reshape(1, 5, 4)),
    "bidirectional": (lambda: nn.Bidirectional(nn.SimpleRNN(2)), X.reshape(1, 5, 4)),
    "convolution": (lambda: nn.Conv2D(2, 2), X.reshape(1, 5, 4, 1)),
    "normalization": (lambda: nn.BatchNormalization(), X),
    "embedding": (lambda: nn.Embedding(5, 3), np.array([[1, 2], [4, 0]])),
    "scan": (lambda: Scanned(), X),
    "branch": (lambda: Branch(), X),
    "captured": (lambda: Captured(), X),
    "recomputed": (lambda: Recomputed(), X),
    "graph": (lambda: graph(), X),
}


class Matrix(nn.Layer):
    def build(self, shape):
        self.w = self.add_weight((4, 4), name="w")


class Scanned(Matrix):
    def call(self, x):
        return ef.scan(lambda h, _: (ef.tanh(h @ self.w),) * 2, x, ef.arange(3))[0]


class Branch(Matrix):
    def call(self, x):
        return ef.cond(x.sum() > 5, lambda: x @ self.w, lambda: x @ self.w * 2)


class Captured(Matrix):
    @ef.function
    def call(self, x):
        return ef.exp(x @ self.w)


class Recomputed(Matrix):
    def call(self, x):
        return ef.checkpoint(lambda x: ef.sin(x @ self.w))(x)


def graph():
    x = nn.Input((4,))
    return nn.Model(x, nn.Dense(2)(x) * 2.0)


def others(model):
    """Other values for all weights."""
    return {name: w.value * 0.5 + 0.1 for name, w in model.named_weights().items()}


@pytest.mark.parametrize("name", CASES)
def test_equals_a_model_with_these_weights(name):
    make, x = CASES[name]
    model, peer = make(), make()
    before, values = model(x).numpy(), None
    peer(x)
    values = others(model)
    peer.set_weights(list(values.values()))
    trained = {n: values[n] for n, w in model.named_weights().items() if w.trainable}
    kept = {n: value for n, value in values.items() if n not in trained}

    def loss(trained):
        return (call(model, trained | kept, x) ** 2).sum()

    with ef.GradientTape() as tape:
        cost = (peer(x) ** 2).sum()
    gradients = tape.gradient(cost, peer.trainable_weights)
    for way in (lambda f: f, ef.function):
        found = way(lambda v: call(model, v, x))(values)
        np.testing.assert_allclose(found, peer(x), rtol=1e-5, atol=1e-6)
        derived = way(ef.grad(loss))(trained)
        for one, other in zip(derived.values(), gradients, strict=True):
            other = other.to_dense() if isinstance(other, ef.IndexedSlices) else other
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(model(x), before)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_ensembles_by_vmap(name, captured):
    make, x = CASES[name]
    model = make()
    model(x)
    first, second = others(model), {n: v * 2 for n, v in others(model).items()}
    stacked = {n: ef.stack([first[n], second[n]]) for n in first}
    batched = ef.vmap(lambda values: call(model, values, x))
    found = (ef.function(batched) if captured else batched)(stacked)
    for one, values in zip(found, (first, second), strict=True):
        np.testing.assert_allclose(one, call(model, values, x), rtol=1e-5, atol=1e-6)


def test_pytorch_has_the_same_gradients_per_example():
    torch = pytest.importorskip("torch")
    model = CASES["dense"][0]()
    model(X)
    kernel, bias, kernel_1, bias_1 = (torch.tensor(w) for w in model.get_weights())
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    state = {"0.weight": kernel.T, "0.bias": bias, "2.weight": kernel_1.T, "2.bias": bias_1}

    def their_loss(state, x):
        return (torch.func.functional_call(theirs, state, (x[None],)) ** 2).sum()

    def loss(values, x):
        return (call(model, values, x[None]) ** 2).sum()

    expected = torch.func.vmap(torch.func.grad(their_loss), (None, 0))(state, torch.tensor(X))
    found = ef.vmap(ef.grad(loss), in_axes=(None, 0))(
        {n: w.value for n, w in model.named_weights().items()}, X
    )
    for one, other in zip(found.values(), expected.values(), strict=True):
        other = other.mT if other.ndim == 3 else other
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_variables_of_the_user_are_trained():
    model, peer = CASES["dense"][0](), CASES["dense"][0]()
    model(X), peer(X)
    before = model.get_weights()
    own = {n: ef.Variable(w * 0.5) for n, w in model.named_weights().items()}
    peer.set_weights([w * 0.5 for w in before])

    def step_of(f, variables):
        optimizer = nn.optimizers.Adam(0.05)

        @ef.function
        def step(x):
            with ef.GradientTape() as tape:
                loss = (f(x) ** 2).mean()
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        return step

    step = step_of(lambda x: call(model, own, x, training=True), list(own.values()))
    its_step = step_of(lambda x: peer(x, training=True), peer.trainable_weights)
    for _ in range(4):
        np.testing.assert_allclose(step(X), its_step(X), rtol=1e-5)
    for one, other in zip(own.values(), peer.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_models_own_variables_as_values():
    model = CASES["dense"][0]()
    model(X)
    found = ef.grad(lambda v: call(model, v, X).sum())(model.named_weights())
    with ef.GradientTape() as tape:
        y = model(X).sum()
    expected = tape.gradient(y, model.weights)
    for one, other in zip(found.values(), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_some_weights_only_and_second_derivatives():
    model = CASES["dense"][0]()
    model(X)
    bias = ef.tensor([0.5, -1.0])

    def loss(bias):
        return (call(model, {"dense_1/bias": bias}, X) ** 2).sum()

    np.testing.assert_allclose(ef.hessian(loss)(bias), 10 * np.eye(2), rtol=1e-5)


def test_running_means_change_in_the_model_or_are_refused():
    layer = nn.BatchNormalization()
    layer(X)
    before = layer.get_weights()[2]
    values = {"gamma": ef.ones(4)}
    call(layer, values, X, training=True)
    assert (layer.get_weights()[2] != before).all()
    with pytest.raises(ef.errors.ArgumentError, match="assigns this weight"):
        call(layer, layer.named_weights(), X, training=True)


class Weight(nn.Layer):
    def build(self, shape):
        self.w = self.add_weight((2,), "zeros", name="w")

    def call(self, x):
        return self.w


def test_a_weight_as_result_has_the_given_value():
    layer = Weight()
    layer(X)
    assert call(layer, {"w": [1.0, 2.0]}, X).tolist() == [1.0, 2.0]


def built():
    model = CASES["graph"][0]()
    return model, model.weights[0].name


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda m, n: call(m, {"dens/kernel": 1.0}, X), "try: dense/kernel"),
        (lambda m, n: call(m, {"x": 1.0, "y": 2.0}, X), "received: x, y"),
        (lambda m, n: call(m, {n: 1.0}, X), "try: dense/kernel"),
        (lambda m, n: call(m, [1.0], X), "values: [1.0] is not a dict"),
        (lambda m, n: call(m, {"dense/bias": ef.ones(3)}, X), "functional_call: dense/bias"),
        (lambda m, n: call(m, {"dense/bias": 1j * ef.ones(2)}, X), "functional_call: dense/bias"),
        (lambda m, n: call(nn.Dense(2), {"kernel": 1.0}, X), "call the model on an input first"),
        (lambda m, n: call(ef.sin, {}, X), "is not a model"),
        (lambda m, n: call(m, {"dense/bias": ef.ones(2)}, nn.Input((4,))), "symbolic tensors"),
    ],
)
def test_errors(attempt, words):
    x = nn.Input((4,))
    nn.Dense(1)(x)  # so that names of weights in the process have other numbers
    with pytest.raises(ef.errors.EagerflowError) as raised:
        attempt(*built())
    assert words in str(raised.value)
