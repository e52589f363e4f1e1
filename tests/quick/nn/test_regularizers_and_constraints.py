"""Regularizers and constraints: by formulas, against Keras, in layers, and from bad arguments."""

import json

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import keras_gradients, keras_on_torch, numbers, torch

W = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
W4 = np.random.default_rng(0).normal(size=(2, 2, 4, 3)).astype("float32")


def cosines(w, factor):
    rows = w / np.linalg.norm(w, axis=1, keepdims=True)
    pairs = [abs(rows[i] @ rows[j]) for i in range(len(w)) for j in range(i)]
    return factor * np.mean(pairs)


def lengths(w, axis=0):
    return np.sqrt((w**2).sum(axis, keepdims=True))


REGULARIZERS = [
    ("L1", (), lambda w: 0.01 * abs(w).sum()),
    ("L1", (0.5,), lambda w: 0.5 * abs(w).sum()),
    ("L2", (), lambda w: 0.01 * (w**2).sum()),
    ("L2", (0.5,), lambda w: 0.5 * (w**2).sum()),
    ("L1L2", (), lambda w: 0),
    ("L1L2", (0.5, 0.25), lambda w: 0.5 * abs(w).sum() + 0.25 * (w**2).sum()),
    ("OrthogonalRegularizer", (), lambda w: cosines(w, 0.01)),
    ("OrthogonalRegularizer", (0.5, "columns"), lambda w: cosines(w.T, 0.5)),
]
CONSTRAINTS = [
    ("NonNeg", (), lambda w: w * (w > 0)),
    ("UnitNorm", (), lambda w: w / lengths(w)),
    ("UnitNorm", (1,), lambda w: w / lengths(w, 1)),
    ("UnitNorm", ([0, 1],), lambda w: w / lengths(w, (0, 1))),
    ("MaxNorm", (), lambda w: w * np.minimum(2 / lengths(w), 1)),
    ("MaxNorm", (0.5, 1), lambda w: w * np.minimum(0.5 / lengths(w, 1), 1)),
    ("MinMaxNorm", (), lambda w: w * np.minimum(1 / lengths(w), 1)),
    ("MinMaxNorm", (1.5, 2.0, 0.25, 1),
     lambda w: w * (0.75 + 0.25 * np.clip(lengths(w, 1), 1.5, 2) / lengths(w, 1))),
]  # fmt: skip
EVERY = [("regularizers", *row) for row in REGULARIZERS]
EVERY += [("constraints", *row) for row in CONSTRAINTS]
by_row = pytest.mark.parametrize(("kind", "name", "args", "formula"), EVERY)


@by_row
def test_formula_and_configuration(kind, name, args, formula):
    module = getattr(ef.nn, kind)
    made = getattr(module, name)(*args)
    np.testing.assert_allclose(made(ef.tensor(W)), formula(W), rtol=1e-5)
    np.testing.assert_allclose(ef.function(made)(ef.tensor(W)), formula(W), rtol=1e-5)
    config = json.loads(json.dumps({"class_name": name, "config": made.get_config()}))
    np.testing.assert_array_equal(module.get(config)(ef.tensor(W)), made(ef.tensor(W)))
    assert type(module.get(ef.nn.configured.snake_case(name))) is type(made)


@by_row
def test_against_keras(kind, name, args, formula):
    keras = keras_on_torch()
    ours = getattr(getattr(ef.nn, kind), name)(*args)
    theirs = getattr(getattr(keras, kind), name)(*args)
    for w in (W, W4) if name != "OrthogonalRegularizer" else (W,):
        value = numbers(theirs(torch.tensor(w)))
        np.testing.assert_allclose(ours(ef.tensor(w)), value, rtol=1e-5, atol=1e-7)
        found = ef.grad(lambda x: ef.sum(ours(x)))(ef.tensor(w))
        (wanted,) = keras_gradients(lambda x: theirs(x).sum(), [w])
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_vectors_of_zeros():
    zeros = ef.zeros((3, 2))
    for name in ("unit_norm", "max_norm", "min_max_norm"):
        np.testing.assert_array_equal(ef.nn.constraints.get(name)(zeros), 0)
    regularizer = ef.nn.regularizers.OrthogonalRegularizer()
    np.testing.assert_array_equal(ef.grad(regularizer)(zeros), 0)
    assert regularizer(ef.ones((1, 4))).item() == 0  # one row has no pair


def test_constraints_hold_after_each_step():
    shorter = ef.nn.constraints.MaxNorm(0.5)
    layer = ef.nn.Dense(3, kernel_constraint=shorter, bias_constraint="non_neg")
    model = ef.nn.Sequential([layer])
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    model.fit(x, x[:, :3] * 3 - 5, epochs=2, verbose=0)
    assert (np.linalg.norm(layer.kernel.numpy(), axis=0) <= 0.5 + 1e-6).all()
    assert (layer.bias.numpy() >= 0).all()


@pytest.mark.parametrize(("make", "words"), [
    (lambda: ef.nn.regularizers.L1(-1.0), "-1.0 is not a factor"),
    (lambda: ef.nn.regularizers.L2(np.inf), "inf is not a factor"),
    (lambda: ef.nn.regularizers.L2("much"), "'much' is not a factor"),
    (lambda: ef.nn.regularizers.OrthogonalRegularizer(mode="all"), "'all' is not a mode"),
    (lambda: ef.nn.constraints.MaxNorm(-1.0), "-1.0 is not a length"),
    (lambda: ef.nn.constraints.MinMaxNorm(rate=2.0), "2.0 is not a rate"),
    (lambda: ef.nn.constraints.get("max_nrm"), "'max_norm'"),
])  # fmt: skip
def test_bad_arguments(make, words):
    with pytest.raises(ef.errors.ArgumentError, match=words):
        make()


def test_only_matrices_have_rows():
    with pytest.raises(ef.errors.ShapeError, match="only matrices have rows and columns"):
        ef.nn.regularizers.OrthogonalRegularizer()(ef.ones((2, 2, 2)))
