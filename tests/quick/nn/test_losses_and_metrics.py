"""Losses and metrics: values against PyTorch and by hand, weights, reductions, errors."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import losses, metrics
from tests.nn.peers import torch

RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((6, 4)).astype(np.float32)
LABELS = np.array([0, 3, 1, 1, 2, 0])
ONE_HOT = np.eye(4, dtype=np.float32)[LABELS]
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)


def T(array):
    return torch.from_numpy(array)


def test_crossentropies_are_those_of_pytorch():
    expected = torch.nn.functional.cross_entropy(T(LOGITS), T(LABELS)).item()
    for y, value in (
        (LABELS, losses.SparseCategoricalCrossentropy(from_logits=True)(LABELS, LOGITS)),
        (LABELS, losses.SparseCategoricalCrossentropy()(LABELS[:, None], PROBABILITIES)),
        (ONE_HOT, losses.CategoricalCrossentropy(from_logits=True)(ONE_HOT, LOGITS)),
        (ONE_HOT, losses.CategoricalCrossentropy()(ONE_HOT, PROBABILITIES)),
    ):
        assert float(value) == pytest.approx(expected, rel=1e-5), y
    smooth = torch.nn.functional.cross_entropy(T(LOGITS), T(LABELS), label_smoothing=0.2).item()
    value = losses.CategoricalCrossentropy(True, label_smoothing=0.2)(ONE_HOT, LOGITS)
    assert float(value) == pytest.approx(smooth, rel=1e-5)


def test_binary_crossentropy_matches_pytorch_without_overflow():
    z, y = LOGITS[:, :1], (LABELS % 2).astype(np.float32)[:, None]
    expected = torch.nn.functional.binary_cross_entropy_with_logits(T(z), T(y)).item()
    assert float(losses.BinaryCrossentropy(True)(y, z)) == pytest.approx(expected, rel=1e-5)
    p = 1 / (1 + np.exp(-z))
    assert float(losses.BinaryCrossentropy()(y, p)) == pytest.approx(expected, rel=1e-5)
    assert float(losses.BinaryCrossentropy()(y[:, 0], p)) == pytest.approx(expected, rel=1e-5)
    extreme = losses.binary_crossentropy([[1.0], [0.0]], [[-1000.0], [1000.0]], from_logits=True)
    assert extreme.tolist() == [1000, 1000]


def test_errors_of_regression():
    y, p = LOGITS, LOGITS[::-1].copy()
    error = np.abs(p.astype(float) - y)
    by_hand = {
        "mse": (error**2).mean(),
        "mae": error.mean(),
        "huber": np.where(error <= 1, error**2 / 2, error - 0.5).mean(),
    }
    for loss, expected in by_hand.items():
        assert float(losses.get(loss)(y, p)) == pytest.approx(expected, rel=1e-5)


def test_reductions_and_weights():
    y, p = np.zeros((3, 1), np.float32), np.array([[1.0], [2.0], [3.0]], np.float32)
    each = [1, 4, 9]
    weight = np.array([1.0, 0.0, 2.0])
    assert losses.MeanSquaredError("none")(y, p).tolist() == each
    assert float(losses.MeanSquaredError("sum")(y, p)) == 14
    assert float(losses.MeanSquaredError()(y, p)) == pytest.approx(14 / 3)
    assert float(losses.MeanSquaredError()(y, p, weight)) == pytest.approx(19 / 3)
    assert float(losses.MeanSquaredError("mean")(y, p, weight)) == pytest.approx(19 / 3)
    assert float(losses.MeanSquaredError("sum")(y, p, weight[:, None])) == 19


def test_gradients_of_losses():
    x = ef.tensor(LOGITS.astype(np.float64))
    for loss in (
        lambda z: losses.sparse_categorical_crossentropy(LABELS, z, from_logits=True).mean(),
        lambda z: losses.categorical_crossentropy(ONE_HOT, ef.softmax(z)).mean(),
        lambda z: losses.binary_crossentropy(ONE_HOT, z, from_logits=True).mean(),
        lambda z: losses.huber(ONE_HOT, z).mean(),
    ):
        g = ef.grad(loss)(x).numpy()
        for at in ((0, 1), (3, 2)):
            step = np.zeros(x.shape)
            step[at] = 1e-6
            difference = float(loss(x + ef.tensor(step))) - float(loss(x - ef.tensor(step)))
            assert g[at] == pytest.approx(difference / 2e-6, rel=1e-4, abs=1e-8)


def test_accuracies():
    right = (LOGITS.argmax(1) == LABELS).mean()
    for metric, y in (
        (metrics.SparseCategoricalAccuracy(), LABELS),
        (metrics.CategoricalAccuracy(), ONE_HOT),
        (metrics.metric_for("accuracy", None), LABELS),
        (metrics.metric_for("accuracy", None), ONE_HOT),
    ):
        for part in (slice(0, 4), slice(4, 6)):
            metric.update_state(y[part], LOGITS[part])
        assert float(metric.result()) == pytest.approx(right)
        metric.reset_state()
        assert float(metric.result()) == 0
    top = metrics.SparseTopKCategoricalAccuracy(k=2)(LABELS, LOGITS)
    expected = np.mean([y in np.argsort(z)[-2:] for y, z in zip(LABELS, LOGITS, strict=True)])
    assert float(top) == pytest.approx(expected)
    assert float(metrics.BinaryAccuracy()([1, 0, 1], [0.9, 0.8, 0.7])) == pytest.approx(2 / 3)
    weighted = metrics.SparseCategoricalAccuracy()(LABELS, LOGITS, [1, 0, 0, 0, 0, 0])
    assert float(weighted) == float(LOGITS[0].argmax() == LABELS[0])


def test_a_function_can_be_a_loss_or_a_metric():
    def worst(y_true, y_pred):
        return ef.max(ef.abs(y_true - y_pred), axis=-1)

    assert float(losses.get(worst)(ef.zeros((2, 2)), ef.tensor([[1.0, 2.0], [0.0, 4.0]]))) == 3
    metric = metrics.get(worst)
    assert metric.name == "worst"
    assert float(metric(ef.zeros((1, 2)), ef.ones((1, 2)))) == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: losses.get("mean_squared"), ef.errors.ArgumentError, "mean_squared_error"),
        (lambda: losses.get(3), ef.errors.ArgumentError, "int"),
        (lambda: metrics.get("acuracy"), ef.errors.ArgumentError, "'accuracy'"),
        (lambda: losses.MeanSquaredError("avg"), ef.errors.ArgumentError, "'mean'"),
        (lambda: losses.mean_squared_error(ef.zeros((2, 3)), ef.zeros((2, 4))),
         ef.errors.ShapeError, r"float32\(2, 4\)"),
        (lambda: losses.categorical_crossentropy(LABELS, LOGITS), ef.errors.ShapeError, "Sparse"),
        (lambda: losses.sparse_categorical_crossentropy(ONE_HOT, LOGITS), ef.errors.ShapeError,
         "CategoricalCrossentropy"),
        (lambda: losses.sparse_categorical_crossentropy([4], LOGITS[:1]), ef.errors.IndexRangeError,
         "4"),
        (lambda: losses.MeanSquaredError()(LOGITS, LOGITS, [1.0, 2.0]), ef.errors.ShapeError,
         "sample_weight"),
        (lambda: metrics.CategoricalAccuracy()(LABELS, LOGITS), ef.errors.ShapeError, "Sparse"),
    ],
)  # fmt: skip
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
