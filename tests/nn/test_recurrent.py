"""Recurrent layers where tables end: states over batches, cells of users, masks, bad input."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
X = ef.tensor(RNG.normal(size=(3, 6, 4)).astype("float32"))
LAYERS = ["SimpleRNN", "LSTM", "GRU"]


class Decay(ef.nn.Layer):
    """A cell of a user: it has a weight and one state."""

    def __init__(self, units, **options):
        super().__init__(**options)
        self.units = self.state_size = units

    def build(self, input_shape):
        self.kernel = self.add_weight((input_shape[-1], self.units), name="kernel")

    def call(self, inputs, states):
        state = states[0] * 0.5 + inputs @ self.kernel
        return state, state


def close(a, b, tolerance=1e-5):
    for x, y in zip(ef.tree.flatten(a)[0], ef.tree.flatten(b)[0], strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=tolerance, atol=tolerance)


# States -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "softsign"])
@pytest.mark.parametrize("cls", LAYERS)
def test_stateful_layer_goes_on_where_the_last_batch_ended(cls, activation):
    whole = getattr(ef.nn, cls)(2, activation=activation, return_sequences=True)
    right = whole(X)
    parts = getattr(ef.nn, cls)(2, activation=activation, return_sequences=True, stateful=True)
    step = ef.function(lambda x: parts(x))
    parts(X[:, :3])
    parts.set_weights(whole.get_weights())
    parts.reset_state()
    close([parts(X[:, :3]), step(X[:, 3:5]), step(X[:, 5:])], ef.split(right, [3, 5], axis=1))
    parts.reset_states()
    close(step(X[:, :3]), right[:, :3])
    assert len(parts.states) == (2 if cls == "LSTM" else 1)
    assert len(parts.weights) == len(whole.weights)


def test_stateful_both_ways_and_stacked():
    both = ef.nn.Bidirectional(ef.nn.GRU(2, stateful=True))
    first = both(X)
    assert len(both.states) == 2
    assert abs(both(X) - first).max() > 1e-3
    both.reset_state()
    close(both(X), first)
    stacked = ef.nn.RNN([ef.nn.LSTMCell(2), ef.nn.GRUCell(3)], stateful=True)
    first = stacked(X)
    assert abs(stacked(X) - first).max() > 1e-3
    stacked.reset_state()
    close(stacked(X), first)


@pytest.mark.parametrize("activation", ["tanh", "softsign"])
@pytest.mark.parametrize("cls", LAYERS)
def test_initial_state_is_that_of_the_steps_before(cls, activation):
    layer = getattr(ef.nn, cls)(2, activation=activation, return_state=True)
    right = layer(X)
    _, *states = layer(X[:, :4])
    close(layer(X[:, 4:], initial_state=states), right)
    if cls != "LSTM":
        close(layer(X[:, 4:], states[0]), right)
    given = [ef.nn.Input((2,)) for _ in states]
    rest = ef.nn.Input((None, 4))
    model = ef.nn.Model([rest, *given], layer(rest, initial_state=given))
    close(model([X[:, 4:], *states]), right)


def test_initial_states_of_both_ways():
    layer = ef.nn.Bidirectional(ef.nn.LSTM(2, return_state=True))
    states = [ef.tensor(RNG.normal(size=(3, 2)).astype("float32")) for _ in range(4)]
    y, *after = layer(X, initial_state=states)
    there, *ends = layer.forward_layer(X, initial_state=states[:2])
    back, *back_ends = layer.backward_layer(X, initial_state=states[2:])
    close(y, ef.concat([there, back], axis=-1))
    close(after, ends + back_ends)


# Masks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", LAYERS)
def test_padded_sequences_are_like_shorter_ones(cls):
    lengths = [6, 2, 4]
    mask = ef.tensor([[t < n for t in range(6)] for n in lengths])
    layer = getattr(ef.nn, cls)(2, return_state=True)
    found = layer(X, mask=mask)
    for i, n in enumerate(lengths):
        close([part[i] for part in found], [part[0] for part in layer(X[i : i + 1, :n])])
    both = ef.nn.Bidirectional(getattr(ef.nn, cls)(2))
    found = both(X, mask=mask)
    for i, n in enumerate(lengths):
        close(found[i], both(X[i : i + 1, :n])[0])


def test_masks_travel_with_sequences():
    from eagerflow.nn.masks import mask_of, set_mask

    x, mask = X + 0.0, ef.tensor(RNG.random((3, 6)) < 0.5)
    set_mask(x, mask)
    layer = ef.nn.GRU(2, return_sequences=True)
    close(layer(x), layer(X, mask=mask))
    assert mask_of(layer(x)) is not None
    assert mask_of(ef.nn.GRU(2)(x)) is None
    assert mask_of(ef.nn.Bidirectional(layer)(x)) is not None
    assert mask_of(ef.nn.TimeDistributed(ef.nn.Dense(2))(x)) is not None


def test_mask_of_three_axes_and_of_numbers():
    mask = RNG.random((3, 6)) < 0.5
    layer = ef.nn.LSTM(2)
    right = layer(X, mask=mask)
    close(layer(X, mask=mask[:, :, None]), right)
    close(layer(X, mask=mask.astype("int32")), right)


# Cells --------------------------------------------------------------------------------------------


def test_cell_of_a_user():
    layer = ef.nn.RNN(Decay(2), return_sequences=True)
    found = layer(X)
    state, outputs = 0, []
    for t in range(6):
        state = state * 0.5 + np.asarray(X)[:, t] @ layer.get_weights()[0]
        outputs.append(state)
    close(found, np.stack(outputs, axis=1))
    close(ef.function(lambda x: layer(x))(X), found)
    with ef.GradientTape() as tape:
        loss = ef.sum(layer(X))
    assert tape.gradient(loss, layer.trainable_weights)[0].shape == (4, 2)
    both = ef.nn.Bidirectional(ef.nn.RNN(Decay(2)))
    assert both(X).shape == (3, 4)
    assert len(both.weights) == 2
    assert ef.nn.RNN([ef.nn.LSTMCell(3), Decay(2)])(X).shape == (3, 2)


def test_cell_that_is_no_layer():
    class Last:
        state_size = 4

        def call(self, inputs, states):
            return states[0], [inputs]

    close(ef.nn.RNN(Last())(X), X[:, -2])


def test_cells_by_hand_are_the_layer():
    cell = ef.nn.LSTMCell(2)
    found = ef.nn.RNN(cell, return_state=True)(X)
    states = cell.get_initial_state(3)
    for t in range(6):
        y, states = cell(X[:, t], states)
    close(found, (y, *states))


@pytest.mark.parametrize("cls", LAYERS)
def test_dropout_is_drawn_once_for_all_steps(cls):
    ones = ef.ones((2, 5, 3))
    layer = getattr(ef.nn, cls)(3, dropout=0.5, seed=1, return_sequences=True)
    layer(ones)
    kernel = np.zeros((3, layer.cell.gates, 3), "float32")
    kernel[:, min(2, layer.cell.gates - 1)] = np.eye(3)  # inputs are the new content
    kernel = kernel.reshape(3, -1)
    layer.set_weights([kernel, layer.get_weights()[1] * 0, layer.get_weights()[2] * 0])
    dropped = np.asarray(layer(ones, training=True)) == 0
    assert dropped.any()
    assert not dropped.all()
    assert (dropped == dropped[:, :1]).all()
    again = getattr(ef.nn, cls)(3, dropout=0.5, recurrent_dropout=0.5, seed=1)
    other = type(again).from_config(again.get_config())
    again(ones)
    other(ones)
    other.set_weights(again.get_weights())
    close(again(ones, training=True), other(ones, training=True))


# Dtypes, sizes, configurations --------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("activation", ["tanh", "softsign"])
@pytest.mark.parametrize("cls", LAYERS)
def test_mixed_precision(cls, activation):
    layer = getattr(ef.nn, cls)(2, activation=activation, dtype="mixed_bfloat16")
    with ef.GradientTape() as tape:
        y = layer(X, mask=ef.tensor(RNG.random((3, 6)) < 0.7))
        loss = ef.sum(y)
    assert y.dtype.name == "bfloat16"
    found = tape.gradient(loss, layer.trainable_weights)
    assert {g.dtype.name for g in found} == {"float32"}


@pytest.mark.parametrize("activation", ["tanh", "softsign"])
@pytest.mark.parametrize("cls", LAYERS)
def test_lengths_that_are_not_known(cls, activation):
    x = ef.nn.Input((None, 4))
    layer = getattr(ef.nn, cls)(2, activation=activation, return_sequences=True)
    model = ef.nn.Model(x, ef.nn.TimeDistributed(ef.nn.Dense(1))(layer(x)))
    assert model(X).shape == (3, 6, 1)
    assert model(X[:2, :3]).shape == (2, 3, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cls", LAYERS)
def test_gradients_of_gradients(cls):
    layer = getattr(ef.nn, cls)(2, dtype="float64")
    x = ef.tensor(RNG.normal(size=(2, 3, 2)))
    layer(x)

    def slope(x):
        return ef.sum(ef.grad(lambda x: ef.sum(layer(x) ** 2))(x) ** 2)

    ef.testing.check_gradients(slope, (x,))


def test_forget_bias_begins_with_one():
    layer = ef.nn.LSTM(2)
    layer(X)
    np.testing.assert_array_equal(layer.get_weights()[2], [0, 0, 1, 1, 0, 0, 0, 0])
    without = ef.nn.LSTM(2, unit_forget_bias=False)
    without(X)
    assert not without.get_weights()[2].any()
    r = layer.get_weights()[1]
    np.testing.assert_allclose(r @ r.T, np.eye(2), atol=1e-6)


def test_frozen_layers_keep_their_cells_weights():
    layer = ef.nn.Bidirectional(ef.nn.LSTM(2, trainable=False))
    layer(X)
    assert layer.trainable_weights == []
    layer = ef.nn.GRU(2, trainable=False)
    layer(X)
    assert layer.trainable_weights == []


def test_both_ways_share_nothing_with_the_layer():
    inner = ef.nn.LSTM(2, name="memory")
    inner(X)
    both = ef.nn.Bidirectional(inner)
    both(X)
    assert [p.name for p in both.sublayers] == ["forward_memory", "backward_memory"]
    assert len(both.weights) == 6
    close(ef.nn.Bidirectional(inner, weights=both.get_weights())(X), both(X))
    assert both.get_config()["weights"] is None


def test_wrapper_counts_the_weights_of_its_layer():
    layer = ef.nn.TimeDistributed(ef.nn.Dense(2))
    layer(X)
    assert layer.count_params() == 10


def test_steps_with_a_state_come_one_after_the_other():
    inner = ef.nn.BatchNormalization()
    ef.nn.TimeDistributed(inner)(X, training=True)
    alone = ef.nn.BatchNormalization()
    for t in range(6):
        alone(X[:, t], training=True)
    close(inner.get_weights(), alone.get_weights())


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ef.nn.LSTM(0), ArgumentError, "units"),
        (lambda: ef.nn.LSTM(2, dropout=1.5), ArgumentError, "not a rate"),
        (lambda: ef.nn.LSTM(2, use_cudnn="maybe"), ArgumentError, "use_cudnn"),
        (lambda: ef.nn.RNN(ef.nn.Dense(2)), ArgumentError, "has no state_size"),
        (lambda: ef.nn.RNN([ef.nn.LSTMCell(2), 3]), ArgumentError, "so it is not a cell"),
        (lambda: ef.nn.LSTM(2)(ef.ones((2, 3))), ShapeError, r"\(batch, steps, features\)"),
        (lambda: ef.nn.RNN(ef.nn.GRUCell(2))(ef.ones((2, 3))), ShapeError, "batch, steps"),
        (lambda: ef.nn.ConvLSTM2D(2, 2)(ef.ones((2, 3, 4, 1))), ShapeError, "image, channels"),
        (lambda: ef.nn.ConvLSTM2D(2, 2)(ef.nn.Input((3, None, 4, 1))), ShapeError, "not known"),
        (lambda: ef.nn.ConvLSTM2D(2, (2, 2, 2)), ArgumentError, "kernel_size"),
        (lambda: ef.nn.ConvLSTM1D(2, 2, strides=2, dilation_rate=2), ArgumentError, "strides"),
        (lambda: ef.nn.ConvLSTM1D(2, 2, data_format="channels_first"), ArgumentError, "data"),
        (lambda: ef.nn.GRU(2, stateful=True)(ef.nn.Input((3, 4))), ArgumentError, "batch_size="),
        (lambda: ef.nn.LSTM(2)(X, initial_state=[ef.ones((3, 2))]), ArgumentError, "1 states"),
        (lambda: ef.nn.GRU(2)(X, initial_state=ef.ones((2, 2))), ShapeError, "3 examples"),
        (lambda: ef.nn.GRU(2)(X, mask=ef.ones((3, 5))), ShapeError, "mask"),
        (lambda: ef.nn.Bidirectional(ef.nn.Dense(2)), ArgumentError, "TimeDistributed"),
        (lambda: ef.nn.Bidirectional(3), ArgumentError, "not a layer"),
        (lambda: ef.nn.Bidirectional(ef.nn.GRU(2), "max"), ArgumentError, "merge_mode"),
        (
            lambda: ef.nn.Bidirectional(ef.nn.GRU(2), backward_layer=ef.nn.GRU(2)),
            ArgumentError,
            "go_backwards",
        ),
        (
            lambda: ef.nn.Bidirectional(
                ef.nn.GRU(2), backward_layer=ef.nn.GRU(2, go_backwards=True, return_state=True)
            ),
            ArgumentError,
            "return_state",
        ),
        (lambda: ef.nn.TimeDistributed("Dense"), ArgumentError, "not a layer"),
        (lambda: ef.nn.TimeDistributed(ef.nn.Dense(2))(ef.ones((2, 3))), ShapeError, "no steps"),
        (
            lambda: ef.nn.TimeDistributed(ef.nn.Dense(2))(X, mask=ef.ones((3, 5))),
            ShapeError,
            "mask does not fit",
        ),
    ],
)
def test_invalid_recurrent_layers_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_another_batch_size_of_a_stateful_layer():
    layer = ef.nn.LSTM(2, stateful=True)
    layer(X)
    with pytest.raises(ShapeError, match="one state for each example"):
        layer(X[:2])
