"""Every row of the table of metrics in all ways; weights, masks, names, mistakes."""

import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, DTypeError, ShapeError
from eagerflow.nn import losses, metrics
from tests.nn.metric_rows import BITS, ONE_HOT, PROBABILITIES, ROWS, SCORES

by_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)


def made(row, **more):
    return getattr(metrics, row.cls)(**row.kwargs, **more)


def gathered(metric, row, weighted=True):
    for batch in row.batches(weighted):
        metric.update_state(*batch)
    return np.asarray(metric.result())


def agree(found, right, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(found), right, rtol=tolerance, atol=tolerance)


@by_row
def test_values(row):
    if row.reference is None:
        pytest.skip("compared with Keras alone")
    y, p = row.arrays
    tolerance = 2e-3 if row.reference.__name__ == "area" else 2e-5
    ones = np.ones_like(row.weights)
    agree(gathered(made(row), row, False), row.reference(y, p, ones), tolerance)
    agree(gathered(made(row), row), row.reference(y, p, row.weights), tolerance)


@pytest.mark.sampled(6)
@by_row
def test_captured(row):
    """Captured, also with a free batch, it gathers what it gathers eagerly."""
    right = gathered(made(row), row)
    captured, free = made(row), made(row)
    step = ef.function(lambda *batch: captured.update_state(*batch))
    for batch in row.batches(True):
        step(*map(ef.tensor, batch))
    agree(ef.function(captured.result)(), right)
    specs = [ef.TensorSpec(("n", *x.shape[1:]), x.dtype) for x in map(ef.tensor, batch)]
    step = ef.function(lambda *batch: free.update_state(*batch), input_signature=specs)
    for batch in row.batches(True):
        step(*map(ef.tensor, batch))
    agree(free.result(), right)
    free.reset_state()
    assert all(not np.asarray(v).any() for v in free.variables)


@by_row
def test_half_precision(row):
    """Predictions in bfloat16 are measured in float32."""
    y, p = row.arrays
    if p.dtype.kind != "f":
        pytest.skip("they are whole numbers")
    rounded = ef.tensor(p).astype("bfloat16")
    agree(made(row)(y, rounded), made(row)(y, rounded.astype("float32")))


@by_row
def test_configuration(row):
    metric = made(row, dtype="float32")
    config = json.loads(json.dumps(metric.get_config()))
    again = metrics.get({"class_name": row.cls, "config": config})
    assert again.get_config() == metric.get_config()
    assert repr(again) == f"<{row.cls} {metric.name}>"
    np.testing.assert_array_equal(gathered(again, row), gathered(metric, row))


def test_means_of_several_numbers():
    mean = metrics.Mean()
    mean.update_state([[1.0, 3.0], [5.0, 7.0]], [1.0, 3.0])
    assert float(mean.result()) == (2 + 3 * 6) / 4 and float(mean.count) == 4
    mean.update_state(2.0, 4.0)
    assert float(mean.result()) == (20 + 8) / 8
    mean.reset_state()
    assert float(mean.result()) == 0
    assert float(metrics.Sum()([[1.0, 2.0], [3.0, 4.0]], [1.0, 2.0])) == 17
    assert metrics.Mean(dtype="float64")([1.0]).dtype == "float64"


def test_masks():
    p = ef.tensor([[[1.0], [2.0]], [[3.0], [100.0]]])
    ef.nn.masks.set_mask(p, ef.tensor([[True, True], [True, False]]))
    y = ef.zeros((2, 2, 1))
    assert float(metrics.MeanAbsoluteError()(y, p)) == 2
    assert float(metrics.MeanAbsoluteError()(y, p, [1.0, 2.0])) == pytest.approx(9 / 4)
    ignored = metrics.SparseCategoricalCrossentropy(ignore_class=255)
    assert float(ignored([1, 255], [[0.5, 0.5], [0.1, 0.9]])) == pytest.approx(np.log(2))


def test_functions_and_losses_as_metrics():
    def worst(y_true, y_pred, factor=1.0):
        return ef.max(ef.abs(y_true - y_pred), axis=-1) * factor

    y, p = ef.zeros((2, 2)), ef.tensor([[1.0, 2.0], [0.0, 4.0]])
    assert float(metrics.MeanMetricWrapper(worst, factor=2.0)(y, p)) == 6
    assert metrics.get(worst).name == "worst"
    huber = metrics.get(losses.Huber(2.0))
    assert huber.name == "huber_loss"
    assert float(huber(y, p)) == pytest.approx(float(losses.Huber(2.0)(y, p)))


def test_accuracy_of_a_model_is_that_of_its_loss_or_of_the_shapes():
    cases = {
        "SparseCategoricalAccuracy": losses.SparseCategoricalCrossentropy(),
        "CategoricalAccuracy": losses.CategoricalFocalCrossentropy(),
        "BinaryAccuracy": losses.BinaryCrossentropy(from_logits=True),
    }
    for cls, loss in cases.items():
        for name in ("accuracy", "acc"):
            metric = metrics.metric_for(name, loss)
            assert (type(metric).__name__, metric.name) == (cls, name)
    assert metric.threshold == 0
    for y, p, right in (
        ([1, 0], [[0.2, 0.8], [0.1, 0.9]], 0.5),
        ([[0, 1], [1, 0]], [[0.2, 0.8], [0.1, 0.9]], 0.5),
        ([[1], [0]], [[0.2], [0.1]], 0.5),
        ([1, 0, 1], [0.9, 0.8, 0.7], 2 / 3),
    ):
        assert float(metrics.metric_for("accuracy", None)(y, p)) == pytest.approx(right)
    assert isinstance(metrics.metric_for("auc", None), metrics.AUC)


def test_names():
    for name, cls in {
        "auc": "AUC",
        "mape": "MeanAbsolutePercentageError",
        "RMSE": "RootMeanSquaredError",
        "f1_score": "F1Score",
        "top_k_categorical_accuracy": "TopKCategoricalAccuracy",
        "Precision": "Precision",
    }.items():
        assert isinstance(metrics.get(name), getattr(metrics, cls))
        assert metrics.get(name).name == name
    assert [metrics.AUC().name, metrics.IoU(2, [0]).name] == ["auc", "io_u"]


def test_they_are_measured_in_a_model():
    model = ef.nn.Sequential([ef.nn.Dense(4, activation="sigmoid")])
    chosen = [metrics.AUC(multi_label=True), metrics.F1Score("macro"), metrics.R2Score(), "mae"]
    model.compile("sgd", "bce", metrics=chosen)
    history = model.fit(SCORES, BITS, epochs=2, batch_size=7, verbose=0).history
    found = model.evaluate(SCORES, BITS, batch_size=5, verbose=0, return_dict=True)
    p = model.predict(SCORES, verbose=0)
    for metric in (metrics.AUC(multi_label=True), metrics.F1Score("macro"), metrics.R2Score()):
        assert found[metric.name] == pytest.approx(float(metric(BITS, p)), rel=1e-5)
        assert len(history[metric.name]) == 2


def test_state_of_ones_own():
    class Largest(metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.found = self.add_weight(name="found", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.found.assign(ef.maximum(self.found.value, ef.max(y_pred)))

        def result(self):
            return self.found.value

    metric = Largest()
    assert float(metric(None, ef.tensor([1.0, 3.0]))) == 3 and metric.variables[0].name


MAPS = np.zeros((2, 3), "int64")


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: metrics.get("acuracy"), ArgumentError, "'accuracy'"),
    (lambda: metrics.CategoricalAccuracy()(MAPS[0], SCORES[:3]), ShapeError, "Sparse"),
    (lambda: metrics.Precision(1.5), ArgumentError, "thresholds: 1.5 is out"),
    (lambda: metrics.Recall(top_k=0), ArgumentError, "top_k: 0 is out"),
    (lambda: metrics.Recall(class_id=0)([0, 1], [0.5, 0.2]), ShapeError, "no axis of classes"),
    (lambda: metrics.AUC(curve="RAC"), ArgumentError, "'RAC' is not a curve"),
    (lambda: metrics.AUC(1), ArgumentError, "num_thresholds: 1"),
    (lambda: metrics.AUC(num_labels=2), ArgumentError, "multi_label=True"),
    (lambda: metrics.AUC(multi_label=True)([0, 1], [0.5, 0.2]), ShapeError, "no axis of labels"),
    (lambda: metrics.AUC(summation_method="mid"), ArgumentError, "not a method"),
    (lambda: metrics.PrecisionAtRecall(2), ArgumentError, "recall: 2 is out"),
    (lambda: metrics.FBetaScore(beta=0.0), ArgumentError, "beta: 0.0 is out"),
    (lambda: metrics.F1Score(threshold=1.5), ArgumentError, "threshold: 1.5"),
    (lambda: metrics.F1Score("mean"), ArgumentError, "not an average"),
    (lambda: metrics.F1Score()([0, 1], [0.5, 0.2]), ShapeError, "two axes"),
    (lambda: metrics.R2Score("mean"), ArgumentError, "not an aggregation"),
    (lambda: metrics.R2Score(num_regressors=-1), ArgumentError, "num_regressors"),
    (lambda: metrics.R2Score()([0, 1], [0.5, 0.2]), ShapeError, "two axes"),
    (lambda: metrics.IoU(2, [2]), ArgumentError, "target_class_ids"),
    (lambda: metrics.MeanIoU(2)(MAPS, MAPS, np.ones((2, 3))), DTypeError, "dtype='float32'"),
    (lambda: metrics.MeanIoU(2)(MAPS, MAPS[:1]), ShapeError, "targets and predictions"),
    (lambda: metrics.MeanMetricWrapper(3), ArgumentError, "fn"),
    (lambda: metrics.TopKCategoricalAccuracy()(ONE_HOT[:, 0], PROBABILITIES), ShapeError, "Sparse"),
    (lambda: metrics.Metric().update_state(), ArgumentError, "not define update_state"),
    (lambda: metrics.Metric().result(), ArgumentError, "not define result"),
    (lambda: metrics.Mean()([1.0, 2.0], [1.0, 2.0, 3.0]), ShapeError, "weight"),
])  # fmt: skip
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("k", [None, 1, 3, 5, 8])
def test_classes_among_the_largest(k):
    """By default the five largest; the class of row i has i larger predictions."""
    p, at = -np.tile(np.arange(8, dtype="f4"), (8, 1)), np.arange(8)
    given = {} if k is None else {"k": k}
    wanted = (at < (k or 5)).astype("f4")
    agree(metrics.top_k_categorical_accuracy(np.eye(8)[at], p, **given), wanted)
    agree(metrics.sparse_top_k_categorical_accuracy(at, p, **given), wanted)
    for metric, y in (("TopK", np.eye(8)[at]), ("SparseTopK", at)):
        made = getattr(metrics, f"{metric}CategoricalAccuracy")(**given)
        agree(made(y, p), wanted.mean())
