"""Values by name, and graphs from graphs: pruned, renamed, composed; all compute what they say."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import CaptureError, SessionError, ShapeError
from eagerflow.graph.run import evaluate

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def spec(*shape, dtype="float32"):
    return ef.TensorSpec(shape, dtype)


def run(graph, *arrays):
    """The results by name, and what is assigned by the Variable's name."""
    graph.check()
    cells = [v.current for v in graph.variables.values()]
    outputs, assigned = evaluate(graph, [ef.tensor(a) for a in arrays] + cells)
    names = [c.name for c in graph.cells if c.assigned is not None]
    found = dict(zip(graph.outputs.names, outputs, strict=True))
    found |= {f"assign {n}": t for n, t in zip(names, assigned, strict=True)}
    return {name: tensor.numpy() for name, tensor in found.items()}


def network():
    w = ef.Variable(ef.ones((3, 2)), name="w")
    count = ef.Variable(ef.zeros(()), name="count")

    def f(x, y):
        with ef.capture.scope("dense"):
            h = ef.tanh(x @ w)
        count.assign(count + 1.0)
        values, _ = ef.top_k(h, 1)
        return {"h": h, "loss": ef.sum((h - y) ** 2), "values": values}

    return ef.capture.trace(f, spec("n", 3), spec("n", 2), name="f")


# Looking up ---------------------------------------------------------------------------------------


def test_any_value_is_found_by_its_name():
    graph = network()
    assert graph.value("x") is graph.inputs[0]
    assert graph.value("loss") is graph.outputs["loss"]
    assert graph.value("w") is graph.cells[0].value
    assert graph.value("dense/matmul").node.name == "dense/matmul"
    assert graph.value("top_k:1").index == 1
    assert graph.value(graph.outputs[0]) is graph.outputs[0]
    table = ef.ones(3)
    graph = ef.capture.trace(lambda x: x + table, spec(3))
    assert graph.value("constant") is graph.constants[0]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("los", "did you mean 'loss'"),
        ("tanh", "did you mean 'dense/tanh'?"),
        ("top_k", "did you mean 'top_k:0' or 'top_k:1'?"),
        ("qqqqqq", "print(graph)"),
    ],
)
def test_other_names_get_a_hint(name, hint):
    with pytest.raises(SessionError) as caught:
        network().value(name)
    assert hint in caught.value.hint
    assert "x, y, h, loss, values" in caught.value.expected


def test_values_of_other_graphs_are_refused():
    with pytest.raises(SessionError, match="a value of another graph"):
        network().value(network().outputs[0])


def test_outputs_go_before_inputs_of_the_same_name():
    graph = ef.capture.trace(lambda x: {"x": ef.exp(x)}, spec(3))
    assert graph.value("x").name == "exp"


def test_outputs_go_before_nodes_of_the_same_name():
    graph = ef.capture.trace(lambda x: {"tanh": ef.exp(ef.tanh(x))}, spec(3))
    assert graph.value("tanh").name == "exp"


# Pruning ------------------------------------------------------------------------------------------


def test_prune_keeps_only_required_nodes():
    graph = network()
    small = graph.prune("h")
    assert [node.op.name for node in small.nodes] == ["matmul", "tanh"]
    assert (small.inputs.names, list(small.variables)) == (("x",), ["w"])
    assert small.outputs.names == ("h",)
    assert small.nodes[0] is graph.nodes[0]  # shared, not copied
    np.testing.assert_allclose(run(small, X)["h"], np.tanh(X @ np.ones((3, 2))), rtol=1e-6)
    assert len(graph.nodes) == 7 and graph.inputs.names == ("x", "y")


@pytest.mark.parametrize(("asked", "names", "nest"), [
    ("dense/matmul", ("dense/matmul",), 0),
    (["loss", "h"], ("loss", "h"), [0, 1]),
    ({"a": "h", "b": "top_k:1"}, ("a", "b"), {"a": 0, "b": 1}),
    (("h", "h"), ("h", "h_1"), (0, 1)),
    ({1: "h", "1": "loss"}, ("1", "1_1"), {1: 0, "1": 1}),
    ("x", ("x",), 0),
    ("w", ("w",), 0),
])  # fmt: skip
def test_the_nest_that_is_asked_for_is_the_result(asked, names, nest):
    small = network().prune(asked)
    small.check()
    assert small.outputs.names == names
    assert small.nest(range(len(names))) == nest


def test_assignments_are_dropped_or_kept():
    graph = network()
    assert "count" not in graph.prune("loss").variables
    kept = graph.prune("h", assignments=True)
    assert run(kept, X)["assign count"] == 1.0
    assert graph.cells[1].assigned is not None


def test_pruned_values_may_be_given_as_values():
    graph = network()
    assert graph.prune(graph.value("dense/matmul")).outputs.names == ("dense/matmul",)
    assert graph.prune([graph.outputs["loss"]]).outputs.names == ("loss",)


def test_unknown_outputs_are_refused():
    with pytest.raises(SessionError, match="there is no value 'nothing' in f"):
        network().prune(["h", "nothing"])


# Renaming -----------------------------------------------------------------------------------------


def test_renamed_inputs_and_outputs():
    graph = network()
    other = graph.rename({"x": "image", "y": "label"}, {"h": "scores"}, "model")
    assert other.inputs.names == ("image", "label") and other.name == "model"
    assert other.outputs.names == ("scores", "loss", "values")
    assert other.value("image").name == "image"
    before, after = run(graph, X, X[:, :2]), run(other, X, X[:, :2])
    np.testing.assert_array_equal(before["h"], after["scores"])
    assert graph.inputs.names == ("x", "y") and graph.value("x").name == "x"


def test_inputs_can_change_places():
    graph = ef.capture.trace(lambda x, y: x - y, spec(3), spec(3))
    other = graph.rename({"x": "y", "y": "x"})
    assert other.inputs.names == ("y", "x")
    assert "subtract(y, x)" in str(other)
    other.check()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        (({"z": "a"},), SessionError, "f has no input 'z'"),
        (({}, {"los": "a"}), SessionError, "f has no output 'los'"),
        (({"x": "y"},), CaptureError, "the name 'y' is taken"),
        (({"x": "w"},), CaptureError, "the name 'w' is taken"),
        (({"x": "dense/tanh"},), CaptureError, "the name 'dense/tanh' is taken"),
        (({}, {"h": "loss"}), CaptureError, "the name 'loss' is taken"),
    ],
)
def test_bad_names_are_refused(changes, error, words):
    with pytest.raises(error, match=words):
        network().rename(*changes)


def test_outputs_that_are_inputs_are_renamed_too():
    graph = ef.capture.trace(lambda x: {"same": x, "t": ef.tanh(x)}, spec(3)).rename({"x": "z"})
    graph.check()
    assert graph.outputs["same"].name == "z"


# Composing ----------------------------------------------------------------------------------------


def test_one_after_the_other():
    first = ef.capture.trace(lambda x: {"y": ef.tanh(x)}, spec("n", 3), name="first")
    second = ef.capture.trace(lambda y, z: ef.tanh(y * z), spec("n", 3), spec(3), name="second")
    both = first.compose(second)
    assert both.name == "first_second" and both.inputs.names == ("x", "z")
    assert [node.name for node in both.nodes] == ["tanh", "multiply", "tanh_1"]
    found = run(both, X, np.float32([1, 2, 3]))
    np.testing.assert_allclose(found["output"], np.tanh(np.tanh(X) * [1, 2, 3]), rtol=1e-6)
    assert [node.name for node in second.nodes] == ["multiply", "tanh"]


def test_compose_connects_values_by_feeds():
    first = network()
    second = ef.capture.trace(lambda a, b: a - ef.sum(b), spec("m", 2), spec(), name="g")
    both = first.compose(second, {"a": "dense/tanh", "b": "loss"}, keep=["loss", "values"])
    assert both.outputs.names == ("output", "loss", "values")
    found = run(both, X, X[:, :2])
    h = np.tanh(X @ np.ones((3, 2)))
    loss = ((h - X[:, :2]) ** 2).sum()
    np.testing.assert_allclose(found["output"], h - loss, rtol=1e-5)
    np.testing.assert_allclose(found["loss"], loss, rtol=1e-5)
    assert both.nest([1, 2, 3]) == {"output": 1, "loss": 2, "values": 3}
    assert found["assign count"] == 1.0


def test_the_only_output_goes_to_the_only_input():
    first = ef.capture.trace(lambda x: ef.exp(x), spec(3))
    second = ef.capture.trace(lambda other: ef.log(other), spec(3))
    np.testing.assert_allclose(run(first.compose(second), X[0])["output"], X[0], atol=1e-6)


def test_inputs_of_the_same_name_are_one():
    first = ef.capture.trace(lambda x: {"y": ef.exp(x)}, spec(3))
    second = ef.capture.trace(lambda y, x: y + x, spec(3), spec(3))
    both = first.compose(second)
    assert both.inputs.names == ("x",)
    np.testing.assert_allclose(run(both, X[0])["output"], np.exp(X[0]) + X[0], rtol=1e-6)


def test_a_graph_after_itself():
    def step(x):
        with ef.capture.scope("s"):
            values, _ = ef.top_k(x * ef.tensor([1.0, 2.0, 3.0]), 3)
        return {"x": values}

    graph = ef.capture.trace(step, spec(3), name="f")
    thrice = graph.compose(graph).compose(graph)
    assert len(thrice.nodes) == 3 * len(graph.nodes)
    expected = X[0]
    for _ in range(3):
        expected = np.sort(expected * [1, 2, 3])[::-1]
    np.testing.assert_allclose(run(thrice, X[0])["x"], expected)


def test_composed_graph_reads_variables_assigned_by_the_first():
    count = ef.Variable(ef.ones(()), name="count")

    def step(x):
        count.assign(count * 3.0)
        return {"x": x + count}

    graph = ef.capture.trace(step, spec())
    found = run(graph.compose(graph), np.float32(1))
    assert found == {"x": 1 + 3 + 9, "assign count": 9}
    assert run(graph, np.float32(1)) == {"x": 4, "assign count": 3}


def test_different_variables_of_one_name_stay_apart():
    a, b = (ef.Variable(ef.ones(3) * k, name="w") for k in (2.0, 5.0))
    first = ef.capture.trace(lambda x: {"x": x * a}, spec(3))
    second = ef.capture.trace(lambda x: {"x": x + b}, spec(3))
    both = first.compose(second)
    assert list(both.variables) == ["w", "w_1"] and both.variables["w_1"] is b
    np.testing.assert_allclose(run(both, X[0])["x"], X[0] * 2 + 5)


def test_named_sizes_are_unified_in_composition():
    first = ef.capture.trace(lambda x: {"y": x.T}, spec("rows", 3))
    second = ef.capture.trace(lambda y: ef.sum(y, axis=0, keepdims=True), spec("n", "m"))
    both = first.compose(second)
    assert str(both.outputs[0].shape) == "(1, rows)"
    np.testing.assert_allclose(run(both, X)["output"], X.sum(axis=1)[None])
    fixed = ef.capture.trace(lambda x: {"y": x.T}, spec(2, 3)).compose(second)
    assert fixed.outputs[0].shape == (1, 2)
    fixed.check()


def test_names_of_the_second_go_into_a_scope():
    first = ef.capture.trace(lambda x: {"y": ef.exp(x)}, spec(3))
    w = ef.Variable(np.ones(3, "float32"), name="w")
    second = ef.capture.trace(lambda y, z: ef.exp(y * w) + z * np.arange(3.0), spec(3), spec(3))
    both = first.compose(second, scope="model")
    assert [n.name for n in both.nodes if n.op.name == "exp"] == ["exp", "model/exp"]
    assert both.inputs.names == ("x", "z") and list(both.variables) == ["model/w"]
    assert all(v.name.startswith("model/") for v in both.constants)


@pytest.mark.parametrize("other", [spec(4), spec(3, dtype="float64"), spec("n", 3)])
def test_composing_mismatched_inputs_is_refused(other):
    first = ef.capture.trace(lambda x: ef.exp(x), spec(3), name="first")
    second = ef.capture.trace(lambda x: ef.exp(x), other, name="next")
    words = r"(?s)input x of next does not match.*received: exp of first: .*expected: x: "
    with pytest.raises(CaptureError, match=words):
        first.compose(second)


def test_sizes_that_contradict_each_other_are_refused():
    first = ef.capture.trace(lambda x: {"y": x}, spec(3, 4))
    second = ef.capture.trace(lambda y: ef.sum(y), spec("n", "n"))
    with pytest.raises((CaptureError, ShapeError), match="does not match"):
        first.compose(second)


@pytest.mark.parametrize(
    ("feeds", "keep", "error", "words"),
    [
        (None, (), CaptureError, "no output of f has the name of an input of g"),
        ({"c": "h"}, (), SessionError, "g has no input 'c'"),
        ({"a": "hh"}, (), SessionError, "there is no value 'hh' in f"),
        ({"a": "h"}, ["hh"], SessionError, "there is no value 'hh' in f"),
        ({"a": "h"}, ["loss", "loss"], CaptureError, "the name 'loss' is taken"),
    ],
)
def test_unclear_feeds_are_refused(feeds, keep, error, words):
    second = ef.capture.trace(lambda a, b: a - b, spec("m", 2), spec(), name="g")
    with pytest.raises(error, match=words):
        network().compose(second, feeds, keep)
