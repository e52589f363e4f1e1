"""Every row of ``tests/nn/cases`` against Keras: weights, outputs, gradients."""

import re

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.cases import cases
from tests.nn.peers import keras_gradients, keras_on_torch, leaves

keras = keras_on_torch()

pytestmark = pytest.mark.sampled(2)

# PyTorch has other cubic weights and no Lanczos ones, averages the padding too, and normalizes the
# last axes alone: NumPy and JAX are the references of these.
NOT_ON_TORCH = re.compile(
    r"bicubic|lanczos|AveragePooling2D\(3, strides=2, padding=same\)|LayerNormalization\(1,"
)
CASES = [row for row in cases() if row.keras is not None and not NOT_ON_TORCH.search(row.id)]


by_row = pytest.mark.parametrize("row", CASES, ids=lambda row: row.id)


def run(row, layer, inputs, **more):
    args, kwargs = row.given(inputs)
    return layer(*args, **kwargs, **more)


def both(row):
    """Our layer and Keras's, with the same weights."""
    ours = row.make(ef.nn)
    theirs = row.make(keras.layers, row.keras)
    arrays = row.arrays()
    run(row, ours, [ef.tensor(a) for a in arrays])
    run(row, theirs, arrays)
    own = [w for w in theirs.weights if "seed" not in w.path]
    assert [tuple(w.shape) for w in ours.weights] == [tuple(w.shape) for w in own]
    rng = np.random.default_rng(1)
    values = [
        rng.uniform(0.2, 1.0, w.shape).astype("float32")
        if "variance" in w.name or "std" in w.name
        else (rng.normal(size=w.shape) * 0.5).astype("float32")
        for w in own
    ]
    ours.set_weights(values)
    for weight, value in zip(own, values, strict=True):
        weight.assign(value)
    return ours, theirs, arrays


def agree(ours, theirs, tolerance):
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@by_row
def test_outputs(row):
    ours, theirs, arrays = both(row)
    for training in (False,) if row.random or not row.training else (False, True):
        more = {"training": training}
        found = run(row, ours, [ef.tensor(a) for a in arrays], **more)
        agree(found, run(row, theirs, arrays, **more), row.tolerance)


@by_row
def test_gradients(row):
    if not row.gradients:
        pytest.skip("it has none")
    ours, theirs, arrays = both(row)
    inputs = [ef.tensor(a) for a in arrays]
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    with ef.GradientTape() as tape:
        for i in floats:
            tape.watch(inputs[i])
        outputs = run(row, ours, inputs)
        loss = sum(ef.sum(y * y) for y in ef.tree.flatten(outputs)[0])
    sources = [inputs[i] for i in floats] + ours.trainable_weights
    found = tape.gradient(loss, sources, unconnected="zero")

    def keras_loss(*given):
        every = list(arrays)
        for i, x in zip(floats, given, strict=True):
            every[i] = x
        return sum((y * y).sum() for y in ef.tree.flatten(run(row, theirs, every))[0])

    wanted = keras_gradients(keras_loss, [arrays[i] for i in floats], theirs.trainable_variables)
    agree(found, wanted, max(row.tolerance, 1e-4) * 10)
