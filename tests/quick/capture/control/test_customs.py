"""Gradients of the user's own keep in graphs what they say eagerly."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture import scan
from eagerflow.errors import GradientError
from tests.capture.control.tools import captured, check_close, check_same, graph_of, t

X = t([0.5, -0.3])


@ef.custom_gradient
def steep(x, k):
    """sin(x k), with three times its gradient by x and none by k."""
    y = ef.sin(x * k)
    rule = lambda g: (g["y"] * ef.cos(x * k) * k * 3.0 + g["x"], ef.zeros_like(k))
    return {"y": y, "x": x}, rule


def loss(x):
    found = steep(x, t([0.7, 1.1]))
    return (found["y"] * found["x"]).sum()


WANTED = lambda x: 3.0 * np.cos(x * K) * K * x + np.sin(x * K)
K = np.array([0.7, 1.1])


def test_in_captured_functions():
    x = X.numpy()
    np.testing.assert_allclose(ef.grad(loss)(X).numpy(), WANTED(x))
    check_close(ef.grad(ef.function(loss))(X), ef.grad(loss)(X))
    check_close(ef.function(ef.grad(loss))(X), ef.grad(loss)(X))
    check_same(captured(ef.grad(loss), X), ef.grad(loss)(X))
    graph = graph_of(loss, X)
    graph.check()
    gradient = graph.gradient("output", graph.inputs.names[0])
    assert "custom_gradient" in {n.op.name for n in gradient.nodes}


def test_in_bodies_and_batches():
    def looped(x):
        return scan(lambda c, _: (steep(c, t([0.7, 1.1]))["y"], None), x, length=2)[0].sum()

    inner = np.sin(X.numpy() * K)
    wanted = 9.0 * np.cos(inner * K) * K * np.cos(X.numpy() * K) * K
    np.testing.assert_allclose(ef.grad(looped)(X).numpy(), wanted)
    batch = ef.stack([X, X * 2.0])
    rows = ef.stack([ef.grad(looped)(x) for x in batch])
    check_close(ef.vmap(ef.grad(looped))(batch), rows)
    check_close(ef.grad(lambda b: ef.vmap(looped)(b).sum())(batch), rows)
    each = ef.grad(lambda b: ef.vmap(ef.function(loss))(b).sum())(batch)
    check_close(each, ef.vmap(ef.grad(loss))(batch))
    check_close(ef.jvp(ef.function(looped), (X,), (X,))[1], (ef.grad(looped)(X) * X).sum())


def test_second_order():
    """The rule is differentiated, and where it uses the function, that has its own gradient."""
    angle = X.numpy() * K
    wanted = t(3.0 * (-np.sin(angle) * K * K * X.numpy() + 2.0 * np.cos(angle) * K))
    second = lambda f: lambda x: ef.grad(lambda x: ef.grad(f)(x).sum())(x)
    check_close(second(ef.function(loss))(X), wanted)
    check_close(ef.function(second(loss))(X), wanted)
    check_close(ef.grad(ef.function(lambda x: ef.grad(loss)(x).sum()))(X), wanted)


def test_none_for_an_argument_without_a_gradient():
    f = ef.custom_gradient(lambda x, n: (x * n, lambda g: (g * 7.0, None)))
    g = ef.grad(ef.function(lambda x: f(x, t(2.0)) * f(t(1.0), x)))
    assert float(g(t(3.0))) == 7.0 * 3.0


def test_rules_read_computed_values_and_variables():
    w = ef.Variable(t(2.0))

    @ef.custom_gradient
    def f(x):
        y = ef.exp(x)
        return y, lambda g: g * y * w

    x = t(0.5)
    value = float(2.0 * ef.exp(x))
    for g in (ef.grad(f), ef.grad(ef.function(f)), ef.function(ef.grad(f))):
        np.testing.assert_allclose(float(g(x)), value)
    w.assign(3.0)
    np.testing.assert_allclose(float(ef.grad(ef.function(f))(x)), value * 1.5)


def test_results_that_are_arguments():
    f = ef.custom_gradient(lambda x: ((x, x), lambda g: g[0] * 2.0 + g[1] * 5.0))
    total = lambda x: (lambda a, b: a + 10.0 * b)(*f(x))
    assert [float(g(t(1.0))) for g in (ef.grad(total), ef.grad(ef.function(total)))] == [52.0, 52.0]


def test_untraceable_gradient_rule_raises_only_on_use():
    f = ef.custom_gradient(lambda x: (x * 2.0, lambda g: g * float(g)))
    assert float(ef.grad(f)(t(1.0))) == 1.0
    assert float(ef.function(f)(t(1.0))) == 2.0
    with pytest.raises(GradientError, match="cannot be captured") as info:
        ef.grad(ef.function(f))(t(1.0))
    assert "float() needs a number" in str(info.value)
    g = ef.custom_gradient(lambda x, y: (x * y, lambda g: g))
    with pytest.raises(GradientError, match="backward gave 1 gradients"):
        ef.grad(ef.function(g))(t(1.0), t(2.0))
