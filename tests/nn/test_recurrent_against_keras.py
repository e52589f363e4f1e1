"""What tables do not show of recurrent layers, against Keras: arguments, states over batches."""

import inspect

import numpy as np
import pytest

import eagerflow as ef
from tests.nn.peers import keras_on_torch, leaves

keras = keras_on_torch()

pytestmark = pytest.mark.sampled(2)

X = np.random.default_rng(0).normal(size=(3, 6, 4)).astype("float32")
MASK = np.random.default_rng(1).random((3, 6)) < 0.6
MASK[:, [0, -1]] = True  # what comes out of a masked first step differs among Keras's backends
NAMES = """SimpleRNN LSTM GRU SimpleRNNCell LSTMCell GRUCell StackedRNNCells RNN ConvLSTM1D
    ConvLSTM2D ConvLSTM3D Bidirectional TimeDistributed"""


def both(name, *args, **kwargs):
    """Our layer and Keras's, with the same weights."""
    ours, theirs = (getattr(m, name)(*args, **kwargs) for m in (ef.nn, keras.layers))
    ours(X)
    theirs(X)
    values = [np.random.default_rng(2).normal(size=w.shape) * 0.5 for w in ours.weights]
    ours.set_weights(values)
    theirs.set_weights(values)
    for layer in (ours, theirs):
        if kwargs.get("stateful"):
            layer.reset_state()
    return ours, theirs


def agree(ours, theirs):
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", NAMES.split())
def test_arguments_and_defaults(name):
    ours, theirs = (
        inspect.signature(getattr(m, name).__init__).parameters for m in (ef.nn, keras.layers)
    )
    for key, parameter in theirs.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            assert ours[key].default == parameter.default, key


@pytest.mark.parametrize("options", [{}, {"go_backwards": True}, {"activation": "softsign"}])
@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM", "GRU"])
def test_states_over_batches(name, options):
    more = {"stateful": True, "return_sequences": True, "return_state": True} | options
    ours, theirs = both(name, 3, **more)
    for mask in (None, MASK, MASK[::-1].copy()):
        agree(ours(X, mask=mask), theirs(X, mask=mask))
    ours.reset_state()
    theirs.reset_state()
    agree(ours(X), theirs(X))


@pytest.mark.parametrize("options", [{}, {"go_backwards": True}, {"activation": "softsign"}])
@pytest.mark.parametrize("name", ["SimpleRNN", "LSTM", "GRU"])
def test_initial_states(name, options):
    ours, theirs = both(name, 3, return_sequences=True, return_state=True, **options)
    states = [x[:, 0, :3] for x in (X, X[:, ::-1])][: 2 if name == "LSTM" else 1]
    for mask in (None, MASK):
        found = ours(X, initial_state=states, mask=mask)
        agree(found, theirs(X, initial_state=states, mask=mask))
