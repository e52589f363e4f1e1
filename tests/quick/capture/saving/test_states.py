"""State in files: it comes back as it was declared, is checked, and nothing wrong is believed."""

import json

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.saving import file
from eagerflow.errors import ArgumentError, DTypeError, FileFormatError, ShapeError
from eagerflow.graph.state import Decoder, State, declared
from tests.capture.saving.test_examples import check_mutants, with_texts

BEGIN = np.asarray([1.0, -2.0], "float32")
PAIRS = {"h": ("h_next", BEGIN), "n": "n_next"}
DECODER = {"tokens": "t", "logits": "y", "context": 9}


def decoding(shape=("batch",), logits=("batch", 4), dtype="int64"):
    def step(t, h, n):
        row = h[:, :1] + ef.zeros((4,), dtype="float32")
        y = row if len(logits) == 2 else row[:, None] + t[..., None].astype("float32")
        return {"y": y, "h_next": h * 2.0, "n_next": n + 1, "wide": ef.concat([h, h], axis=1)}

    rows = ef.TensorSpec(("batch", 2), "float32")
    count = ef.TensorSpec(("batch",), "int64")
    return ef.capture.trace(step, ef.TensorSpec(shape, dtype), rows, count)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("states") / "m.ef"
    decoding().save(path, state=PAIRS, decoder=DECODER)
    return path.read_bytes()


def test_it_comes_back(data, tmp_path):
    loaded = file.decode(data)
    assert loaded.state.pairs == {"h": "h_next", "n": "n_next"}
    assert loaded.state.decoder == Decoder("t", "y", 9)
    assert list(loaded.state.initial) == ["h"]
    np.testing.assert_array_equal(loaded.state.initial["h"].numpy(), BEGIN)
    loaded.save(tmp_path / "again.ef")
    assert (tmp_path / "again.ef").read_bytes() == data
    assert file.encode(loaded) == data


def test_it_goes_with_examples(tmp_path):
    given = {"t": [1], "h": np.ones((1, 2), "float32"), "n": [0]}
    decoding().save(tmp_path / "m.ef", state=PAIRS, examples=[given])
    loaded = ef.capture.load(tmp_path / "m.ef")
    assert loaded.state.decoder is None and len(loaded.examples) == 1


def test_files_without_state_are_as_they_were(tmp_path):
    decoding().save(tmp_path / "m.ef")
    assert b'"state":' not in (tmp_path / "m.ef").read_bytes()
    assert ef.capture.load(tmp_path / "m.ef").state is None


def test_state_without_rows_begins_whole():
    specs = [ef.TensorSpec((2,), "float32")] * 2
    graph = ef.capture.trace(lambda x, h: {"y": x + h, "h_next": h * x}, *specs)
    found = declared(graph, {"h": ("h_next", BEGIN)})
    assert found.initial["h"].shape == (2,)


@pytest.mark.parametrize(("pairs", "error", "words"), [
    ({}, ArgumentError, "mapping"),
    ("h", ArgumentError, "mapping"),
    ({"z": "h_next"}, ArgumentError, "no input 'z'"),
    ({"h": "z"}, ArgumentError, "no output 'z'"),
    ({"h": ["h_next"]}, ArgumentError, "not a pair"),
    ({"h": ("h_next", BEGIN, 3)}, ArgumentError, "not a pair"),
    ({"h": "n_next"}, DTypeError, "h: .*another dtype"),
    ({"h": "wide"}, ShapeError, "h: .*another shape"),
    ({"h": ("h_next", BEGIN.astype("int32")), "n": "n_next"}, None, ""),
    ({"h": ("h_next", ef.tensor([1, 2]))}, DTypeError, "different dtype"),
    ({"h": ("h_next", BEGIN[:1])}, ShapeError, "different shape"),
])  # fmt: skip
def test_pairs_that_do_not_fit(pairs, error, words, tmp_path):
    if error is None:  # numbers that fit are taken
        assert isinstance(declared(decoding(), pairs), State)
        return
    with pytest.raises(error, match=words):
        decoding().save(tmp_path / "m.ef", state=pairs)
    assert not (tmp_path / "m.ef").exists()


def test_an_output_for_two_inputs_and_a_free_size():
    spec = ef.TensorSpec(("batch", "n"), "float32")
    graph = ef.capture.trace(lambda a, b: {"c": a + b}, spec, spec)
    with pytest.raises(ShapeError, match="free"):
        declared(graph, {"a": "c"})
    spec = ef.TensorSpec(("batch",), "float32")
    graph = ef.capture.trace(lambda a, b: {"c": a + b}, spec, spec)
    with pytest.raises(ArgumentError, match="two inputs"):
        declared(graph, {"a": "c", "b": "c"})


@pytest.mark.parametrize(("graph", "decoder", "error", "words"), [
    ({}, {"tokens": "t"}, ArgumentError, "fields"),
    ({}, 3, ArgumentError, "fields"),
    ({}, {"tokens": "h", "logits": "y"}, ArgumentError, "one input"),
    ({}, {"tokens": ["t"], "logits": "y"}, ArgumentError, "names"),
    ({}, {"tokens": "t", "logits": "h_next"}, ArgumentError, "no such output"),
    ({}, {"tokens": "t", "logits": "y", "context": 0}, ArgumentError, "context"),
    ({}, {"tokens": "t", "logits": "y", "context": True}, ArgumentError, "context"),
    ({"dtype": "float32"}, DECODER, DTypeError, "integers"),
    ({"shape": (3,)}, DECODER, ShapeError, "fit together"),
    ({"shape": ("batch", 3)}, DECODER, ShapeError, "fit together"),
    ({"shape": ("batch", "n"), "logits": ("batch", "n", 4)}, DECODER, None, ""),
    ({"shape": ("batch", "n")}, DECODER, None, ""),
])  # fmt: skip
def test_decoders_that_do_not_fit(graph, decoder, error, words):
    made = decoding(**graph)
    if error is None:
        assert declared(made, PAIRS, decoder).decoder == Decoder("t", "y", 9)
        return
    with pytest.raises(error, match=words):
        declared(made, PAIRS, decoder)


def test_a_decoder_has_state(tmp_path):
    with pytest.raises(ArgumentError, match="mapping"):
        decoding().save(tmp_path / "m.ef", decoder=DECODER)


def text(**change):
    told = {"pairs": [["h", "h_next"], ["n", "n_next"]], "initial": [["h", "state/h"]]}
    told["decoder"] = DECODER
    return json.dumps(told | change)


@pytest.mark.parametrize(("words", "text"), [
    ("other fields", ""),
    ("other fields", "[]"),
    ("other fields", "{}"),
    ("pairs of texts", text(pairs=3)),
    ("pairs of texts", text(pairs=[["h"]])),
    ("pairs of texts", text(pairs=[["h", 3]])),
    ("comes twice", text(pairs=[["h", "h_next"], ["h", "wide"]])),
    ("no input", text(pairs=[["h", "h_next"], ["q", "n_next"]])),
    ("another shape", text(pairs=[["h", "wide"]])),
    ("unknown input", text(initial=[["t", "state/h"]])),
    ("no such tensor", text(initial=[["h", "none"]])),
    ("no graph uses", text(initial=[])),
    ("another dtype|another shape|fit", text(initial=[["n", "state/h"]])),
    ("no object", text(decoder=[1])),
    ("fields", text(decoder={"tokens": "t"})),
    ("one input", text(decoder={"tokens": [], "logits": "y"} | {"tokens": "h"})),
    ("names", text(decoder={"tokens": [], "logits": {}})),
    ("other fields|not JSON", text() + "\n" + text()),
])  # fmt: skip
def test_malformed_state_is_refused(data, text, words):
    def change(header):
        header["__metadata__"]["state"] = text

    with pytest.raises(FileFormatError, match=words):
        file.decode(with_texts(data, change))


def test_mutants(data):
    _, refused = check_mutants(data, 500, 0, b'"state":')
    assert refused > 200
