"""Training on our backend: captured and eager steps agree, and users' own steps run."""

import keras
import numpy as np
import pytest

import eagerflow as ef
from eagerflow.keras.backend.steps import CapturedStep

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4)).astype("float32")
Y = (X @ RNG.normal(size=(4, 2))).astype("float32")


def sequential():
    return keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(2)]
    )


def functional():
    x = keras.Input((4,))
    parts = [keras.layers.Dense(5, "relu")(x), keras.layers.BatchNormalization()(x)]
    return keras.Model(x, keras.layers.Dense(2)(keras.layers.Concatenate()(parts)))


class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(6, activation="gelu")
        self.dropout = keras.layers.Dropout(0.3, seed=5)
        self.outer = keras.layers.Dense(2, kernel_regularizer="l2")

    def call(self, x, training=False):
        return self.outer(self.dropout(self.inner(x), training=training))


def fitted(make, optimizer="adam", **options):
    keras.utils.set_random_seed(3)
    model = make()
    model.compile(optimizer, "mse", metrics=["mae"], **options)
    history = model.fit(X, Y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    return model, history.history


@pytest.mark.parametrize("make", [sequential, functional, Subclassed])
def test_captured_steps_train_as_eager_ones_do(make):
    captured, seen = fitted(make)
    eager, expected = fitted(make, run_eagerly=True)
    assert captured.jit_compile and not eager.jit_compile
    for name, values in expected.items():
        np.testing.assert_allclose(seen[name], values, rtol=2e-5, err_msg=name)
    for a, b in zip(captured.weights, eager.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=1e-6, err_msg=a.path)
    np.testing.assert_allclose(captured.predict(X, verbose=0), eager.predict(X, verbose=0), 1e-3)


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=1.0),
        keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, use_ema=True),
        keras.optimizers.RMSprop(keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
        keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2),
    ],
    ids=["sgd", "adamw", "accumulation", "schedule", "ema"],
)
def test_optimizers_do_the_same_captured(optimizer):
    config = keras.optimizers.serialize(optimizer)
    captured, _ = fitted(sequential, keras.optimizers.deserialize(config))
    eager, _ = fitted(sequential, keras.optimizers.deserialize(config), run_eagerly=True)
    for a, b in zip(captured.weights, eager.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=1e-6)
    updates = 6 // (optimizer.gradient_accumulation_steps or 1)
    assert int(captured.optimizer.iterations) == int(eager.optimizer.iterations) == updates


def test_a_step_is_traced_once_for_each_size_of_a_batch():
    model = sequential()
    traced = []
    call = model.call
    model.call = lambda *args, **kwargs: (traced.append(1), call(*args, **kwargs))[1]
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=16, epochs=3, verbose=0)
    assert len(traced) == 3  # what the metrics get; batches of 16, and one of 8
    model.evaluate(X, Y, batch_size=20, verbose=0)
    assert len(traced) == 4


def test_mixed_precision_scales_its_loss():
    keras.utils.set_random_seed(0)
    policy = keras.DTypePolicy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, dtype=policy)])
    model.dtype_policy = policy
    model.compile(keras.optimizers.SGD(0.1), "mse")
    history = model.fit(X, Y, epochs=5, verbose=0).history["loss"]
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    assert history[-1] < 0.5 * history[0]


class OwnStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)
        self.mean = keras.metrics.Mean(name="mine")

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with ef.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        self.mean.update_state(loss)
        return {"mine": self.mean.result(), "twice": loss * 2}

    @property
    def metrics(self):
        return [self.mean]


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_step_of_the_users(eagerly):
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=eagerly)
    history = model.fit(X, Y, epochs=4, verbose=0).history
    assert history["mine"][-1] < history["mine"][0]
    assert set(history) == {"mine", "twice"}


def test_a_loop_of_the_users():
    model, optimizer = sequential(), keras.optimizers.Adam(0.05)
    losses = []
    for _ in range(20):
        with ef.GradientTape() as tape:
            loss = keras.losses.MeanSquaredError()(Y, model(X, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_weights), model.trainable_weights)
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]


def test_stateless_calls_leave_the_variables_alone():
    model = functional()
    weights = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]

    def loss(weights):
        y, new = model.stateless_call(weights, others, X, training=True)
        return keras.ops.mean((y - Y) ** 2), new

    (value, new), grads = ef.value_and_grad(loss, has_aux=True)(weights)
    assert float(value) > 0 and len(grads) == len(weights)
    assert any(float(abs(a - b).max()) > 0 for a, b in zip(new, others, strict=True))
    for before, now in zip(others, model.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(before.numpy(), now.numpy())


@pytest.mark.parametrize("steps", [1, 3])
def test_several_steps_in_one_execution(steps):
    keras.utils.set_random_seed(3)
    model, told = sequential(), []
    model.compile("sgd", "mse", steps_per_execution=steps)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda i, logs: told.append(i))
    model.fit(X, Y, batch_size=7, epochs=1, verbose=0, shuffle=False, callbacks=[callback])
    assert int(model.optimizer.iterations) == 6
    assert told == ([0, 1, 2, 3, 4, 5] if steps == 1 else [2, 5])
    assert model.predict(X, batch_size=8, verbose=0).shape == (40, 2)


def test_weights_of_classes_and_samples():
    labels = RNG.integers(0, 2, 40)
    model = sequential()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, weighted_metrics=["accuracy"])
    model.fit(X, labels, class_weight={0: 1.0, 1: 3.0}, epochs=1, verbose=0)
    weight = np.where(labels == 1, 3.0, 1.0)
    found = model.evaluate(X, labels, sample_weight=weight, verbose=0, return_dict=True)
    logits = model.predict(X, verbose=0)
    p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -(weight * p[np.arange(40), labels]).sum() / 40
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    right = logits.argmax(-1) == labels
    assert found["accuracy"] == pytest.approx((weight * right).sum() / weight.sum(), rel=1e-5)


def test_variables_of_a_step_that_are_made_each_time_are_refused():
    step = CapturedStep(lambda x: keras.Variable(np.ones(2, "float32")) * x, "step")
    with pytest.raises(ef.errors.CaptureError, match="persistent state at every"):
        step(np.ones(2, "float32"))


def test_frozen_layers_stay_as_they_are():
    model = sequential()
    model.layers[0].trainable = False
    model.compile("sgd", "mse")
    before = [w.numpy() for w in model.weights]
    model.fit(X, Y, epochs=1, verbose=0)
    changed = [not np.array_equal(a, b.numpy()) for a, b in zip(before, model.weights, strict=True)]
    assert changed == [False, False, True, True]
