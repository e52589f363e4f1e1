"""Dense layers in parts: what the whole ones compute, with each part on its device."""

import numpy as np
import pytest

import eagerflow as ef
from tests.cluster.test_data_parallel import DEVICES, batch
from tests.cluster.test_pipeline import COSTS, graph_of, language_model, words

FLOAT = {"dtype": "float64"}
SPARSE = ef.nn.losses.SparseCategoricalCrossentropy


def network(devices=None):
    ef.random.seed(0)
    first = ef.nn.Dense(7, activation="softmax", **FLOAT)
    wide, narrow = ef.nn.Dense(9, activation="gelu", **FLOAT), ef.nn.Dense(4, "tanh", **FLOAT)
    layers = [first, wide, narrow]
    if devices is not None:
        split = ef.cluster.SplitDense
        layers = [split(first, devices), split(wide, devices, then=narrow)]
    model = ef.nn.Sequential([*layers, ef.nn.Dense(3, **FLOAT)])
    model.compile("adam", loss=SPARSE(from_logits=True))
    model(np.zeros((1, 5)))  # draws the weights
    return model


@pytest.mark.sampled(2)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("microbatches", [1, 2])
def test_training_is_that_of_whole_layers(count, microbatches):
    x, y = batch(8)
    whole, parts = network(), network(DEVICES[:count])
    np.testing.assert_allclose(parts(x).numpy(), whole(x).numpy(), 1e-12)
    own = ef.cluster.Pipeline(devices=DEVICES[:count], microbatches=microbatches, costs=COSTS)
    step, other = own.step(parts.python_step("train")[0]), whole.python_step("train")[0]
    for _ in range(3):
        step(x, y)
        other(x, y)
    own.merge()
    np.testing.assert_allclose(parts(x).numpy(), whole(x).numpy(), 1e-5, 1e-6)
    joined = [one for layer in parts.layers[:2] for one in layer.joined()]
    for one, wanted in zip(joined, whole.layers[:3], strict=True):
        assert one.get_config() | {"name": ""} == wanted.get_config() | {"name": ""}
        for a, b in zip(one.weights, wanted.weights, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-5, 1e-6)


def test_values_between_split_layers_stay_partitioned():
    x, y = batch(8)
    model = network(DEVICES[:2])
    own = ef.cluster.Pipeline(devices=DEVICES[:2], microbatches=1, costs=COSTS)
    own.step(model.python_step("train")[0])(x, y)
    graph = graph_of(own)
    cut = ef.capture.partition(graph, DEVICES[:2], costs=COSTS).cuts
    sizes = {c.bytes // 8 for c in cut}
    assert not sizes & {8 * 9, 8 * 5 * 2, 8 * 4 * 9}  # no hidden values, no kernels
    products = [n for n in graph.nodes if n.op.name == "matmul" and "gradient" in n.name]
    of_second = [n for n in products if n.device == "cpu:1"]
    assert len(of_second) == 3 * 2 - 1  # for weights and inputs of its parts, but for the batch
    parts = [c.value for c in graph.cells if "columns_" in c.name or "rows_" in c.name]
    assert len(parts) == 3 * (4 + 4 + 3)  # with two slots each, and one bias for all rows
    for v in parts:
        assert v.device == ("cpu:1" if "columns_1" in v.name or "rows_1" in v.name else "cpu:0")


def test_the_network_inside_each_block_of_a_gpt():
    def make(split):
        more = {"width": 8, "depth": 1, "heads": 2, "dropout": 0.0, **FLOAT}
        model = language_model(ef.nn.networks.GPT, vocabulary=30, context=8, **more)
        for block in model.blocks if split else ():
            block.wide = ef.cluster.SplitDense(block.wide, DEVICES[:2], then=block.narrow)
            block.narrow = ef.nn.Identity()
        return model

    x, y = words(4)
    whole, parts = make(False), make(True)
    own = ef.cluster.Pipeline(devices=DEVICES[:2], microbatches=2, costs=COSTS)
    step, other = own.step(parts.python_step("train")[0]), whole.python_step("train")[0]
    for _ in range(2):
        step(x, y)
        other(x, y)
    own.merge()
    np.testing.assert_allclose(parts(x).numpy(), whole(x).numpy(), 1e-5, 1e-6)


def test_a_saved_model_has_the_parts(tmp_path):
    x = batch(4)[0]
    model = network(DEVICES[:2])
    model.save(tmp_path / "model.ef")
    loaded = ef.nn.load_model(tmp_path / "model.ef")
    np.testing.assert_array_equal(loaded(x).numpy(), model(x).numpy())
    assert [w.shape for w in loaded.weights] == [w.shape for w in model.weights]


def test_invalid_use_is_refused():
    split = ef.cluster.SplitDense
    with pytest.raises(ef.errors.ArgumentError, match="not to be divided"):
        split(ef.nn.Flatten(), DEVICES[:2])
    with pytest.raises(ef.errors.ArgumentError, match="not to be divided"):
        split(ef.nn.Dense(4), DEVICES[:2], then=ef.nn.Dense(4, kernel_constraint="max_norm"))
    with pytest.raises(ef.errors.ArgumentError, match="not a list that units can be divided over"):
        split(ef.nn.Dense(2), DEVICES[:3])
    with pytest.raises(ef.errors.ArgumentError, match="not to be activated in parts"):
        split(ef.nn.Dense(4, "softmax"), DEVICES[:2], then=ef.nn.Dense(4))
    narrow = ef.nn.Dense(4)
    narrow(ef.ones((2, 3)))
    with pytest.raises(ef.errors.ArgumentError, match="not of as many inputs"):
        split(ef.nn.Dense(4), DEVICES[:2], then=narrow)
