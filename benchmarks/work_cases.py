"""Networks that are trained alike in each library: the works of ``works.py`` and its grid of sizes.

A work is weights, a batch and a loss, the loss once in the ops of each library, as their users
write it. A step is a function without arguments that trains on the one batch with Adam and returns
the loss in the library's own type. Peers run as their own documentation says for speed: PyTorch
with channels_last, ``zero_grad(set_to_none=True)``, cuDNN-like ``torch.nn.LSTM``, and Adam's fused
form beside the plain one; JAX with the whole step in one jit whose state is donated.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import eagerflow as ef

RATE, BETA_1, BETA_2 = 1e-3, 0.9, 0.999
EPSILON = 1e-8
EPSILON_NORM = 1e-5


class Work(NamedTuple):
    """A network: its weights, a batch, the loss in each library, and the arithmetic of a step.

    ``flops`` counts the products of a step alone, a convolution as its direct sum.
    """

    name: str
    family: str
    weights: list[np.ndarray]
    batch: tuple[np.ndarray, ...]
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    jax: Callable[..., Any]
    flops: float
    turned: Callable[[list[np.ndarray], bool], list[np.ndarray]] | None = None
    """Weights, or their gradients, as PyTorch's own module has them, or back; else they are the
    same, but for convolutions."""


def random_weights(rng, *shapes):
    """Weights of layers: normal numbers, over the root of what goes into a sum."""
    return [
        (rng.standard_normal(s) / np.sqrt(max(np.prod(s[:-1]), 1))).astype(np.float32)
        if len(s) > 1
        else np.zeros(s, np.float32)
        for s in shapes
    ]


# Perceptrons -------------------------------------------------------------------------------------


def perceptron(batch=128, widths=(784, 512, 512, 10)):
    """Dense layers with GELU in its tanh form between them, and a cross-entropy."""
    rng = np.random.default_rng(0)
    shapes = [s for a, b in pairwise(widths) for s in ((a, b), (b,))]
    x = rng.standard_normal((batch, widths[0])).astype(np.float32)
    labels = rng.integers(0, widths[-1], batch)
    sums = sum(a * b for a, b in pairwise(widths))
    flops = 2 * batch * (3 * sums - widths[0] * widths[1])

    def ours(w, x, labels):
        for i in range(0, len(w), 2):
            x = x @ w[i] + w[i + 1]
            if i + 2 < len(w):
                x = ef.gelu(x)
        return ef.mean(ef.sparse_softmax_cross_entropy(x, labels))

    def theirs(w, x, labels):
        import torch.nn.functional as F  # noqa: N812

        for i in range(0, len(w), 2):
            x = F.linear(x, w[i].T, w[i + 1])
            if i + 2 < len(w):
                x = F.gelu(x, approximate="tanh")
        return F.cross_entropy(x, labels)

    def in_jax(w, x, labels):
        import jax

        for i in range(0, len(w), 2):
            x = x @ w[i] + w[i + 1]
            if i + 2 < len(w):
                x = jax.nn.gelu(x)
        return jax_cross_entropy(x, labels)

    name = f"perceptron {'-'.join(map(str, widths))}, batch {batch}"
    weights = random_weights(rng, *shapes)
    return Work(name, "perceptron", weights, (x, labels), ours, theirs, in_jax, flops)


def jax_cross_entropy(x, labels):
    """The mean over all rows."""
    import jax
    import jax.numpy as jnp

    chosen = jnp.take_along_axis(x, labels[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(x, axis=-1) - chosen)


# Convolutional networks --------------------------------------------------------------------------


def convolutional(batch=64, size=32, channels=(3, 32, 64, 128), classes=10):
    """Convolutions of 3 by 3, batch normalization, relu and max pooling; a mean, a dense layer."""
    rng = np.random.default_rng(0)
    shapes, flops, area = [], 0, size * size
    for i, (a, b) in enumerate(pairwise(channels)):
        shapes += [(3, 3, a, b), (b,), (b,)]
        flops += 2 * batch * area * 9 * a * b * (3 if i else 2)
        area //= 4
    shapes += [(channels[-1], classes), (classes,)]
    weights = random_weights(rng, *shapes)
    for i in range(1, len(weights) - 2, 3):
        weights[i] += 1  # the scales of the normalizations
    x = rng.standard_normal((batch, size, size, channels[0])).astype(np.float32)
    labels = rng.integers(0, classes, batch)
    layers = len(channels) - 1

    def ours(w, x, labels):
        for i in range(layers):
            kernel, scale, offset = w[3 * i : 3 * i + 3]
            x = ef.conv(x, kernel, padding="same")
            x, _, _ = ef.batch_norm(x, scale, offset, epsilon=EPSILON_NORM)
            x = ef.max_pool(ef.relu(x), 2)
        logits = ef.mean(x, axis=(1, 2)) @ w[-2] + w[-1]
        return ef.mean(ef.sparse_softmax_cross_entropy(logits, labels))

    def theirs(w, x, labels):
        import torch.nn.functional as F  # noqa: N812

        for i in range(layers):
            kernel, scale, offset = w[3 * i : 3 * i + 3]
            x = F.conv2d(x, kernel, padding="same")
            x = F.batch_norm(x, None, None, scale, offset, True, eps=EPSILON_NORM)
            x = F.max_pool2d(F.relu(x), 2)
        return F.cross_entropy(F.linear(x.mean((2, 3)), w[-2].T, w[-1]), labels)

    def in_jax(w, x, labels):
        import jax
        import jax.numpy as jnp

        for i in range(layers):
            kernel, scale, offset = w[3 * i : 3 * i + 3]
            form = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=form)
            mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
            x = (x - mean) * (jax.lax.rsqrt(variance + EPSILON_NORM) * scale) + offset
            window = (1, 2, 2, 1)
            x = jax.nn.relu(x)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        return jax_cross_entropy(jnp.mean(x, (1, 2)) @ w[-2] + w[-1], labels)

    name = f"cnn {size}x{size}, {'-'.join(map(str, channels))}, batch {batch}"
    return Work(name, "cnn", weights, (x, labels), ours, theirs, in_jax, flops)


# GPTs --------------------------------------------------------------------------------------------


def gpt(batch=8, tokens=128, width=256, layers=4, heads=8, vocabulary=256):
    """A decoder in the form of GPT-2, without dropout; every token predicts the next one."""
    rng = np.random.default_rng(0)
    block = ((width,), (width,), (width, 3 * width), (3 * width,), (width, width), (width,))
    block += ((width,), (width,), (width, 4 * width), (4 * width,), (4 * width, width), (width,))
    shapes = [(vocabulary, width), (tokens, width), *block * layers, (width,), (width,)]
    weights = random_weights(rng, *shapes, (width, vocabulary))
    for at in [2 + 12 * i + j for i in range(layers) for j in (0, 6)] + [2 + 12 * layers]:
        weights[at] += 1  # the scales of the normalizations
    ids = rng.integers(0, vocabulary, (batch, tokens + 1))
    rows = batch * tokens
    flops = 6 * rows * (12 * width * width * layers + width * vocabulary)
    flops += 3 * layers * 2 * 2 * batch * tokens * tokens * width // 2  # half of the scores

    def blocks(w):
        return [w[2 + 12 * i : 14 + 12 * i] for i in range(layers)]

    def ours(w, ids):
        x = ef.take(w[0], ids[:, :-1], axis=0) + w[1]
        for g1, b1, qkv, qkv_b, out, out_b, g2, b2, up, up_b, down, down_b in blocks(w):
            h = ef.layer_norm(x, g1, b1, epsilon=EPSILON_NORM) @ qkv + qkv_b
            h = h.reshape(batch, tokens, 3, heads, width // heads)
            q, k, v = (ef.permute_dims(h[:, :, i], (0, 2, 1, 3)) for i in range(3))
            h = ef.dot_product_attention(q, k, v, is_causal=True)
            h = ef.permute_dims(h, (0, 2, 1, 3)).reshape(batch, tokens, width)
            x = x + h @ out + out_b
            h = ef.layer_norm(x, g2, b2, epsilon=EPSILON_NORM) @ up + up_b
            x = x + ef.gelu(h) @ down + down_b
        x = ef.layer_norm(x, w[-3], w[-2], epsilon=EPSILON_NORM) @ w[-1]
        return ef.mean(ef.sparse_softmax_cross_entropy(x, ids[:, 1:]))

    def theirs(w, ids):
        import torch.nn.functional as F  # noqa: N812

        x = F.embedding(ids[:, :-1], w[0]) + w[1]
        for g1, b1, qkv, qkv_b, out, out_b, g2, b2, up, up_b, down, down_b in blocks(w):
            h = F.linear(F.layer_norm(x, (width,), g1, b1, EPSILON_NORM), qkv.T, qkv_b)
            q, k, v = h.view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h.transpose(1, 2).reshape(batch, tokens, width)
            x = x + F.linear(h, out.T, out_b)
            h = F.linear(F.layer_norm(x, (width,), g2, b2, EPSILON_NORM), up.T, up_b)
            x = x + F.linear(F.gelu(h, approximate="tanh"), down.T, down_b)
        x = F.linear(F.layer_norm(x, (width,), w[-3], w[-2], EPSILON_NORM), w[-1].T)
        return F.cross_entropy(x.flatten(0, 1), ids[:, 1:].flatten())

    name = f"gpt width {width}, {batch}x{tokens} tokens"
    in_jax = partial(jax_gpt, blocks, heads)
    return Work(name, "gpt", weights, (ids,), ours, theirs, in_jax, flops)


def jax_gpt(blocks, heads, w, ids):
    """The loss of a decoder in JAX, of the weights that ``blocks`` tells apart."""
    import jax
    import jax.numpy as jnp

    def norm(x, scale, offset):
        mean = jnp.mean(x, -1, keepdims=True)
        variance = jnp.var(x, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + EPSILON_NORM) * scale + offset

    x = w[0][ids[:, :-1]] + w[1]
    for g1, b1, qkv, qkv_b, out, out_b, g2, b2, up, up_b, down, down_b in blocks(w):
        h = norm(x, g1, b1) @ qkv + qkv_b
        h = h.reshape(*h.shape[:2], 3, heads, -1)
        h = jax.nn.dot_product_attention(h[:, :, 0], h[:, :, 1], h[:, :, 2], is_causal=True)
        x = x + h.reshape(x.shape) @ out + out_b
        h = norm(x, g2, b2) @ up + up_b
        x = x + jax.nn.gelu(h) @ down + down_b
    return jax_cross_entropy(norm(x, w[-3], w[-2]) @ w[-1], ids[:, 1:])


# Recurrent networks ------------------------------------------------------------------------------


def recurrent(kind="lstm", batch=32, steps=100, width=64, units=256, written="scan"):
    """A recurrent layer, and a mean squared error of a dense layer on its last output.

    ``written`` says how ours is: by ``ef.scan`` as a user writes it, or by the op.
    """
    rng = np.random.default_rng(0)
    wide = {"lstm": 4, "gru": 3}[kind] * units
    shapes = [(width, wide), (units, wide), (wide,), (units, 1), (1,)]
    weights = random_weights(rng, *shapes)
    if kind == "gru":
        weights[2] = np.zeros((2, wide), np.float32)
    x = rng.standard_normal((batch, steps, width)).astype(np.float32)
    y = rng.standard_normal((batch, 1)).astype(np.float32)
    flops = 2 * batch * steps * wide * (2 * width + 3 * units)

    def loss_of(last_output):
        def ours(w, x, y):
            return ef.mean((last_output(w, x) @ w[3] + w[4] - y) ** 2)

        return ours

    def in_jax(w, x, y):
        import jax.numpy as jnp

        return jnp.mean((jax_recurrence(kind, units, w, x) @ w[3] + w[4] - y) ** 2)

    recurrence = {"op": our_recurrent_op, "scan": our_recurrent_scan}[written]
    ours = loss_of(partial(recurrence, kind, units))
    how = "" if written == "scan" else ", as an op"
    name = f"{kind} {units}, {batch}x{steps} steps{how}"
    theirs, turned = torch_recurrence(kind, width, units), partial(torch_gates, kind, units)
    return Work(name, kind, weights, (x, y), ours, theirs, in_jax, flops, turned)


def our_recurrent_op(kind, units, w, x):
    """The last output of a recurrence as one op."""
    found = (ef.lstm if kind == "lstm" else ef.gru)(x, *w[:3])
    return (found[0] if kind == "lstm" else found)[:, -1]


def our_recurrent_scan(kind, units, w, x):
    """The last output of a recurrence whose cell is written out."""

    def lstm(state, x):
        h, c = state
        i, f, n, o = ef.split(x @ w[0] + h @ w[1] + w[2], 4, axis=-1)
        c = ef.sigmoid(f) * c + ef.sigmoid(i) * ef.tanh(n)
        return (ef.sigmoid(o) * ef.tanh(c), c), None

    def gru(h, x):
        az, ar, an = ef.split(x @ w[0] + w[2][0], 3, axis=-1)
        uz, ur, un = ef.split(h @ w[1] + w[2][1], 3, axis=-1)
        z, r = ef.sigmoid(az + uz), ef.sigmoid(ar + ur)
        return z * h + (1 - z) * ef.tanh(an + r * un), None

    start, rows = ef.zeros((x.shape[0], units)), ef.permute_dims(x, (1, 0, 2))
    if kind == "lstm":
        return ef.scan(lstm, (start, start), rows)[0][0]
    return ef.scan(gru, start, rows)[0]


def jax_recurrence(kind, units, w, x):
    """The last output of a recurrence by ``jax.lax.scan``."""
    import jax
    import jax.numpy as jnp

    def lstm(state, x):
        h, c = state
        i, f, n, o = jnp.split(x @ w[0] + h @ w[1] + w[2], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(n)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    def gru(h, x):
        az, ar, an = jnp.split(x @ w[0] + w[2][0], 3, axis=-1)
        uz, ur, un = jnp.split(h @ w[1] + w[2][1], 3, axis=-1)
        z, r = jax.nn.sigmoid(az + uz), jax.nn.sigmoid(ar + ur)
        return z * h + (1 - z) * jnp.tanh(an + r * un), None

    start, rows = jnp.zeros((x.shape[0], units)), jnp.swapaxes(x, 0, 1)
    if kind == "lstm":
        return jax.lax.scan(lstm, (start, start), rows)[0][0]
    return jax.lax.scan(gru, start, rows)[0]


def torch_recurrence(kind, width, units):
    """A loss by ``torch.nn.LSTM`` or ``GRU``, whose weights are those that are given."""
    modules = {}

    def theirs(w, x, y):
        import torch

        layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind]
        layer = modules.setdefault(id(w), layer(width, units, batch_first=True))
        if layer.weight_ih_l0 is not w[0]:
            for name, value in zip(layer._flat_weights_names, w, strict=False):
                setattr(layer, name, value)
            w[3].requires_grad_(kind == "gru")  # ours has one bias for an LSTM
        h = layer(x)[0][:, -1]
        return ((torch.nn.functional.linear(h, w[4], w[5]) - y) ** 2).mean()

    return theirs


def torch_gates(kind, units, w, back):
    """Weights as PyTorch has them, or back.

    PyTorch has a gate's units in rows, an LSTM's gates in our order, a GRU's with the first two
    exchanged, and two biases.
    """
    order = [0, 1, 2, 3] if kind == "lstm" else [1, 0, 2]

    def gates(m):
        parts = [m[..., k * units : (k + 1) * units] for k in order]
        return np.concatenate(parts, axis=-1, dtype=m.dtype)

    if back:
        own, recurrent, *biases, last, offset = w
        biases = np.stack(biases) if kind == "gru" else biases[0]
        return [gates(own.T), gates(recurrent.T), gates(biases), last.T, offset]
    own, recurrent, bias, last, offset = w
    biases = gates(bias) if kind == "gru" else [bias, np.zeros_like(bias)]
    return [gates(own).T, gates(recurrent).T, *biases, last.T, offset]


WORKS = {
    "perceptron": perceptron,
    "cnn": convolutional,
    "gpt": gpt,
    "lstm": recurrent,
    "lstm op": partial(recurrent, written="op"),
}
"""The four works at the sizes that are reported, the last one in both of its forms."""


def grid():
    """The sizes that are looked at besides: functions that make works, small ones first."""
    yield from (
        partial(perceptron, batch, (width, width, width, 10))
        for width in (64, 256, 512, 2048)
        for batch in (1, 16, 128, 512)
    )
    yield from (
        partial(convolutional, batch, size, (3, channels, 2 * channels))
        for size, channels, batch in ((8, 8, 64), (16, 16, 64), (32, 32, 16), (64, 32, 4))
    )
    yield partial(convolutional, 32, 8, (128, 256))
    yield from (
        partial(gpt, batch, tokens, width, 2, max(width // 32, 2))
        for width, tokens, batch in (
            *((64, 16, 8), (64, 128, 8), (128, 64, 4), (128, 256, 2)),
            *((256, 128, 4), (256, 512, 1), (512, 128, 2)),
        )
    )
    yield from (
        partial(recurrent, kind, batch, steps, units // 2, units, written)
        for kind in ("lstm", "gru")
        for units, steps, batch in (
            (32, 16, 1),
            (64, 60, 8),
            (160, 60, 20),
            (128, 400, 8),
            (512, 16, 32),
        )
        for written in ("scan", "op")
    )


# Steps -------------------------------------------------------------------------------------------


def our_step(work, captured):
    """A step of ours: op by op, or captured."""
    weights = [ef.Variable(w) for w in work.weights]
    optimizer = ef.nn.optimizers.Adam(learning_rate=RATE, epsilon=EPSILON)

    def step(*batch):
        with ef.GradientTape() as tape:
            loss = work.ours(weights, *batch)
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    if captured:
        step = ef.function(step)
    return partial(step, *map(ef.tensor, work.batch))


def our_gradients(work, captured):
    """The loss and its gradients."""
    weights = [ef.Variable(w) for w in work.weights]

    def gradients(*batch):
        with ef.GradientTape() as tape:
            loss = work.ours(weights, *batch)
        return loss, tape.gradient(loss, weights)

    call = ef.function(gradients) if captured else gradients
    loss, found = call(*map(ef.tensor, work.batch))
    return [loss.numpy(), *(g.numpy() for g in found)]


def torch_state(work):
    """Weights and batch as PyTorch wants them: convolutions channels_last."""
    import torch

    def tensor(x):
        if x.ndim < 4:
            return torch.tensor(np.ascontiguousarray(x))
        return torch.tensor(x.copy()).contiguous(memory_format=torch.channels_last)

    weights = work.turned(work.weights, False) if work.turned else work.weights
    weights = [w.transpose(3, 2, 0, 1) if w.ndim == 4 else w for w in weights]
    batch = [x.transpose(0, 3, 1, 2) if x.ndim == 4 else x for x in work.batch]
    return [torch.nn.Parameter(tensor(w)) for w in weights], list(map(tensor, batch))


def torch_step(work, fused=False, compiled=False, mode=None):
    """A step of PyTorch; ``compiled`` with forward, loss and backward by torch.compile."""
    import torch

    weights, batch = torch_state(work)
    optimizer = torch.optim.Adam(weights, lr=RATE, eps=EPSILON, fused=fused)
    loss_of = torch.compile(work.torch, mode=mode) if compiled else work.torch

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(weights, *batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def torch_gradients(work):
    """The loss and its gradients, in our layout."""
    weights, batch = torch_state(work)
    loss = work.torch(weights, *batch)
    loss.backward()
    grads = [(w if w.grad is None else w.grad).detach().numpy() for w in weights]
    grads = [g.transpose(2, 3, 1, 0) if g.ndim == 4 else g for g in grads]
    return [loss.detach().numpy(), *(work.turned(grads, True) if work.turned else grads)]


def jax_batch(work):
    """The batch, with numbers of classes in 32 bits, as JAX has them."""
    import jax.numpy as jnp

    return [jnp.asarray(x.astype(np.int32) if x.dtype == np.int64 else x) for x in work.batch]


def jax_step(work):
    """A step of JAX, whose state is donated."""
    import jax
    import jax.numpy as jnp

    @partial(jax.jit, donate_argnums=0)
    def step(held, *batch):
        weights, means, squares, count = held
        loss, grads = jax.value_and_grad(work.jax)(weights, *batch)
        count = count + 1
        first, second = 1 - BETA_1**count, 1 - BETA_2**count
        means = [BETA_1 * m + (1 - BETA_1) * g for m, g in zip(means, grads, strict=True)]
        squares = [BETA_2 * v + (1 - BETA_2) * g * g for v, g in zip(squares, grads, strict=True)]
        weights = [
            w - RATE * (m / first) / (jnp.sqrt(v / second) + EPSILON)
            for w, m, v in zip(weights, means, squares, strict=True)
        ]
        return (weights, means, squares, count), loss

    weights, batch = list(map(jnp.asarray, work.weights)), jax_batch(work)
    zeros = [[jnp.zeros_like(w) for w in weights] for _ in range(2)]
    kept = [(weights, *zeros, jnp.float32(0))]

    def run():
        kept[0], loss = step(kept[0], *batch)
        return loss.block_until_ready()

    return run


def jax_gradients(work):
    """The loss and its gradients."""
    import jax
    import jax.numpy as jnp

    batch = [jnp.asarray(x.astype(np.int32) if x.dtype == np.int64 else x) for x in work.batch]
    loss, grads = jax.jit(jax.value_and_grad(work.jax))(
        list(map(jnp.asarray, work.weights)), *batch
    )
    return [np.asarray(loss), *map(np.asarray, grads)]


def number_of(loss):
    """A loss of any library as a Python number."""
    return float(loss.detach() if hasattr(loss, "detach") else loss)
