"""Models from symbolic tensors: what they compute, in which order, and what they refuse."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from eagerflow.nn.masks import mask_of
from eagerflow.nn.symbols import is_symbolic

RNG = np.random.default_rng(0)


def floats(*shape):
    return ef.tensor(RNG.normal(size=shape).astype("float32"))


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    largest = max(1.0, float(np.abs(b).max(initial=0.0)))  # sums of such terms may cancel out
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * largest)


def towers():
    """Two inputs, a shared layer, ops between layers, two outputs."""
    a, b = ef.nn.Input((3,), name="a"), ef.nn.Input((3,), name="b")
    shared = ef.nn.Dense(4, activation="tanh", name="shared")
    joined = ef.concat([shared(a), shared(b) * 2.0], axis=1)
    outputs = {"sum": joined.sum(axis=1), "out": ef.nn.Dense(2, name="out")(joined)}
    model = ef.nn.Model([a, b], outputs)
    return model, shared


def test_towers():
    model, shared = towers()
    a, b = floats(5, 3), floats(5, 3)
    found = model([a, b])
    joined = ef.concat([shared(a), shared(b) * 2.0], axis=1)
    same(found["sum"], joined.sum(axis=1))
    same(found["out"], model.get_layer("out")(joined))
    assert [layer.name for layer in model.layers] == ["a", "b", "shared", "out"]
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

    for found, wanted in zip(step(a, b), step.python(a, b), strict=True):
        assert float(ef.abs(found).sum()) > 0
        same(found, wanted)


def test_models_in_models():
    inner_in = ef.nn.Input((4,))
    inner = ef.nn.Model(inner_in, ef.nn.Dense(3)(inner_in), name="inner")
    x = ef.nn.Input((4,))
    outer = ef.nn.Model(x, ef.nn.Dense(1)(inner(x) + inner(x * 2.0)))
    v = floats(2, 4)
    same(outer(v), outer.layers[-1](inner(v) + inner(v * 2.0)))
    assert outer.layers[0].output is x and outer.layers[1] is inner and len(outer.weights) == 4


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


def test_layers_that_assign_are_called_on_symbols():
    """What they would assign is not known there; on tensors they do."""
    x = ef.nn.Input((5, 4), batch_size=2)
    norm, kept = ef.nn.BatchNormalization(), ef.nn.LSTM(3, stateful=True)
    model = ef.nn.Model(x, kept(norm(x, training=True)))
    assert not np.asarray(norm.moving_mean).any() and not np.asarray(kept.states[0]).any()
    found = model(floats(2, 5, 4))
    assert np.asarray(norm.moving_mean).any()
    same(kept.states[0], found)


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
    assert ef.nn.model_from_json(model.to_json()).get_config() == model.get_config()


def test_layer_without_model_is_collected():
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


def test_copies_of_a_chain():
    model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(3, name="out"), ef.nn.Dropout(0.5)])
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert again.head is not model.head and again.output.shape == model.output.shape
    x = floats(2, 4)
    same(again(x), model(x))
    onward = ef.nn.Model(again.inputs, ef.nn.Dense(2)(again.get_layer("out").output))
    assert onward(x).shape == (2, 2)


def test_masks_reach_layers_between_symbols():
    """A call that needs a mask is given one, and a layer that says nothing passes none on."""

    class Pool(ef.nn.Layer):
        def call(self, inputs, mask=None):
            return ef.sum(inputs * mask.astype("float32")[:, :, None], axis=1)

    class Steps(ef.nn.Layer):
        def call(self, inputs):
            return ef.sum(inputs, axis=1)

    ids = ef.nn.Input((3,), dtype="int64")
    embedded = ef.nn.Dropout(0.5)(ef.nn.Embedding(5, 2, mask_zero=True)(ids))
    with pytest.warns(UserWarning, match="was given a mask and passes none on"):
        summed = Steps()(embedded)
    model = ef.nn.Model(ids, [Pool()(embedded), summed])
    given = ef.tensor([[1, 2, 0], [3, 0, 0]])
    vectors = model.layers[1].embeddings.numpy()
    pooled, summed = model(given)
    same(pooled, [vectors[1] + vectors[2], vectors[3]])
    same(summed, [vectors[1] + vectors[2] + vectors[0], vectors[3] + 2 * vectors[0]])
    assert mask_of(summed) is None and mask_of(pooled) is None
    inner = ef.nn.Model(ids, embedded)
    outer = ef.nn.Model(ids, Pool()(inner(ids)))
    same(outer(given), pooled)


def test_repr_of_symbolic_tensors():
    x = ef.nn.Input((3,), name="x")
    assert is_symbolic(x) and is_symbolic(ef.nn.Dense(2)(x)) and not is_symbolic(ef.ones(3))
    assert repr(x) == "Tensor(<symbolic>, shape=(batch, 3), float32, cpu:0)"


@pytest.mark.parametrize(("wrong", "error", "words"), [
    (lambda x: float(x.sum()), CaptureError, "needs a number"),
    (lambda x: x.numpy(), CaptureError, "needs a number"),
    (lambda x: ef.nn.Model(x, ef.nn.Input((2,), name="y") * 2.0), ArgumentError, "depend on 'y'"),
    (lambda x: ef.nn.Model(x, ef.ones(3)), ArgumentError, "not a symbolic tensor"),
    (lambda x: ef.nn.Model(ef.ones(3), x), ArgumentError, "not a symbolic tensor"),
    (lambda x: ef.nn.Model(x, x + 1.0)([ef.ones((1, 3))] * 2), ArgumentError, "2 inputs for"),
    (lambda x: ef.nn.Model(x, x @ ef.ones((3, 2)))(ef.ones((1, 4))), ShapeError, "matmul"),
    (lambda x: x @ ef.ones((4, 2)), ShapeError, "matmul"),
    (lambda x: ef.nn.Dense(2)(ef.nn.Dense(3)), DTypeError, "is not a tensor"),
    (lambda x: ef.nn.Dense(2).output, ArgumentError, "is in no model"),
    (lambda x: ef.nn.Model(x, ef.nn.Dense(2)(x)).get_layer("z"), ArgumentError, "no layer 'z'"),
    (lambda x: ef.Variable(1.0).assign(x.sum()), CaptureError, "assign needs a number"),
    (lambda x: ef.function(lambda: x + 1.0)(), CaptureError, "an op needs a number"),
])  # fmt: skip
def test_errors(wrong, error, words):
    with pytest.raises(error, match=words):
        wrong(ef.nn.Input((3,), name="x"))


# Functions of tensors, and sizes, between Input and Model -----------------------------------------


@ef.custom_gradient
def _doubled(x):
    return x * 2.0, lambda g: g * 2.0


_dense = ef.nn.Dense(2)
BETWEEN = {
    "function": lambda x: ef.function(lambda a: a * 2.0)(x),
    "function of a nest": lambda x: ef.function(lambda d, n: d["x"] * n)({"x": x}, 2.0),
    "cond": lambda x: ef.cond(ef.sum(x) > 0, lambda: x * 2.0, lambda: -x),
    "cond of operands": lambda x: ef.cond(x[0, 0] > 0, lambda a: a * 2.0, lambda a: -a, x),
    "switch": lambda x: ef.switch(ef.argmax(x[0]), [ef.sin, ef.cos, ef.tanh], x),
    "while_loop": lambda x: ef.while_loop(lambda a: ef.sum(a) < 9.0, lambda a: a * 2.0 + 1.0, x),
    "fori_loop": lambda x: ef.fori_loop(0, 3, lambda i, a: a * 1.5, x),
    "map": lambda x: ef.map(lambda row: row * 2.0, x),
    "scan": lambda x: ef.scan(lambda c, row: (c + row, c * row), ef.zeros(4), x)[1],
    "vmap": lambda x: ef.vmap(lambda row: row * ef.sum(row))(x),
    "custom_gradient": _doubled,
    "checkpoint": lambda x: ef.checkpoint(lambda a: ef.tanh(a) * a)(x),
    "a condition in a layer": ef.nn.Lambda(
        lambda a: ef.cond(ef.sum(a) > 0, lambda: a * 2.0, lambda: -a)
    ),
    "weights in a branch": lambda x: ef.cond(ef.sum(x) > 0, lambda: _dense(x), lambda: x[:, :2]),
    "reshape": lambda x: ef.reshape(x, (x.shape[0], 2, 2)),
    "reshape to a product": lambda x: ef.reshape(x, (x.shape[0] * 2, 2)),
    "broadcast_to": lambda x: ef.broadcast_to(x[:, :1], (x.shape[0], 7)),
    "zeros": lambda x: x + ef.zeros((x.shape[0], 1)),
    "arange": lambda x: x * ef.arange(x.shape[0], dtype="float32")[:, None],
    "a size as a number": lambda x: ef.sum(x, axis=0) / x.shape[0],
}


@pytest.mark.parametrize("name", BETWEEN)
def test_functions_of_tensors_between_inputs_and_outputs(name):
    ef.random.seed(0)
    x = ef.nn.Input((4,))
    f = BETWEEN[name]
    model = ef.nn.Model(x, f(x))
    step = ef.function(lambda a: model(a))
    for size, sign in ((2, 1.0), (3, -1.0), (2, -1.0)):
        given = ef.tensor(np.random.default_rng(size).random((size, 4), "float32") * sign)
        right = model(given)
        same(right, f(given))
        same(step(given), right)
        same(copy.deepcopy(model)(given), right)


def test_sizes_stand_in_configurations():
    x = ef.nn.Input((None, 6))
    y = ef.reshape(x, (x.shape[0] * x.shape[1], 2, 3)) + ef.zeros((x.shape[1] * x.shape[0], 1, 1))
    model = ef.nn.Model(x, y)
    again = ef.nn.model_from_json(model.to_json())
    for shape in ((2, 3, 6), (1, 4, 6)):
        given = ef.random.normal(shape)
        same(again(given), model(given))


def test_a_condition_stands_in_no_configuration():
    x = ef.nn.Input((4,))
    model = ef.nn.Model(x, BETWEEN["cond"](x))
    with pytest.raises(ef.errors.ArgumentError, match="Body among the arguments of a call"):
        model.to_json()


def test_a_tape_says_why_it_knows_nothing_of_symbols():
    x = ef.nn.Input((4,))
    with pytest.raises(ef.errors.GradientError, match="call the model on tensors under the tape"):
        ef.grad(lambda a: ef.sum(a * a))(x)


def test_weights_that_a_branch_reads_are_those_of_the_model():
    dense, x = ef.nn.Dense(2), ef.nn.Input((4,))
    model = ef.nn.Model(x, ef.cond(ef.sum(x) > 0, lambda: dense(x), lambda: x[:, :2]))
    assert model.weights == dense.weights and len(model.weights) == 2


@pytest.mark.parametrize("head", [[], [ef.nn.Input((4,))]], ids=["from its first call", "Input"])
def test_a_model_goes_on_from_a_sequential(head):
    chain = ef.nn.Sequential([*head, ef.nn.Dense(3), ef.nn.Dense(2)])
    x = floats(5, 4)
    chain(x)
    features = ef.nn.Model(chain.inputs, chain.layers[0].output)
    same(features(x), chain.layers[0](x))
    assert (chain.input_shape, chain.output_shape) == ((None, 4), (None, 2))
    chain.pop()
    chain(x)
    same(ef.nn.Model(chain.inputs, chain.output)(x), chain.layers[0](x))


def test_models_that_are_gone_leave_nothing_with_the_ops():
    def make():
        x = ef.nn.Input((4,))
        return ef.nn.Model(x, ef.nn.Dense(4, activation="relu")(x) * 2.0 + 1.0)

    tables = "table", "kernels", "many", "fitting", "bound"
    held = lambda: [len(getattr(op, t)) for op in ef.op.ops.values() for t in tables]
    make()
    before = held()
    for _ in range(5):
        make()
    assert held() == before
