"""Models from symbolic tensors: what they compute, in which order, and what they refuse."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from eagerflow.nn.symbols import is_symbolic

RNG = np.random.default_rng(0)


def floats(*shape):
    return ef.tensor(RNG.normal(size=shape).astype("float32"))


def same(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-6)


def towers():
    """Two inputs, a shared layer, ops between layers, two outputs."""
    a, b = ef.nn.Input((3,), name="a"), ef.nn.Input((3,), name="b")
    shared = ef.nn.Dense(4, activation="tanh", name="shared")
    joined = ef.concat([shared(a), shared(b) * 2.0], axis=1)
    model = ef.nn.Model(
        [a, b], {"sum": joined.sum(axis=1), "out": ef.nn.Dense(2, name="out")(joined)}
    )
    return model, shared


def test_towers():
    model, shared = towers()
    a, b = floats(5, 3), floats(5, 3)
    found = model([a, b])
    joined = ef.concat([shared(a), shared(b) * 2.0], axis=1)
    same(found["sum"], joined.sum(axis=1))
    same(found["out"], model.get_layer("out")(joined))
    assert [layer.name for layer in model.layers] == ["shared", "out"]
    assert len(model.weights) == 4
    by_name = model({"b": b, "a": a})
    same(by_name["out"], found["out"])


def test_a_step_is_captured_and_gradients_reach_shared_layers():
    model, _ = towers()
    a, b = floats(5, 3), floats(5, 3)

    @ef.function
    def step(a, b):
        with ef.GradientTape() as tape:
            out = model([a, b])
            loss = (out["out"] ** 2).sum() + out["sum"].sum()
        return tape.gradient(loss, model.trainable_weights)

    eager = step.__wrapped__(a, b) if hasattr(step, "__wrapped__") else None
    for gradient in step(a, b):
        assert float(ef.abs(gradient).sum()) > 0
    if eager is not None:
        for x, y in zip(step(a, b), eager, strict=True):
            same(x, y)


def test_models_in_models():
    inner_in = ef.nn.Input((4,))
    inner = ef.nn.Model(inner_in, ef.nn.Dense(3)(inner_in), name="inner")
    x = ef.nn.Input((4,))
    outer = ef.nn.Model(x, ef.nn.Dense(1)(inner(x) + inner(x * 2.0)))
    v = floats(2, 4)
    same(outer(v), outer.layers[-1](inner(v) + inner(v * 2.0)))
    assert outer.layers[0] is inner and len(outer.weights) == 4


@pytest.mark.parametrize("way", ["graph", "sequential"])
def test_a_model_that_is_called_on_symbols_keeps_its_own_inputs(way):
    x = ef.nn.Input((4,))
    base = ef.nn.Model(x, ef.nn.Dense(3)(x))
    if way == "sequential":
        base = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3)])
    before = base.inputs[0], base.outputs[0]
    ef.nn.Model(other := ef.nn.Input((4,)), base(other))
    assert base.inputs[0] is before[0] and base.outputs[0] is before[1]


def test_masks_that_come_and_go_trace_nothing_again():
    embed, lstm = ef.nn.Embedding(5, 3, mask_zero=True), ef.nn.LSTM(2)
    dense = ef.nn.Dense(2)
    step = ef.function(lambda ids: lstm(embed(ids)))
    plain = ef.function(lambda x: dense(x))
    ids = ef.tensor([[1, 2, 0], [3, 0, 0]])
    right = lstm(embed(ids))
    for _ in range(3):
        same(step(ids), right)
        plain(ef.ones((2, 2)))
        held = embed(ids)  # a mask that lives on
        plain(ef.ones((2, 2)))
        same(step(ids), right)
    assert held.shape == (2, 3, 3)
    assert (len(step.graphs), len(plain.graphs)) == (1, 1)


def test_a_model_goes_on_from_a_layer_of_another():
    base = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(8, name="first"), ef.nn.Dense(2)])
    features = ef.nn.Model(base.inputs, base.get_layer("first").output)
    v = floats(3, 4)
    same(features(v), base.get_layer("first")(v))
    head = ef.nn.Model(features.inputs, ef.nn.Dense(5)(features.output))
    assert head(v).shape == (3, 5)
    features.trainable = False
    assert [w.name for w in head.trainable_weights] == [w.name for w in head.weights[2:]]


def test_inputs_within_a_graph():
    """A model may begin at what another layer has made."""
    x = ef.nn.Input((4,))
    h = ef.nn.Dense(3)(x)
    tail = ef.nn.Model(h, ef.nn.Dense(2)(h))
    assert tail(floats(5, 3)).shape == (5, 2) and len(tail.weights) == 2


def test_training_and_dropout():
    x = ef.nn.Input((100,))
    model = ef.nn.Model(x, ef.nn.Dropout(0.5)(x))
    ones = ef.ones((2, 100))
    same(model(ones), ones)
    assert float((model(ones, training=True) == 0).sum()) > 20
    always = ef.nn.Model(x, ef.nn.Dropout(0.5)(x, training=True))
    assert float((always(ones) == 0).sum()) > 20


def test_variables_and_constants_between_layers():
    factor = ef.Variable([2.0, 3.0], name="factor")
    x = ef.nn.Input((2,))
    model = ef.nn.Model(x, x * factor + ef.tensor([1.0, 1.0]) + np.ones(2, "float32"))
    same(model(ef.ones((1, 2))), [[4.0, 5.0]])
    factor.assign([0.0, 1.0])
    same(model(ef.ones((1, 2))), [[2.0, 3.0]])
    assert model.weights == [factor] or model.weights[0] is factor


@pytest.mark.parametrize("depth", [3000])
def test_deep_graphs(depth):
    x = y = ef.nn.Input((2,))
    for _ in range(depth):
        y = y + 1.0
    same(ef.nn.Model(x, y)(ef.zeros((1, 2))), [[depth, depth]])


def test_free_sizes_and_dtypes():
    ids = ef.nn.Input((None,), dtype="int64", name="ids")
    model = ef.nn.Model(ids, ef.cumulative_sum(ids, axis=1) * 2)
    same(model(ef.tensor([[1, 2, 3]])), [[2, 6, 12]])
    same(model(ef.tensor([[1, 2]])), [[2, 6]])
    assert ef.nn.Input((2, None), batch_size=3).shape[0] == 3


def test_a_chain_has_the_free_sizes_and_the_batch_of_its_input():
    ids = ef.nn.Input((None,), batch_size=2, dtype="int64", name="ids")
    model = ef.nn.Sequential([ids, ef.nn.Embedding(5, 3)])
    assert model(ef.tensor([[1, 2, 3], [0, 1, 2]])).shape == (2, 3, 3)
    assert model(ef.tensor([[1, 2], [0, 1]])).shape == (2, 2, 3)
    assert model.inputs[0].shape[0] == 2


def test_what_no_model_uses_goes_away():
    layer = ef.nn.Dense(2)
    gone = weakref.ref(layer)
    out = layer(ef.nn.Input((3,)))
    del layer, out
    gc.collect()
    assert gone() is None


def test_copies():
    model, _ = towers()
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert again.get_layer("out").output.shape == model.get_layer("out").output.shape
    assert again.get_layer("out") is not model.get_layer("out")
    again.set_weights([w * 0 for w in model.get_weights()])
    a, b = floats(2, 3), floats(2, 3)
    assert float(ef.abs(model([a, b])["out"]).sum()) > 0
    same(again([a, b])["out"], np.zeros((2, 2)))


def test_symbols_tell_what_they_are():
    x = ef.nn.Input((3,), name="x")
    assert is_symbolic(x) and is_symbolic(ef.nn.Dense(2)(x)) and not is_symbolic(ef.ones(3))
    assert repr(x) == "Tensor(<symbolic>, shape=(batch, 3), float32, cpu:0)"


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda x: float(x.sum()), CaptureError, "needs a number"),
        (lambda x: x.numpy(), CaptureError, "needs a number"),
        (
            lambda x: ef.nn.Model(x, ef.nn.Input((2,), name="y") * 2.0),
            ArgumentError,
            "depend on 'y'",
        ),
        (lambda x: ef.nn.Model(x, ef.ones(3)), ArgumentError, "no symbolic tensor"),
        (lambda x: ef.nn.Model(ef.ones(3), x), ArgumentError, "no symbolic tensor"),
        (lambda x: ef.nn.Model(x, x + 1.0)([ef.ones((1, 3))] * 2), ArgumentError, "2 inputs for"),
        (lambda x: ef.nn.Model(x, x @ ef.ones((3, 2)))(ef.ones((1, 4))), ShapeError, "matmul"),
        (lambda x: x @ ef.ones((4, 2)), ShapeError, "matmul"),
        (lambda x: ef.nn.Dense(2)(ef.nn.Dense(3)), DTypeError, "is not a tensor"),
        (lambda x: ef.nn.Dense(2).output, ArgumentError, "is in no model"),
        (lambda x: ef.nn.Model(x, ef.nn.Dense(2)(x)).get_layer("z"), ArgumentError, "no layer 'z'"),
        (lambda x: ef.Variable(1.0).assign(x.sum()), CaptureError, "assign needs a number"),
    ],
)
def test_errors(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong(ef.nn.Input((3,), name="x"))
