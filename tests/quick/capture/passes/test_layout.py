"""Layout: transposes meet their inverses across other ops, and results stay the same."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from tests.capture.passes.test_equality import computed
from tests.capture.passes.test_passes import names, spec


def test_transposes_meet_across_elementwise_ops():
    """Code for channels first around ops for channels last: what is left works as they lie."""
    bias = ef.asarray(np.arange(3, dtype="float32").reshape(3, 1, 1))

    def f(x):
        y = ef.permute_dims(x, (0, 3, 1, 2))
        y = ef.tanh(y + bias) * 2.0
        y = y + ef.relu(y)
        return ef.permute_dims(y, (0, 2, 3, 1))

    x = ef.asarray(np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype("float32"))
    graph = ef.capture.trace(f, x)
    found = graph.optimized()
    found.check()
    assert names(found) == ["add", "tanh", "multiply", "relu", "add"]
    assert np.allclose(computed(found, [x])[0], computed(graph, [x])[0], rtol=1e-6)


def test_other_transposes_stay_where_they_are():
    def alone(x):
        return ef.tanh(x.T) + 1.0

    def mixed(x):
        return (ef.tanh(x.T) + x).T

    for f in (alone, mixed):
        graph = ef.capture.trace(f, spec(3, 3))
        assert graph.optimized() is graph

    def twice(x):  # another user of the value sees it as before
        y = ef.tanh(x.T)
        return y.T, ef.sum(y, axis=0)

    x = ef.asarray(np.random.default_rng(0).standard_normal((3, 4)).astype("float32"))
    graph = ef.capture.trace(twice, x)
    found = graph.optimized()
    assert names(found) == ["tanh", "sum"]
    for a, b in zip(computed(found, [x]), computed(graph, [x]), strict=True):
        assert np.allclose(a, b, rtol=1e-6)


ALONG = {
    "concat": lambda x: ef.concat([x, ef.tanh(x)], axis=1),
    "softmax": lambda x: ef.softmax(x, axis=-2),
    "log_softmax": lambda x: ef.log_softmax(x, axis=2),
    "pad": lambda x: ef.pad(x, ((0, 1), (2, 0), (0, 0), (1, 1))),
    "pad_all": lambda x: ef.pad(x, 1, "reflect"),
    "pad_pair": lambda x: ef.pad(x, (1, 0), "edge"),
    "bias": lambda x: x + ef.reshape(ef.arange(float(x.shape[1])), (-1, 1, 1)),
    "relu": ef.relu,
}
REDUCED = {
    "mean": lambda x: ef.mean(x, axis=(2, 3), keepdims=True),
    "max": lambda x: ef.max(x, axis=(-1, 2)),
    "sum": ef.sum,
    "std": lambda x: ef.std(x, axis=1, keepdims=True),
    "logsumexp": lambda x: ef.logsumexp(x, axis=0),
}


@settings(max_examples=80, deadline=None)
@given(
    st.permutations(range(4)).filter(lambda order: list(order) != [0, 1, 2, 3]),
    st.lists(st.sampled_from(sorted(ALONG)), min_size=1, max_size=4),
    st.sampled_from([None, *sorted(REDUCED)]),
    st.integers(0, 2**32 - 1),
)
def test_transposes_meet_across_ops_along_axes(order, chain, reduced, seed):
    back = [order.index(i) for i in range(4)]

    def f(x):
        y = ef.permute_dims(x, tuple(order))
        for name in chain:
            y = ALONG[name](y)
        if reduced is None:
            return ef.permute_dims(y, tuple(back))
        return REDUCED[reduced](y)

    x = np.random.default_rng(seed).standard_normal((2, 3, 4, 5)).astype("float32")
    graph = ef.capture.trace(f, spec(*x.shape))
    found = graph.optimized()
    found.check()
    x = ef.asarray(x)
    (y,) = computed(found, [x])
    np.testing.assert_allclose(y, f(x).numpy(), rtol=1e-4, atol=1e-5)
    if reduced is None:
        assert "permute_dims" not in names(found)


def test_reductions_end_transposes_where_the_order_stays():
    def pooled(x):  # the mean over an image whose channels stand first
        return ef.mean(ef.tanh(ef.permute_dims(x, (0, 3, 1, 2))), axis=(2, 3), keepdims=True)

    graph = ef.capture.trace(pooled, spec("n", 4, 5, 3)).optimized()
    assert names(graph) == ["tanh", "mean", "reshape"]
    assert graph.nodes[1].attributes["axis"] == (1, 2)

    def turned(x):
        return ef.sum(ef.tanh(ef.permute_dims(x, (2, 0, 1))), axis=1)

    graph = ef.capture.trace(turned, spec(3, 4, 5)).optimized()
    assert names(graph) == ["permute_dims", "tanh", "sum"]
