"""Small arrays, eagerly: the cost of an op call, against PyTorch, JAX, autograd and plain NumPy.

    python benchmarks/eager_ops.py [--rounds 25] [--json]

Ratios are to PyTorch. Elementwise ops are timed without a tape and recorded; a chain of 30 goes
forward and backward. Matrix product, reduction, indexing and reshape must also stay within the
raw NumPy call + 0.6 µs, which the last table shows.
"""

import operator

import autograd
import autograd.numpy as anp
import harness
import jax
import jax.numpy as jnp
import numpy as np
import torch

import eagerflow as ef

REPEATS = 300  # ops under one tape, whose opening and closing count as well
STEPS = 30

rng = np.random.default_rng(0)
A, B = (rng.uniform(0.5, 1.5, (4, 4)).astype(np.float32) for _ in range(2))
ours = ef.tensor(A), ef.tensor(B)
theirs = torch.tensor(A), torch.tensor(B)
watched = torch.tensor(A, requires_grad=True)
jaxs = jnp.asarray(A), jnp.asarray(B)

UNARY = {"tanh": (ef.tanh, torch.tanh, jnp.tanh, np.tanh)}
BINARY = {
    "add": (operator.add,) * 4,
    "multiply": (operator.mul,) * 4,
}


def numbers(value):
    """The values of any library's array."""
    return value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def plain_rows(rounds):
    """Elementwise ops that nobody watches."""
    rows = []
    for name, (f, g, h, raw) in (UNARY | BINARY).items():
        count = 1 if name in UNARY else 2
        calls = {
            "eagerflow": lambda f=f, n=count: f(*ours[:n]),
            "PyTorch": lambda g=g, n=count: g(*theirs[:n]),
            "JAX": lambda h=h, n=count: h(*jaxs[:n]),
            "NumPy": lambda r=raw, n=count: r(*(A, B)[:n]),
        }
        harness.agree(name, {who: [numbers(c())] for who, c in calls.items()}, 1e-6)
        rows.append(harness.compare(name, calls, "eagerflow", "PyTorch", rounds, target=0.65))
    return rows


def recorded_rows(rounds):
    """The same ops on a value that is watched."""
    rows = []
    for name, (f, g, _, _) in (UNARY | BINARY).items():
        if name in UNARY:
            one, one_torch = f, g
        else:
            y, y_torch = ours[1], theirs[1]

            def one(x, f=f, y=y):
                return f(x, y)

            def one_torch(x, g=g, y=y_torch):
                return g(x, y)

        def record(one=one):
            x = ours[0]
            with ef.GradientTape() as tape:
                tape.watch(x)
                for _ in range(REPEATS):
                    z = one(x)
            return z

        def record_torch(one=one_torch):
            x = watched
            for _ in range(REPEATS):
                z = one(x)
            return z

        calls = {"eagerflow": record, "PyTorch": record_torch}
        harness.agree(name, {who: [numbers(c())] for who, c in calls.items()}, 1e-6)
        rows.append(
            harness.compare(
                f"{name}, recorded", calls, "eagerflow", "PyTorch", rounds, target=0.6, per=REPEATS
            )
        )
    return rows


def chain_rows(rounds):
    """Forward and backward through 30 ops: tanh, multiply, add, in turn."""

    def body(x, y, tanh):
        for _ in range(STEPS // 3):
            x = tanh(x) * y + y
        return x

    def chain():
        x, y = ours
        with ef.GradientTape() as tape:
            tape.watch(x)
            z = body(x, y, ef.tanh)
        return tape.gradient(z, x)

    ones = torch.ones(4, 4)

    def chain_torch():
        z = body(watched, theirs[1], torch.tanh)
        return torch.autograd.grad(z, watched, ones)[0]

    pull_autograd = autograd.grad(lambda x: anp.sum(body(x, B, anp.tanh)))
    pull_jax = jax.grad(lambda x: body(x, jaxs[1], jnp.tanh).sum())
    calls = {
        "eagerflow": chain,
        "PyTorch": chain_torch,
        "JAX": lambda: pull_jax(jaxs[0]),
        "autograd": lambda: pull_autograd(A),
    }
    harness.agree("chain", {who: [numbers(c())] for who, c in calls.items()}, 1e-4)
    return [
        harness.compare(
            "chain of 30, per op", calls, "eagerflow", "PyTorch", rounds, target=0.55, per=STEPS
        )
    ]


def other_rows(rounds):
    """Matrix product, reduction, indexing and reshape."""
    x, t = ours[0], theirs[0]
    cases = {
        "matmul": (lambda: x @ x, lambda: t @ t, lambda: np.matmul(A, A)),
        "sum over an axis": (
            lambda: ef.sum(x, axis=1),
            lambda: torch.sum(t, dim=1),
            lambda: np.sum(A, axis=1),
        ),
        "index": (lambda: x[1], lambda: t[1], lambda: A[1]),
        "slice": (lambda: x[1:, ::2], lambda: t[1:, ::2], lambda: A[1:, ::2]),
        "reshape": (
            lambda: x.reshape((2, 8)),
            lambda: t.reshape((2, 8)),
            lambda: A.reshape((2, 8)),
        ),
    }
    rows = []
    for name, functions in cases.items():
        calls = dict(zip(("eagerflow", "PyTorch", "NumPy"), functions, strict=True))
        harness.agree(name, {who: [numbers(c())] for who, c in calls.items()}, 1e-5)
        rows.append(harness.compare(name, calls, "eagerflow", "PyTorch", rounds, target=1.0))
    return rows


def main():
    options = harness.arguments(__doc__)
    torch.set_num_threads(2)
    plain = plain_rows(options.rounds)
    recorded = recorded_rows(options.rounds)
    chain = chain_rows(options.rounds)
    other = other_rows(options.rounds)
    harness.report("4x4 float32, no tape (µs)", plain)
    harness.report("4x4 float32, recorded (µs)", recorded)
    harness.report("forward and backward (µs)", chain)
    harness.report("4x4 float32, other families (µs)", other)
    print("\nover the raw NumPy call (µs; at most 0.6)")
    for row in other:
        micro = row["microseconds"]
        print(f"{row['name']:<18}{micro['eagerflow'] - micro['NumPy']:>8.2f}")
    if options.json:
        harness.save(
            "eager_ops",
            plain + recorded + chain + other,
            {"numpy": np.__version__, "torch": torch.__version__, "jax": jax.__version__},
        )


if __name__ == "__main__":
    main()
