"""Programs of Keras's users run with their imports changed, and the numbers are Keras's."""

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import keras_on_torch
from tests.nn.peers import numbers as array
from tests.nn.programs import SCRIPTS, TRAINED
from tests.nn.programs.libraries import Eagerflow, Keras

FIT = {"epochs": 3, "batch_size": 16, "shuffle": False, "verbose": 0}
by_trained = pytest.mark.parametrize("program", TRAINED, ids=lambda f: f.__name__)
by_script = pytest.mark.parametrize("program", SCRIPTS, ids=lambda f: f.__name__)


@pytest.fixture
def keras():
    found = keras_on_torch()
    found.utils.clear_session()  # it numbers the metrics of a process by their names
    return Keras(found)


def leaves(nest):
    """The arrays of a nest, of dicts in the order of their keys."""
    if isinstance(nest, dict):
        nest = [nest[key] for key in sorted(nest)]
    if isinstance(nest, list | tuple):
        return [leaf for item in nest for leaf in leaves(item)]
    return [np.asarray(array(nest), "float32")]


def agree(a, b, rtol=2e-4, atol=1e-4):
    assert set(a) == set(b)
    for name in b:
        assert not isinstance(b[name], dict) or set(a[name]) == set(b[name])
        for x, y in zip(leaves(a[name]), leaves(b[name]), strict=True):
            assert x.shape == y.shape, name
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=name)


def first(x):
    """Two examples of a nest of arrays."""
    return ef.tree.map_leaves(lambda a: a[:2], x)


def begun(program, library):
    """A compiled model with the weights that all begin from, and what ``fit`` takes."""
    model, data = program(library)
    if not model.built:
        model(first(data["x"]))
    return library.start(model), data


def numbers(model, data):
    """What training leaves behind: histories, evaluations, predictions, weights."""
    found = {"history": model.fit(**data, **FIT).history}
    found["evaluated"] = model.evaluate(data["x"], data.get("y"), verbose=0, return_dict=True)
    found["predicted"] = model.predict(data["x"], verbose=0)
    return found | {"weights": model.get_weights()}


def tolerances(program, **usual):
    """Halves are rounded in other places."""
    return {"rtol": 1e-2, "atol": 2e-2} if program.__name__ == "half_precision" else usual


@pytest.mark.sampled(20)
@by_trained
def test_captured_training_is_eager_training(program):
    found = []
    for eagerly in (False, True):
        model, data = begun(program, Eagerflow())
        model.run_eagerly = eagerly
        found.append(numbers(model, data))
    agree(*found, **tolerances(program, rtol=1e-4, atol=1e-5))


@pytest.mark.sampled(4)
@by_trained
def test_numbers_of_training_are_those_of_keras(program, keras):
    found = [numbers(*begun(program, library)) for library in (Eagerflow(), keras)]
    agree(*found, **tolerances(program, rtol=2e-4, atol=1e-4))


@pytest.mark.sampled(4)
@by_script
def test_captured_scripts_are_eager_scripts(program, monkeypatch, tmp_path):
    captured = program(Eagerflow(), tmp_path / "captured")
    monkeypatch.setattr("eagerflow.nn.compiled_layer.captured_step", lambda step: step)
    agree(captured, program(Eagerflow(), tmp_path / "eager"), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(4)
@by_script
def test_numbers_of_scripts_are_those_of_keras(program, keras, tmp_path):
    try:
        theirs = program(keras, tmp_path / "theirs")
    except ImportError as error:  # of Keras, for texts
        pytest.skip(str(error))
    agree(program(Eagerflow(), tmp_path / "ours"), theirs)
