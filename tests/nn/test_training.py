"""Training: fit learns, evaluate and predict agree with it, callbacks, weights, errors."""

import contextlib
import io

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import callbacks, losses, optimizers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]]) + 0.3).astype(np.float32)
LABELS = (X[:, 0] + X[:, 1] > 0).astype(np.int64)


def line(**options):
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Dense(1)])
    model.compile(optimizers.SGD(0.1), "mse", **options)
    return model


def classifier():
    ef.random.seed(0)
    model = ef.nn.Sequential([ef.nn.Dense(8, "relu"), ef.nn.Dense(2)])
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizers.Adam(0.05), loss, ["accuracy"])
    return model


# A processor's own bits, like the seed, lead to other networks: 350 to 356 of the 360 digits are
# right over 16 trainings, so a threshold of 342 fails for another reason only.
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 20))]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_digits_are_learned(seed):
    images, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    x = (images.reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], labels[order]
    ef.random.seed(seed)
    layers = ef.nn
    parts = [layers.Conv2D(16, 3, padding="same", activation="relu")]
    parts += [layers.Conv2D(32, 3, padding="same", activation="relu"), layers.MaxPooling2D(2)]
    parts += [layers.Flatten(), layers.Dropout(0.3), layers.Dense(10)]
    model = layers.Sequential(parts)
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizers.Adam(3e-3), loss, ["accuracy"])
    model.fit(x[360:], y[360:], batch_size=64, epochs=9, verbose=0)
    _, accuracy = model.evaluate(x[:360], y[:360], batch_size=120, verbose=0)
    print(f"{accuracy:.2%} of the held-out digits are right")
    assert accuracy >= 0.95
    predicted = model.predict(x[:360], batch_size=100).argmax(1)
    assert (predicted == y[:360]).mean() == pytest.approx(accuracy, abs=1e-6)


def test_a_batch_normalized_network_learns():
    ef.random.seed(0)
    layers = [ef.nn.Dense(16), ef.nn.BatchNormalization(momentum=0.8), ef.nn.Activation("relu")]
    layers += [ef.nn.Dense(1, "sigmoid")]
    model = ef.nn.Sequential(layers)
    model.compile(optimizers.Adam(0.05), "binary_crossentropy", ["accuracy"])
    model.fit(X, LABELS, epochs=20, verbose=0)
    assert model.evaluate(X, LABELS, verbose=0)[1] > 0.9  # 62 to 64 of 64 over 20 seeds


def test_history_has_each_epoch_and_validation():
    history = line(metrics=["mae"]).fit(X, Y, epochs=3, validation_split=0.25, verbose=0)
    assert list(history.history) == ["loss", "mae", "val_loss", "val_mae"]
    assert all(len(values) == 3 for values in history.history.values())
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert history.params["steps"] == 2


def test_loss_of_an_epoch_is_the_mean_over_examples():
    model = line()
    model.optimizer.learning_rate = 0.0
    history = model.fit(X[:50], Y[:50], batch_size=32, verbose=0)
    expected = float(np.mean((model.predict(X[:50]) - Y[:50]) ** 2))
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-5)
    assert model.evaluate(X[:50], Y[:50], verbose=0) == pytest.approx(expected, rel=1e-5)


def test_same_seed_same_weights():
    def run():
        model = classifier()
        model.fit(X, LABELS, epochs=3, batch_size=16, verbose=0)
        return b"".join(w.tobytes() for w in model.get_weights())

    assert run() == run()


def test_one_step_is_the_formula():
    model = line()
    model(X)
    kernel, bias = model.get_weights()
    loss = model.train_on_batch(X, Y)
    error = X @ kernel + bias - Y
    assert loss == pytest.approx(float((error**2).mean()), rel=1e-5)
    after_kernel, after_bias = model.get_weights()
    np.testing.assert_allclose(after_kernel, kernel - 0.1 * 2 * X.T @ error / 64, rtol=1e-4)
    np.testing.assert_allclose(after_bias, bias - 0.1 * 2 * error.mean(0), rtol=1e-4)


def test_weights_of_examples_and_classes():
    model = classifier()
    model(X)
    plain = model.test_on_batch(X, LABELS, return_dict=True)
    doubled = model.test_on_batch(X, LABELS, np.full(64, 2.0), return_dict=True)
    assert doubled["loss"] == pytest.approx(2 * plain["loss"], rel=1e-5)
    assert doubled["accuracy"] == pytest.approx(plain["accuracy"])
    model.fit(X, LABELS, epochs=30, class_weight={0: 1.0, 1: 0.0}, verbose=0)
    assert (model.predict(X).argmax(1) == 0).all()


def test_tensors_iterables_and_nests():
    model = line()
    model.fit(ef.tensor(X), ef.tensor(Y), verbose=0)
    batches = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 64, 16)]
    history = model.fit(batches, epochs=2, validation_data=batches, verbose=0)
    assert len(history.history["val_loss"]) == 2
    model.fit(X.tolist(), Y.tolist(), verbose=0)
    assert model.predict(iter([X[:16], X[16:]])).shape == (64, 1)

    class Sum(ef.nn.Model):
        def __init__(self):
            super().__init__()
            self.dense = ef.nn.Dense(1)

        def call(self, inputs):
            return self.dense(inputs["a"]) + self.dense(inputs["b"])

    model = Sum()
    model.compile("sgd", "mse")
    model.fit({"a": X, "b": X}, 2 * Y, verbose=0)
    assert model.predict({"a": X, "b": X}).shape == (64, 1)


def test_frozen_layers_do_not_change():
    model = classifier()
    model(X)
    model.layers[0].trainable = False
    before = model.get_weights()
    model.fit(X, LABELS, verbose=0)
    after = model.get_weights()
    assert [(a == b).all() for a, b in zip(before, after, strict=True)][:2] == [True, True]
    assert (before[2] != after[2]).any()


def test_shuffling_visits_each_example_once_and_keeps_arrays():
    seen = []

    class Spy(ef.nn.Model):
        def call(self, inputs):
            seen.extend(inputs.numpy()[:, 0].tolist())
            return inputs * self.factor

        def build(self, shape):
            self.factor = self.add_weight((), "ones")

    model = Spy()
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.arange(10, dtype=np.float32)[:, None]
    model.fit(x, x, batch_size=3, verbose=0)
    assert sorted(seen) == list(range(10)) != seen
    seen.clear()
    model.fit(x, x, batch_size=3, shuffle=False, verbose=0)
    assert seen == list(range(10)) == x[:, 0].tolist()


def test_batch_callbacks_get_numbers_and_can_stop():
    losses_seen = []

    class Two(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            losses_seen.append(logs["loss"])
            self.model.stop_training = batch == 1

    line().fit(X, Y, batch_size=8, epochs=5, callbacks=[Two()], verbose=0)
    assert len(losses_seen) == 2


def test_output_is_one_line_for_each_epoch():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        line().fit(X, Y, epochs=2, verbose=2)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("Epoch 2/2 - ")
    assert "loss: " in lines[1]


def test_summary():
    model = classifier()
    lines = []
    model.summary(print_fn=lines.append)
    assert "No parameters yet" in lines[0]
    model(X)
    model.layers[0].trainable = False
    lines.clear()
    model.summary(print_fn=lines.append)
    assert "(batch, 8)" in lines[0]
    assert "32 (frozen)" in lines[0]
    assert "Parameters: 50 (200 B), 18 trainable" in lines[0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: line().fit(X, Y, verbose=7), ef.errors.ArgumentError, "verbose"),
        (lambda: line().fit(X, Y, validation_split=1.0), ef.errors.ArgumentError, "split"),
        (lambda: line().fit(iter([]), verbose=0), ef.errors.ShapeError, "no batch"),
        (lambda: callbacks.LambdaCallback(on_step=print), ef.errors.ArgumentError, "on_step"),
    ],
)
def test_errors(call, error, words):
    """``test_mistakes.py`` has others."""
    with pytest.raises(error, match=words):
        call()


def test_logits_passed_to_a_probability_loss_are_refused():
    model = ef.nn.Sequential([ef.nn.Input(X.shape[1:]), ef.nn.Dense(2)])
    model.compile("adam", "sparse_categorical_crossentropy")
    before = model.get_weights()
    for way in (model.fit, model.train_on_batch):
        with pytest.raises(ef.errors.ArgumentError, match="from_logits=True"):
            way(X, LABELS)
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(new, old)
        assert int(model.optimizer.iterations) == 0
