"""Several reductions of one tensor, along any axes, in one captured function."""

import numpy as np
import pytest

import eagerflow as ef

SHAPES = ((32, 128, 64), (3, 5, 7), (64, 33, 2), (1, 40, 300), (6, 1, 900), (17, 300), (4, 3, 9, 50))
DTYPES = ("float32", "float64", "float16", "int32")
REDUCTIONS = {
    "sum": (ef.sum, np.sum),
    "mean": (ef.mean, np.mean),
    "max": (ef.max, np.max),
    "min": (ef.min, np.min),
    "var": (ef.var, np.var),
}


class Case:
    """Some reductions of ``f(x)``, each along axes of its own, and what they are combined to."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.shape = SHAPES[rng.integers(len(SHAPES))]
        self.dtype = str(rng.choice(DTYPES, p=[0.6, 0.2, 0.1, 0.1]))
        self.parts = []
        rank = len(self.shape)
        for _ in range(rng.integers(2, 5)):
            count = rng.integers(1, rank + 1)
            axes = tuple(int(a) for a in rng.permutation(rank)[:count])
            name = str(rng.choice(list(REDUCTIONS)))
            keepdims = bool(rng.integers(2))
            self.parts.append((name, axes if rng.integers(4) else axes[0], keepdims))
        whole = self.dtype == "int32"
        values = rng.integers(-9, 9, self.shape) if whole else rng.standard_normal(self.shape)
        self.x = values.astype(self.dtype)
        self.order = tuple(int(a) for a in rng.permutation(rank))
        self.kind = int(rng.integers(4))

    def __repr__(self):
        return f"{self.dtype}{self.shape} order {self.order} kind {self.kind}: {self.parts}"

    def program(self, x):
        """The reductions; of a chain of ops, of a transposed tensor, or along rows before."""
        if self.kind == 1:
            x = x * 2 + 1
        elif self.kind == 2:
            x = ef.permute_dims(x, self.order)
        elif self.kind == 3 and self.dtype != "int32":
            x = ef.softmax(x, axis=self.order[0])
        return [REDUCTIONS[n][0](x, axis=a, keepdims=k) for n, a, k in self.parts]

    def wanted(self):
        """The same by NumPy in float64."""
        x = self.x.astype("float64")
        if self.kind == 1:
            x = x * 2 + 1
        elif self.kind == 2:
            x = x.transpose(self.order)
        elif self.kind == 3 and self.dtype != "int32":
            powers = np.exp(x - x.max(self.order[0], keepdims=True))
            x = powers / powers.sum(self.order[0], keepdims=True)
        return [REDUCTIONS[n][1](x, axis=a, keepdims=k) for n, a, k in self.parts]


TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-10, "int32": 1e-4}


def check(seed):
    case = Case(seed)
    tolerance = TOLERANCE[case.dtype]
    wanted = case.wanted()
    x = ef.tensor(case.x)
    with np.errstate(all="ignore"):
        for numerics in ("fast", "exact"):
            f = ef.function(case.program, numerics=numerics)
            f(x)
            for found, right in zip(f(x), wanted, strict=True):
                assert found.shape == right.shape, case
                scale = max(1.0, float(np.abs(right).max()))
                wrong = np.abs(found.numpy().astype("float64") - right).max() / scale
                assert wrong <= tolerance, (case, numerics, wrong)
        if case.dtype in ("float32", "float64") and case.kind != 3:
            check_gradients(case, x, tolerance)


def check_gradients(case, x, tolerance):
    def loss(x):
        return sum((part * part).sum() for part in case.program(x))

    eager = ef.grad(loss)(x).numpy()
    step = ef.function(ef.grad(loss))
    step(x)
    found = step(x).numpy()
    scale = max(1.0, float(np.abs(eager).max()))
    assert np.abs(found - eager).max() / scale <= tolerance, (case, "gradient")


@pytest.mark.parametrize("seed", range(24))
def test_random_reductions_together(seed):
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(1000, 3000, 100))
def test_many_random_reductions_together(start):
    for seed in range(start, start + 100):
        check(seed)


@pytest.mark.parametrize("first", [0, 1, 2, (0, 2), (1, 2)])
@pytest.mark.parametrize("second", [0, 1, (0, 1)])
def test_two_means_of_a_tensor(first, second):
    x = np.random.default_rng(0).standard_normal((32, 128, 64)).astype("float32")
    f = ef.function(lambda x: (x.mean(axis=first), x.mean(axis=second)))
    for _ in range(2):
        a, b = f(x)
        np.testing.assert_allclose(a.numpy(), x.mean(axis=first), atol=1e-5)
        np.testing.assert_allclose(b.numpy(), x.mean(axis=second), atol=1e-5)


def test_gradients_of_additive_attention():
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((8, n, 16)).astype("float32") for n in (12, 20))
    v = rng.standard_normal(16).astype("float32")

    def loss(q, k, v):
        scores = (ef.tanh(q[:, :, None] + k[:, None]) * v).sum(-1)
        return (ef.softmax(scores, axis=-1) ** 2).sum()

    eager = ef.grad(loss, argnums=(0, 1, 2))(q, k, v)
    step = ef.function(ef.grad(loss, argnums=(0, 1, 2)))
    step(q, k, v)
    for found, right in zip(step(q, k, v), eager, strict=True):
        np.testing.assert_allclose(found.numpy(), right.numpy(), rtol=1e-3, atol=1e-5)
