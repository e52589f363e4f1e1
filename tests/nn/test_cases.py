"""Every row of ``tests/nn/cases``: all ways to run a layer agree; its configuration is whole."""

import json

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.cases import cases

CASES = cases()
by_row = pytest.mark.parametrize("row", CASES, ids=lambda row: row.id)


def made(row):
    return row.make(ef.nn), [ef.tensor(a) for a in row.arrays()]


def run(row, layer, inputs, **more):
    args, kwargs = row.given(inputs)
    return layer(*args, **kwargs, **more)


def reseed(layer):
    """Start all generators of random numbers again: the global one, and those of layers."""
    ef.random.seed(3)
    for part in layer.walk():
        if getattr(part, "generator", None) is not None:
            part.generator.seed(3)


def leaves(nest):
    return [np.asarray(x) for x in ef.tree.flatten(nest)[0]]


def agree(a, b, tolerance):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(2)
@by_row
def test_reference(row):
    if row.reference is None:
        pytest.skip("compared with Keras alone, or by a test of its own")
    layer, inputs = made(row)
    found = run(row, layer, inputs, training=False)
    agree(found, row.reference(layer.get_weights(), *row.arrays()), row.tolerance)


@pytest.mark.sampled(4)
@by_row
def test_captured_and_symbolic(row):
    """Eager, captured, with a free batch, and as a model from symbolic tensors: the same."""
    layer, inputs = made(row)
    right = run(row, layer, inputs, training=False)
    captured = ef.function(lambda *x: run(row, layer, x, training=False))
    agree(captured(*inputs), right, row.tolerance)
    symbols = [ef.nn.Input(x.shape[1:], dtype=x.dtype.name) for x in inputs]
    model = ef.nn.Model(symbols, run(row, layer, symbols))
    agree(model(inputs, training=False), right, row.tolerance)
    twice = [ef.concat([x, x], axis=0) for x in inputs]
    agree(model(twice), run(row, layer, twice, training=False), row.tolerance)
    assert [w.name for w in model.weights] == [w.name for w in layer.weights]


@pytest.mark.sampled(4)
@by_row
def test_saved_and_loaded(row, tmp_path):
    """A model in a file does what it did, and so does its graph, with batches of any size."""
    layer, inputs = made(row)
    symbols = [ef.nn.Input(x.shape[1:], dtype=x.dtype.name) for x in inputs]
    model = ef.nn.Model(symbols, run(row, layer, symbols))
    model.save(tmp_path / "model.ef")
    again = ef.nn.load_model(tmp_path / "model.ef")
    agree(again(inputs, training=False), model(inputs, training=False), 0.0)
    assert [w.name for w in again.weights] == [w.name for w in model.weights]
    ef.random.seed(3)  # layers with generators of their own go on as these stood
    right = model(inputs, training=True)
    ef.random.seed(3)
    agree(again(inputs, training=True), right, 0.0)
    agree(again.get_weights(), model.get_weights(), 0.0)  # of which training moves some
    model.export(tmp_path / "graph.ef")
    graph = ef.capture.load(tmp_path / "graph.ef")
    twice = [ef.concat([x, x], axis=0) for x in inputs]
    agree(leaves(graph(twice)), model(twice, training=False), row.tolerance)


@pytest.mark.sampled(6)
@by_row
def test_training(row):
    """Captured training does what eager training does, and gradients reach every weight."""
    layer, inputs = made(row)
    run(row, layer, inputs)
    before = layer.get_weights()

    def step(*x):
        with ef.GradientTape() as tape:
            outputs = run(row, layer, x, training=True)
            loss = sum(ef.mean(y * y) for y in ef.tree.flatten(outputs)[0])
        return outputs, tape.gradient(loss, layer.trainable_weights, unconnected="zero")

    if not row.gradients:
        return
    reseed(layer)
    right = step(*inputs)
    weights = layer.get_weights()
    layer.set_weights(before)
    reseed(layer)
    agree(ef.function(step)(*inputs), right, max(row.tolerance, 1e-4))
    for a, b in zip(layer.get_weights(), weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(2)
@by_row
def test_configuration(row):
    """It can be written as JSON, and a layer made from it is like the first."""
    layer, inputs = made(row)
    right = run(row, layer, inputs, training=False)
    again = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    run(row, again, inputs, training=False)
    again.set_weights(layer.get_weights())
    agree(run(row, again, inputs, training=False), right, row.tolerance)
    assert again.get_config() == layer.get_config()
