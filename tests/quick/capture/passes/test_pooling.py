"""Relus behind max poolings: the same values and gradients, from fewer elements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef

SPECIAL = [np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]


def network(x, window, strides=None, padding="valid"):
    with ef.GradientTape() as tape:
        tape.watch(x)
        y = ef.max_pool(ef.relu(x), window, strides, padding)
        loss = ef.sum(y * ef.arange(float(y.size)).reshape(y.shape))
    return y, tape.gradient(loss, x)


def names(graph):
    return [node.op.name for node in graph.nodes]


def graph_of(shape=(2, 6, 6, 3), **where):
    spec = ef.TensorSpec(shape, "float32")
    return ef.capture.trace(lambda x: network(x, 2, **where), spec)


def test_the_relu_is_computed_behind():
    graph = graph_of().optimized()
    pooled = next(node for node in graph.nodes if node.op.name == "max_pool")
    assert pooled.inputs[0] is graph.inputs[0]
    (relu,) = (node for node in graph.nodes if node.op.name == "relu")
    assert relu.outputs[0].shape == pooled.outputs[0].shape
    (gradient,) = (node for node in graph.nodes if node.op.name == "relu_gradient")
    assert gradient.outputs[0].shape == pooled.outputs[0].shape


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.integers(1, 2), st.integers(3, 7), st.integers(3, 7), st.integers(1, 3)),
    st.sampled_from([(2, None, "valid"), (3, 2, "same"), (2, 1, "valid"), ((3, 2), None, "same")]),
    st.booleans(),
)
def test_values_and_gradients(seed, shape, where, special):
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, shape).astype("float32")  # with many ties
    if special:
        mask = rng.random(shape) < 0.3
        x[mask] = rng.choice(SPECIAL, mask.sum())
    spec = ef.TensorSpec(shape, "float32")
    graph = ef.capture.trace(lambda x: network(x, *where), spec)
    assert names(graph.optimized(only=("pooling",))) != names(graph)
    found = graph.optimized(only=("pooling",))(ef.tensor(x))
    for one, other in zip(found, network(ef.tensor(x), *where), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (ef.max_pool(ef.relu(x), 2), ef.relu(x)),
        lambda x: (lambda y: (ef.max_pool(y, 2), ef.sum(y)))(ef.relu(x)),
        lambda x: ef.avg_pool(ef.relu(x), 2),
        lambda x: ef.max_pool(ef.tanh(x), 2),
    ],
)
def test_relus_that_others_read_stay(f):
    graph = ef.capture.trace(f, ef.TensorSpec((1, 4, 4, 2), "float32"))
    graph = graph.optimized(only=("subexpressions",))
    assert names(graph.optimized(only=("pooling",))) == names(graph)


def test_two_poolings_of_one_relu():
    def f(x):
        y = ef.relu(x)
        return ef.max_pool(y, 2), ef.max_pool(y, 3)

    graph = ef.capture.trace(f, ef.TensorSpec((1, 6, 6, 2), "float32"))
    found = names(graph.optimized(only=("pooling", "dead_code")))
    assert found == ["max_pool", "relu"] * 2


def test_exact_graphs_stay():
    assert "pooling" not in graph_of().optimized(numerics="exact").rewrites.counts
