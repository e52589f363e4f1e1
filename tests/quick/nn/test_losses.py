"""Every row of the table of losses in all ways; reductions, weights, masks, dtypes, mistakes."""

import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import losses
from tests.nn.loss_rows import LABELS, LOGITS, ONE_HOT, PROBABILITIES, ROWS

by_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)


def made(row, **more):
    loss = getattr(losses, row.cls)(**row.kwargs, **more)
    return loss, [ef.tensor(a) for a in row.arrays]


def agree(found, right, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(found), right, rtol=tolerance, atol=tolerance)


@by_row
def test_values(row):
    loss, (y, p) = made(row, reduction="none")
    right = row.reference(*(a.astype("float64") if a.dtype.kind == "f" else a for a in row.arrays))
    agree(loss.call(y, p), right)
    agree(getattr(losses, row.function_name)(y, p, **row.kwargs), right)


@pytest.mark.sampled(6)
@by_row
def test_captured(row):
    """Captured, also with a free batch, it gives what it gives eagerly, and its gradient."""
    loss, (y, p) = made(row)
    right = float(loss(y, p))
    agree(ef.function(loss)(y, p), right)
    specs = [ef.TensorSpec(("n", *x.shape[1:]), x.dtype) for x in (y, p)]
    agree(ef.function(lambda y, p: loss(y, p), input_signature=specs)(y, p), right)
    gradient = ef.grad(lambda p: loss(y, p))
    agree(ef.function(gradient)(p), np.asarray(gradient(p)))


@by_row
def test_dtypes(row):
    loss, (y, p) = made(row)
    right = float(loss(y, p))
    wide = loss(y, p.astype("float64"))
    assert wide.dtype == "float64"
    agree(wide, right, 1e-4)
    half = loss(y, p.astype("bfloat16"))  # computed in float32
    assert half.dtype == "float32"
    agree(half, right, 0.1)
    narrow, _ = made(row, dtype="bfloat16")
    assert narrow(y, p).dtype == "bfloat16"


@by_row
def test_configuration(row):
    loss, (y, p) = made(row, dtype="float32")
    config = json.loads(json.dumps(loss.get_config()))
    again = losses.get({"class_name": row.cls, "config": config})
    assert again.get_config() == loss.get_config()
    assert float(again(y, p)) == float(loss(y, p))
    assert isinstance(losses.get(row.function_name), type(loss)) or row.function_name == "huber"


def test_reductions():
    y, p = np.zeros((2, 1)), np.array([[1.0], [3.0]])
    weight = np.array([1.0, 3.0])
    right = {"sum": 28, "mean": 14, "sum_over_batch_size": 14, "mean_with_sample_weight": 7}
    for reduction, value in right.items():
        assert float(losses.MeanSquaredError(reduction)(y, p, weight)) == value
    for reduction in ("none", None):
        assert losses.MeanSquaredError(reduction)(y, p, weight).tolist() == [1, 27]
    assert float(losses.MeanSquaredError()(y, p, 2.0)) == 10


def test_weights_of_steps():
    y, p = np.zeros((2, 3, 1)), np.arange(6.0).reshape(2, 3, 1)
    each = np.arange(6.0).reshape(2, 3) ** 2
    loss = losses.MeanSquaredError("none")
    for weight in ([1.0, 2.0], [[1.0], [2.0]], [[1.0, 0.0, 2.0]], [[[1.0], [0.0], [3.0]]] * 2):
        array = np.array(weight)
        array = array[..., 0] if array.ndim == 3 else array.reshape(-1, *array.shape[1:2])
        array = array[:, None] if array.ndim == 1 else array
        agree(loss(y, p, weight), each * array)


def test_masks():
    mask = ef.tensor([[True, True], [True, False]])
    p = ef.tensor([[[1.0], [2.0]], [[3.0], [100.0]]])
    ef.nn.masks.set_mask(p, mask)
    y = ef.zeros((2, 2, 1))
    assert float(losses.MeanSquaredError()(y, p)) == pytest.approx(14 / 3)
    assert float(losses.MeanSquaredError("sum")(y, p)) == 14
    assert losses.MeanSquaredError("none")(y, p).tolist() == [[1, 4], [9, 0]]
    ef.nn.masks.set_mask(p, ef.zeros((2, 2), dtype="bool"))
    assert float(losses.MeanSquaredError()(y, p)) == 0


def test_classes_that_are_ignored_do_not_count():
    y = np.array([1, 255, 0])
    p = np.array([[0.5, 0.5], [0.1, 0.9], [0.25, 0.75]])
    loss = losses.SparseCategoricalCrossentropy(ignore_class=255)
    assert float(loss(y, p)) == pytest.approx((np.log(2) + np.log(4)) / 2)
    assert float(loss(y, p, [1.0, 5.0, 3.0])) == pytest.approx((np.log(2) + 3 * np.log(4)) / 2)


def test_a_mask_reaches_the_loss_of_a_model():
    class Masking(ef.nn.Layer):
        def call(self, inputs):
            return inputs

        def compute_mask(self, inputs, previous_mask=None):
            return ef.not_equal(inputs[..., 0], 0.0)

        def __call__(self, inputs, **kwargs):
            outputs = super().__call__(inputs, **kwargs) + 0.0
            ef.nn.masks.set_mask(outputs, self.compute_mask(inputs))
            return outputs

    model = ef.nn.Sequential([Masking(), ef.nn.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]])[..., None]
    y = np.zeros((2, 3, 1))
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    right = model.predict(x, verbose=0)[x > 0]
    assert found["loss"] == pytest.approx((right**2).mean(), rel=1e-5)
    assert found["mae"] == pytest.approx(abs(right).mean(), rel=1e-5)


def test_nests_of_users():
    class Both(losses.Loss):
        def call(self, y_true, y_pred):
            return sum(ef.mean(ef.abs(y_true[key] - y_pred[key]), axis=-1) for key in y_pred)

    y = {"a": np.zeros((2, 1)), "b": [[1], [1]]}
    p = {"a": ef.ones((2, 1)), "b": ef.ones((2, 3))}
    assert float(Both()(y, p)) == 1


def test_far_logits_do_not_overflow():
    found = losses.binary_crossentropy([[1.0], [0.0]], [[-1000.0], [1000.0]], from_logits=True)
    assert found.tolist() == [1000, 1000]


def test_targets_without_an_axis_are_a_column():
    y, p = np.array([1.0, 0.0]), np.array([[0.75], [0.5]])
    loss = losses.BinaryCrossentropy()
    assert float(loss(y, p)) == float(loss(y[:, None], p))


@pytest.mark.parametrize(
    "loss",
    [
        lambda z: losses.sparse_categorical_crossentropy(LABELS, z, from_logits=True),
        lambda z: losses.categorical_crossentropy(ONE_HOT, ef.softmax(z)),
        lambda z: losses.binary_crossentropy(ONE_HOT, z, from_logits=True),
        lambda z: losses.huber(ONE_HOT, z),
    ],
)
def test_gradients(loss):
    ef.testing.check_gradients(loss, (LOGITS,), order=1, rtol=1e-4, atol=1e-8)


def test_a_function_can_be_a_loss():
    worst = losses.get(lambda y, p: ef.max(ef.abs(y - p), axis=-1))
    assert float(worst(ef.zeros((2, 2)), ef.tensor([[1.0, 2.0], [0.0, 4.0]]))) == 3


def test_circle_with_references():
    y, p = np.array([0, 1]), np.eye(2)
    own = losses.circle(y, p, [0, 1, 0], [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], False, 1.0)
    assert own.shape == (2,) and (own.numpy() > 0).all()


def test_aliases():
    names = {"mse": "MeanSquaredError", "MAPE": "MeanAbsolutePercentageError"}
    names |= {"msle": "MeanSquaredLogarithmicError", "bce": "BinaryCrossentropy"}
    for name, cls in (names | {"KLD": "KLDivergence"}).items():
        assert isinstance(losses.get(name), getattr(losses, cls))


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: losses.CategoricalGeneralizedCrossEntropy(q=1.0), ef.errors.ArgumentError,
     "q: 1.0 is out of range"),
    (lambda: losses.get("mean_squared"), ef.errors.ArgumentError, "mean_squared_error"),
    (lambda: losses.get(3), ef.errors.ArgumentError, "int"),
    (lambda: losses.MeanSquaredError("avg"), ef.errors.ArgumentError, "'mean'"),
    (lambda: losses.mean_squared_error(ef.zeros((2, 3)), ef.zeros((2, 4))),
     ef.errors.ShapeError, r"float32\(2, 4\)"),
    (lambda: losses.categorical_crossentropy(LABELS, LOGITS), ef.errors.ShapeError, "Sparse"),
    (lambda: losses.sparse_categorical_crossentropy(ONE_HOT, LOGITS), ef.errors.ShapeError,
     "CategoricalCrossentropy"),
    (lambda: losses.sparse_categorical_crossentropy([4], LOGITS[:1]),
     ef.errors.IndexRangeError, "4"),
    (lambda: losses.Huber(reduction="all"), ef.errors.ArgumentError, "reduction: 'all' is not"),
    (lambda: losses.Huber(dtype="floaty"), ef.errors.DTypeError, "floaty"),
    (lambda: losses.Dice()(ONE_HOT, PROBABILITIES[:2]), ef.errors.ShapeError, "dice"),
    (lambda: losses.Dice()(ONE_HOT, PROBABILITIES, np.ones(6)), ef.errors.ShapeError,
     "sample_weight"),
    (lambda: losses.circle([0, 1], PROBABILITIES), ef.errors.ShapeError, "circle"),
    (lambda: losses.hinge(ONE_HOT, PROBABILITIES[:, :2]), ef.errors.ShapeError, "hinge"),
    (lambda: losses.sparse_categorical_crossentropy([True], PROBABILITIES[:1]),
     ef.errors.DTypeError, "class numbers are integers"),
])  # fmt: skip
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


BY_BATCH = {"CTC", "Circle", "Dice", "Tversky"}  # of all examples, or of sequences
STACKED = [row for row in ROWS if row.cls not in BY_BATCH and row.kwargs.get("axis", -1) == -1]


@pytest.mark.parametrize("row", STACKED, ids=lambda row: row.id)
def test_losses_of_a_stack_are_those_of_its_parts(row):
    loss, (y, p) = made(row, reduction="none")
    parts = [loss.call(a, b).numpy() for a, b in ((y, p), (y[::-1], p[::-1]))]
    agree(loss.call(ef.stack([y, y[::-1]]), ef.stack([p, p[::-1]])), np.stack(parts))


@pytest.mark.parametrize(
    "name",
    [name for name in losses.__all__ if "Crossentropy" in name and not name.startswith("Sparse")],
)
def test_cross_entropies_refuse_integers_as_predictions(name):
    with pytest.raises(ef.errors.DTypeError, match="predictions are integers"):
        getattr(losses, name)().call(ONE_HOT, ONE_HOT.astype("int64"))


@ef.custom_gradient
def same_values(x):
    return x, lambda g: g


WAYS = {
    "plain": lambda f, x: f(x),
    "function": lambda f, x: ef.function(f)(x),
    "checkpoint": lambda f, x: ef.checkpoint(f)(x),
    "value and gradient": lambda f, x: ef.value_and_grad(f)(x)[0],
    "vjp": lambda f, x: ef.vjp(f, x)[0],
    "jvp": lambda f, x: ef.jvp(f, (x,), (x,))[0],
    "custom gradient": lambda f, x: f(same_values(x)),
}


@pytest.mark.parametrize("way", WAYS)
def test_arguments_keep_their_masks_in_transforms(way):
    x = ef.tensor([[[1.0], [2.0]], [[3.0], [100.0]]])
    ef.nn.masks.set_mask(x, ef.tensor([[True, True], [True, False]]))
    found = WAYS[way](lambda x: losses.MeanSquaredError()(ef.zeros((2, 2, 1)), x), x)
    assert float(found) == pytest.approx(14 / 3)
