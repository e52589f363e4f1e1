"""Language models token by token, with state, against the whole sequence at once."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError
from eagerflow.graph.rows import mixing

networks = ef.nn.networks


def gpt(**more):
    return networks.GPT(vocabulary=20, context=12, width=16, depth=2, heads=4, **more)


def recurrent(kind=ef.nn.LSTM, **more):
    layers = [ef.nn.Embedding(20, 6), kind(5, return_sequences=True, **more), ef.nn.Dropout(0.5)]
    return ef.nn.Sequential([ef.nn.Input((None,), dtype="int64"), *layers, ef.nn.Dense(20)])


MODELS = {
    "GPT": gpt,
    "LSTM": recurrent,
    "GRU": lambda: recurrent(ef.nn.GRU),
    "SimpleRNN": lambda: recurrent(ef.nn.SimpleRNN),
    "stacked": lambda: networks.lstm_language_model("small", vocabulary=20, units=4),
}


def units(found, wanted):
    """The largest distance, in units in the last place of the largest number."""
    return np.abs(found - wanted).max() / np.spacing(np.abs(wanted).max())


def beginning(graph, rows):
    values = dict(zip(graph.inputs.names, graph.inputs, strict=True))
    return {n: np.zeros((rows, *values[n].shape[1:]), values[n].dtype) for n in graph.state.pairs}


def advance(graph, tokens, state):
    """Logits and state after tokens (batch, length), or (batch,) where a row has one."""
    tokens = tokens.reshape(len(tokens), *[-1] * (len(graph.inputs["tokens"].shape) - 1))
    outputs = graph(tokens, *state.values())
    return outputs["logits"].numpy(), {n: outputs[o].numpy() for n, o in graph.state.pairs.items()}


@pytest.mark.parametrize("name", MODELS)
def test_steps_are_the_whole_sequence(name):
    model = MODELS[name]()
    graph = networks.decoding_graph(model)
    assert mixing(graph, "batch") is None
    assert graph.state.decoder.context == (12 if name == "GPT" else None)
    tokens = np.random.default_rng(0).integers(0, 20, (3, 12))
    whole, state = model(tokens, training=False).numpy(), beginning(graph, 3)
    for i in range(12):
        logits, state = advance(graph, tokens[:, i], state)
        assert units(logits, whole[:, i]) < 64


@pytest.mark.parametrize("parts", [(12,), (5, 1, 6), (1, 8, 3)])
def test_several_tokens_at_once(parts):
    model = gpt()
    graph = networks.decoding_graph(model)
    tokens = np.random.default_rng(2).integers(0, 20, (3, 12))
    whole, state, at = model(tokens, training=False).numpy(), beginning(graph, 3), 0
    for length in parts:
        logits, state = advance(graph, tokens[:, at : at + length], state)
        at += length
        assert units(logits, whole[:, at - 1]) < 64
        assert state["position"].tolist() == [at] * 3


def test_each_row_is_at_a_position_of_its_own():
    model = gpt()
    graph = networks.decoding_graph(model, context=8)
    tokens = np.random.default_rng(1).integers(0, 20, (2, 8))
    _, first = advance(graph, tokens[:1, 0], beginning(graph, 1))
    _, first = advance(graph, tokens[:1, 1], first)
    both = {n: np.concatenate([x, beginning(graph, 1)[n]]) for n, x in first.items()}
    logits, both = advance(graph, np.asarray([tokens[0, 2], tokens[1, 0]]), both)
    whole = model(tokens, training=False).numpy()
    assert units(logits[0], whole[0, 2]) < 64 and units(logits[1], whole[1, 0]) < 64
    assert both["position"].tolist() == [3, 1] and both["keys_0"].shape == (2, 4, 8, 4)


def test_later_positions_do_not_affect_decoding():
    model = gpt()
    graph = networks.decoding_graph(model)
    state = beginning(graph, 1)
    dirty = {n: x if n == "position" else x + 7 for n, x in state.items()}
    found, wanted = (advance(graph, np.asarray([5]), s)[0] for s in (dirty, state))
    np.testing.assert_array_equal(found, wanted)


def test_it_goes_into_the_file(tmp_path):
    graph = networks.decoding_graph(gpt())
    graph.save(tmp_path / "gpt.ef")
    assert ef.capture.load(tmp_path / "gpt.ef").state == graph.state


@pytest.mark.parametrize(
    ("model", "context", "words"),
    [
        (gpt, 13, "context"),
        (gpt, 0, "context"),
        (recurrent, 8, "context"),
        (lambda: recurrent(go_backwards=True), None, "token by token"),
        (lambda: ef.nn.Sequential([ef.nn.Input((3,)), ef.nn.Dense(2)]), None, "token by token"),
        (networks.lenet5, None, "token by token"),
    ],
)
def test_models_without_decoding_steps_are_refused(model, context, words):
    with pytest.raises(ArgumentError, match=words):
        networks.decoding_graph(model(), context)
