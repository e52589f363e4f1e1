"""Networks as programs, in a process where nothing but NumPy can be imported."""

import numpy as np
import pytest

import eagerflow as ef
import eagerflow.capture
from tests.nn.predictions import prediction
from tests.nn.test_networks import ROWS
from tests.standalone.programs import assert_close, run_alone

RNG = np.random.default_rng(0)


def images(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def words(*shape):
    return RNG.integers(0, 20, shape)


def dense():
    return [ef.nn.Dense(16, "relu"), ef.nn.Dense(8, "gelu"), ef.nn.Dense(5, "softmax")]


def convolutional():
    return [
        ef.nn.Conv2D(6, 3, padding="same"),
        ef.nn.BatchNormalization(),
        ef.nn.ReLU(),
        ef.nn.MaxPooling2D(2),
        ef.nn.DepthwiseConv2D(3),
        ef.nn.Conv2D(8, 3, strides=2, dilation_rate=1),
        ef.nn.LayerNormalization(),
        ef.nn.AveragePooling2D(2, padding="same"),
        ef.nn.Flatten(),
        ef.nn.Dropout(0.5),
        ef.nn.Dense(5),
    ]


NETWORKS = {
    "dense": (dense, images(3, 7)),
    "convolutional": (convolutional, images(2, 15, 15, 3)),
    "transposed": (
        lambda: [ef.nn.Conv2DTranspose(4, 3, strides=2, padding="same"), ef.nn.UpSampling2D(2)],
        images(2, 5, 4, 3),
    ),
    "recurrent": (
        lambda: [ef.nn.LSTM(6, return_sequences=True), ef.nn.GRU(5), ef.nn.Dense(3)],
        images(2, 6, 4),
    ),
    "bidirectional": (
        lambda: [ef.nn.Embedding(20, 8), ef.nn.Bidirectional(ef.nn.LSTM(6)), ef.nn.Dense(2)],
        words(3, 7),
    ),
    "gpt": (lambda: ef.nn.networks.GPT(20, 16, 16, 2, 2), words(2, 9)),
    "resnet": (lambda: ef.nn.networks.resnet_cifar(8, width=4), images(2, 32, 32, 3)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("weights", ["npz", "safetensors"])
def test_a_network_runs_with_numpy_alone(name, weights, tmp_path):
    make, x = NETWORKS[name]
    made = make()
    model = ef.nn.Sequential(made, name=name) if isinstance(made, list) else made
    wanted = model(ef.tensor(x), training=False)
    size, *sizes = x.shape
    spec = ef.TensorSpec(("batch", *sizes), x.dtype)
    graph = ef.capture.trace(lambda x: model(x, training=False), spec, name=f"{name}_network")
    found = run_alone(graph, [x], tmp_path, f"{name}_network", weights)
    assert_close(found[0], wanted.numpy(), 64)
    assert len(found) == 1 and size == len(found[0])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ROWS)
def test_networks_of_the_literature(name, tmp_path):
    graph, xs = prediction(name)
    wanted = ef.capture.Session(graph).run(
        list(graph.outputs.names), dict(zip(graph.inputs.names, xs, strict=True))
    )
    found = run_alone(graph, [x.numpy() for x in xs], tmp_path, "network")
    for y, x in zip(found, wanted, strict=True):
        assert_close(y, x.numpy(), 256)


def test_a_model_and_a_function_can_be_given(tmp_path):
    model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3)], name="small")
    x = images(5, 4)
    (found,) = run_alone(model, [x], tmp_path, "small")
    assert_close(found, model.predict(x, verbose=0), 8)

    @ef.function
    def twice(x):
        return x * 2

    twice(ef.tensor(x))
    (found,) = run_alone(twice, [x], tmp_path, "twice")
    np.testing.assert_array_equal(found, x * 2)


def test_the_same_graph_gives_the_same_files(tmp_path):
    model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3)], name="small")
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        ef.capture.export_python(model, tmp_path / folder / "small.py")
        files.append([(tmp_path / folder / f"small.{x}").read_bytes() for x in ("py", "npz")])
    assert files[0] == files[1]


def test_blocks_that_are_alike_are_one_function(tmp_path):
    model = ef.nn.networks.GPT(20, 16, 16, 3, 2)
    model(ef.tensor(words(1, 8)))
    graph = ef.capture.trace(lambda x: model(x, training=False), ef.TensorSpec((1, 8), "int64"))
    ef.capture.export_python(graph, tmp_path / "gpt.py")
    text = (tmp_path / "gpt.py").read_text()
    assert text.count("def block") == 1
    assert text.count(" = block(") == 3
