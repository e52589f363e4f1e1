"""Regions written by hand with small ops, captured, against torch.compile, jax.jit and a copy.

    python benchmarks/captured_regions.py [--rounds 25] [--only softmax] [--no-compile] [--json]

GELU (its tanh form, nine steps), softmax and layer norm, each from elementary ops that every
library has, float32, two threads. Titles tell how many kernels ours became. The first ratio is to
the best peer, PyTorch's eager ops among them, the second to two threads that copy as many bytes
as the region reads and writes at the least.
"""

import os
import warnings

import harness
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch._inductor.config
from fused_cases import normal
from fused_regions import COPY_TARGET, PEER_TARGET, QUIET, THREADS, arguments, row, show, show_title

import eagerflow as ef

SHAPES = ((4096, 1504), (4096, 1500))
EPSILON = 1e-5


class Ours:
    """The names that the regions use, in eagerflow."""

    tanh, exp, sqrt = staticmethod(ef.tanh), staticmethod(ef.exp), staticmethod(ef.sqrt)

    @staticmethod
    def mean(x):
        return ef.mean(x, axis=-1, keepdims=True)

    @staticmethod
    def sum(x):
        return ef.sum(x, axis=-1, keepdims=True)

    @staticmethod
    def max(x):
        return ef.max(x, axis=-1, keepdims=True)


class Torch:
    """The same in PyTorch."""

    tanh, exp, sqrt = torch.tanh, torch.exp, torch.sqrt

    @staticmethod
    def mean(x):
        return torch.mean(x, dim=-1, keepdim=True)

    @staticmethod
    def sum(x):
        return torch.sum(x, dim=-1, keepdim=True)

    @staticmethod
    def max(x):
        return torch.amax(x, dim=-1, keepdim=True)


class Jax:
    """The same in JAX."""

    tanh, exp, sqrt = staticmethod(jnp.tanh), staticmethod(jnp.exp), staticmethod(jnp.sqrt)

    @staticmethod
    def mean(x):
        return jnp.mean(x, axis=-1, keepdims=True)

    @staticmethod
    def sum(x):
        return jnp.sum(x, axis=-1, keepdims=True)

    @staticmethod
    def max(x):
        return jnp.max(x, axis=-1, keepdims=True)


def gelu(library, x):
    """Nine steps: three products for the cube and its factor, and so on."""
    cube = x * x * x
    inner = (x + cube * 0.044715) * 0.7978845608
    return x * 0.5 * (library.tanh(inner) + 1.0)


def softmax(library, x):
    """Powers of the distance to the largest, over their sum."""
    powers = library.exp(x - library.max(x))
    return powers / library.sum(powers)


def layer_norm(library, x, scale, shift):
    """The distance to the mean, over the root of its mean square."""
    centered = x - library.mean(x)
    variance = library.mean(centered * centered)
    return centered / library.sqrt(variance + EPSILON) * scale + shift


WORKS = {
    "gelu": (gelu, ()),
    "softmax": (softmax, ()),
    "layer norm": (layer_norm, (1, 2)),  # seeds of what it also takes for each column
}


def ready(function, *inputs):
    """A call of a function of JAX that waits for its result."""

    def call():
        return function(*inputs).block_until_ready()

    return call


def contestants_of(work, arrays, compiled):
    """The region in each library, and how many kernels ours became."""

    def ours(*xs):
        return work(Ours, *xs)

    def torchs(*xs):
        return work(Torch, *xs)

    captured = ef.function(ours)
    tensors = [ef.tensor(a) for a in arrays]
    calls = {"eagerflow": lambda: captured(*tensors)}
    theirs = [torch.tensor(a) for a in arrays]
    if compiled:
        torch._dynamo.reset()
        compiled_one = torch.compile(torchs)
        calls["torch.compile"] = lambda: compiled_one(*theirs)
    calls["PyTorch"] = lambda: torchs(*theirs)
    calls["jax.jit"] = ready(jax.jit(lambda *xs: work(Jax, *xs)), *map(jnp.asarray, arrays))
    kernels = captured.graph(*tensors).plan().kernels
    return calls, len(kernels)


def main():
    options = arguments()
    if hasattr(os, "sched_setaffinity"):  # JAX has as many threads as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    torch._inductor.config.force_disable_caches = True  # so that first calls do compile
    warnings.filterwarnings("ignore", "dynamo_pgo force disabled")  # which is what we want
    rows = []
    for name, (work, seeds) in WORKS.items():
        chosen = [s for s in SHAPES if options.only in f"{name} {'x'.join(map(str, s))}"]
        for shape in chosen:
            arrays = [normal(*shape), *(normal(shape[-1], seed=seed) for seed in seeds)]
            calls, kernels = contestants_of(work, arrays, options.compile)
            if shape == chosen[0]:
                show_title(f"{name}, {kernels} kernel{'s' * (kernels != 1)}", [*calls, "copy"])
            text = "x".join(map(str, shape))
            read = sum(a.nbytes for a in arrays)
            rows.append(row(f"{name} {text}", calls, read, options.rounds) | {"kernels": kernels})
            show(text, rows[-1])
    if not rows:
        raise SystemExit(f"no row has {options.only!r} in its name")
    met = sum(r["ratio"] <= PEER_TARGET and r["of_copy"] <= COPY_TARGET for r in rows)
    print(f"\n{met} of {len(rows)} rows meet both targets")
    disturbed = sum((r["others"] or 0) > QUIET for r in rows)
    if disturbed:
        print(f"{disturbed} rows were disturbed: others took more than {QUIET:.0%}; repeat them")
    if options.json:
        versions = {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__}
        harness.save("captured_regions", rows, versions)


if __name__ == "__main__":
    main()
