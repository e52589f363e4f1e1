"""Mistakes: each error names the place and says what to do, and nothing has changed after it."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, EagerflowError, FileFormatError, ShapeError
from eagerflow.nn import callbacks
from eagerflow.nn.layer import layer_classes
from tests.nn import mistakes, mistakes_with_layers
from tests.nn.mistakes import X, Y, fit, made, network

ROWS = [
    pytest.param(mistake, *answer.split(": ", 1), id=f"{group}: {name}")
    for group, rows in (mistakes.GROUPS | mistakes_with_layers.GROUPS).items()
    for name, (mistake, answer) in rows.items()
]


def test_there_are_many():
    assert len({row.id for row in ROWS}) == len(ROWS) >= 100


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("mistake", "error", "words"), ROWS)
def test_a_mistake_is_answered(mistake, error, words):
    ef.random.seed(0)
    net = network()
    before = net.get_weights()
    with pytest.raises(getattr(ef.errors, error)) as caught:
        mistake(net)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    print(text)
    missing = [word for word in words.split() if word not in text]
    assert not missing, f"{missing} in\n{text}"
    assert isinstance(caught.value, EagerflowError)
    assert "expected:" in text or "try:" in text, text
    for old, new in zip(before, net.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
    net.compile("sgd", "sparse_categorical_crossentropy")
    assert np.isfinite(net.train_on_batch(X, Y))


# Found after some training, or only warned of -------------------------------------------------


@pytest.mark.parametrize(
    ("mistake", "error", "words"),
    [
        (
            lambda net: fit(net, iter([(X, Y)]), None, steps_per_epoch=3),
            ShapeError,
            r"fit: x: the data ended after 1 of 3 steps(?s:.*)try: an iterator ends .* a list",
        ),
        (
            lambda net: fit(net, iter([(X, Y)]), None, epochs=2),
            ShapeError,
            r"fit: x: the iterable gave no batch(?s:.*)try: an iterator ends after one epoch",
        ),
        (
            lambda net: fit(net, callbacks=[callbacks.ReduceLROnPlateau()]),
            ArgumentError,
            r"monitor: there is no 'val_loss'(?s:.*)'loss', 'accuracy'(?s:.*)validation_split",
        ),
        (
            lambda net: fit(net, validation_data=(X[:, :3], Y)),
            ShapeError,
            r"InputLayer .* inputs: (?s:.*)shape \(12, 3\)(?s:.*)\(batch, 4\)",
        ),
    ],
)
def test_late_mistakes_leave_a_model_that_trains(mistake, error, words):
    net = network()
    with pytest.raises(error, match=words):
        mistake(net)
    assert len(fit(net).epoch) == 1


@pytest.mark.parametrize("x", [np.full_like(X, np.nan), np.full_like(X, np.inf)])
def test_nan_loss_warns_once(x):
    with pytest.warns(
        UserWarning, match=r"loss of 'net' is nan after epoch 1: ef.debug_nans\(\)"
    ) as told:
        fit(network(), x, epochs=3)
    assert len(told) == 1


def test_fitting_a_frozen_model_warns():
    net = network()
    net.trainable = False
    before = net.get_weights()
    with pytest.warns(UserWarning, match="'net' has no weights to train: all are frozen"):
        fit(net)
    np.testing.assert_array_equal(net.get_weights()[0], before[0])


def test_functions_in_files(tmp_path):
    doubled = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Lambda(lambda x: x * 2)])
    with pytest.warns(UserWarning, match="saved without its configuration"):
        doubled.save(tmp_path / "model.ef")
    with pytest.raises(
        FileFormatError, match=r"a Python function(?s:.*)try: make the model in code"
    ):
        ef.nn.load_model(tmp_path / "model.ef")


def test_a_class_that_is_not_there_is_named(tmp_path):
    made().save(tmp_path / "model.ef")
    for name in [name for name in layer_classes if name.endswith(">Mine")]:
        del layer_classes[name]
    with pytest.raises(FileFormatError, match=r"no '.*Mine'(?s:.*)custom_objects={'Mine': Mine}"):
        ef.nn.load_model(tmp_path / "model.ef")
