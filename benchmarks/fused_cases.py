"""The computations of fused_regions.py: the same one in eagerflow, PyTorch and JAX.

Backward is the gradient's kernel alone on every side, without a tape. Peers are written in the
quickest of the forms that were tried for each.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch._dynamo
from torch import nn

import eagerflow as ef
from eagerflow.ops.nn.losses import sparse_softmax_cross_entropy_gradient
from eagerflow.ops.nn.normalization import norm_gradient
from eagerflow.ops.reductions.softmax import log_softmax_gradient, softmax_gradient

EPSILON = 1e-5
TANH = "tanh"

MATRICES = ((4096, 1500), (4096, 1501), (100_000, 10), (1, 1_000_003))
FLAT = (10_000_000,)
ADAM_SIZE = 1_000_000
# Steps so large that a wrong one is seen, and an epsilon so small that it makes no difference on
# which side of the bias correction it is added.
ADAM = {"learning_rate": 0.1, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-12}

aten = torch.ops.aten


class Case(NamedTuple):
    """One computation on one shape: its inputs, and how each library does it."""

    inputs: tuple[Any, ...]
    ours: Any
    torch: Any
    jax: Any
    saved: tuple[Any, ...] = ()  # what peers also get, since their forward pass keeps it


def normal(*shape, seed=0):
    """Float32 numbers from the standard normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# The computations --------------------------------------------------------------------------------


def softmax_forward(shape):
    return Case((normal(*shape),), ef.softmax, lambda x: torch.softmax(x, -1), jax.nn.softmax)


def softmax_backward(shape):
    powers = np.exp(normal(*shape))
    y = powers / powers.sum(-1, keepdims=True)
    return Case(
        (y, normal(*shape, seed=1)),
        softmax_gradient,
        lambda y, g: aten._softmax_backward_data(g, y, -1, torch.float32),
        lambda y, g: y * (g - jnp.sum(y * g, -1, keepdims=True)),
    )


def log_softmax_forward(shape):
    x = normal(*shape)
    return Case((x,), ef.log_softmax, lambda x: torch.log_softmax(x, -1), jax.nn.log_softmax)


def log_softmax_backward(shape):
    x = normal(*shape)
    y = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return Case(
        (y, normal(*shape, seed=1)),
        log_softmax_gradient,
        lambda y, g: aten._log_softmax_backward_data(g, y, -1, torch.float32),
        lambda y, g: g - jnp.exp(y) * jnp.sum(g, -1, keepdims=True),
    )


def layer_norm_forward(shape):
    n = shape[-1]
    return Case(
        (normal(*shape), normal(n, seed=2), normal(n, seed=3)),
        lambda x, scale, offset: ef.layer_norm(x, scale, offset, epsilon=EPSILON),
        lambda x, scale, offset: nn.functional.layer_norm(x, (n,), scale, offset, EPSILON),
        lambda x, scale, offset: jax.nn.standardize(x, epsilon=EPSILON) * scale + offset,
    )


def layer_norm_backward(shape):
    x = normal(*shape)
    mean = x.mean(-1, keepdims=True, dtype=np.float64)
    factor = 1 / np.sqrt(x.var(-1, keepdims=True, dtype=np.float64) + EPSILON)

    def in_jax(x, g, scale, mean, factor):
        # Faster than jax.vjp of the forward pass, and like PyTorch spared its sums.
        h, u = (x - mean) * factor, g * scale
        inner = jnp.mean(u * h, -1, keepdims=True)
        of_x = (u - jnp.mean(u, -1, keepdims=True) - h * inner) * factor
        return of_x, jnp.sum(g * h, 0), jnp.sum(g, 0)

    return Case(
        (x, normal(*shape, seed=1), normal(shape[-1], seed=2)),
        lambda x, g, scale: norm_gradient(x, g, scale, epsilon=EPSILON),
        # The offset's values do not matter here, and the scale has its shape.
        lambda x, g, scale, mean, factor: aten.native_layer_norm_backward(
            g, x, list(scale.shape), mean, factor, scale, scale, [True, True, True]
        ),
        in_jax,
        saved=(mean.astype(np.float32), factor.astype(np.float32)),
    )


def gelu_forward(shape):
    x = normal(*shape)
    return Case((x,), ef.gelu, lambda x: nn.functional.gelu(x, approximate=TANH), jax.nn.gelu)


def gelu_backward(shape):
    pulls = {}

    def ours(x, g):
        # The gradient rule as the tape applies it, recorded once: microseconds above the kernels.
        if "pull" not in pulls:
            pulls["pull"] = ef.vjp(ef.gelu, x)[1]
        return pulls["pull"](g)

    return Case(
        (normal(*shape), normal(*shape, seed=1)),
        ours,
        lambda x, g: aten.gelu_backward(g, x, approximate=TANH),
        lambda x, g: jax.vjp(jax.nn.gelu, x)[1](g)[0],
    )


def jax_cross_entropy(x, labels):
    """As optax has it: half the time of picking from log_softmax."""
    chosen = jnp.take_along_axis(x, labels[:, None], -1)[:, 0]
    return jax.nn.logsumexp(x, -1) - chosen


def cross_entropy_forward(shape):
    rows, classes = shape
    labels = np.random.default_rng(4).integers(0, classes, rows)
    return Case(
        (normal(*shape), labels),
        ef.sparse_softmax_cross_entropy,
        lambda x, labels: nn.functional.cross_entropy(x, labels, reduction="none"),
        jax_cross_entropy,
    )


def cross_entropy_both(shape):
    def ours(x, labels, g):
        loss = ef.sparse_softmax_cross_entropy(x, labels)
        return loss, sparse_softmax_cross_entropy_gradient(x, labels, g)

    def in_torch(x, labels, g):
        # What cross_entropy and its backward pass call; "none" is reduction 0.
        y = aten._log_softmax(x, -1, False)
        loss, weight = aten.nll_loss_forward(y, labels, None, 0, -100)
        of_y = aten.nll_loss_backward(g, y, labels, None, 0, -100, weight)
        return loss, aten._log_softmax_backward_data(of_y, y, -1, torch.float32)

    def in_jax(x, labels, g):
        loss, pull = jax.vjp(lambda x: jax_cross_entropy(x, labels), x)
        return loss, pull(g)[0]

    inputs = (*cross_entropy_forward(shape).inputs, normal(shape[0], seed=1))
    return Case(inputs, ours, in_torch, in_jax)


WORKS = {
    "softmax forward": (softmax_forward, MATRICES),
    "softmax backward": (softmax_backward, MATRICES),
    "log_softmax forward": (log_softmax_forward, MATRICES),
    "log_softmax backward": (log_softmax_backward, MATRICES),
    "layer_norm forward": (layer_norm_forward, MATRICES),
    "layer_norm backward": (layer_norm_backward, MATRICES),
    "gelu forward": (gelu_forward, (*MATRICES, FLAT)),
    "gelu backward": (gelu_backward, (*MATRICES, FLAT)),
    "cross_entropy forward": (cross_entropy_forward, MATRICES),
    "cross_entropy both": (cross_entropy_both, MATRICES),
}


# Contestants -------------------------------------------------------------------------------------


def holding(function):
    """The function, whose last result lives until the next one is there, as in a loop."""
    held = [None]

    def call():
        held[0] = function()
        return held[0]

    return call


def our_call(case):
    """The computation in eagerflow, on tensors made beforehand."""
    mine = [ef.tensor(x) for x in case.inputs]
    return holding(lambda: case.ours(*mine))


def contestants_of(case, compiled):
    """Each library's function without arguments."""
    # torch.tensor and jnp.array copy, so that each library aligns its arrays as it likes best.
    everything = (*case.inputs, *case.saved)
    theirs = [torch.tensor(x) for x in everything]
    jaxs = [jnp.array(x) for x in everything]
    jitted = jax.jit(case.jax)
    calls = {"eagerflow": our_call(case), "PyTorch": holding(lambda: case.torch(*theirs))}
    if compiled:
        torch._dynamo.reset()
        fused = torch.compile(case.torch, dynamic=False)
        calls["torch.compile"] = holding(lambda: fused(*theirs))
    calls["jax.jit"] = holding(lambda: jax.block_until_ready(jitted(*jaxs)))
    return calls


def torch_adam(parameter, gradient, compiled=False, **which):
    """A function that makes PyTorch's optimizer take a step."""
    watched = nn.Parameter(torch.tensor(parameter))
    watched.grad = torch.tensor(gradient)
    betas = (ADAM["beta_1"], ADAM["beta_2"])
    optimizer = torch.optim.Adam(
        [watched], lr=ADAM["learning_rate"], betas=betas, eps=ADAM["epsilon"], **which
    )
    update = optimizer.step
    if compiled:
        torch._dynamo.reset()
        update = torch.compile(optimizer.step, dynamic=False)

    def step():
        update()
        state = optimizer.state[watched]
        return watched, state["exp_avg"], state["exp_avg_sq"]

    return step


def our_adam(parameter, gradient):
    """The same with our op, from results to results."""
    g, options = ef.tensor(gradient), dict(ADAM)
    rate = ef.tensor(np.float32(options.pop("learning_rate")))
    zeros = np.zeros_like(parameter)
    state, count = [ef.tensor(x) for x in (parameter, zeros, zeros)], 0

    def step():
        nonlocal state, count
        count += 1
        p, m, s = state
        state = ef.adam_update(p, g, m, s, rate, np.float32(count), **options)
        return state

    return step


def jax_adam(parameter, gradient):
    """The same in JAX, in place: the old arrays are donated to the new ones."""
    g, rate, b1, b2 = jnp.array(gradient), *(ADAM[k] for k in ("learning_rate", "beta_1", "beta_2"))

    def update(p, m, s, g, t):
        m = b1 * m + (1 - b1) * g
        s = b2 * s + (1 - b2) * g * g
        scale = rate * jnp.sqrt(1 - b2**t) / (1 - b1**t)
        return p - scale * m / (jnp.sqrt(s) + ADAM["epsilon"]), m, s

    jitted = jax.jit(update, donate_argnums=(0, 1, 2))
    zeros = np.zeros_like(parameter)
    state, count = [jnp.array(x) for x in (parameter, zeros, zeros)], 0

    def step():
        nonlocal state, count
        count += 1
        state = jax.block_until_ready(jitted(*state, g, np.float32(count)))
        return state

    return step


def adam_contestants(compiled):
    """Each library's step of Adam, all from the same start, and the bytes that it reads."""
    start = normal(ADAM_SIZE), normal(ADAM_SIZE, seed=1)
    calls = {
        "eagerflow": our_adam(*start),
        "PyTorch fused": torch_adam(*start, fused=True),
        "PyTorch foreach": torch_adam(*start, foreach=True),
    }
    if compiled:
        calls["torch.compile"] = torch_adam(*start, compiled=True)
    calls["jax.jit"] = jax_adam(*start)
    return calls, 4 * start[0].nbytes
