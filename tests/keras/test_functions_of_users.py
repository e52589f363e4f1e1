"""Keras's models in functions that ``ef.function`` captures: which changes they notice."""

import keras
import numpy as np
import pytest

import eagerflow as ef

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 4)).astype("float32")
Y = (X @ RNG.normal(size=(4, 2))).astype("float32")


class Loop:
    """A model, an optimizer and a metric; ``step`` is a training step written by hand."""

    def __init__(self, momentum=0.9):
        keras.utils.set_random_seed(3)
        self.model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(8, "tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.2, seed=1),
                keras.layers.Dense(2),
            ]
        )
        self.optimizer = keras.optimizers.SGD(0.05, momentum)
        self.optimizer.build(self.model.trainable_variables)
        self.metric = keras.metrics.MeanSquaredError()

    def step(self, x, y):
        with ef.GradientTape() as tape:
            predicted = self.model(x, training=True)
            loss = keras.ops.mean((predicted - y) ** 2)
        weights = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        self.metric.update_state(y, predicted)
        return loss

    @property
    def state(self):
        variables = self.model.variables + self.optimizer.variables + self.metric.variables
        return [variable.numpy() for variable in variables]


def test_a_step_by_hand_replays_as_it_runs_eagerly():
    captured, eager = Loop(), Loop()
    step = ef.function(captured.step)
    losses = [(float(step(X, Y)), float(eager.step(X, Y))) for _ in range(6)]
    assert len(step.graphs) == 1
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-5)
    assert losses[-1][0] < losses[0][0]
    for a, b in zip(captured.state, eager.state, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_another_model_in_a_closure_is_traced_anew():
    loops = [Loop(), Loop()]
    loops[1].model.set_weights([w + 1 for w in loops[1].model.get_weights()])
    model = loops[0].model

    @ef.function
    def predicted(x):
        return model(x)

    found, graphs = [predicted(X)], predicted.graphs
    model = loops[1].model
    found.append(predicted(X))
    assert predicted.graphs != graphs
    graphs = predicted.graphs
    for loop, values in zip(loops, found, strict=True):
        np.testing.assert_allclose(values, loop.model(X), rtol=1e-5)
    loops[1].model.set_weights(loops[0].model.get_weights())  # values are no part of a graph
    np.testing.assert_allclose(predicted(X), found[0], rtol=1e-5)
    assert predicted.graphs == graphs


def changed(loop, step):
    before = loop.model.get_weights()
    step(X, Y)
    return [not np.array_equal(a, b) for a, b in zip(before, loop.model.get_weights(), strict=True)]


def test_layers_that_are_frozen_later_are_seen():
    loop = Loop()
    step = ef.function(loop.step)
    step(X, Y)
    for trainable in (False, True):
        loop.model.layers[0].trainable = trainable
        assert changed(loop, step) == [trainable] * 2 + [True] * 6
    assert step.explain().count("kernel.trainable changed from") == 2


def test_variables_of_an_optimizer_are_read_by_each_call():
    loop = Loop(momentum=0.0)
    step = ef.function(loop.step)
    step(X, Y)
    graphs = step.graphs
    loop.optimizer.learning_rate = 0.0
    moved = [False] * 4 + [True] * 2 + [False] * 2  # the mean and variance of the normalization
    assert changed(loop, step) == moved
    assert step.graphs == graphs


def test_plain_attributes_of_layers_are_not_watched():
    layer = keras.layers.Dense(3, activation="relu")
    layer.build((None, 4))
    f = ef.function(lambda x: layer(x))
    first = f(X)
    layer.activation = keras.activations.linear
    np.testing.assert_array_equal(f(X), first)
    assert float(ef.min(layer(X))) < 0 == float(ef.min(first))
    assert len(f.graphs) == 1


def test_a_layer_that_is_made_in_each_call_is_refused():
    f = ef.function(lambda x: keras.layers.Dense(3)(x))
    with pytest.raises(ef.errors.CaptureError):
        f(X)


def test_masks_pass_captured_functions():
    ids = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 2]])
    embedding, lstm = keras.layers.Embedding(5, 3, mask_zero=True), keras.layers.LSTM(4)
    sequence = embedding(ids)
    wanted = lstm(sequence).numpy()
    made = ef.function(lambda ids: embedding(ids))(ef.tensor(ids))
    read = ef.function(lambda x: lstm(x))
    np.testing.assert_allclose(lstm(made).numpy(), wanted, 1e-5, 1e-6)
    for x in (sequence, made):
        np.testing.assert_allclose(read(x).numpy(), wanted, 1e-5, 1e-6)
    assert np.abs(read(sequence * 1).numpy() - wanted).max() > 1e-4
