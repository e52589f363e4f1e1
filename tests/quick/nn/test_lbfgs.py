"""L-BFGS: minima of known functions, against SciPy where it is there, and line searches."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.optimizers.line_searches import SEARCHES, Point


def quadratic(size, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    a, b = root @ root.T + np.eye(size), rng.normal(size=size)
    return a, b, np.linalg.solve(a, b)


@pytest.mark.parametrize("search", sorted(SEARCHES))
@pytest.mark.parametrize("history", [1, 10])
def test_quadratic(search, history):
    a, b, minimum = quadratic(12)
    w = ef.Variable(np.zeros(12))
    more = {"max_iterations": 2000, "gradient_tolerance": 1e-9, "tolerance": 0.0}
    optimizer = ef.nn.optimizers.LBFGS(history, search, **more)
    loss = optimizer.minimize(lambda: 0.5 * (w * (ef.tensor(a) @ w)).sum() - (b * w).sum())
    np.testing.assert_allclose(w.numpy(), minimum, atol=1e-7)
    assert float(loss) == pytest.approx(-0.5 * b @ minimum)
    assert 0 < int(optimizer.iterations) < (2000 if history == 1 else 100)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def test_rosenbrock_takes_about_as_many_steps_as_scipy():
    optimize = pytest.importorskip("scipy.optimize")
    start = np.tile([-1.2, 1.0], 5)
    theirs = optimize.minimize(rosenbrock, start, jac=optimize.rosen_der, method="L-BFGS-B")
    w = ef.Variable(start)
    optimizer = ef.nn.optimizers.LBFGS()
    loss = optimizer.minimize(lambda: rosenbrock(w.value), [w])
    assert float(loss) < 1e-8
    np.testing.assert_allclose(w.numpy(), theirs.x, atol=1e-3)
    assert int(optimizer.iterations) < 2 * theirs.nit


def test_several_variables_and_a_captured_loss():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(50, 3)).astype("float32")
    y = x @ np.float32([1, -2, 3]) + np.float32(0.5)
    kernel, bias, other = ef.Variable(np.zeros(3, "float32")), ef.Variable(0.0), ef.Variable(7.0)
    calls = []

    @ef.function
    def loss():
        calls.append(1)
        return ((x @ kernel + bias - y) ** 2).mean()

    optimizer = ef.nn.optimizers.LBFGS()
    assert float(optimizer.minimize(loss, [kernel, bias])) < 1e-9
    np.testing.assert_allclose(kernel.numpy(), [1, -2, 3], atol=1e-4)
    assert float(bias) == pytest.approx(0.5, abs=1e-4)
    assert float(other) == 7
    assert len(calls) < 4  # traced, not run each time


def test_it_ends_at_a_minimum():
    w = ef.Variable([0.0, 0.0])
    optimizer = ef.nn.optimizers.LBFGS()
    assert float(optimizer.minimize(lambda: (w * w).sum())) == 0
    assert int(optimizer.iterations) == 0


def test_configuration():
    made = ef.nn.optimizers.LBFGS(5, "backtracking", name="fit")
    assert ef.nn.optimizers.LBFGS.from_config(made.get_config()).get_config() == made.get_config()


@pytest.mark.parametrize("search", sorted(SEARCHES))
@pytest.mark.parametrize("first", [1e-3, 0.5, 1.0, 30.0])
@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda x: (x - 1) ** 2, lambda x: 2 * (x - 1)),
        (lambda x: -x / (x * x + 2), lambda x: (x * x - 2) / (x * x + 2) ** 2),
        (lambda x: np.cosh(x - 2), lambda x: np.sinh(x - 2)),
        (lambda x: -np.log(x + 0.1) + x, lambda x: -1 / (x + 0.1) + 1),
    ],
)
def test_line_searches(search, first, function, slope):
    def at(step):
        return Point(step, function(step), slope(step))

    start = at(0.0)
    found = SEARCHES[search](at, start, first)
    assert found.value < start.value
    assert found.value <= start.value + 1e-4 * found.step * start.slope
    if search == "strong_wolfe":
        assert abs(found.slope) <= 0.9 * abs(start.slope)


def test_a_function_that_is_not_a_number_further_on():
    w = ef.Variable(1.0)
    ef.nn.optimizers.LBFGS().minimize(lambda: w - ef.log(w) * 0.01)
    assert float(w) == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize(("call", "words"), [
    (lambda: ef.nn.optimizers.LBFGS(0), "history: 0 is out of range"),
    (lambda: ef.nn.optimizers.LBFGS(line_search="exact"), "not a line search"),
    (lambda: ef.nn.optimizers.LBFGS(tolerance=-1.0), "negative"),
    (lambda: ef.nn.optimizers.LBFGS().minimize(lambda: ef.tensor(1.0)), "there are none"),
    (lambda: ef.nn.optimizers.LBFGS().minimize(lambda: ef.log(ef.Variable(-1.0)), []),
     "there are none"),
])  # fmt: skip
def test_errors(call, words):
    with pytest.raises(ef.errors.ArgumentError, match=words):
        call()


def test_a_loss_that_is_no_number_at_first():
    w = ef.Variable(-1.0)
    with pytest.raises(ef.errors.ArgumentError, match="it is nan"):
        ef.nn.optimizers.LBFGS().minimize(lambda: ef.log(w))


def test_loss_that_raises_leaves_variables_at_the_last_step():
    w, calls = ef.Variable([-1.0, 2.0]), []

    def loss():
        calls.append(float((1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2))
        if len(calls) == 12:
            raise KeyboardInterrupt
        return (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2

    with pytest.raises(KeyboardInterrupt):
        ef.nn.optimizers.LBFGS().minimize(loss, [w])
    now = float((1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2)
    assert now in calls[:-1] and now < calls[0]


@pytest.mark.parametrize("search", sorted(SEARCHES))
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_finds_the_minimum(search, scale, size, dtype):
    there = np.random.default_rng(0).standard_normal(size).astype("f4")
    target = ef.tensor(there).astype(dtype)
    w = ef.Variable(ef.zeros(size, dtype=dtype))

    def loss():
        rest = (w - target).astype("float32") * scale
        return ef.sum(rest * rest)

    ef.nn.optimizers.LBFGS(line_search=search).minimize(loss)
    assert w.dtype == target.dtype
    assert float(ef.max(ef.abs(w - target)).astype("float32")) < 0.03


@pytest.mark.parametrize("search", sorted(SEARCHES))
def test_gradients_that_half_precision_does_not_hold_are_refused(search):
    w = ef.Variable(ef.ones(3, dtype="float16"))
    minimize = ef.nn.optimizers.LBFGS(line_search=search).minimize
    with pytest.raises(ef.errors.ArgumentError, match="gradient has an element of inf"):
        minimize(lambda: ef.sum((w.astype("float32") * 300.0) ** 2))
    assert w.numpy().tolist() == [1, 1, 1]
