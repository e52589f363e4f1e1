"""Gradients of look-ups as slices: what they hold, where they are tensors, what optimizers make."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import DTypeError, ShapeError

TABLE = np.random.default_rng(0).standard_normal((9, 3)).astype("float32")
IDS = np.array([1, 7, 1, 1, 3])
TOUCHED = [1, 3, 7]
REST = [0, 2, 4, 5, 6, 8]
o = ef.nn.optimizers

BY_ROWS = {
    "sgd": lambda: o.SGD(0.1),
    "nesterov": lambda: o.SGD(0.1, momentum=0.9, nesterov=True),
    "amsgrad": lambda: o.Adam(0.1, amsgrad=True),
    "adamw": lambda: o.AdamW(0.1),
    "adagrad": lambda: o.Adagrad(0.1),
    "rmsprop": lambda: o.RMSprop(0.1, centered=True, momentum=0.9),
    "clipvalue": lambda: o.Adam(0.1, clipvalue=0.5),
    "clipnorm": lambda: o.SGD(0.1, clipnorm=0.5),
    "global_clipnorm": lambda: o.SGD(0.1, global_clipnorm=0.5),
    "scaled": lambda: o.SGD(0.1, loss_scale_factor=8.0),
    "loss_scale": lambda: o.LossScaleOptimizer(o.Adam(0.1)),
    "accumulated": lambda: o.Adam(0.1, gradient_accumulation_steps=2),
    "ema": lambda: o.Adam(0.1, use_ema=True),
    "lamb": lambda: o.Lamb(0.1),
}


def step_of(table, optimizer, sparse):
    def step(ids):
        with ef.GradientTape() as tape:
            y = ef.embedding_lookup(table, ids, sparse_gradient=sparse)
            loss = optimizer.scale_loss((y * y * y).sum())
        gradient = tape.gradient(loss, table)
        assert isinstance(gradient, ef.IndexedSlices) == sparse
        optimizer.apply([gradient], [table])

    return step


@pytest.mark.sampled(2)
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", BY_ROWS)
def test_steps_are_those_along_tensors(name, captured):
    found = []
    for sparse in (False, True):
        table = ef.Variable(TABLE)
        step = step_of(table, BY_ROWS[name](), sparse)
        step = ef.function(step) if captured and sparse else step
        for _ in range(3):
            step(IDS)
        found.append(table.numpy())
    np.testing.assert_allclose(found[1][TOUCHED], found[0][TOUCHED], rtol=0, atol=1e-6)
    if name != "lamb":
        np.testing.assert_array_equal(found[1][REST], TABLE[REST])


def test_values_that_others_hold_stay():
    table = ef.Variable(TABLE)
    step, held = step_of(table, o.SGD(0.1), True), []
    for hold in (lambda: table.value, lambda: table.value[0:8], lambda: np.asarray(table.value)):
        step(IDS)
        before = hold()
        held.append((before, np.array(before)))
        step(IDS)
    for now, then in held:
        np.testing.assert_array_equal(now, then)


def test_captured_steps_make_no_tensor_of_the_tables_shape():
    table, ids = ef.Variable(np.zeros((1000, 3), "float32")), ef.TensorSpec((4,), "int64")
    step = step_of(table, o.SGD(0.1), True)
    graph = ef.capture.trace(step, ids)
    whole = [n.op.name for n in graph.nodes if any(1000 in y.shape for y in n.outputs)]
    assert whole == ["index_set"]


def test_where_gradients_are_tensors():
    table = ef.Variable(TABLE)

    def loss(t):
        return (ef.embedding_lookup(t, IDS, sparse_gradient=True) ** 3).sum()

    with ef.GradientTape(persistent=True) as tape:
        of_rows, more = loss(table), (table * table).sum()
        total = of_rows + more
    rows, whole = tape.gradient(of_rows, table), tape.gradient(total, table)
    assert isinstance(rows, ef.IndexedSlices)
    np.testing.assert_allclose(whole, rows.to_dense() + 2 * TABLE, rtol=1e-6)
    with ef.GradientTape() as outer:
        with ef.GradientTape() as inner:
            y = loss(table)
        g = inner.gradient(y, table)
        square = (g * g).sum()
    assert isinstance(g, ef.Tensor)
    assert outer.gradient(square, table).shape == TABLE.shape
    with ef.GradientTape() as tape:
        y = ef.embedding_lookup(table, IDS, sparse_gradient=True)
    assert tape.jacobian(y, table).shape == (5, 3, 9, 3)


def test_captured_functions_take_and_give_them():
    double = ef.function(lambda slices: slices * 2.0)
    found = double(ef.IndexedSlices([1.0, 2.0], [0, 3], (4,)))
    assert found.to_dense().tolist() == [2.0, 0.0, 0.0, 4.0]


def test_layer():
    layer = ef.nn.Embedding(9, 3, sparse=True, weights=TABLE)
    with ef.GradientTape() as tape:
        loss = (layer(np.array([[1, -2]])) ** 2).sum() + layer(np.array([1])).sum()
    g = tape.gradient(loss, layer.embeddings)
    assert g.indices.tolist().count(1) == 2 and 7 in g.indices.tolist()
    assert layer.get_config()["sparse"] is True
    assert "sparse" not in ef.nn.Embedding(9, 3).get_config()


def test_mistakes():
    with pytest.raises(DTypeError, match="cannot be indices"):
        ef.IndexedSlices([1.0], [0.5], (3,))
    with pytest.raises(ShapeError, match="do not fit"):
        ef.IndexedSlices([1.0], [0, 1], (3,))
