"""Every row of ``tests/nn/cases`` against Keras: weights, outputs, gradients.

It needs Keras and JAX beside eagerflow, which the suite does without.
"""

import os

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.cases import cases

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras", reason="Keras is not installed")
jax = pytest.importorskip("jax", reason="JAX is not installed")

pytestmark = pytest.mark.sampled(8)

CASES = [row for row in cases() if row.keras is not None]


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Let JAX optimize little: most of the time goes into programs that run once."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


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


def leaves(nest):
    return [np.asarray(x) for x in ef.tree.flatten(nest)[0]]


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

    def keras_loss(trainable, given):
        every = list(arrays)
        for i, x in zip(floats, given, strict=True):
            every[i] = x
        state = [v.value for v in theirs.non_trainable_variables]
        args, kwargs = row.given(every)
        outputs, _ = theirs.stateless_call(trainable, state, *args, **kwargs)
        return sum((y * y).sum() for y in jax.tree.leaves(outputs))

    trainable = [v.value for v in theirs.trainable_variables]
    weights, given = jax.grad(keras_loss, (0, 1))(trainable, [arrays[i] for i in floats])
    agree(found, [*given, *weights], max(row.tolerance, 1e-4) * 10)
