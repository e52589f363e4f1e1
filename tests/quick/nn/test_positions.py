"""Positions: the functions, positions that are given, free lengths, growing sequences."""

import numpy as np
import pytest

import eagerflow as ef

X = np.random.default_rng(5).normal(size=(2, 6, 8)).astype("float32")
LAYERS = {
    "RotaryEmbedding": ef.nn.RotaryEmbedding,
    "SinePositionEncoding": ef.nn.SinePositionEncoding,
    "PositionEmbedding": lambda: ef.nn.PositionEmbedding(16),
}
by_layer = pytest.mark.parametrize("name", LAYERS)


def close(a, b, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@by_layer
def test_start_and_positions(name):
    """A later start, given positions and those of each example: what the whole sequence gives."""
    layer = LAYERS[name]()
    right = layer(X)
    close(layer(X[:, 2:], start_index=2), right[:, 2:])
    close(layer(X[:, 2:], positions=np.arange(2, 6)), right[:, 2:])
    own = np.array([[0, 1, 2], [3, 4, 5]])
    found = layer(np.stack([X[0, :3], X[1, 3:]]), positions=own)
    close(found, np.stack([np.asarray(right)[0, :3], np.asarray(right)[1, 3:]]))


@by_layer
def test_one_graph_for_all_positions(name):
    layer = LAYERS[name]()
    right = layer(X)
    step = ef.function(lambda x, i: layer(x, start_index=i))
    for i in range(6):
        close(step(ef.tensor(X[:, i : i + 1]), ef.tensor(i)), right[:, i : i + 1])
    assert len(step.graphs) == 1


@by_layer
def test_free_lengths(name):
    layer = LAYERS[name]()
    symbol = ef.nn.Input((None, 8))
    model = ef.nn.Model(symbol, layer(symbol))
    close(model(X), layer(X))
    close(model(X[:, :2]), layer(X[:, :2]))


@by_layer
def test_mixed_dtypes(name):
    layer = LAYERS[name]()
    found = layer(X)
    mixed = type(layer).from_config({**layer.get_config(), "dtype": "mixed_bfloat16"})
    mixed(X)
    mixed.set_weights(layer.get_weights())
    assert mixed(X).dtype.name == "bfloat16"
    close(mixed(X).astype("float32"), found, 0.03)


def test_far_positions_are_exact_enough_in_bfloat16():
    """Angles are float32: position 1000 is not that of 1001 in narrow dtypes."""
    x = ef.ones((1, 2, 4), dtype="bfloat16")
    found = ef.nn.RotaryEmbedding(dtype="bfloat16")(x, start_index=1000)
    right = ef.nn.RotaryEmbedding()(ef.ones((1, 2, 4)), start_index=1000)
    close(found.astype("float32"), right, 0.02)


def test_products_depend_on_distances():
    q, k = X[0], X[1]
    near = ef.nn.rotary_embedding(q) @ ef.nn.rotary_embedding(k).mT
    later = np.arange(6) + 40
    far = ef.nn.rotary_embedding(q, later) @ ef.nn.rotary_embedding(k, later).mT
    close(near, far, 1e-4)


def test_length_and_gradient():
    """Turning keeps lengths, so the gradient of their squares is that of the inputs' own."""
    x = ef.tensor(X)
    found = ef.nn.rotary_embedding(x)
    close(ef.sum(found * found, axis=-1), ef.sum(x * x, axis=-1))
    gradient = ef.grad(lambda x: ef.sum(ef.nn.rotary_embedding(x) ** 2.0))(x)
    close(gradient, 2 * X)


def test_axes_of_the_function():
    moved = np.moveaxis(X, 1, 0)
    found = np.asarray(ef.nn.rotary_embedding(moved, axis=0))
    close(np.moveaxis(found, 0, 1), ef.nn.rotary_embedding(X))


class Turned(ef.nn.GroupQueryAttention):
    """Attention whose queries and keys are turned by their positions."""

    def positioned(self, q, k, position):
        places = ef.arange(q.shape[2]) + position
        return ef.nn.rotary_embedding(q, places), ef.nn.rotary_embedding(k, places)


@pytest.mark.parametrize("captured", [False, True])
def test_turned_attention_grows(captured):
    """A cache keeps turned keys: token by token gives what the whole sequence gives."""
    layer = Turned(4, 4, 2)
    right = layer(X, X, use_causal_mask=True)
    plain = ef.nn.GroupQueryAttention(4, 4, 2)
    plain(X, X)
    plain.set_weights(layer.get_weights())
    assert float(ef.max(ef.abs(plain(X, X, use_causal_mask=True) - right))) > 1e-3

    def step(token, position):
        return layer(token, token, cache=cache, position=position)

    run = ef.function(step) if captured else step
    cache = layer.make_cache(2, 6)
    found = [run(ef.tensor(X[:, i : i + 1]), ef.tensor(i)) for i in range(6)]
    close(ef.concat(found, axis=1), right, 2e-5)


def test_invalid_arguments_and_shapes_are_refused():
    with pytest.raises(ef.errors.ShapeError, match="an even last axis"):
        ef.nn.RotaryEmbedding()(ef.ones((1, 2, 3)))
    with pytest.raises(ef.errors.ArgumentError, match=r"max_wavelength.*not positive"):
        ef.nn.RotaryEmbedding(0.0)
    with pytest.raises(ef.errors.IndexRangeError, match="index 4 is out of range"):
        ef.nn.PositionEmbedding(4)(ef.ones((1, 5, 3)))
    for make in LAYERS.values():
        with pytest.raises(ef.errors.ShapeError, match="at least 2 axes"):
            make()(ef.ones((3,)))
