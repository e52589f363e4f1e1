"""``graph.gradient``: a larger graph, by names, Values and Variables, of any order, also loaded."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import GradientError, SessionError
from eagerflow.plan.replay import Replay
from tests.contract.cases import check_same_bits

SPEC = ef.TensorSpec((3,), "float32")
X = ef.tensor([0.5, 1.0, 2.0])


def model():
    w = ef.Variable([1.0, -2.0, 0.5], name="w")
    b = ef.Variable(0.25, name="b")

    def f(x, y):
        with ef.capture.scope("hidden"):
            h = ef.tanh(x * w + b)
        return {"loss": ef.mean(ef.square(h - y)), "h": h}

    return f, w, b


def taped(f, args, variables):
    """What a tape gives, eagerly."""
    with ef.GradientTape() as tape:
        tape.watch(list(args))
        found = f(*args)
    return tape.gradient(found["loss"], [*args, *variables])


def test_by_names_values_and_variables():
    f, w, b = model()
    graph = ef.capture.trace(f, SPEC, SPEC)
    wanted = taped(f, (X, X * 2), (w, b))
    for sources in (["x", "y", "w", "b"], [*graph.inputs, w, b]):
        for target in ("loss", graph.outputs["loss"], ["loss"]):
            larger = graph.gradient(target, sources)
            names = "loss h gradient/x gradient/y gradient/w gradient/b"
            assert larger.outputs.names == tuple(names.split())
            larger.check()
            found = Replay(larger, "exact").run([X, X * 2])[2:]
            check_same_bits([g.numpy() for g in found], [g.numpy() for g in wanted], "gradient")


def test_by_values_inside():
    f, *_ = model()
    graph = ef.capture.trace(f, SPEC, SPEC)
    larger = graph.gradient("loss", "hidden/tanh")
    found = larger(X, X * 2)["gradient/hidden/tanh"]
    h = f(X, X * 2)["h"]
    np.testing.assert_allclose(found.numpy(), (2 * (h - X * 2) / 3).numpy(), rtol=1e-6)


def test_the_graph_itself_stays():
    f, *_ = model()
    graph = ef.capture.trace(f, SPEC, SPEC)
    before = str(graph), graph.nodes
    larger = graph.gradient("loss", "x")
    assert (str(graph), graph.nodes) == before
    assert larger.nodes[: len(graph.nodes)] == graph.nodes
    assert all(node.name.startswith("gradient/") for node in larger.nodes[len(graph.nodes) :])
    assert larger.variables == graph.variables


def test_gradients_of_gradients():
    f = lambda x: {"loss": ef.sum(ef.sin(x) * ef.exp(x))}
    graph = ef.capture.trace(f, SPEC)
    first = graph.gradient("loss", "x")
    second = first.gradient("gradient/x", "x")
    third = second.gradient("gradient/x_1", "x")
    names = ("loss", "gradient/x", "gradient/x_1", "gradient/x_2")
    assert third.outputs.names == names
    g = lambda x: ef.sum(ef.sin(x) * ef.exp(x))
    wanted = [g]
    for _ in range(3):
        wanted.append((lambda inner: lambda x: ef.sum(ef.grad(inner)(x)))(wanted[-1]))
    found = third(X)
    for i in (1, 2, 3):
        np.testing.assert_allclose(float(ef.sum(found[names[i]])), float(wanted[i](X)), rtol=1e-4)


def test_several_targets_are_summed():
    graph = ef.capture.trace(lambda x: {"a": ef.sum(x * x), "b": x * 3}, SPEC)
    assert graph.gradient(["a", "b"], "x")(X)["gradient/x"].tolist() == (X * 2 + 3).tolist()


def test_named_sizes():
    w = ef.Variable(np.ones((3, 2)), dtype="float32", name="w")
    f = lambda x: {"loss": ef.mean(ef.logsumexp(x @ w, axis=-1))}
    graph = ef.capture.trace(f, ef.TensorSpec(("n", 3), "float32")).gradient("loss", ["w", "x"])
    for n in (1, 4):
        x = ef.tensor(np.random.default_rng(n).normal(size=(n, 3)).astype("float32"))
        found = graph(x)
        wanted = taped(f, (x,), (w,))
        np.testing.assert_allclose(found["gradient/w"].numpy(), wanted[1].numpy(), rtol=1e-5)
        np.testing.assert_allclose(found["gradient/x"].numpy(), wanted[0].numpy(), rtol=1e-5)


BODIES = {
    "branch": lambda x: ef.cond(ef.sum(x) > 0, lambda: ef.sin(x), lambda: x),
    "loop": lambda x: ef.fori_loop(0, 3, lambda i, c: ef.tanh(c * x), x),
    "scan": lambda x: ef.scan(lambda c, r: (c * r, c + r), x[0], x)[1],
    "choice": lambda x: ef.switch(1, [ef.cos, ef.exp], x),
    "random": lambda x: x * ef.random.Generator(3).normal((3,)),
    "norm": lambda x: ef.layer_norm(x) * ef.softmax(x),
}


@pytest.mark.parametrize("name", BODIES)
def test_of_control_flow_saved_and_loaded(name, tmp_path):
    f = lambda x: {"loss": ef.sum(BODIES[name](x) * x)}
    made = ef.random.Generator(3)
    if name == "random":
        f = lambda x: {"loss": ef.sum(made.normal((3,)) * x * x)}
    graph = ef.capture.trace(f, SPEC)
    graph.save(tmp_path / "g.ef")
    loaded = ef.capture.load(tmp_path / "g.ef")
    larger = graph.gradient("loss", "x")
    larger.save(tmp_path / "h.ef")
    again = ef.capture.load(tmp_path / "h.ef")
    made.seed(3)
    (wanted,) = taped(f, (X,), ())
    made.seed(3)
    for other in (larger, loaded.gradient("loss", "x"), again):
        found = Replay(other, "exact").run([X])[-1]
        assert found.numpy().tobytes() == wanted.numpy().tobytes()


def test_variables_that_are_assigned():
    w = ef.Variable(2.0, name="w")

    def f(x):
        y = ef.sum(x * w)
        w.assign(w * 3.0)
        return {"loss": y + w * 2.0}

    graph = ef.capture.trace(f, SPEC)
    with ef.GradientTape() as tape:
        wanted = f(X)["loss"]
    wanted = float(wanted), float(tape.gradient(wanted, w))
    w.assign(2.0)
    found = graph.gradient("loss", "w")(X)
    assert (float(found["loss"]), float(found["gradient/w"])) == wanted
    assert float(w) == 6.0


def test_a_training_step_from_a_graph():
    f, w, b = model()
    graph = ef.capture.trace(f, SPEC, SPEC).gradient("loss", ["w", "b"])
    losses = []
    for _ in range(20):
        found = graph(X, X * 0.5)
        w.assign_sub(found["gradient/w"] * 0.5)
        b.assign_sub(found["gradient/b"] * 0.5)
        losses.append(float(found["loss"]))
    assert losses[-1] < losses[0] / 5


def test_unconnected():
    graph = ef.capture.trace(lambda x, y: {"loss": ef.sum(x * x), "y": y * 2}, SPEC, SPEC)
    with pytest.raises(GradientError, match="y: the target does not depend"):
        graph.gradient("loss", ["x", "y"])
    names = graph.gradient("loss", ["x", "y"], unconnected="none").outputs.names
    assert names == ("loss", "y", "gradient/x")
    zeros = graph.gradient("loss", ["x", "y"], unconnected="zero")(X, X)
    assert zeros["gradient/y"].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("targets", "sources", "error", "says"),
    [
        ("los", "x", SessionError, "loss"),
        ("loss", "z", SessionError, "there is no value 'z'"),
        ([], "x", GradientError, "needs targets and sources"),
        ("loss", [], GradientError, "needs targets and sources"),
        ("n", "x", GradientError, "int64"),
        ("loss", ef.Variable(1.0, name="other"), GradientError, "does not read this Variable"),
    ],
)
def test_wrong_names(targets, sources, error, says):
    graph = ef.capture.trace(lambda x: {"loss": ef.sum(x), "n": ef.argmax(x)}, SPEC)
    with pytest.raises(error, match=says):
        graph.gradient(targets, sources)


def test_names_of_nodes_with_several_results_are_not_given_twice():
    def f(x):
        loss = lambda x: ef.scan(lambda c, _: (ef.sin(c), None), x, length=3)[0]
        return ef.grad(loss)(x)

    graph = ef.capture.trace(f, ef.TensorSpec((), "float32")).gradient("output", "x")
    graph.check()
    names = [node.name for node in graph.nodes]
    assert len(names) == len(set(names)) and "gradient/scan" in names
