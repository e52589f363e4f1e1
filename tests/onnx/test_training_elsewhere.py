"""A training step as an ONNX model: drivers that feed its Variables back train as we do."""

import numpy as np
import pytest

import eagerflow as ef

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

STEPS = 30


def session_of(path):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options)


def trained(session, state, feeds):
    """The losses of a driver that gives back what it gets."""
    losses = []
    outputs = [output.name for output in session.get_outputs()]
    for _ in range(STEPS):
        loss, *after = session.run(outputs, feeds | state)
        state = {name.removesuffix("/next"): a for name, a in zip(outputs[1:], after, strict=True)}
        losses.append(float(loss))
    return losses


@pytest.fixture
def step(rng):
    """A captured step of Adam, and what it is fed."""
    w = ef.Variable(rng.standard_normal((4, 3)).astype("float32"), name="layer/w")
    scale = ef.Variable(0.5, name="scale")  # which the step does not assign
    optimizer = ef.nn.optimizers.Adam(0.05)

    @ef.function
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.sparse_softmax_cross_entropy((x @ w) * scale, y))
        optimizer.apply(tape.gradient(loss, [w]), [w])
        return {"loss": loss}

    feeds = {"x": rng.standard_normal((16, 4)).astype("float32"), "y": rng.integers(0, 3, 16)}
    step.graph(*map(ef.tensor, feeds.values()))
    return step, feeds


def captured(step, feeds):
    return [float(step(*map(ef.tensor, feeds.values()))["loss"]) for _ in range(STEPS)]


def test_a_step_for_any_batch_size(rng, tmp_path):
    layers = [ef.nn.Conv2D(4, 3, padding="same"), ef.nn.BatchNormalization(momentum=0.9)]
    layers += [ef.nn.Activation("relu"), ef.nn.MaxPooling2D(2), ef.nn.Flatten(), ef.nn.Dense(3)]
    model = ef.nn.Sequential(layers)
    optimizer = ef.nn.optimizers.SGD(0.1, momentum=0.9)
    images = ef.TensorSpec(("batch", 6, 6, 1), "float32")

    @ef.function(input_signature=[images, ef.TensorSpec(("batch",), "int64")])
    def step(x, y):
        with ef.GradientTape() as tape:
            loss = ef.mean(ef.sparse_softmax_cross_entropy(model(x, training=True), y))
        weights = model.trainable_weights
        optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}

    ef.capture.export_onnx(step, tmp_path / "step.onnx")
    session, state = session_of(tmp_path / "step.onnx"), {}
    outputs = [output.name for output in session.get_outputs()]
    for size in (8, 5, 8, 1, 16):
        x, y = rng.standard_normal((size, 6, 6, 1)).astype("float32"), rng.integers(0, 3, size)
        loss, *after = session.run(outputs, {"x": x, "y": y} | state)
        state = {name.removesuffix("/next"): a for name, a in zip(outputs[1:], after, strict=True)}
        assert abs(float(step(x, y)["loss"]) - float(loss)) < 1e-4


def test_initial_values_in_a_file_of_their_own(step, tmp_path):
    step, feeds = step
    ef.capture.export_onnx(step, tmp_path / "step.onnx", initial=tmp_path / "initial.onnx")
    for name in ("step.onnx", "initial.onnx"):
        onnx.checker.check_model(onnx.load(tmp_path / name), full_check=True)
    session = session_of(tmp_path / "step.onnx")
    assert session.get_overridable_initializers() == []  # which JavaScript cannot feed
    initial = session_of(tmp_path / "initial.onnx")
    names = [output.name for output in initial.get_outputs()]
    assert initial.get_inputs() == [] and "scale" not in names
    assert names == [output.name.removesuffix("/next") for output in session.get_outputs()[1:]]
    losses = trained(session, dict(zip(names, initial.run(None, {}), strict=True)), feeds)
    np.testing.assert_allclose(losses, captured(step, feeds), rtol=1e-5)
    assert losses[-1] < losses[0]


def test_large_initial_values_go_beside_their_file(step, tmp_path, monkeypatch):
    monkeypatch.setattr("eagerflow.onnx.writing.exporting.EXTERNAL_BYTES", 1)
    monkeypatch.setattr("eagerflow.onnx.writing.exporting.MIN_EXTERNAL_BYTES", 8)
    step, _ = step
    (tmp_path / "other").mkdir()
    ef.capture.export_onnx(step, tmp_path / "step.onnx", initial=tmp_path / "other/initial.onnx")
    values = session_of(tmp_path / "other" / "initial.onnx").run(["layer/w"], {})
    assert (tmp_path / "other" / "initial.onnx.data").exists()
    np.testing.assert_array_equal(values[0], step.graphs[0].variables["layer/w"].numpy())
