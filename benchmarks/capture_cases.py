"""What the benchmarks of capture run: networks and steps, the same in each library.

The perceptron takes 784 numbers to 512, 512 and 10; the other network is the demo's. Their
weights are made by eagerflow and copied. A step is a function without arguments that trains on
one batch, always the same, with Adam, and returns the loss in the library's own type.

Peers run as their own documentation says for speed: PyTorch with channels_last,
``zero_grad(set_to_none=True)`` and Adam's fused form beside the plain one; torch.compile with
forward and loss in one graph; JAX with the whole step in one jit whose state is donated.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import eagerflow as ef
from eagerflow.cli.demo import build_network

RATE, BETA_1, BETA_2 = 1e-3, 0.9, 0.999
# So small that it makes no difference on which side of the bias correction it is added.
EPSILON = 1e-12
DROPOUT = 0.4
BATCH_NORM_EPSILON, MOMENTUM = 1e-3, 0.9


class Case(NamedTuple):
    """A network with a batch to train it on.

    ``products`` are the matrix products of one step, as (rows, inner, columns, how often), where
    a convolution is the product that it is when written directly.
    """

    name: str
    kind: str
    x: np.ndarray
    labels: np.ndarray
    widths: tuple[int, ...]
    dropout: bool
    products: tuple[tuple[int, int, int, int], ...]


def batch_of(shape, classes=10):
    """Numbers from the normal distribution, and labels that depend on them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    teacher = rng.standard_normal((int(np.prod(shape[1:])), classes)).astype(np.float32)
    return x, (x.reshape(shape[0], -1) @ teacher).argmax(axis=1).astype(np.int64)


def perceptron_case(batch=128, widths=(784, 512, 512, 10), name="perceptron"):
    """Dense layers of these widths, with relu between them."""
    x, labels = batch_of((batch, widths[0]))
    products = []
    for i, (one, other) in enumerate(pairwise(widths)):
        products += [(batch, one, other, 1), (one, batch, other, 1)]
        if i:  # nobody asks for the gradient of the data
            products.append((batch, other, one, 1))
    return Case(name, "dense", x, labels, widths, False, tuple(products))


def demo_case(batch=64, dropout=True):
    """The network of ``eagerflow demo``; its dropout can be left out to compare results."""
    x, labels = batch_of((batch, 8, 8, 1))
    pixels = batch * 8 * 8
    products = (
        (pixels, 9, 32, 1),
        (9, pixels, 32, 1),
        (pixels, 9 * 32, 64, 1),
        (9 * 32, pixels, 64, 1),
        (pixels, 9 * 64, 32, 1),
        (batch, 1024, 10, 1),
        (1024, batch, 10, 1),
        (batch, 10, 1024, 1),
    )
    return Case("demo" if dropout else "demo, no dropout", "demo", x, labels, (), dropout, products)


CASES = {"perceptron": perceptron_case, "demo": demo_case}


def products_of(case):
    """A function that makes all products of a step, into memory that exists already."""
    rng = np.random.default_rng(1)
    made = []
    for rows, inner, columns, count in case.products:
        a = rng.standard_normal((rows, inner), np.float32)
        b = rng.standard_normal((inner, columns), np.float32)
        made += [(a, b, np.empty((rows, columns), np.float32))] * count

    def multiply():
        for a, b, out in made:
            np.matmul(a, b, out)
        return out

    return multiply


# eagerflow ---------------------------------------------------------------------------------------


def our_network(case):
    """The network with its weights, which are the same each time."""
    ef.random.seed(0)
    if case.kind == "demo":
        model = build_network()
        if not case.dropout:
            model.layers = [x for x in model.layers if not isinstance(x, ef.nn.Dropout)]
    else:
        last = len(case.widths) - 2
        model = ef.nn.Sequential(
            [
                ef.nn.Dense(n, activation=None if i == last else "relu")
                for i, n in enumerate(case.widths[1:])
            ]
        )
    model(ef.tensor(case.x[:1]))
    return model


def our_function(model):
    """The step as a user writes it: a function of images and labels."""
    optimizer = ef.nn.optimizers.Adam(learning_rate=RATE, epsilon=EPSILON)

    def step(x, labels):
        with ef.GradientTape() as tape:
            logits = model(x, training=True)
            loss = ef.mean(ef.sparse_softmax_cross_entropy(logits, labels))
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step


def our_step(case, captured, numerics="fast"):
    """The step, op by op or captured."""
    step = our_function(our_network(case))
    if captured:
        step = ef.function(step, numerics=numerics)
    return partial(step, ef.tensor(case.x), ef.tensor(case.labels))


def our_gradients(case, captured):
    """The loss and its gradients, without training."""
    model = our_network(case)

    def gradients(x, labels):
        with ef.GradientTape() as tape:
            logits = model(x, training=True)
            loss = ef.mean(ef.sparse_softmax_cross_entropy(logits, labels))
        return loss, tape.gradient(loss, model.trainable_weights)

    if captured:
        gradients = ef.function(gradients)
    loss, found = gradients(ef.tensor(case.x), ef.tensor(case.labels))
    return [loss.numpy(), *(g.numpy() for g in found)]


FIT_STEPS = 8


def our_fit(case):
    """``fit`` on as many batches, which measures the loss and nothing else."""
    model = our_network(case)
    model.compile(
        optimizer=ef.nn.optimizers.Adam(learning_rate=RATE, epsilon=EPSILON),
        loss=ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, labels = (np.concatenate([part] * FIT_STEPS) for part in (case.x, case.labels))
    return partial(model.fit, x, labels, batch_size=len(case.x), epochs=1, verbose=0, shuffle=False)


# PyTorch -----------------------------------------------------------------------------------------


def torch_network(case):
    """The same network with the same weights, in PyTorch."""
    import torch  # not above: memory is measured without it
    from torch import nn

    class Flat(nn.Module):
        def forward(self, x):
            return x.permute(0, 2, 3, 1).flatten(1)  # channels last, as our weights are

    if case.kind == "demo":
        parts = []
        for before, after in ((1, 32), (32, 64)):
            parts += [
                nn.Conv2d(before, after, 3, padding="same", bias=False),
                nn.BatchNorm2d(after, eps=BATCH_NORM_EPSILON, momentum=1 - MOMENTUM),
                nn.ReLU(),
            ]
        parts += [nn.MaxPool2d(2), Flat()]
        parts += [nn.Dropout(DROPOUT)] if case.dropout else []
        network = nn.Sequential(*parts, nn.Linear(1024, 10))
    else:
        parts = []
        for before, after in pairwise(case.widths):
            parts += [nn.Linear(before, after), nn.ReLU()]
        network = nn.Sequential(*parts[:-1])
    with torch.no_grad():
        weights = our_network(case).trainable_weights
        for parameter, weight in zip(network.parameters(), weights, strict=True):
            value = np.array(weight.numpy())
            if value.ndim == 4:  # HWIO to OIHW
                value = value.transpose(3, 2, 0, 1)
            elif value.ndim == 2:
                value = value.T
            parameter.copy_(torch.tensor(np.ascontiguousarray(value)))
    return network.to(memory_format=torch.channels_last)


def torch_data(case):
    """The batch as PyTorch wants it."""
    import torch

    x = torch.tensor(case.x)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    return x, torch.tensor(case.labels)


def torch_step(case, fused=False, compiled=False):
    """The step in PyTorch; with ``compiled``, forward, loss and backward by torch.compile."""
    import torch

    network = torch_network(case)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE, eps=EPSILON, fused=fused)
    x, labels = torch_data(case)

    def loss_of(x, labels):
        return torch.nn.functional.cross_entropy(network(x), labels)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def torch_gradients(case, compiled=False):
    """The loss and its gradients, in our layout."""
    import torch

    network = torch_network(case)

    def loss_of(x, labels):
        return torch.nn.functional.cross_entropy(network(x), labels)

    loss = (torch.compile(loss_of) if compiled else loss_of)(*torch_data(case))
    loss.backward()
    found = [loss.detach().numpy()]
    for parameter in network.parameters():
        g = parameter.grad.detach().numpy()
        found.append(g.transpose(2, 3, 1, 0) if g.ndim == 4 else g.T if g.ndim == 2 else g)
    return found


# JAX ---------------------------------------------------------------------------------------------


def jax_loss(case):
    """The loss as a function of weights, running statistics, key, images and labels."""
    import jax
    import jax.numpy as jnp

    def normalize(x, gamma, beta, statistics):
        mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        statistics = [
            MOMENTUM * old + (1 - MOMENTUM) * new
            for old, new in zip(statistics, (mean, variance), strict=True)
        ]
        scale = jax.lax.rsqrt(variance + BATCH_NORM_EPSILON) * gamma
        return (x - mean) * scale + beta, statistics

    def demo(weights, state, key, x):
        found = []
        for i in range(2):
            kernel, gamma, beta = weights[3 * i : 3 * i + 3]
            x = jax.lax.conv_general_dilated(
                x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x, statistics = normalize(x, gamma, beta, state[2 * i : 2 * i + 2])
            x = jax.nn.relu(x)
            found += statistics
        window = (1, 2, 2, 1)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        x = x.reshape(x.shape[0], -1)
        if case.dropout:
            kept = jax.random.bernoulli(key, 1 - DROPOUT, x.shape)
            x = jnp.where(kept, x / (1 - DROPOUT), 0.0)
        return x @ weights[6] + weights[7], found

    def dense(weights, state, key, x):
        for i in range(0, len(weights), 2):
            x = x @ weights[i] + weights[i + 1]
            if i + 2 < len(weights):
                x = jax.nn.relu(x)
        return x, state

    forward = demo if case.kind == "demo" else dense

    def loss(weights, state, key, x, labels):
        logits, state = forward(weights, state, key, x)
        chosen = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=1) - chosen), state

    return loss


def jax_data(case):
    """Weights, running statistics, key, images and labels."""
    import jax
    import jax.numpy as jnp

    weights = [jnp.asarray(w.numpy()) for w in our_network(case).trainable_weights]
    state = []
    if case.kind == "demo":
        state = [f((n,)) for n in (32, 64) for f in (jnp.zeros, jnp.ones)]
    x, labels = jnp.asarray(case.x), jnp.asarray(case.labels.astype(np.int32))
    return weights, state, jax.random.key(0), x, labels


def jax_step(case):
    """The step in JAX; everything that it changes is donated."""
    import jax
    import jax.numpy as jnp

    value_and_grad = jax.value_and_grad(jax_loss(case), has_aux=True)

    @partial(jax.jit, donate_argnums=0)
    def step(held, x, labels):
        weights, state, means, squares, count, key = held
        key, own = jax.random.split(key)
        (loss, state), grads = value_and_grad(weights, state, own, x, labels)
        count = count + 1
        rate = RATE * jnp.sqrt(1 - BETA_2**count) / (1 - BETA_1**count)
        floor = EPSILON * jnp.sqrt(1 - BETA_2**count)
        means = [BETA_1 * m + (1 - BETA_1) * g for m, g in zip(means, grads, strict=True)]
        squares = [BETA_2 * v + (1 - BETA_2) * g * g for v, g in zip(squares, grads, strict=True)]
        weights = [
            w - rate * m / (jnp.sqrt(v) + floor)
            for w, m, v in zip(weights, means, squares, strict=True)
        ]
        return (weights, state, means, squares, count, key), loss

    weights, state, key, x, labels = jax_data(case)
    zeros = [[jnp.zeros_like(w) for w in weights] for _ in range(2)]
    kept = [(weights, state, *zeros, jnp.float32(0), key)]

    def run():
        kept[0], loss = step(kept[0], x, labels)
        return loss.block_until_ready()

    return run


def jax_gradients(case):
    """The loss and its gradients."""
    import jax

    (loss, _), grads = jax.jit(jax.value_and_grad(jax_loss(case), has_aux=True))(*jax_data(case))
    return [np.asarray(loss), *map(np.asarray, grads)]


def number_of(loss) -> Any:
    """A loss of any library as a Python number."""
    return float(loss.detach() if hasattr(loss, "detach") else loss)
