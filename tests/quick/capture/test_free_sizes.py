"""Free sizes: graphs that have them are called anywhere, and sizes count like whole numbers."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ShapeError

W = ef.Variable([1.0, 2.0, 3.0], name="w")
SPEC = ef.TensorSpec((None, 3), "float32")
X = ef.tensor(np.linspace(0.1, 1.0, 12, dtype="float32").reshape(4, 3))


def plain(x):
    return ef.tanh(x * W).sum(axis=0) * x.shape[0]


def branching(x):
    y = ef.cond(x.sum() > 0, lambda: ef.sin(x), lambda: x * 0.5)
    return ef.scan(lambda c, row: (c + row, c * 2.0), ef.zeros(3), y)[1]


def reshaping(x):
    return x.reshape((-1,))[: x.shape[0]] / x.shape[0] + ef.zeros((x.shape[0],))


WAYS = {
    "tape": lambda f: _taped(f),
    "grad": lambda f: ef.grad(lambda x: f(x).sum())(X),
    "function": lambda f: ef.function(lambda x: f(x) * 2.0)(X),
    "free function": lambda f: ef.function(lambda x: f(x) * 2.0, input_signature=[SPEC])(X),
    "function under a tape": lambda f: _taped(ef.function(lambda x: f(x) * 2.0)),
    "vmap": lambda f: ef.vmap(f)(X.reshape((2, 2, 3))),
    "vjp": lambda f: ef.vjp(f, X)[0],
    "jvp": lambda f: ef.jvp(f, [X], [X])[1],
    "traced": lambda f: ef.capture.trace(f, X)(X),
    "traced freely": lambda f: ef.capture.trace(f, SPEC)(X),
}


def _taped(f):
    with ef.GradientTape() as tape:
        tape.watch(X)
        loss = f(X).sum()
    return tape.gradient(loss, X)


@pytest.mark.parametrize("f", [plain, branching, reshaping])
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_graphs_with_free_sizes_are_called_anywhere(f, loaded, way, tmp_path):
    graph = ef.capture.trace(f, SPEC)
    if loaded:
        graph.save(tmp_path / "graph.ef")
        graph = ef.capture.load(tmp_path / "graph.ef")
    found, wanted = WAYS[way](graph), WAYS[way](f)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("f", [plain, branching, reshaping])
def test_graphs_with_free_sizes_are_verified(f):
    graph = ef.capture.trace(f, SPEC)
    assert ef.capture.verify(lambda x: graph(x), [X])


def test_sizes_that_differ_are_refused_under_a_tape_too():
    graph = ef.capture.trace(lambda a, b: a + b, *[ef.TensorSpec(("n", 3), "float32")] * 2)
    with ef.GradientTape(), pytest.raises(ShapeError, match="n=4"):
        graph(X, X[:2])


NUMBERS = {
    "divided by": lambda x: x.sum() / x.shape[0],
    "divides": lambda x: x.shape[0] / x.sum(),
    "times": lambda x: x.shape[0] * x,
    "reciprocal": lambda x: x * (1 / x.shape[0]),
    "part": lambda x: x * (0.5 * x.shape[0]),
    "half": lambda x: x * (x.shape[0] / 2),
    "power": lambda x: x + x.shape[0] ** 2,
    "less one": lambda x: x * (x.shape[0] - 1),
    "integers": lambda x: x.astype("int32") + x.shape[0],
    "of halves": lambda x: x.astype("float16") * x.shape[0],
    "square root": lambda x: x / ef.sqrt(x.shape[0]),
    "chosen": lambda x: ef.where(x > 0.5, x, x.shape[0]),
    "two sizes": lambda x: x * (x.shape[0] / (x.shape[0] + 1)),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_sizes_meet_tensors_as_whole_numbers(kind, tmp_path):
    f = NUMBERS[kind]
    graph = ef.capture.trace(f, SPEC)
    graph.save(tmp_path / "graph.ef")
    for x in (X, X[:1]):
        wanted = f(x)
        for found in (graph(x), ef.capture.load(tmp_path / "graph.ef")(x)):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-6)
    slope = ef.capture.trace(ef.grad(lambda x: f(x).sum()), SPEC) if kind != "integers" else None
    if slope is not None:
        wanted = ef.grad(lambda x: f(x).sum())(X)
        np.testing.assert_allclose(slope(X).numpy(), wanted.numpy(), rtol=2e-5)


# Free sizes that meet ----------------------------------------------------------------------------


def test_free_sizes_that_meet_are_one():
    a, b = ef.TensorSpec((None, 4), "float32"), ef.TensorSpec((None, 1), "float32")
    c = ef.TensorSpec((None, 4), "float32")
    graph = ef.capture.trace(lambda a, b, c: (a - b) * c, a, b, c)
    assert len({str(v.shape[0]) for v in graph.inputs}) == 1
    x, y = ef.ones((5, 4)), ef.ones((5, 1))
    assert graph(x, y, x).shape == (5, 4)
    with pytest.raises(ShapeError) as caught:
        graph(x, y, ef.ones((6, 4)))
    assert "c" in str(caught.value)
    assert "a_dim0=5" in str(caught.value)


def test_functions_with_free_sizes_that_meet():
    spec = ef.TensorSpec((None, 3), "float32")
    runs = []

    def loss(prediction, target):
        runs.append(prediction.shape)
        return ((prediction - target) ** 2).sum() / prediction.shape[0]

    step = ef.function(loss, input_signature=[spec, spec])
    assert float(step(X, X * 0.0)) == pytest.approx(float((X**2).sum() / 4))
    assert len(step.graphs) == 1
    with pytest.raises(ShapeError, match="target"):
        step(X, X[:2])


def test_sizes_with_names_of_their_own_do_not_meet():
    specs = [ef.TensorSpec((name, 3), "float32") for name in ("n", "m")]
    with pytest.raises(ShapeError, match="do not broadcast"):
        ef.capture.trace(lambda a, b: a - b, *specs)
    with pytest.raises(ShapeError, match="do not broadcast"):
        ef.capture.trace(lambda a: a - ef.ones((7, 3)), SPEC)


def test_free_sizes_that_do_not_meet_stay_two():
    graph = ef.capture.trace(lambda a, b: (a.sum(), b.sum()), SPEC, SPEC)
    assert graph(X, X[:2])[1].shape == ()


def test_sizes_of_arguments_with_one_label_stay_two():
    """Both a[0] and a_0 have the label a_0."""
    spec = ef.TensorSpec((None,), "float32")
    f = ef.function(lambda a, a_0: a[0].sum() - a_0.sum(), input_signature=[[spec], spec])
    assert [float(f([ef.ones(n)], ef.ones(m))) for n, m in ((3, 5), (2, 2), (7, 4))] == [-2, 0, 3]
    assert len(f.graphs) == 1
