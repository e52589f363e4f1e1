"""Models and weights in files: the same bits afterwards, and nothing from a wrong file."""

import copy
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import nn
from eagerflow.errors import ArgumentError, FileFormatError
from eagerflow.nn import files
from eagerflow.nn.state import Misfits
from tests.structure.sources import ROOT

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def network(seed=3):
    """Layers with state of every kind: weights, running means, random generators."""
    x = ef.nn.Input((4,), name="x")
    h = ef.nn.Dense(8, activation="relu")(x)
    h = ef.nn.BatchNormalization()(h)
    h = ef.nn.Dropout(0.3, seed=seed)(h)
    h = ef.nn.Dropout(0.3)(h)
    return ef.nn.Model(x, ef.nn.Dense(1)(h) + 0.5, name="network")


class Chain(ef.nn.Model):
    """A subclass whose constructor takes nothing but its own arguments."""

    def __init__(self, width):
        super().__init__()
        self.first = ef.nn.Dense(width)
        self.rest = [ef.nn.Dense(2), ef.nn.Dense(1)]

    def call(self, inputs):
        for layer in (self.first, *self.rest):
            inputs = layer(inputs)
        return inputs


def bits_of(model):
    return [a.tobytes() for a in model.get_weights()]


def trained(model, eager, optimizer=None):
    optimizer = optimizer or ef.nn.optimizers.Adam(0.01)
    model.compile(optimizer, "mse", ["mae"], run_eagerly=eager)
    model.fit(X, Y, epochs=2, batch_size=16, verbose=0)
    return model


SCHEDULE = ef.nn.schedules.ExponentialDecay(0.1, 3, 0.5)
OPTIMIZERS = [
    lambda: ef.nn.optimizers.Adam(0.01),
    lambda: ef.nn.optimizers.AdamW(0.01, clipnorm=1.0),
    lambda: ef.nn.optimizers.SGD(SCHEDULE, momentum=0.9, nesterov=True),
    lambda: ef.nn.optimizers.SGD(0.1),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("eager", [True, False], ids=["eager", "captured"])
def test_training_goes_on_with_the_same_bits(tmp_path, eager, optimizer):
    ef.random.seed(1)
    model = trained(network(), eager, optimizer())
    model.save(tmp_path / "model.ef")
    predicted = model.predict(X)
    history = model.fit(X, Y, epochs=2, batch_size=16, verbose=0)
    ef.random.seed(99)
    again = ef.nn.load_model(tmp_path / "model.ef")
    assert again.predict(X).tobytes() == predicted.tobytes()
    assert again.fit(X, Y, epochs=2, batch_size=16, verbose=0).history == history.history
    assert bits_of(again) == bits_of(model)
    assert again.run_eagerly is eager and again.to_json() == model.to_json()


@pytest.mark.parametrize("scaled", [False, True])
def test_weights_without_decay_stay_so(scaled, tmp_path):
    """They may be told by names or by Variables, to the optimizer or the one inside of it."""
    for how in ("var_names", "var_list"):
        model = ef.nn.Sequential([ef.nn.Input((3,)), ef.nn.Dense(4), ef.nn.Dense(2)])
        optimizer = ef.nn.optimizers.AdamW(0.01, weight_decay=0.5)
        given = ["bias"] if how == "var_names" else [w for w in model.weights if w.ndim == 1]
        optimizer.exclude_from_weight_decay(**{how: given})
        if scaled:
            optimizer = ef.nn.optimizers.LossScaleOptimizer(optimizer)
        model.compile(optimizer, "mse")
        x, y = np.ones((4, 3), "float32"), np.zeros((4, 2), "float32")
        model.train_on_batch(x, y)
        model.save(tmp_path / "model.ef")
        again = ef.nn.load_model(tmp_path / "model.ef")
        for one in (model, again):
            one.train_on_batch(x, y)
        for a, b in zip(model.weights, again.weights, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_another_process_goes_on_with_the_same_bits(tmp_path):
    ef.random.seed(1)
    model = trained(network(), False)
    model.save(tmp_path / "model.ef")
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    code = (
        "import sys, numpy as np, eagerflow as ef\n"
        "data = np.load(sys.argv[1] + '/data.npz')\n"
        "ef.nn.Dense(1)(ef.ones((1, 1)))\n"  # other names of layers
        "model = ef.nn.load_model(sys.argv[1] + '/model.ef')\n"
        "model.fit(data['x'], data['y'], epochs=1, batch_size=16, verbose=0)\n"
        "model.save_weights(sys.argv[1] + '/weights.st')\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, cwd=ROOT)
    model.fit(X, Y, epochs=1, batch_size=16, verbose=0)
    other = network()
    other.load_weights(tmp_path / "weights.st")
    assert bits_of(other) == bits_of(model)


def test_models_without_an_input(tmp_path):
    for model in (ef.nn.Sequential([ef.nn.Dense(3), ef.nn.Dense(1)]), Chain(3)):
        model(X)
        model.save(tmp_path / "model.ef")
        again = ef.nn.load_model(tmp_path / "model.ef")
        assert type(again) is type(model)
        assert again(X[:5]).numpy().tobytes() == model(X[:5]).numpy().tobytes()
    ef.nn.Sequential([ef.nn.Dense(3)]).save(tmp_path / "model.ef")
    assert ef.nn.load_model(tmp_path / "model.ef").weights == []


def test_nothing_else_changes_where_nothing_is_trained_on(tmp_path):
    model = trained(network(), True)
    model.save(tmp_path / "model.ef")
    ef.random.seed(5)
    before = ef.random.default_generator.state.numpy()
    again = ef.nn.load_model(tmp_path / "model.ef", compile=False)
    assert again.optimizer is None and bits_of(again) == bits_of(model)
    assert (ef.random.default_generator.state.numpy() == before).all()


def test_custom_losses_and_metrics_are_saved(tmp_path):
    class Sinkhorn(ef.nn.losses.Loss):
        def call(self, y_true, y_pred):
            return ef.abs(y_true - y_pred)

    def largest(y_true, y_pred):
        return ef.max(ef.abs(y_true - y_pred), axis=-1)

    model = network()
    model.compile("sgd", Sinkhorn(), [largest])
    model.fit(X, Y, epochs=1, verbose=0)
    model.save(tmp_path / "model.ef")
    with pytest.raises(FileFormatError, match=r"(?s)no 'Sinkhorn'.*custom_objects={'Sinkhorn'"):
        ef.nn.load_model(tmp_path / "model.ef")
    objects = {"Sinkhorn": Sinkhorn, "largest": largest}
    again = ef.nn.load_model(tmp_path / "model.ef", objects)
    assert type(again.loss) is Sinkhorn
    assert again.evaluate(X, Y, verbose=0) == model.evaluate(X, Y, verbose=0)
    model.compile("sgd", lambda y_true, y_pred: ef.mean(y_pred))
    with pytest.warns(UserWarning, match="without some arguments of compile: loss = '<function"):
        model.save(tmp_path / "model.ef")
    assert ef.nn.load_model(tmp_path / "model.ef").optimizer is None


def test_a_model_without_a_configuration_saves_its_weights(tmp_path):
    def own():
        return ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2), lambda x: x + 1.0])

    model = own()
    with pytest.warns(UserWarning, match="without its configuration: .* is a function"):
        model.save(tmp_path / "model.ef")
    with pytest.raises(FileFormatError, match=r"(?s)is a function.*model.load_weights\(path\)"):
        ef.nn.load_model(tmp_path / "model.ef")
    other = own()
    other.load_weights(tmp_path / "model.ef")
    assert bits_of(other) == bits_of(model)


def test_frozen_layers_and_numbers_of_other_dtypes(tmp_path):
    class Spectrum(ef.nn.Layer):
        def build(self, input_shape):
            self.table = self.add_weight((3,), "ones", "table", dtype="complex128")
            self.pairs = self.add_weight((3, 2), "ones", "pairs", dtype="float64")
            self.small = self.add_weight((3,), "ones", "small", dtype="bfloat16")
            self.count = self.add_weight((), "zeros", "count", trainable=False, dtype="int64")

        def call(self, inputs):
            return inputs

    model = ef.nn.Sequential([ef.nn.Input((4,)), Spectrum(), ef.nn.Dense(2)])
    model.layers[0].table.assign([1.0 + 2.0j, 3.0, -0.0])
    model.layers[0].small.trainable = False
    model.layers[1].trainable = False
    model.save(tmp_path / "model.ef")
    again = ef.nn.load_model(tmp_path / "model.ef")
    assert bits_of(again) == bits_of(model)
    assert [w.trainable for w in again.weights] == [w.trainable for w in model.weights]
    for one in (model, again):
        one.trainable = True
    assert [w.trainable for w in again.weights] == [w.trainable for w in model.weights]


# Weights ------------------------------------------------------------------------------------------


def test_names_are_the_same_in_every_model():
    first, second = network(), network()
    assert [w.name for w in first.weights] != [w.name for w in second.weights]
    assert list(first.named_weights()) == list(second.named_weights())
    assert list(first.named_weights().values()) == first.weights
    twin = ef.nn.Sequential([ef.nn.Dense(2, name="same/x"), ef.nn.Dense(2, name="same/x")])
    twin(X)
    names = ["same_x/kernel", "same_x/bias", "same_x_1/kernel", "same_x_1/bias"]
    assert list(twin.named_weights()) == names

    class Own(ef.nn.Layer):
        def __init__(self):
            super().__init__()
            self.scales = {"a": ef.Variable(1.0), "b": ef.Variable(2.0)}

    assert list(Own().named_weights()) == ["variable", "variable_1"]


def test_weights_alone(tmp_path):
    model, other = network(), network()
    model.save_weights(tmp_path / "weights.safetensors")
    assert other.load_weights(tmp_path / "weights.safetensors") == Misfits([], [], [])
    assert bits_of(other) == bits_of(model)
    safetensors = pytest.importorskip("safetensors.numpy")
    assert list(safetensors.load_file(tmp_path / "weights.safetensors")) != []


def test_mismatched_weights_change_nothing(tmp_path):
    network().save_weights(tmp_path / "weights.st")
    layers = [ef.nn.Input((4,)), ef.nn.Dense(7), ef.nn.BatchNormalization(name="mine")]
    other = ef.nn.Sequential(layers)
    before = bits_of(other)
    with pytest.raises(FileFormatError) as error:
        other.load_weights(tmp_path / "weights.st")
    assert bits_of(other) == before
    for words in ("missing: mine/gamma", "extra: batch_norm", "dense/kernel: (4, 8) for (4, 7)"):
        assert words in str(error.value)
    misfits = other.load_weights(tmp_path / "weights.st", strict=False)
    assert len(misfits.missing) == 4 and len(misfits.extra) == 6 and len(misfits.reshaped) == 2
    with pytest.raises(FileFormatError, match="call the model on an input first"):
        Chain(2).load_weights(tmp_path / "weights.st")


MODELS = {
    "inputs": lambda: trained(network(), False),
    "subclass": lambda: Chain(2),
    "sequential": lambda: ef.nn.Sequential([ef.nn.Dense(2)]),
}


@pytest.mark.parametrize("kind", MODELS)
def test_export(kind, tmp_path):
    model = MODELS[kind]()
    right = model(X, training=False)
    model.export(tmp_path / "graph.ef")
    graph = ef.capture.load(tmp_path / "graph.ef")
    assert graph.text(lines=False) == model.prediction_graph().text(lines=False)
    np.testing.assert_allclose(np.asarray(graph(ef.tensor(X))), right.numpy(), rtol=1e-6)
    assert graph(ef.tensor(X[:3])).shape[0] == 3


@pytest.mark.parametrize("kind", MODELS)
def test_export_to_onnx(kind, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    model = MODELS[kind]()
    right = model(X, training=False).numpy()
    model.export(tmp_path / "model.onnx")
    model.export(tmp_path / "named.bin", format="onnx")
    ef.capture.export_onnx(model, tmp_path / "direct.onnx")
    for name in ("model.onnx", "named.bin", "direct.onnx"):
        session = ort.InferenceSession((tmp_path / name).read_bytes())
        (given,) = session.get_inputs()
        for count in (len(X), 1):
            (found,) = session.run(None, {given.name: X[:count]})
            np.testing.assert_allclose(found, right[:count], rtol=1e-5, atol=1e-6)


def test_export_to_python(tmp_path):
    if not hasattr(ef.capture, "export_python"):
        pytest.skip("ef.capture.export_python is not there yet")
    model = MODELS["sequential"]()
    model(X)
    model.export(tmp_path / "model.py")
    assert "import numpy" in (tmp_path / "model.py").read_text()


def test_export_refuses(tmp_path):
    model = MODELS["sequential"]()
    with pytest.raises(ArgumentError, match="has not been called"):
        model.export(tmp_path / "graph.ef")
    with pytest.raises(ArgumentError, match="has not been called"):
        ef.capture.export_onnx(model, tmp_path / "graph.onnx")
    with pytest.raises(ArgumentError, match="'keras' is not a format"):
        model.export(tmp_path / "graph.onnx", format="keras")
    assert list(tmp_path.iterdir()) == []


# Wrong files --------------------------------------------------------------------------------------


def rewritten(path, change):
    """The file with another text of its model: what ``change`` makes of it."""
    found = files.read(path, "test")
    facts = json.loads(found.texts["model"])
    facts = change(facts) or facts
    files.write(path, found.texts | {"model": json.dumps(facts)}, found.arrays, "test")


def saved(tmp_path):
    model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2)], name="chain")
    model.compile("adam", "mse")
    model.save(tmp_path / "model.ef")
    return tmp_path / "model.ef"


def test_more_weights_than_the_file_has(tmp_path):
    def grown(facts):
        layers = facts["model"]["config"]["layers"]
        layers[0]["config"]["shape"] = [100_000]
        layers[1]["config"]["units"] = 10_000_000

    path = saved(tmp_path)
    rewritten(path, grown)
    with pytest.raises(FileFormatError, match="more weights than the file"):
        ef.nn.load_model(path)


def test_a_config_so_deep(tmp_path):
    path = saved(tmp_path)
    found = files.read(path, "test")
    facts = json.loads(found.texts["model"])
    inner, facts["model"] = json.dumps(facts["model"]), "HERE"
    deep = '{"Sequential": {"layers": [' * 3000 + inner + "]}}" * 3000
    text = json.dumps(facts).replace('"HERE"', deep)
    files.write(path, found.texts | {"model": text}, found.arrays, "test")
    with pytest.raises(FileFormatError):
        ef.nn.load_model(path)


def test_files_of_other_kinds(tmp_path):
    path = saved(tmp_path)
    whole = path.read_bytes()
    found = files.read(path, "test")
    graph = ef.capture.trace(lambda x: x + 1.0, ef.TensorSpec((2,), "float32"))
    graph.save(tmp_path / "graph.ef")
    with pytest.raises(FileFormatError, match="holds tensors, but no model"):
        ef.nn.load_model(tmp_path / "graph.ef")
    files.write(path, found.texts | {"version": "2"}, found.arrays, "test")
    with pytest.raises(FileFormatError, match="unsupported version"):
        ef.nn.load_model(path)
    files.write(path, found.texts | {"model": "{"}, found.arrays, "test")
    with pytest.raises(FileFormatError, match="not JSON"):
        ef.nn.load_model(path)
    for wrong in (b"", b"PK\x03\x04" + whole, whole[:-1], whole + b"x", whole[:100]):
        path.write_bytes(wrong)
        with pytest.raises(FileFormatError):
            ef.nn.load_model(path)
    for wrong in (tmp_path / "absent.ef", tmp_path, "", 3):
        with pytest.raises(FileFormatError):
            ef.nn.load_model(wrong)
    with pytest.raises(FileFormatError, match="cannot be written"):
        network().save(tmp_path / "no" / "folder.ef")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="a pipe"):
        network().load_weights(tmp_path / "pipe")


def places(data, path=()):
    """The path of every value in nested dicts and lists."""
    yield path
    items = (
        data.items() if isinstance(data, dict) else enumerate(data if type(data) is list else ())
    )
    for key, item in items:
        yield from places(item, (*path, key))


JUNK = [None, True, -1, 3, 1e300, "", "x", "Dense", [], [[]], {}, {"x": 1}, 10**30, [None] * 5]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_damaged_texts_give_typed_errors(tmp_path, seed):
    model = trained(network(), True, ef.nn.optimizers.SGD(SCHEDULE, momentum=0.9))
    path = tmp_path / "model.ef"
    model.save(path)
    found = files.read(path, "test")
    rng = random.Random(seed)
    every = list(places(json.loads(found.texts["model"])))[1:]
    refused = 0
    for place in rng.sample(every, 60):
        facts = inner = json.loads(found.texts["model"])
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = rng.choice(JUNK)
        files.write(path, found.texts | {"model": json.dumps(facts)}, found.arrays, "test")
        try:
            ef.nn.load_model(path)
        except FileFormatError:
            refused += 1
    assert refused > 20


def test_layers_load_nothing_of_this():
    code = "import sys, eagerflow.nn; print([m for m in sys.modules if 'eagerflow.capture' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_single_graph_input_keeps_its_name_after_saving(tmp_path):
    model = ef.nn.Sequential([ef.nn.Dense(2)])
    model(ef.ones((3, 4)))
    model.save(tmp_path / "model.ef")
    again = ef.nn.load_model(tmp_path / "model.ef")
    assert model.prediction_graph().inputs.names == ("inputs",)
    assert again.prediction_graph().inputs.names == ("inputs",)


def test_attributes_that_were_set_since_are_saved(tmp_path):
    model = nn.Sequential([nn.Dense(4, "relu"), nn.Dropout(0.5), nn.Dense(2)])
    model.compile(nn.optimizers.AdamW(0.01), loss="mse")
    x = np.linspace(-1, 1, 24, dtype="f4").reshape(8, 3)
    model.fit(x, x[:, :2], verbose=0)
    model.layers[0].activation = ef.tanh
    model.layers[1].rate = 0.9
    model.optimizer.weight_decay, model.optimizer.clipnorm = 0.7, 0.5
    model.save(tmp_path / "m.ef")
    loaded = nn.load_model(tmp_path / "m.ef")
    ways = {"loaded": loaded, "clone": nn.clone_model(model), "copy": copy.deepcopy(model)}
    for name, other in ways.items():
        assert other.layers[1].rate == 0.9, name
        assert other.layers[0].get_config()["activation"] == "ef.tanh", name
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    for each in (model, loaded):
        ef.random.seed(0)
        each.fit(x, x[:, :2], verbose=0, shuffle=False)
    for own, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(own.numpy(), theirs.numpy())


def test_config_keeps_the_constructor_arguments(tmp_path):
    class Scaled(nn.Dense):
        def __init__(self, factor, **options):
            super().__init__(2 * factor, **options)
            self.factor = factor + 1

    layer = Scaled(3)
    layer.factor = 9
    assert layer.get_config()["factor"] == 3  # which the constructor may have changed
