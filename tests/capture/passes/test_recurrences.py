"""Products taken out of scans: the same values, and one product where there were many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.capture.passes import recurrences
from eagerflow.graph.run import evaluate

WIDTH = 4


def weights(seed=0):
    rng = np.random.default_rng(seed)
    shapes = (3, WIDTH), (WIDTH, WIDTH), (2, WIDTH)
    return [ef.tensor(rng.standard_normal(s).astype("float32")) for s in shapes]


def plain(w, h, x):
    return ef.tanh(x @ w[0] + h @ w[1] + w[2][0])


def gated(w, h, x):
    u = h @ w[1] + w[2][1]
    a = x @ w[0] + w[2][0]
    return ef.sigmoid(a) * h + ef.tanh(u * a)


def with_others(w, h, x):
    """The product of the row is used twice, and once more as a factor."""
    a = x @ w[0]
    return ef.tanh(a + a * (h @ w[1]) + (x * 2.0) @ w[0] + w[2][0])


CELLS = (plain, gated, with_others)


def loss_of(cell, reverse, turned):
    def loss(x, h, *w):
        rows = ef.permute_dims(x, (1, 0, 2)) if turned else x
        last, ys = ef.scan(lambda h, x: (cell(w, h, x),) * 2, h, rows, reverse=reverse)
        return ef.sum(ef.sin(last)) + ef.sum(ef.cos(ys))

    return loss


def gradients_of(loss):
    def gradients(*args):
        with ef.GradientTape() as tape:
            for x in args:
                tape.watch(x)
            y = loss(*args)
        return (y, *tape.gradient(y, args))

    return gradients


def arguments(length, turned, seed):
    rng = np.random.default_rng(seed)
    shape = (2, length, 3) if turned else (length, 2, 3)
    x, h = (rng.standard_normal(s).astype("float32") for s in (shape, (2, WIDTH)))
    return [ef.tensor(x), ef.tensor(h), *weights(seed)]


def specs_of(args):
    return [ef.TensorSpec(x.shape, x.dtype) for x in args]


def products(graph):
    """Products outside of scans, and inside."""
    outside = sum(node.op.name == "matmul" for node in graph.nodes)
    bodies = [node.attributes["body"] for node in graph.nodes if node.op.name == "scan"]
    return outside, sum(own.op.name == "matmul" for body in bodies for own in body.nodes)


@given(
    st.sampled_from(CELLS),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_values_and_gradients(cell, length, reverse, turned, seed):
    gradients = gradients_of(loss_of(cell, reverse, turned))
    args = arguments(length, turned, seed)
    graph = ef.capture.trace(gradients, *specs_of(args))
    found, _ = evaluate(recurrences(graph.optimized(without=("recurrences",))), args)
    for one, other in zip(found, gradients(*args), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("cell", "inside"), [(plain, 2), (gated, 2)])
def test_products_are_outside(cell, inside):
    args = arguments(5, False, 0)
    graph = ef.capture.trace(gradients_of(loss_of(cell, False, False)), *specs_of(args))
    graph = graph.optimized(without=("recurrences",))
    before, after = products(graph), products(recurrences(graph).optimized(only=("dead_code",)))
    assert after[1] < before[1] and after[0] > before[0]
    # One of the state forward, and one of its gradient, need the step before; those of x by its
    # own gradient are not sums.
    assert after[1] <= inside + 1


def test_a_carry_that_is_read_stays():
    def f(x, start):
        def step(total, row):
            new = total + ef.permute_dims(row, (1, 0)) @ row
            return new, new * 2.0

        return ef.scan(step, start, x)

    specs = ef.TensorSpec((5, 2, 3), "float32"), ef.TensorSpec((3, 3), "float32")
    graph = ef.capture.trace(f, *specs)
    assert recurrences(graph) is graph


def test_scan_sum_starts_from_the_given_value():
    def f(x, start):
        def step(total, row):
            return total + ef.permute_dims(row, (1, 0)) @ row, None

        return ef.scan(step, start, x)[0]

    rng = np.random.default_rng(0)
    x, start = (ef.tensor(rng.standard_normal(s).astype("float32")) for s in ((5, 2, 3), (3, 3)))
    graph = recurrences(ef.capture.trace(f, *specs_of([x, start])))
    (found,), _ = evaluate(graph, [x, start])
    np.testing.assert_allclose(found.numpy(), f(x, start).numpy(), rtol=1e-5)


def test_scans_of_one_step_and_of_free_sizes_stay():
    def f(x, w):
        return ef.scan(lambda c, row: (c + row @ w, None), ef.zeros((2, 4)), x)[0]

    for length in (1, "n"):
        specs = ef.TensorSpec((length, 2, 3), "float32"), ef.TensorSpec((3, 4), "float32")
        graph = ef.capture.trace(f, *specs)
        assert recurrences(graph) is graph
