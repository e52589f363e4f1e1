"""Curves of the loss over 200 steps are PyTorch's: same weights, same batches in the same order.

In float64 the curves of both libraries agree to 9 digits, so the formulas are the same. In float32
each rounds in an order of its own, and training amplifies what rounding does; how much is told by
PyTorch's own curve in float32, compared with its curve in float64: ours may stray from the curve in
float64 a few times as far.
"""

import math

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import torch

STEPS = 200
RATE, EPSILON, DECAY = 2.0**-9, 1e-7, 0.01


def our_curve(model, objective, batches):
    optimizer = ef.nn.optimizers.AdamW(RATE, epsilon=EPSILON, weight_decay=DECAY)

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = objective(model(x, training=True), y)
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return np.array([float(step(ef.tensor(x), ef.tensor(y))) for x, y in batches])


def their_curve(forward, weights, objective, batches):
    weights = [torch.tensor(w, requires_grad=True) for w in weights]
    optimizer = torch.optim.AdamW(weights, lr=RATE, weight_decay=DECAY)
    losses = []
    for step, (x, y) in enumerate(batches, 1):
        # Ours adds epsilon before the square root is corrected, as Keras does; PyTorch after.
        optimizer.param_groups[0]["eps"] = EPSILON / math.sqrt(1 - 0.999**step)
        optimizer.zero_grad()
        loss = objective(forward(torch.tensor(x), iter(weights)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def cross_entropy(logits, classes):
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), classes.flatten())


# GPT -------------------------------------------------------------------------------------------

VOCABULARY, CONTEXT, WIDTH, DEPTH, HEADS = 31, 12, 16, 2, 2


def gpt(dtype):
    return ef.nn.networks.GPT(VOCABULARY, CONTEXT, WIDTH, DEPTH, HEADS, dropout=0.0, dtype=dtype)


def torch_gpt(ids, weights):
    functional = torch.nn.functional

    def norm(x):
        return functional.layer_norm(x, (WIDTH,), next(weights), next(weights), 1e-5)

    def dense(x, *shape):
        return x @ next(weights).reshape(shape) + next(weights).reshape(shape[-1])

    tokens = next(weights)
    x = tokens[ids] + next(weights)
    for _ in range(DEPTH):
        h = norm(x)
        heads = (dense(h, WIDTH, WIDTH).unflatten(-1, (HEADS, -1)) for _ in range(3))
        q, k, v = (head.transpose(1, 2) for head in heads)
        h = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + dense(h.transpose(1, 2).flatten(2), WIDTH, WIDTH)
        h = functional.gelu(dense(norm(x), WIDTH, 4 * WIDTH), approximate="tanh")
        x = x + dense(h, 4 * WIDTH, WIDTH)
    return norm(x) @ tokens.T


def sentences(dtype):
    """Numbers that go up by 1 to 4, modulo the vocabulary: the first two tell the others."""
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        start, by = rng.integers(0, VOCABULARY, (8, 1)), rng.integers(1, 5, (8, 1))
        ids = (start + by * np.arange(CONTEXT + 1)) % VOCABULARY
        yield ids[:, :-1], ids[:, 1:]


# A language model of LSTMs ------------------------------------------------------------------------


def language_model(dtype):
    ids = ef.nn.Input((CONTEXT,), dtype="int64")
    x = ef.nn.Embedding(VOCABULARY, WIDTH, dtype=dtype)(ids)
    x = ef.nn.LSTM(20, return_sequences=True, dtype=dtype)(x)
    x = ef.nn.LSTM(12, return_sequences=True, dtype=dtype)(x)
    return ef.nn.Model(ids, ef.nn.Dense(VOCABULARY, dtype=dtype)(x), dtype=dtype)


def torch_language_model(ids, weights):
    x = next(weights)[ids]
    for units in (20, 12):
        kernel, recurrent, bias = next(weights), next(weights), next(weights)
        state = [x.new_zeros((len(x), units))] * 2
        flat = [kernel.T.contiguous(), recurrent.T.contiguous(), bias, torch.zeros_like(bias)]
        x = torch.lstm(x, [s[None] for s in state], flat, True, 1, 0.0, True, False, True)[0]
    return x @ next(weights) + next(weights)


# A residual block with batch normalization -------------------------------------------------------


def residual(dtype):
    x = ef.nn.Input((8, 8, 3), dtype=dtype)
    h = stem = ef.nn.Conv2D(6, 3, padding="same", use_bias=False, dtype=dtype)(x)
    for last in (False, True):
        h = ef.nn.Conv2D(6, 3, padding="same", use_bias=False, dtype=dtype)(h)
        h = ef.nn.BatchNormalization(epsilon=1e-5, dtype=dtype)(h)
        h = ef.nn.ReLU(dtype=dtype)(h + stem if last else h)
    h = ef.nn.GlobalAveragePooling2D(dtype=dtype)(h)
    return ef.nn.Model(x, ef.nn.Dense(4, dtype=dtype)(h), dtype=dtype)


def torch_residual(images, weights):
    functional = torch.nn.functional

    def conv(x):
        return functional.conv2d(x, next(weights).permute(3, 2, 0, 1), padding="same")

    h = stem = conv(images.permute(0, 3, 1, 2))
    for last in (False, True):
        h = conv(h)
        given = None, None, next(weights), next(weights)
        h = functional.batch_norm(h, *given, training=True, eps=1e-5)
        h = functional.relu(h + stem if last else h)
    return h.mean((2, 3)) @ next(weights) + next(weights)


def images(dtype):
    """Noise with a brighter quarter, which is the class."""
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        classes = rng.integers(0, 4, 8)
        x = rng.normal(size=(8, 2, 4, 2, 4, 3))
        for i, c in enumerate(classes):
            x[i, c // 2, :, c % 2] += 0.7
        yield x.reshape(8, 8, 8, 3).astype(dtype), classes


# name: our model, PyTorch's forward pass, batches
NETWORKS = {
    "GPT": (gpt, torch_gpt, sentences),
    "LSTM": (language_model, torch_language_model, sentences),
    "residual block": (residual, torch_residual, images),
}


def curves(name, dtype):
    """Our curve and PyTorch's, from the same weights."""
    make, forward, data = NETWORKS[name]
    ef.random.seed(1)
    first = make("float64").trainable_weights
    start = [np.array(w.numpy()).astype(dtype) for w in first]
    model = make(dtype)
    for weight, value in zip(model.trainable_weights, start, strict=True):
        weight.assign(value)

    def loss(logits, classes):
        return ef.mean(ef.sparse_softmax_cross_entropy(logits, classes))

    theirs = their_curve(forward, start, cross_entropy, data(dtype))
    return our_curve(model, loss, data(dtype)), theirs


@pytest.fixture(scope="module", params=NETWORKS)
def both(request):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return {dtype: curves(request.param, dtype) for dtype in ("float64", "float32")}


def test_the_network_learns(both):
    ours, _ = both["float32"]
    assert ours[-20:].mean() < 0.8 * ours[:20].mean()


def test_curves_in_float64_agree(both):
    ours, theirs = both["float64"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_curves_in_float32_stray_no_further_than_those_of_torch(both):
    right = both["float64"][1]
    ours, theirs = (np.maximum.accumulate(np.abs(curve - right)) for curve in both["float32"])
    rounding = 8 * np.finfo("float32").eps * right[0]
    print(f"at the end: ours {ours[-1]:.1e}, PyTorch's {theirs[-1]:.1e}, of {right[-1]:.3f}")
    assert (ours <= 8 * theirs + rounding).all()
