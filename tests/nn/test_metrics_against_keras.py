"""Every row of the table of metrics against Keras, batch by batch, with weights and without."""

import inspect

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn import metrics
from tests.nn.metric_rows import ROWS
from tests.nn.peers import keras_on_torch, numbers

keras = keras_on_torch()

pytestmark = pytest.mark.sampled(2)

by_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)


def both(row):
    ours = getattr(metrics, row.cls)(**row.kwargs)
    theirs = getattr(keras.metrics, row.cls)(**row.kwargs)
    return ours, theirs


def agree(ours, theirs):
    ours, theirs = numbers(ours.result()), numbers(theirs.result())
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


@by_row
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.filterwarnings("ignore:More independent predictors")
def test_batch_by_batch(row, weighted):
    ours, theirs = both(row)
    for batch in row.batches(weighted):
        ours.update_state(*batch)
        theirs.update_state(*batch)
        agree(ours, theirs)
    assert [tuple(v.shape) for v in ours.variables] == [tuple(v.shape) for v in theirs.variables]
    for own, other in zip(ours.variables, theirs.variables, strict=True):
        np.testing.assert_allclose(numbers(own), numbers(other.value), rtol=2e-5, atol=2e-5)
    ours.reset_state()
    theirs.reset_state()
    ours.update_state(*batch)
    theirs.update_state(*batch)
    agree(ours, theirs)


@pytest.mark.parametrize("shape", [(), (8,), (8, 3), (8, 3, 2)])
@pytest.mark.parametrize("weight", [None, (), (8,), (8, 1), (8, 3)])
def test_means_and_sums(shape, weight):
    if weight and len(weight) > max(len(shape), 1):
        pytest.skip("there are more weights than numbers")
    rng = np.random.default_rng(0)
    for cls in ("Mean", "Sum"):
        ours, theirs = getattr(metrics, cls)(), getattr(keras.metrics, cls)()
        for size in (1, 2):
            values = size * rng.normal(size=shape).astype("float32")
            if weight and not shape:
                continue
            given = None if weight is None else rng.uniform(size=weight).astype("float32")
            ours.update_state(values, given)
            theirs.update_state(values, given)
        agree(ours, theirs)


def test_masks_of_means():
    rng = np.random.default_rng(0)
    for cls in ("MeanAbsoluteError", "SparseCategoricalAccuracy"):
        ours, theirs = getattr(metrics, cls)(), getattr(keras.metrics, cls)()
        for weight in (None, rng.uniform(size=(4, 3)).astype("float32")):
            p = rng.normal(size=(4, 3, 2)).astype("float32")
            y = rng.integers(0, 2, (4, 3, 2) if cls == "MeanAbsoluteError" else (4, 3))
            mask = rng.uniform(size=(4, 3)) < 0.6
            own, other = ef.tensor(p), keras.ops.convert_to_tensor(p)
            ef.nn.masks.set_mask(own, ef.tensor(mask))
            keras.src.backend.set_keras_mask(other, mask)
            ours.update_state(y, own, weight)
            theirs.update_state(y, other, weight)
            agree(ours, theirs)


@pytest.mark.parametrize("cls", sorted({row.cls for row in ROWS} | {"Mean", "Sum"}))
def test_arguments_are_those_of_keras(cls):
    ours, theirs = (inspect.signature(getattr(x, cls)).parameters for x in (metrics, keras.metrics))
    assert list(ours) == list(theirs)
    for name, parameter in theirs.items():
        if name != "name":
            assert ours[name].default == parameter.default
    row = next((row for row in ROWS if row.cls == cls), None)
    made = both(row) if row else (metrics.Mean(), keras.metrics.Mean())
    assert made[0].name == made[1].name.rstrip("_0123456789") or made[0].name == made[1].name


def test_all_metrics_of_keras_are_there():
    short = {"KLD", "MAE", "MAPE", "MSE", "MSLE"}
    assert {name for name in dir(keras.metrics) if name[0].isupper()} - short <= set(
        metrics.__all__
    )
