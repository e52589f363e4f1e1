"""Models saved, loaded and exported from our backend."""

import keras
import numpy as np
import pytest

import eagerflow as ef

X = np.random.default_rng(0).normal(size=(5, 8, 3)).astype("float32")


def model():
    keras.utils.set_random_seed(1)
    x = keras.Input((8, 3), name="sequence")
    h = keras.layers.LSTM(4, return_sequences=True)(x)
    h = keras.layers.Conv1D(5, 3, padding="same", activation="relu")(h)
    h = keras.layers.GRU(3)(keras.layers.LayerNormalization()(h))
    return keras.Model(x, keras.layers.Dense(2, activation="softmax")(h), name="tagger")


def test_a_saved_model_goes_on_where_it_was(tmp_path):
    first = model()
    first.compile("adam", "categorical_crossentropy")
    y = np.eye(2, dtype="float32")[[0, 1, 0, 1, 1]]
    first.fit(X, y, epochs=1, verbose=0)
    first.save(tmp_path / "model.keras")
    second = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(first.predict(X, verbose=0), second.predict(X, verbose=0))
    for trained in (first, second):
        trained.fit(X, y, epochs=1, verbose=0, shuffle=False)
    for a, b in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_weights_alone(tmp_path):
    first, second = model(), model()
    for weight in first.weights:
        weight.assign_add(0.5)
    first.save_weights(tmp_path / "model.weights.h5")
    second.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(first(X).numpy(), second(X).numpy())


def test_an_exported_graph_takes_batches_of_any_size(tmp_path):
    own = model()
    own.export(tmp_path / "model.ef", format="ef", verbose=False)
    graph = ef.capture.load(tmp_path / "model.ef")
    assert graph.inputs.names == ("sequence",)
    for size in (1, 5):
        np.testing.assert_allclose(
            graph(X[:size]).numpy(), own.predict(X[:size], verbose=0), rtol=1e-5, atol=1e-6
        )


def test_an_exported_onnx_model_computes_the_same(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    x = keras.Input((8, 3), name="sequence")
    own = keras.Model(x, keras.layers.Dense(2, "tanh")(keras.layers.Flatten()(x)))
    own.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    found = session.run(None, {session.get_inputs()[0].name: X})[0]
    np.testing.assert_allclose(found, own(X).numpy(), rtol=1e-5, atol=1e-6)


def test_formats_of_others_are_refused_with_ours(tmp_path):
    with pytest.raises(NotImplementedError, match="format='ef'"):
        model().export(tmp_path / "model")
