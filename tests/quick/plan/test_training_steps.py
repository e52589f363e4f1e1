"""Whole training steps: ``exact`` has eager's bits, and no bit depends on the number of threads."""

from functools import partial

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.runtime import threads

STEPS = 3


def array(rng, *shape):
    return (rng.standard_normal(shape) / np.sqrt(max(shape[0], 1))).astype("float32")


def convolutional(rng):
    """Convolutions of few and of many channels, batch norms, pooling."""
    model = ef.nn.Sequential(
        [
            ef.nn.Conv2D(16, 3, padding="same", use_bias=False),
            ef.nn.BatchNormalization(),
            ef.nn.ReLU(),
            ef.nn.MaxPooling2D(2),
            ef.nn.Conv2D(32, 3, padding="same"),
            ef.nn.BatchNormalization(),
            ef.nn.ReLU(),
            ef.nn.GlobalAveragePooling2D(),
            ef.nn.Dense(10),
        ]
    )
    x, labels = array(rng, 16, 32, 32, 3), rng.integers(0, 10, 16)

    def loss(x, labels):
        return ef.mean(ef.sparse_softmax_cross_entropy(model(x, training=True), labels))

    model(ef.tensor(x))
    return model.trainable_weights, loss, (x, labels)


def gpt(rng, batch=4, tokens=64, width=64, heads=4):
    """A block of a decoder with dropout, between an embedding and logits."""
    shapes = [(50, width), (tokens, width), (width, 3 * width), (width, width)]
    shapes += [(width, 4 * width), (4 * width, width), (width, 50)]
    weights = [ef.Variable(array(rng, *shape)) for shape in shapes]
    weights += [ef.Variable(f(width).astype("float32")) for f in (np.ones, np.zeros)]
    ids = rng.integers(0, 50, (batch, tokens + 1))

    def loss(ids):
        embedding, positions, qkv, out, up, down, last, scale, offset = weights
        x = ef.dropout(ef.take(embedding, ids[:, :-1], axis=0) + positions, rate=0.1)
        h = (ef.layer_norm(x, scale, offset) @ qkv).reshape(batch, tokens, 3, heads, -1)
        q, k, v = (ef.permute_dims(h[:, :, i], (0, 2, 1, 3)) for i in range(3))
        h = ef.dot_product_attention(q, k, v, is_causal=True)
        h = ef.permute_dims(h, (0, 2, 1, 3)).reshape(batch, tokens, width)
        x = x + ef.dropout(h @ out, rate=0.1)
        x = x + ef.dropout(ef.gelu(ef.layer_norm(x, scale, offset) @ up) @ down, rate=0.1)
        return ef.mean(ef.sparse_softmax_cross_entropy(x @ last, ids[:, 1:]))

    return weights, loss, (ids,)


def lstm(rng, written):
    """An LSTM written out, or as an op, and a dense layer on its last output."""
    units, width, steps, batch = 96, 32, 12, 32
    shapes = [(width, 4 * units), (units, 4 * units), (4 * units,), (units, 1)]
    weights = [ef.Variable(array(rng, *shape)) for shape in shapes]
    x, y = array(rng, batch, steps, width), array(rng, batch, 1)

    def cell(state, row):
        h, c = state
        i, f, n, o = ef.split(row @ weights[0] + h @ weights[1] + weights[2], 4, axis=-1)
        c = ef.sigmoid(f) * c + ef.sigmoid(i) * ef.tanh(n)
        return (ef.sigmoid(o) * ef.tanh(c), c), None

    def loss(x, y):
        if written == "op":
            h = ef.lstm(x, *weights[:3])[0][:, -1]
        else:
            start = ef.zeros((batch, units))
            h = ef.scan(cell, (start, start), ef.permute_dims(x, (1, 0, 2)))[0][0]
        return ef.mean((h @ weights[3] - y) ** 2)

    return weights, loss, (x, y)


NETWORKS = {
    "cnn": convolutional,
    "gpt": gpt,
    "lstm": partial(lstm, written="scan"),
    "lstm op": partial(lstm, written="op"),
}


@pytest.fixture(autouse=True)
def all_threads():
    yield
    threads.set_thread_count(None)


def trained(name, count, **captured):
    """The bytes of losses, weights and state after some steps by so many threads."""
    threads.set_thread_count(count)
    ef.random.seed(7)
    weights, loss_of, batch = NETWORKS[name](np.random.default_rng(1))
    optimizer = ef.nn.optimizers.Adam(learning_rate=0.01)

    def step(*batch):
        with ef.GradientTape() as tape:
            loss = loss_of(*batch)
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    if captured:
        step = ef.function(step, **captured)
    losses = [step(*map(ef.tensor, batch)) for _ in range(STEPS)]
    found = [np.array(x) for x in (*losses, *(w.value for w in (*weights, *optimizer.variables)))]
    assert len({float(x) for x in found[:STEPS]}) == STEPS
    return [x.tobytes() for x in found]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_exact_steps_equal_eager_ones_bitwise(name):
    assert trained(name, 2, numerics="exact") == trained(name, 2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", [{}, {"numerics": "exact"}, {"numerics": "fast"}])
@pytest.mark.parametrize("name", NETWORKS)
def test_bits_of_steps_do_not_depend_on_the_number_of_threads(name, how):
    assert trained(name, 1, **how) == trained(name, 2, **how) == trained(name, 3, **how)


def test_a_planted_difference_is_found(monkeypatch):
    """Numbers of dropout that come from another seed reach every weight."""
    wanted = trained("gpt", 2, numerics="fast")
    seed = ef.random.seed
    monkeypatch.setattr(ef.random, "seed", lambda number: seed(number + 1))
    other = trained("gpt", 2, numerics="fast")
    assert all(a != b for a, b in zip(wanted[:STEPS], other[:STEPS], strict=True))
