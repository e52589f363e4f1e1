"""Every row of the table of losses against Keras: numbers, reductions, weights, gradients."""

import inspect

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import losses
from tests.nn.loss_rows import ROWS
from tests.nn.peers import keras_gradients, keras_on_torch, numbers

keras = keras_on_torch()

pytestmark = pytest.mark.sampled(2)

by_row = pytest.mark.parametrize("row", [r for r in ROWS if r.keras], ids=lambda row: row.id)
REDUCTIONS = ("sum_over_batch_size", "mean", "sum", "none", "mean_with_sample_weight")


def both(row, **more):
    return (getattr(x, row.cls)(**row.kwargs, **more) for x in (losses, keras.losses))


def agree(ours, theirs):
    ours, theirs = numbers(ours), numbers(theirs)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@by_row
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_numbers_and_weights(row, reduction):
    ours, theirs = both(row, reduction=reduction)
    y, p = row.arrays
    agree(ours(y, p), theirs(y, p))
    shape = losses.get(ours).call(ef.tensor(y), ef.tensor(p)).shape
    if shape:
        weight = np.random.default_rng(1).uniform(size=shape).astype("float32")
        agree(ours(y, p, weight), theirs(y, p, weight))


@by_row
def test_masks(row):
    y, p = row.arrays
    for reduction in REDUCTIONS:
        ours, theirs = both(row, reduction=reduction)
        shape = ours.call(ef.tensor(y), ef.tensor(p)).shape
        if shape and row.cls not in ("CTC", "Circle"):  # of these Keras's own mask has no name
            mask = np.random.default_rng(2).uniform(size=shape) < 0.6
            predicted, given = ef.tensor(p), keras.ops.convert_to_tensor(p)
            ef.nn.masks.set_mask(predicted, ef.tensor(mask))
            keras.src.backend.set_keras_mask(given, keras.ops.convert_to_tensor(mask))
            agree(ours(y, predicted), theirs(y, given))
            agree(ours(y, predicted, np.ones(shape)), theirs(y, given, np.ones(shape)))


@by_row
def test_gradients(row):
    if row.id.endswith("-maps") and row.cls == "SparseCategoricalCrossentropy":
        pytest.skip("PyTorch 2.13 refuses the order in memory that Keras gives its gradient")
    ours, theirs = both(row)
    y, p = row.arrays
    found = ef.grad(lambda x: ours(y, x))(ef.tensor(p))
    (right,) = keras_gradients(lambda x: theirs(y, x), [p])
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


@by_row
def test_functions(row):
    y, p = row.arrays
    name = row.function_name
    theirs = getattr(keras.losses, name)
    agree(getattr(losses, name)(y, p, **row.kwargs), theirs(y, keras.ops.array(p), **row.kwargs))


@pytest.mark.parametrize("cls", sorted({row.cls for row in ROWS}))
def test_arguments_are_those_of_keras(cls):
    ours, theirs = (inspect.signature(getattr(x, cls)).parameters for x in (losses, keras.losses))
    assert list(ours) == list(theirs)
    own = getattr(losses, cls)()
    assert own.name == getattr(keras.losses, cls)().name
    for name, parameter in theirs.items():
        if name != "name":
            assert ours[name].default == parameter.default


def test_all_losses_of_keras_are_there():
    short = {"BCE", "KLD", "MAE", "MAPE", "MSE", "MSLE"}
    named = {name for name in dir(keras.losses) if callable(getattr(keras.losses, name))}
    assert named - short - {"deserialize", "serialize"} <= set(losses.__all__)
