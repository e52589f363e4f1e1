"""What an exported model says of a graph, and that it trains and branches as the graph does."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, CaptureError
from eagerflow.onnx.writing import exporting
from tests.onnx.writing.models import exported, run, session


def spec(*shape):
    return ef.TensorSpec(shape, "float32")


def metadata(node):
    return {entry.key: entry.value for entry in node.metadata_props}


def test_names_sizes_and_places_are_kept(tmp_path):
    kernel = ef.Variable(np.ones((3, 2), "float32"), name="dense/kernel")

    def predict(pixels):
        with ef.capture.scope("dense"):
            return {"scores": ef.relu(pixels @ kernel)}

    model = exported(ef.capture.trace(predict, spec("batch", 3)), tmp_path / "model.onnx")
    assert model.ir_version == 10 and model.opset_import[0].version == 21
    (x,), (y,) = model.graph.input, model.graph.output
    assert (x.name, y.name) == ("pixels", "scores")
    assert [d.dim_param or d.dim_value for d in y.type.tensor_type.shape.dim] == ["batch", 2]
    assert [t.name for t in model.graph.initializer] == ["dense/kernel"]
    (product, relu) = model.graph.node
    (within,) = model.graph.value_info  # shapes of what lies between, for readers
    assert within.name == product.output[0]
    assert [d.dim_param or d.dim_value for d in within.type.tensor_type.shape.dim] == ["batch", 2]
    assert metadata(product)["op"] == "matmul" and metadata(product)["scope"] == "dense"
    assert metadata(relu)["source"].partition(":")[0].endswith("test_exporting.py")


def test_weights_in_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "EXTERNAL_BYTES", 1 << 12)
    big = ef.Variable(np.arange(2048, dtype="float32").reshape(2, 1024), name="big")
    small = ef.Variable(np.ones(2, "float32"), name="small")
    graph = ef.capture.trace(lambda x: (x * small) @ big, spec("n", 2))
    exported(graph, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size < 2048
    assert (tmp_path / "model.onnx.data").stat().st_size >= 8192
    x = np.ones((3, 2), "float32")
    wanted = graph(ef.tensor(x)).numpy()
    np.testing.assert_array_equal(run(tmp_path / "model.onnx", {"x": x})["output"], wanted)
    back = ef.capture.import_onnx(tmp_path / "model.onnx")
    np.testing.assert_array_equal(back(ef.tensor(x))["output"].numpy(), wanted)


def step_of(optimizer):
    """A training step of a small classifier with an optimizer, as a captured function."""
    rng = np.random.default_rng(0)
    w1 = ef.Variable(rng.normal(0, 0.3, (8, 16)).astype("float32"), name="w1")
    b1 = ef.Variable(np.zeros(16, "float32"), name="b1")
    w2 = ef.Variable(rng.normal(0, 0.3, (16, 4)).astype("float32"), name="w2")
    weights = [w1, b1, w2]

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            logits = ef.relu(x @ w1 + b1) @ w2
            loss = ef.mean(ef.sparse_softmax_cross_entropy(logits, y))
        optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}

    return step


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: ef.nn.optimizers.SGD(0.1, momentum=0.9),
        lambda: ef.nn.optimizers.Adam(0.02),
        lambda: ef.nn.optimizers.AdamW(0.02),
        lambda: ef.nn.optimizers.RMSprop(0.01),
    ],
    ids=["sgd", "adam", "adamw", "rmsprop"],
)
def test_a_training_step_trains(optimizer, tmp_path):
    step = step_of(optimizer())
    rng = np.random.default_rng(1)
    x = rng.normal(size=(32, 8)).astype("float32")
    y = rng.integers(0, 4, 32)
    sized = ef.TensorSpec(("n", 8), "float32"), ef.TensorSpec(("n",), "int64")
    exported(step.graph(*sized), tmp_path / "step.onnx")
    made = session(tmp_path / "step.onnx")
    names = [output.name for output in made.get_outputs()]
    assert names[0] == "loss" and all(name.endswith("/next") for name in names[1:])
    losses, state = [], {}
    for _ in range(100):
        loss, *after = made.run(None, {"x": x, "y": y, **state})
        state = {n.removesuffix("/next"): a for n, a in zip(names[1:], after, strict=True)}
        losses.append(float(loss))
    ours = [float(step(ef.tensor(x), ef.tensor(y))["loss"]) for _ in range(100)]
    assert ours[-1] < 0.5 * ours[0]
    np.testing.assert_allclose(losses, ours, rtol=1e-3, atol=1e-5)


CONTROL = {
    "cond": lambda x: ef.capture.cond(ef.sum(x) > 0, lambda: x * 2, lambda: -x),
    "switch": lambda x: ef.capture.switch(
        ef.astype(ef.argmax(x[0]), "int64"), [lambda: x, lambda: x + 1, lambda: x * x]
    ),
    "while": lambda x: ef.capture.while_loop(
        lambda c: ef.sum(c[1]) < 100, lambda c: (c[0] + 1, c[1] * 1.5 + 1), (ef.tensor(0), x)
    ),
    "fori": lambda x: ef.capture.fori_loop(0, 5, lambda i, c: c * 0.5 + x, x),
    "scan": lambda x: ef.capture.scan(lambda c, row: (c + row, c * row), x[0] * 0, x),
    "as_long": lambda x: ef.capture.scan(
        lambda c, _: (c * 0.5 + 1, c), x[0], None, length=x.shape[0]
    ),
    "nested": lambda x: ef.capture.fori_loop(
        0, 3, lambda i, c: ef.capture.cond(ef.max(c) > 1, lambda: c * 0.5, lambda: c + x), x
    ),
}


@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.parametrize("rows", ["n", 4])
def test_control_flow(name, rows, tmp_path):
    graph = ef.capture.trace(CONTROL[name], spec(rows, 3))
    exported(graph, tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    for sign in (1, -1):
        x = (sign * np.abs(rng.normal(size=(4, 3)))).astype("float32")
        wanted = [y.numpy() for y in ef.tree.flatten(graph(ef.tensor(x)))[0]]
        found = run(tmp_path / "model.onnx", {"x": x}).values()
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: ef.dropout(x, 0.4),
        lambda x: x + ef.random.uniform(x.shape),
        lambda x: x + ef.random.integers(-5, 5, x.shape),
        lambda x: x + ef.random.normal(x.shape),
    ],
    ids=["dropout", "uniform", "integers", "normal"],
)
def test_random_numbers_are_ours_for_any_number_of_rows(draw, tmp_path):
    ef.random.seed(3)
    exported(ef.function(draw).graph(spec("n", 3)), tmp_path / "model.onnx")
    for rows in (1, 4, 7):
        x = np.ones((rows, 3), "float32")
        ef.random.seed(3)
        wanted = draw(ef.tensor(x)).numpy()
        found = next(iter(run(tmp_path / "model.onnx", {"x": x}).values()))
        np.testing.assert_allclose(found, wanted, rtol=3e-6, atol=1e-6)


# Errors -------------------------------------------------------------------------------------------


def test_unsupported_export_is_refused_with_op_and_line(tmp_path):
    graph = ef.capture.trace(lambda x: ef.linalg.svd(x)[1], spec(3, 3))
    with pytest.raises(CaptureError) as caught:
        ef.capture.export_onnx(graph, tmp_path / "model.onnx")
    assert caught.value.op == "svd" and "test_exporting.py" in str(caught.value)
    assert not (tmp_path / "model.onnx").exists()


def test_only_graphs_go_out(tmp_path):
    with pytest.raises(ArgumentError, match="no graph"):
        ef.capture.export_onnx(3, tmp_path / "model.onnx")
    f = ef.function(lambda x: x * 2)
    with pytest.raises(ArgumentError, match="0 graphs"):
        ef.capture.export_onnx(f, tmp_path / "model.onnx")
    f(ef.ones(2)), f(ef.ones((2, 2)))
    with pytest.raises(ArgumentError, match="2 graphs"):
        ef.capture.export_onnx(f, tmp_path / "model.onnx")


def test_a_file_stays_as_it_was_where_export_fails(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(CaptureError):
        graph = ef.capture.trace(lambda x: ef.linalg.svd(x)[1], spec(3, 3))
        ef.capture.export_onnx(graph, path)
    assert path.read_bytes() == b"before"


@pytest.mark.soak
def test_long_graphs_take_linear_time(tmp_path):
    import time

    def graph_of(count):
        def f(x):
            for _ in range(count):
                x = ef.tanh(x) * 0.5
            return x

        return ef.capture.trace(f, spec("n", 4))

    def seconds(graph):
        begin = time.perf_counter()
        ef.capture.export_onnx(graph, tmp_path / "long.onnx")
        ef.capture.import_onnx(tmp_path / "long.onnx")
        return time.perf_counter() - begin

    short, long = graph_of(500), graph_of(5000)
    assert len(long.nodes) == 10_000
    fast = min(seconds(short) for _ in range(3))
    assert seconds(long) < max(40 * fast, 5.0)
