"""Captured functions and graphs that are called while a tape records: gradients as in eager."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import GradientError

X = ef.tensor([0.5, 1.0, 2.0])


def bits(x):
    return None if x is None else (x.dtype, x.shape, x.numpy().tobytes())


def gradients(f, *args, sources=None):
    """The result of a call, and the gradients of its sum by arguments and Variables."""
    with ef.GradientTape() as tape:
        tape.watch(list(args))
        y = f(*args)
        loss = ef.sum(y)
    return y, tape.gradient(loss, [*args, *(sources or [])])


def check_same(f, *args, sources=None):
    """Exact calls give the bits of eager; compiled ones are close."""
    y, wanted = gradients(f, *args, sources=sources)
    exact = ef.function(f, numerics="exact")
    for _ in range(2):
        z, found = gradients(exact, *args, sources=sources)
        assert bits(z) == bits(y)
        assert [bits(g) for g in found] == [bits(g) for g in wanted]
    z, found = gradients(ef.function(f), *args, sources=sources)
    for a, b in zip([z, *found], [y, *wanted], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=1e-6)


FUNCTIONS = {
    "chain": lambda x, y: ef.tanh(x * y) * ef.sin(x),
    "reuse": lambda x, y: x * x * y + ef.exp(x) * x,
    "products": lambda x, y: (x[:, None] * y) @ ef.softmax(y),
    "branch": lambda x, y: ef.cond(ef.sum(x) > 0, lambda: x * y, lambda: y),
    "loop": lambda x, y: ef.fori_loop(0, 4, lambda i, c: ef.tanh(c * y), x),
    "scan": lambda x, y: ef.scan(lambda c, r: (c * r + 0.1, c), x[0], y)[1],
    "inner gradient": lambda x, y: ef.grad(lambda v: ef.sum(ef.sin(v) * y))(x),
    "checkpoint": lambda x, y: ef.checkpoint(lambda v: ef.sin(v * y))(x) * x,
    "stopped": lambda x, y: ef.stop_gradient(x) * y + x,
    "gather": lambda x, y: ef.take(x, ef.tensor([2, 0, 2])) * y,
    "map": lambda x, y: ef.vmap(lambda v: ef.sum(v * y))(ef.stack([x, y])),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    check_same(FUNCTIONS[name], X, X + 0.25)


def test_gradients_by_variables():
    w = ef.Variable([1.0, 2.0, 3.0])
    frozen = ef.Variable([1.0, 1.0, 1.0], trainable=False)
    check_same(lambda x: ef.tanh(x * w) + w * w * frozen, X, sources=[w])
    step = ef.function(lambda x: ef.sum(x * w * frozen))
    with ef.GradientTape() as tape:
        loss = step(X)
    assert tape.watched_variables() == (w,)
    with pytest.raises(GradientError, match="does not depend"):
        tape.gradient(loss, frozen)


def test_a_variable_of_layers_twice():
    w = ef.Variable([1.0, 2.0, 3.0])
    layer = ef.function(lambda x: ef.tanh(x * w), numerics="exact")
    plain = lambda x: ef.tanh(x * w)

    def twice(f):
        with ef.GradientTape() as tape:
            loss = ef.sum(f(f(X)))
        return tape.gradient(loss, w)

    np.testing.assert_allclose(twice(layer).numpy(), twice(plain).numpy(), rtol=1e-6)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_higher_orders(order, numerics):
    f = lambda x: ef.sum(ef.sin(x) * ef.exp(x * 0.5) * x)

    def derivative(g, order):
        for _ in range(order):
            g = (lambda inner: lambda x: ef.sum(ef.grad(inner)(x)))(g)
        return g(X)

    wanted = derivative(f, order)
    found = derivative(ef.function(f, numerics=numerics), order)
    np.testing.assert_allclose(float(found), float(wanted), rtol=2e-5)


def test_second_order_with_nested_tapes_and_variables():
    w = ef.Variable([0.3, -0.2, 0.9])
    f = lambda x: ef.sum(ef.tanh(x * w) * w)

    def hessian_product(g):
        with ef.GradientTape() as outer:
            with ef.GradientTape() as inner:
                loss = g(X)
            first = inner.gradient(loss, w)
            along = ef.sum(first * X)
        return outer.gradient(along, w)

    wanted = hessian_product(f)
    np.testing.assert_allclose(hessian_product(ef.function(f)).numpy(), wanted.numpy(), rtol=1e-5)


def test_persistent_tapes():
    step = ef.function(lambda x: {"a": ef.sum(x * x), "b": x**3})
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(X)
        found = step(X)
    assert tape.gradient(found["a"], X).tolist() == (X * 2).tolist()
    np.testing.assert_allclose(tape.gradient(found["b"], X).numpy(), (3 * X * X).numpy(), rtol=1e-6)
    assert tape.gradient(found["a"], X).tolist() == (X * 2).tolist()


def test_unused_results_do_not_contribute():
    """Not even as zeros: infinity times zero would be NaN."""
    f = lambda x: (ef.sum(x * x), ef.sum(ef.sqrt(x - 0.5)))
    for step in (f, ef.function(f), ef.function(f, numerics="exact")):
        with ef.GradientTape() as outer:
            outer.watch(X)
            with ef.GradientTape() as tape:
                tape.watch(X)
                y, _ = step(X)
            first = tape.gradient(y, X)
        assert first.tolist() == (X * 2).tolist()
        assert outer.gradient(first, X).tolist() == [2.0, 2.0, 2.0]


def test_gradients_of_integer_results_and_unconnected_inputs():
    step = ef.function(lambda x, y: (ef.argmax(x), x * 2, y.shape[0]))
    with ef.GradientTape(persistent=True) as tape:
        tape.watch([X])
        other = ef.ones((2,))
        tape.watch(other)
        n, y, _ = step(X, other)
    assert tape.gradient(y, X).tolist() == [2.0] * 3
    assert tape.gradient(y, other, unconnected="none") is None
    with pytest.raises(GradientError):
        tape.gradient(n * 1.0, X)


def test_output_gradients():
    step = ef.function(lambda x: x * x, numerics="exact")
    with ef.GradientTape() as tape:
        tape.watch(X)
        y = step(X)
    assert tape.gradient(y, X, output_gradients=ef.tensor([1.0, 0.0, -1.0])).tolist() == [1, 0, -4]


def test_jacobians_and_hessians():
    f = lambda x: ef.sin(x) * ef.sum(x)
    step = ef.function(f)
    np.testing.assert_allclose(ef.jacobian(step)(X).numpy(), ef.jacobian(f)(X).numpy(), rtol=1e-5)
    g = lambda x: ef.sum(ef.sin(x) * x)
    wanted = ef.hessian(g)(X).numpy()
    np.testing.assert_allclose(ef.hessian(ef.function(g))(X).numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_values_read_after_an_assignment():
    """The gradient by a Variable is the sum over the values that it had when it was read."""

    def f(w):
        y = w * 3.0
        w.assign(w * 2.0)
        again = w * w
        w.assign(w + 1.0)
        return y + again * 0.5 + w * 7.0

    found = []
    for wrap in (lambda g: g, ef.function, lambda g: ef.function(g, numerics="exact")):
        w = ef.Variable(2.0)
        step = wrap(lambda w=w: f(w))
        with ef.GradientTape() as tape:
            y = step()
        found.append((float(y), float(tape.gradient(y, w)), float(w)))
    assert found[0] == (6.0 + 8.0 + 35.0, 3.0 + 4.0 + 7.0, 5.0)
    assert found[1:] == found[:1] * 2


def test_a_step_inside_of_the_function_and_a_tape_around_it():
    def make():
        w = ef.Variable([1.0, 2.0, 3.0], name="w")

        def step(x):
            with ef.GradientTape() as tape:
                loss = ef.sum(ef.square(x * w))
            w.assign_sub(0.01 * tape.gradient(loss, w))
            return loss * ef.sum(w)

        return w, step

    found = []
    for wrap in (lambda g: g, lambda g: ef.function(g, numerics="exact")):
        w, step = make()
        step = wrap(step)
        for _ in range(3):
            with ef.GradientTape() as tape:
                tape.watch(X)
                y = step(X)
            found.append((bits(y), [bits(g) for g in tape.gradient(y, [X, w])], bits(w.value)))
    assert found[:3] == found[3:]


def test_loaded_graphs_give_the_same_gradients(tmp_path):
    w = ef.Variable([1.0, 2.0, 3.0], name="w")
    step = ef.function(lambda x: ef.sum(ef.tanh(x * w) * w))
    graph = step.graph(X)
    graph.save(tmp_path / "g.ef")
    loaded = ef.capture.load(tmp_path / "g.ef")
    own = loaded.variables["w"]
    found = []
    for call, variable in ((step, w), (graph, w), (loaded, own)):
        with ef.GradientTape() as tape:
            tape.watch(X)
            y = call(X)
        found.append([g.tolist() for g in tape.gradient(y, [X, variable])])
    assert found[1] == found[2]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)


def test_constants_that_a_tape_watches():
    shift = ef.tensor([1.0, 2.0, 3.0])
    step = ef.function(lambda x: x * shift * shift, numerics="exact")
    step(X)
    with ef.GradientTape() as tape:
        tape.watch(shift)
        y = ef.sum(step(X))
    assert tape.gradient(y, shift).tolist() == (2 * X * shift).tolist()


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("unconnected", ["zero", "none", "raise"])
def test_missing_gradients_are_as_in_eager(capture, unconnected):
    f = lambda x: ef.astype(ef.astype(x * 3, "int32"), "float32") * 2
    step = ef.function(f) if capture else f
    with ef.GradientTape() as tape:
        tape.watch(X)
        y = ef.sum(step(X))
    if unconnected == "raise":
        with pytest.raises(GradientError) as caught:
            tape.gradient(y, X)
        assert "does not depend" in str(caught.value)
        return
    found = tape.gradient(y, X, unconnected=unconnected)
    assert found is None if unconnected == "none" else found.tolist() == [0.0] * 3


def test_tapes_hold_only_values_the_gradient_needs():
    step = ef.function(lambda x: ef.sum(ef.tanh(x)))
    x = ef.ones((1000, 100))
    with ef.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = step(x)
    assert tape.memory().total <= 2 * x.nbytes
    assert tape.gradient(y, x).shape == x.shape
