"""Programs of Keras's users run with their imports changed, and the numbers are Keras's."""

import os

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.programs import PROGRAMS

by_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


@by_program
def test_captured_training_is_eager_training(program):
    found = []
    for eagerly in (False, True):
        ef.random.seed(0)
        model, data = program(ef.nn)
        model.run_eagerly = eagerly
        history = model.fit(**data, epochs=2, batch_size=16, shuffle=False, verbose=0)
        found.append((history.history, model.get_weights()))
    (captured, weights), (eager, others) = found
    assert captured.keys() == eager.keys()
    for name, values in captured.items():
        np.testing.assert_allclose(values, eager[name], rtol=1e-4, atol=1e-5)
    for a, b in zip(weights, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@by_program
def test_numbers_are_those_of_keras(program):
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    pytest.importorskip("jax", reason="JAX is not installed")
    ours, data = program(ef.nn)
    theirs, _ = program(keras)
    theirs_weights = theirs.get_weights()
    assert [w.shape for w in ours.get_weights()] == [w.shape for w in theirs_weights]
    ours.set_weights(theirs_weights)
    how = {"epochs": 3, "batch_size": 16, "shuffle": False, "verbose": 0}
    a, b = ours.fit(**data, **how).history, theirs.fit(**data, **how).history
    assert set(a) == set(b)
    for name, values in b.items():
        np.testing.assert_allclose(a[name], values, rtol=2e-4, atol=1e-5, err_msg=name)
    for x, y in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-4)
    x, y = data["x"], data["y"]
    ev, theirs_ev = (m.evaluate(x, y, verbose=0, return_dict=True) for m in (ours, theirs))
    for name, value in theirs_ev.items():
        np.testing.assert_allclose(ev[name], value, rtol=2e-4, atol=1e-5)
    for p, q in zip(
        ef.tree.flatten(ours.predict(x, verbose=0))[0],
        ef.tree.flatten(theirs.predict(x, verbose=0))[0],
        strict=True,
    ):
        np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-5)
