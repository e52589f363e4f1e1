"""Training in unusual conditions: unused weights, odd batches, lone callbacks."""

import traceback
import warnings

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, CaptureError, GradientError, IndexRangeError, ShapeError

X = np.linspace(-1.0, 1.0, 64, dtype="float32").reshape(16, 4)
Y = np.arange(16) % 3


def network(eagerly=False):
    model = ef.nn.Sequential([ef.nn.Dense(3)])
    loss = ef.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, run_eagerly=eagerly)
    return model


class Partly(ef.nn.Model):
    def __init__(self, used=True):
        super().__init__()
        self.used = used
        self.first, self.second = ef.nn.Dense(1), ef.nn.Dense(2)

    def call(self, inputs):
        self.second(inputs)
        y = self.first(inputs)
        return y if self.used else ef.stop_gradient(y)


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_weights_that_the_loss_does_not_use_stay_as_they_are(eagerly, optimizer):
    model = Partly()
    model.compile(optimizer, "mse", run_eagerly=eagerly)
    model(X)
    before = [w.numpy() for w in model.weights]
    words = r"does not depend on dense_\d+/kernel, dense_\d+/bias"
    with pytest.warns(UserWarning, match=words) as told:
        model.fit(X, X[:, :1], epochs=2, verbose=0)
        model.train_on_batch(X, X[:, :1])
    assert len(told) == 1
    assert told[0].filename == __file__
    same = [bool((a == w.numpy()).all()) for a, w in zip(before, model.weights, strict=True)]
    assert same == [False, False, True, True]


def test_whole_models_are_trained_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network().fit(X, Y, verbose=0)


def test_a_loss_that_depends_on_no_weight_is_refused():
    model = Partly(used=False)
    model.compile("sgd", "mse")
    with pytest.raises(GradientError, match="none of the weights"):
        model.fit(X, X[:, :1], verbose=0)


def test_one_callback_may_come_alone():
    stop = ef.nn.callbacks.EarlyStopping("loss", patience=1, min_delta=1e9)
    assert len(network().fit(X, Y, epochs=9, verbose=0, callbacks=stop).epoch) == 2


@pytest.mark.parametrize("wrong", [3, [3], ef.nn.callbacks.EarlyStopping, [None]])
def test_invalid_callback_is_refused(wrong):
    with pytest.raises(ArgumentError, match="is not a callback"):
        network().fit(X, Y, verbose=0, callbacks=wrong)


def test_dicts_as_batches_are_named():
    with pytest.raises(ShapeError, match="takes one tensor") as caught:
        network().fit(({"x": X, "y": Y} for _ in range(2)), verbose=0)
    assert "(batch['x'], batch['y'])" in str(caught.value)


def test_datasets_by_index_are_named():
    class Dataset:
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i], Y[i]

    for call in (lambda d: network().fit(d, verbose=0), network().evaluate, network().predict):
        with pytest.raises(ArgumentError, match="DataLoader"):
            call(Dataset())


@pytest.mark.parametrize("eagerly", [False, True])
def test_labels_out_of_range_name_an_op_that_exists(eagerly):
    with pytest.raises(IndexRangeError, match="class 7 is out of range") as caught:
        network(eagerly).fit(X, Y + 5, verbose=0)
    assert callable(getattr(ef, caught.value.op))
    assert "from 0 to 2" in str(caught.value)


class Result:
    def __init__(self, y):
        self.y = y


@pytest.mark.parametrize("made", [Result, lambda y: {y}, lambda y: frozenset([y])])
@pytest.mark.parametrize("way", [ef.function, lambda f: lambda x: ef.capture.trace(f, x)])
def test_objects_that_hold_results_are_named(made, way):
    with pytest.raises(CaptureError, match=r"returns a \w+ that holds computed values"):
        way(lambda x: made(x * 2))(ef.ones(3))


def test_plain_objects_may_be_returned():
    kept = Result(3)
    assert ef.function(lambda x: (x * 2, kept))(ef.ones(2))[1] is kept


@pytest.mark.parametrize("call", [
    lambda: ef.zeros(3)["a"],
    lambda: ef.zeros(3)[None, "a"],
    lambda: ef.zeros(3)[7],
    lambda: ef.zeros(3)[[9]],
    lambda: ef.zeros(3) + "a",
    lambda: ef.sin("a"),
    lambda: ef.zeros(3) + ef.zeros(4),
])  # fmt: skip
def test_errors_have_one_traceback(call):
    with pytest.raises(ef.errors.EagerflowError) as caught:
        call()
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("Traceback") == 1, text


def test_metrics_that_a_model_holds_begin_anew_in_each_epoch():
    class Network(ef.nn.Model):
        def __init__(self):
            super().__init__()
            self.dense = ef.nn.Dense(1)
            self.seen = {"count": [ef.nn.metrics.Sum(name="count")]}

        def call(self, inputs):
            return self.dense(inputs)

        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            self.seen["count"][0].update_state(ef.ones_like(y))
            return super().compute_metrics(x, y, y_pred, sample_weight)

    model = Network()
    model.compile("sgd", "mse")
    assert model.fit(X, X[:, :1], epochs=2, verbose=0).history["count"] == [16.0, 16.0]


def test_layer_metrics_are_listed_and_inner_model_metrics_are_not():
    class Watched(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.mean = ef.nn.metrics.Mean(name="mean_output")

        def call(self, inputs):
            return inputs

    inner = ef.nn.Sequential([ef.nn.Dense(1)])
    inner.compile("sgd", "mse", ["mae"])
    model = ef.nn.Sequential([Watched(), inner])
    model.compile("sgd", "mse")
    assert [metric.name for metric in model.metrics] == ["loss", "mean_output"]


def test_a_tuple_of_inputs_is_predicted_as_it_is_trained():
    class Sum(ef.nn.Model):
        def call(self, inputs):
            a, b = inputs
            return a + b

    model = Sum()
    np.testing.assert_array_equal(model.predict((X, 2 * X)), 3 * X)


def test_a_single_loss_among_outputs_has_no_name_of_its_own():
    x = ef.nn.Input((4,))
    model = ef.nn.Model(x, [ef.nn.Dense(1, name="y")(x), ef.nn.Dense(2, name="z")(x)])
    model.compile("sgd", [None, "mse"])
    with pytest.warns(UserWarning, match="does not depend on"):
        history = model.fit(X, [X[:, :1], X[:, :2]], verbose=0).history
    assert list(history) == ["loss"]


@pytest.mark.parametrize("verbose", [0, 2])
def test_metric_with_several_thresholds_is_reported(verbose, capsys):
    model = ef.nn.Sequential([ef.nn.Dense(1, activation="sigmoid")])
    metric = ef.nn.metrics.TruePositives([0.0, 1.0], name="found")
    model.compile("sgd", "binary_crossentropy", metrics=[metric])
    history = model.fit(X, Y[:, None] > 0, validation_split=0.5, verbose=verbose)
    assert np.shape(history.history["found"]) == np.shape(history.history["val_found"]) == (1, 2)
    assert "found [" in repr(history)
    if verbose:
        assert "found: [5.0000, 0.0000]" in capsys.readouterr().out


def test_optimizer_state_copies_weights_before_layers_change_them():
    """SpectralNormalization assigns its kernel in the step that makes the optimizer's state."""

    def trained(eagerly):
        ef.random.seed(1)
        model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.SpectralNormalization(ef.nn.Dense(4))])
        optimizer = ef.nn.optimizers.ScheduleFreeAdamW(1e-9)
        model.compile(optimizer, "mse", run_eagerly=eagerly)
        before = model.trainable_weights[0].numpy()
        model.fit(X, X, batch_size=4, verbose=0)
        means = [v.numpy() for v in optimizer.variables if v.name.endswith("kernel/momentum")]
        np.testing.assert_allclose(means[0], before, atol=1e-6)
        return model.get_weights()

    for eager, captured in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(eager, captured, atol=1e-5)


class Shift(ef.nn.Layer):
    """Adds one in training."""

    def call(self, inputs, training=False):
        return inputs + 1.0 if training else inputs


def loss_of_fit(model, name):
    return model.fit(X, X, verbose=0, validation_data=(X, X)).history[name][0]


MODES = {
    "fit": lambda model: loss_of_fit(model, "loss"),
    "train_on_batch": lambda model: model.train_on_batch(X, X),
    "validation": lambda model: loss_of_fit(model, "val_loss"),
    "evaluate": lambda model: model.evaluate(X, X, verbose=0),
    "test_on_batch": lambda model: model.test_on_batch(X, X),
    "predict": lambda model: abs(model.predict(X) - X).max(),
    "predict_on_batch": lambda model: abs(model.predict_on_batch(X) - X).max(),
}


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("way", MODES)
def test_layers_know_whether_they_are_trained(way, eagerly):
    model = ef.nn.Sequential([Shift(), ef.nn.Dense(4, kernel_initializer="identity")])
    model.compile(ef.nn.optimizers.SGD(0.0), "mse", run_eagerly=eagerly)
    assert MODES[way](model) == pytest.approx(float(way in ("fit", "train_on_batch")), abs=1e-6)


@pytest.mark.parametrize(("frequency", "epochs"), [(1, 4), (2, 2), (3, 1), ([1, 4], 2), ((2,), 1)])
def test_validation_follows_its_epochs(frequency, epochs):
    model = ef.nn.Sequential([ef.nn.Dense(4)])
    model.compile("sgd", "mse", run_eagerly=True)
    options = {"validation_data": (X, X), "validation_freq": frequency}
    history = model.fit(X, X, epochs=4, verbose=0, **options).history
    assert (len(history["loss"]), len(history["val_loss"])) == (4, epochs)
