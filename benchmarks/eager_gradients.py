"""Gradients of large arrays, eagerly, as a user writes them: against PyTorch and jax.jit.

    python benchmarks/eager_gradients.py [--rounds 15] [--only gelu] [--json]

float32, two threads. Every row goes forward under a tape and backward: of activations, softmax and
norms "by g" with a gradient of the result that is given, and "weighted", as the gradient of
``sum(f(x) * w)``; of losses with the mean over all examples. Ratios are to PyTorch; jax.jit, which
has compiled the whole before, is there to see what is in reach.
"""

import os
import warnings
from typing import Any, NamedTuple

import harness
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

import eagerflow as ef

THREADS = 2
TARGET = 1.0  # of PyTorch's time
PAUSE = 0.02  # between blocks: OpenMP's threads go on spinning for some milliseconds
SECONDS = 0.04  # of each timed block
RTOL = 3e-5  # of the largest value
EPSILON = 1e-5

SHAPES = ((1024, 700), (4096, 1500))
IMAGES = ((32, 32, 32, 64),)  # channels last
CLASSES = 1000


def normal(*shape, seed=0):
    """Float32 numbers from the standard normal distribution."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


class Case(NamedTuple):
    """A function in each library, of an array of a shape and further ones that it is given."""

    ours: Any
    torch: Any
    jax: Any
    shapes: tuple = SHAPES
    more: Any = lambda shape: ()
    watched: int = 1  # how many of the arrays have a gradient


def parameters(shape):
    """Scale and offset of a norm."""
    return 1 + normal(shape[-1], seed=2) / 8, normal(shape[-1], seed=3)


def torch_batch_norm(x, scale, offset):
    """Over channels that lie last in memory, as PyTorch wants it for best speed."""
    y = functional.batch_norm(x.permute(0, 3, 1, 2), None, None, scale, offset, True, 0.1, EPSILON)
    return y.permute(0, 2, 3, 1)


def jax_batch_norm(x, scale, offset):
    return jax.nn.standardize(x, axis=(0, 1, 2), epsilon=EPSILON) * scale + offset


def jax_rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPSILON) * scale


FUNCTIONS = {
    "softmax": Case(ef.softmax, lambda x: torch.softmax(x, -1), jax.nn.softmax),
    "log_softmax": Case(ef.log_softmax, lambda x: torch.log_softmax(x, -1), jax.nn.log_softmax),
    "gelu, tanh form": Case(ef.gelu, lambda x: functional.gelu(x, approximate="tanh"), jax.nn.gelu),
    "gelu, exact": Case(
        lambda x: ef.gelu(x, approximate=False),
        functional.gelu,
        lambda x: jax.nn.gelu(x, approximate=False),
    ),
    "silu": Case(ef.silu, functional.silu, jax.nn.silu),
    "mish": Case(ef.mish, functional.mish, jax.nn.mish),
    "elu": Case(ef.elu, functional.elu, jax.nn.elu),
    "softplus": Case(ef.softplus, functional.softplus, jax.nn.softplus),
    "sigmoid": Case(ef.sigmoid, torch.sigmoid, jax.nn.sigmoid),
    "tanh": Case(ef.tanh, torch.tanh, jnp.tanh),
    "relu": Case(ef.relu, torch.relu, jax.nn.relu),
    "hard_silu": Case(ef.hard_silu, functional.hardswish, jax.nn.hard_silu),
    "softsign": Case(ef.softsign, functional.softsign, jax.nn.soft_sign),
    "exp": Case(ef.exp, torch.exp, jnp.exp),
    "layer_norm": Case(
        lambda x, s, o: ef.layer_norm(x, s, o, epsilon=EPSILON),
        lambda x, s, o: functional.layer_norm(x, x.shape[-1:], s, o, EPSILON),
        lambda x, s, o: jax.nn.standardize(x, epsilon=EPSILON) * s + o,
        more=parameters,
        watched=3,
    ),
    "rms_norm": Case(
        lambda x, s: ef.rms_norm(x, s, epsilon=EPSILON),
        lambda x, s: functional.rms_norm(x, x.shape[-1:], s, EPSILON),
        jax_rms_norm,
        more=lambda shape: parameters(shape)[:1],
        watched=2,
    ),
    "batch_norm": Case(
        lambda x, s, o: ef.batch_norm(x, s, o, epsilon=EPSILON)[0],
        torch_batch_norm,
        jax_batch_norm,
        IMAGES,
        parameters,
        watched=3,
    ),
}


def classes(shape):
    """The class of each example."""
    return (np.random.default_rng(5).integers(0, shape[-1], shape[:-1]),)


def probabilities(shape):
    """A probability for each class."""
    powers = np.exp(normal(*shape, seed=6))
    return (powers / powers.sum(-1, keepdims=True),)


def targets(shape):
    return (normal(*shape, seed=7),)


def yes_or_no(shape):
    return ((normal(*shape, seed=8) > 0).astype(np.float32),)


def jax_cross_entropy(x, labels):
    """As optax has it."""
    chosen = jnp.take_along_axis(x, labels[:, None], -1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(x, -1) - chosen)


def jax_binary(x, z):
    return jnp.mean(jnp.maximum(x, 0) - x * z + jnp.log1p(jnp.exp(-jnp.abs(x))))


def jax_huber(x, z):
    size = jnp.abs(x - z)
    inner = jnp.minimum(size, 1.0)
    return jnp.mean(inner * (size - inner * 0.5))


losses = ef.nn.losses
LOSSES = {
    "cross entropy of classes": Case(
        lambda x, z: ef.sparse_softmax_cross_entropy(x, z).mean(),
        functional.cross_entropy,
        jax_cross_entropy,
        more=classes,
    ),
    "cross entropy of probabilities": Case(
        lambda x, z: ef.softmax_cross_entropy(x, z).mean(),
        functional.cross_entropy,
        lambda x, z: -jnp.mean(jnp.sum(z * jax.nn.log_softmax(x), -1)),
        more=probabilities,
    ),
    "binary cross entropy": Case(
        lambda x, z: ef.sigmoid_cross_entropy(x, z).mean(),
        functional.binary_cross_entropy_with_logits,
        jax_binary,
        more=yes_or_no,
    ),
    "mean squared error": Case(
        lambda x, z: losses.mean_squared_error(z, x).mean(),
        functional.mse_loss,
        lambda x, z: jnp.mean((x - z) ** 2),
        more=targets,
    ),
    "squared error by hand": Case(
        lambda x, z: ((x - z) ** 2).mean(),
        lambda x, z: ((x - z) ** 2).mean(),
        lambda x, z: jnp.mean((x - z) ** 2),
        more=targets,
    ),
    "mean absolute error": Case(
        lambda x, z: losses.mean_absolute_error(z, x).mean(),
        functional.l1_loss,
        lambda x, z: jnp.mean(jnp.abs(x - z)),
        more=targets,
    ),
    "huber": Case(
        lambda x, z: losses.huber(z, x).mean(), functional.huber_loss, jax_huber, more=targets
    ),
    "divergence": Case(
        lambda x, z: losses.kl_divergence(z, ef.softmax(x)).mean(),
        lambda x, z: functional.kl_div(torch.log_softmax(x, -1), z, reduction="batchmean"),
        lambda x, z: jnp.mean(jnp.sum(z * (jnp.log(z) - jax.nn.log_softmax(x)), -1)),
        more=probabilities,
    ),
}


# Contestants -------------------------------------------------------------------------------------


def contestants(case, shape, weighted):
    """Each library's function without arguments, which gives all gradients.

    ``weighted`` is None for a loss.
    """
    arrays = normal(*shape), *case.more(shape)
    g = normal(*shape, seed=1)
    by_g = weighted is False

    def value(f, times):
        return f if weighted is None or by_g else lambda *args: (f(*args) * times).sum()

    mine, mine_g = [ef.tensor(a) for a in arrays], ef.tensor(g)
    ours, watched = value(case.ours, mine_g), mine[: case.watched]

    def in_eagerflow():
        with ef.GradientTape() as tape:
            tape.watch(watched)
            y = ours(*mine)
        return tape.gradient(y, watched, mine_g if by_g else None)

    theirs = [torch.tensor(a) for a in arrays]
    theirs_g, theirs_watched = torch.tensor(g), theirs[: case.watched]
    for x in theirs_watched:
        x.requires_grad_()
    in_torch = value(case.torch, theirs_g)

    def in_pytorch():
        return torch.autograd.grad(in_torch(*theirs), theirs_watched, theirs_g if by_g else None)

    jaxs, jaxs_g = [jnp.array(a) for a in arrays], jnp.array(g)
    numbers = tuple(range(case.watched))
    if by_g:
        pull = jax.jit(
            lambda g, *args: jax.vjp(
                lambda *own: case.jax(*own, *args[case.watched :]), *args[: case.watched]
            )[1](g)
        )
        in_jax = lambda: pull(jaxs_g, *jaxs)
    else:
        grad = jax.jit(jax.grad(value(case.jax, jaxs_g), numbers))
        in_jax = lambda: grad(*jaxs)
    return {
        "eagerflow": holding(in_eagerflow),
        "PyTorch": holding(in_pytorch),
        "jax.jit": holding(lambda: jax.block_until_ready(in_jax())),
    }


def holding(function):
    """The function, whose last result lives until the next one is there, as in a loop."""
    held = [None]

    def call():
        held[0] = function()
        return held[0]

    return call


def row(name, case, shape, weighted, rounds):
    """Check and time one case."""
    calls = contestants(case, shape, weighted)
    results = {who: [np.asarray(x) for x in call()] for who, call in calls.items()}
    scales = [np.abs(x).max() for x in results["eagerflow"]]
    relative = {
        who: [x / scale for x, scale in zip(xs, scales, strict=True)] for who, xs in results.items()
    }
    harness.agree(name, relative, RTOL)
    return harness.compare(
        name, calls, "eagerflow", "PyTorch", rounds, SECONDS, TARGET, pause=PAUSE
    )


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("--only", default="", help="rows with this in their name, as printed")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # JAX has as many threads as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    warnings.filterwarnings("ignore", message="reduction: 'mean'")
    forms = [(n, c, w) for n, c in FUNCTIONS.items() for w in (False, True)]
    forms += [(n, c, None) for n, c in LOSSES.items()]
    rows = []
    for name, case, weighted in forms:
        kind = {False: ", by g", True: ", weighted", None: ""}[weighted]
        for shape in case.shapes:
            full = f"{name}{kind}, {'x'.join(map(str, shape))}"
            if options.only in full:
                rows.append(row(full, case, shape, weighted, options.rounds))
                print(full, rows[-1]["microseconds"], rows[-1]["ratio"], flush=True)
    if not rows:
        raise SystemExit(f"no row has {options.only!r} in its name")
    harness.report("forward and backward (µs)", rows)
    ratios = np.array([r["ratio"] for r in rows])
    print(f"\ngeometric mean {np.exp(np.log(ratios).mean()):.2f}, largest {ratios.max():.2f}")
    if options.json:
        versions = {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
        harness.save("eager_gradients", rows, versions)


if __name__ == "__main__":
    main()
