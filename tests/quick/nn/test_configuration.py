"""Models as configurations: what is saved, the short forms, and errors."""

import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dtypes import bfloat16
from eagerflow.errors import ArgumentError, EagerflowError
from tests.nn.test_cases import CASES, made, run

FLOATS = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")


class Halves(ef.nn.Layer):
    """Several results, arguments in nests, and plain ones beside them."""

    def __init__(self, at=2):
        super().__init__()
        self.at = at

    def call(self, inputs, others=None, scale=1.0):
        more = others["b"][0] * scale if others else 0.0
        return {"left": inputs[:, : self.at] + more, "right": (inputs[:, self.at :],)}


def again(model, **custom):
    """The model made of a model's JSON, with the same weights; JSON of both is the same."""
    text = model.to_json()
    made = ef.nn.model_from_json(text, custom)
    assert made.to_json() == text
    made.set_weights(model.get_weights())
    return made


def same(a, b):
    left, structure = ef.tree.flatten(a)
    right, other = ef.tree.flatten(b)
    assert structure == other
    for x, y in zip(left, right, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def alike(model, *inputs, **custom):
    made = again(model, **custom)
    same(model(*inputs), made(*inputs))
    assert made.graph is None or made.graph.text(lines=False) == model.graph.text(lines=False)
    return made


def large_model():
    """Shared layers, a model in a model, Variables, constants, nests, ops with attributes."""
    x, z = ef.nn.Input((4,), name="x"), ef.nn.Input((None, 4), name="z")
    shared = ef.nn.Dense(4, name="shared", kernel_regularizer="l2")
    layers = [ef.nn.Input((4,)), ef.nn.Dense(3, "relu"), ef.nn.Dropout(0.5, seed=3)]
    inner = ef.nn.Sequential(layers, name="inner")
    table = ef.tensor([1.0, float("inf"), float("nan"), -0.0])
    once = shared(x)
    twice = shared(once) * ef.Variable([1.0, 2.0, 3.0, 4.0], name="factor") + 1.0
    joined = ef.concat([twice, inner(twice)], axis=-1)
    outputs = {"a": joined, "b": (ef.sum(z, axis=1) + table,), "c": [joined[:, :2], joined[..., 2]]}
    return ef.nn.Model([x, z], outputs, name="large")


def test_a_large_model():
    longer = np.random.default_rng(1).normal(size=(3, 5, 4)).astype("float32")
    model = large_model()
    made = alike(model, [FLOATS, longer])
    assert [w.name for w in made.weights] == [w.name for w in model.weights]
    assert made.layers[2] is made.get_layer("shared") and len(made.layers) == 4


@pytest.mark.parametrize(
    "values",
    [
        *(np.array([np.inf, -np.inf, np.nan, -0.0, 1 / 3], name) for name in ("f2", "f4", "f8")),
        np.array([np.inf, -np.inf, np.nan, -0.0, 1 / 3]).astype(bfloat16),
        *(np.array([np.iinfo(t).min, np.iinfo(t).max - 1], t) for t in ("i1", "i8", "u8")),
        np.array([True, False]),
    ],
    ids=lambda values: values.dtype.name,
)
def test_constants_keep_their_bits(values):
    x = ef.nn.Input((1,))
    made = again(ef.nn.Model(x, ef.where(x > 0.0, ef.tensor(values), ef.tensor(values[::-1]))))
    found = made(np.array([[1.0], [-1.0]], "float32")).numpy()
    assert found.dtype == values.dtype
    assert found.tobytes() == np.array([values, values[::-1]]).tobytes()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("row", CASES, ids=lambda row: row.id)
def test_every_layer_in_a_model(row):
    layer, arrays = made(row)
    symbols = [ef.nn.Input(a.shape[1:], dtype=a.dtype.name) for a in arrays]
    model = ef.nn.Model(symbols, run(row, layer, symbols))
    copy = again(model)
    same(model(arrays, training=False), copy(arrays, training=False))


def test_calls_with_more_than_tensors():
    x, y = ef.nn.Input((4,), name="x"), ef.nn.Input((2,), name="y")
    halves = Halves()
    found = halves(x, others={"b": [y, 3]}, scale=2.0)
    model = ef.nn.Model({"x": x, "y": y}, {"sum": found["left"] + found["right"][0]})
    inputs = {"x": FLOATS, "y": FLOATS[:, :2]}
    made = alike(model, inputs, Halves=Halves)
    assert type(made.layers[2]) is Halves and made.layers[2].name == halves.name


def test_attributes_of_every_kind():
    x = ef.nn.Input((4,), name="x")
    y = ef.where(x > 0.5, x, float("-inf"))[..., ::2]
    y = ef.concat([y, y.astype("float64").astype("float32")], axis=1)
    alike(ef.nn.Model(x, [y, ef.sum(y, axis=(0, 1)), ef.expand_dims(x, axis=0)]), FLOATS)


def test_sizes_by_name():
    n = ef.Dim("n")
    a, b = ef.nn.Input((n,), name="a"), ef.nn.Input((n, None), batch_size=3, name="b")
    config = ef.nn.Model([a, b], [a * 2.0, b * 2.0]).get_config()
    assert config["inputs"]["a"]["batch_shape"] == [None, "n"]
    assert config["inputs"]["b"]["batch_shape"] == [3, "n", None]
    made = ef.nn.Model.from_config(config)
    assert [str(x.shape) for x in made.inputs] == ["(batch, n)", "(3, n, b_dim2)"]


@pytest.mark.parametrize("config", [
    {"Sequential": {"layers": [{"Input": {"shape": [4]}}, {"Dense": {"units": 2}}]}},
    {"Model": {"inputs": {"x": {"shape": [4]}}, "layers": {"out": {"Dense": {"units": 2}}},
               "calls": [{"layer": "out", "inputs": "x"}], "outputs": "out"}},
    {"Functional": {"inputs": {"x": {"shape": [4], "dtype": "float32"}},
                    "layers": {"out": {"class_name": "Dense", "config": {"units": 2}}},
                    "calls": [{"layer": "out", "inputs": "x", "name": "first"},
                              {"op": "multiply", "args": [{"tensor": "first"}, 2.0]}],
                    "outputs": ["multiply"]}},
])  # fmt: skip
def test_short_forms(config):
    model = ef.nn.model_from_config(config)
    assert ef.tree.flatten(model(FLOATS))[0][0].shape == (3, 2)
    assert model.count_params() == 10
    again(model)


def test_a_name_is_that_in_the_dict():
    layers = {"first": {"Dense": {"units": 4}}, "second": {"Dense": {"units": 4, "name": "own"}}}
    calls = [{"layer": "first", "inputs": "x"}, {"layer": "second", "inputs": "first"}]
    calls.append({"layer": "first", "inputs": "second"})
    config = {"inputs": {"x": {"shape": [4]}}, "layers": layers, "calls": calls}
    model = ef.nn.model_from_config({"Model": config | {"outputs": ["first", "first_1"]}})
    assert [layer.name for layer in model.layers] == ["x", "first", "own"]


def test_clone_keeps_trainable_flags():
    model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3), ef.nn.Dense(2)], name="chain")
    model.layers[0].trainable = False
    made = again(model)
    assert [w.trainable for w in made.weights] == [False, False, True, True]
    made.layers[0].trainable = True
    assert all(w.trainable for w in made.weights)


def test_policies_of_dtypes_are_kept():
    before = ef.nn.dtype_policy()
    ef.nn.set_dtype_policy("mixed_bfloat16")
    try:
        text = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3)]).to_json()
    finally:
        ef.nn.set_dtype_policy(before)
    made = ef.nn.model_from_json(text)
    assert made(FLOATS).dtype.name == "bfloat16" and made.weights[0].dtype == "float32"


def test_classes_of_users():
    class Twice(ef.nn.Model):
        def __init__(self, units, scale):
            super().__init__()
            self.dense = ef.nn.Dense(units)
            self.scale = scale

        def call(self, inputs):
            return self.dense(inputs) * self.scale

    model = Twice(3, np.float32(2.0))
    model(FLOATS)
    config = json.loads(model.to_json())
    assert config["config"] == {"name": model.name, "units": 3, "scale": 2.0}
    made = ef.nn.model_from_config(config)
    assert type(made) is Twice and made.name == model.name
    short = {"Twice": {"units": 2, "scale": 1}}
    assert type(ef.nn.model_from_config(short, {"Twice": Twice})) is Twice


def test_clones():
    model = large_model()
    clone = model.clone()
    assert clone.to_json() == model.to_json()
    assert not set(map(id, clone.weights)) & set(map(id, model.weights))
    values = dict(zip([w.name for w in clone.weights], clone.get_weights(), strict=True))
    assert values["factor"].tolist() == [1, 2, 3, 4]
    assert (values["shared/kernel"] != model.get_weights()[0]).any()

    class Unknown(ef.nn.Dense):
        pass

    again = ef.nn.clone_model(ef.nn.Sequential([Unknown(2, name="u")]))
    assert type(again.layers[0]) is Unknown and again.layers[0].name == "u"


def model_with(**parts):
    config = {"inputs": {"x": {"shape": [4]}}, "layers": {"out": {"Dense": {"units": 2}}}}
    config |= {"calls": [{"layer": "out", "inputs": "x"}], "outputs": "out"}
    return {"Model": config | parts}


@pytest.mark.parametrize("config, words", [
    ({}, "does not describe a layer"),
    ([1], "does not describe a layer"),
    ({"Dense": 3}, "are no arguments"),
    ({"Dens": {"units": 3}}, "there is no 'Dens'.*'Dense'"),
    ({"Mine": {}}, "there is no 'Mine'"),
    ({"my.module>Mine": {}}, "custom_objects={'Mine': Mine}"),
    ({"Dense": {"units": -1}}, "out of range"),
    (model_with(inputs=["x"]), "no inputs by name"),
    (model_with(inputs={"x": {}}), "does not describe an input"),
    (model_with(inputs={"x": {"shape": [4.5]}}), "is no size"),
    (model_with(inputs={"x": {"shape": [-4]}}), "is no size"),
    (model_with(layers=3), "no layers by name"),
    (model_with(calls=3), "not a list of calls"),
    (model_with(calls=[3]), "not a call"),
    (model_with(calls=[{"layer": "nobody"}]), "not a layer"),
    (model_with(calls=[{"layer": "out", "inputs": "y"}]), "no tensor"),
    (model_with(calls=[{"layer": "out", "inputs": "x", "name": "x"}]), "a name twice"),
    (model_with(calls=[{"op": "no_op", "args": ["x"]}]), "there is no 'no_op'"),
    (model_with(calls=[{"op": 3, "args": []}]), "not a name of an op"),
    (model_with(calls=[{"op": "zeros", "args": []}]), "a call without a tensor"),
    (model_with(calls=[{"op": "tanh", "args": [{"what": 1}]}]), "not a value"),
    (model_with(calls=[{"op": "tanh", "args": [{"variable": "v"}]}]), "not a variable"),
    (model_with(outputs="nobody"), "no tensor"),
    (model_with(outputs=None), "not tensors"),
])  # fmt: skip
def test_wrong_configurations(config, words):
    with pytest.raises(EagerflowError, match=f"(?s){words}"):
        ef.nn.model_from_config(config)


def test_wrong_json():
    for text in ("{", None, "[" * 100_000):
        with pytest.raises(ArgumentError, match="not JSON"):
            ef.nn.model_from_json(text)


def refused(outputs, x):
    with pytest.raises(ArgumentError) as error:
        ef.nn.Model(x, outputs, name="m").to_json()
    return str(error.value)


def test_models_without_configuration_are_refused(monkeypatch):
    x = ef.nn.Input((5000,), name="x")
    assert "at most 4,096 real numbers" in refused(x + ef.ones(5000), x)
    assert "activation = " in refused(ef.nn.Dense(2, activation=lambda x: x)(x), x)
    with monkeypatch.context() as patch:
        patch.setattr("eagerflow.nn.graph_writing.ops", {})
        assert "a custom function" in refused(ef.tanh(x), x)
    own_values = ef.nn.Dense(2, kernel_initializer=lambda shape, dtype: ef.ones(shape))
    with pytest.raises(ArgumentError, match="kernel_initializer"):
        ef.nn.Sequential([own_values]).clone()


def test_repr_of_models():
    assert repr(ef.nn.Sequential(name="chain")) == "<Sequential chain: 0 layers>"
    assert repr(ef.nn.Sequential([ef.tanh], name="chain")) == "<Sequential chain: 1 layers>"
    assert repr(large_model()) == "<Model large: 4 layers, 39 parameters>"
