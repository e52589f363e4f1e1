"""Layers over words and categories: facts, random comparison with Keras, configurations, errors."""

import json
import os

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.nn.fingerprints import farm, sip

WORDS = ["a", "bc", "déf", "g h", "", "a" * 20, "b" * 50, "c" * 300, "[UNK]", "Ä"]


def tolist(x):
    return np.asarray(x).tolist()


def again(layer):
    """A layer made from the configuration of another, written as JSON."""
    return type(layer).from_config(json.loads(json.dumps(layer.get_config())))


# Facts, as TensorFlow has them --------------------------------------------------------------------


def test_fingerprints():
    assert [farm(word.encode()) % 1000 for word in WORDS] == FARM
    assert [sip(word.encode(), (133, 137)) % 1000 for word in WORDS] == SIP


FARM = [939, 279, 154, 741, 263, 870, 311, 497, 280, 402]
SIP = [354, 515, 238, 315, 900, 946, 943, 794, 72, 837]


def test_hashing():
    layer = ef.nn.Hashing(3)
    assert tolist(layer([["A"], ["B"], ["C"], ["D"], ["E"]])) == [[1], [0], [1], [1], [2]]
    masked = ef.nn.Hashing(3, mask_value="")
    assert tolist(masked([["A"], ["B"], [""], ["C"], ["D"]])) == [[1], [1], [0], [2], [2]]
    salted = ef.nn.Hashing(3, salt=[133, 137])
    assert tolist(salted([["A"], ["B"], ["C"], ["D"], ["E"]])) == [[1], [2], [1], [0], [2]]
    assert salted(["A"]).dtype == np.int64
    assert tolist(ef.nn.Hashing(3, output_mode="one_hot")([["A"], ["B"]])) == [[0, 1, 0], [1, 0, 0]]


def test_hashed_crossing():
    layer = ef.nn.HashedCrossing(5, output_mode="one_hot")
    found = layer((np.array(["A", "B"]), np.array([101, 101])))
    assert tolist(found) == [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert tolist(ef.nn.HashedCrossing(5)(([["A"]], [[101]]))) == [[1]]


# Vocabularies -------------------------------------------------------------------------------------


def test_special_tokens_and_modes():
    layer = ef.nn.StringLookup(vocabulary=["a", "b"], mask_token="", num_oov_indices=2)
    assert layer.get_vocabulary() == ["", "[UNK]", "[UNK]", "a", "b"]
    assert layer.get_vocabulary(include_special_tokens=False) == ["a", "b"]
    assert layer.vocabulary_size() == 5
    found = tolist(layer(["", "a", "b", "x", "y"]))
    assert found[:3] == [0, 3, 4] and set(found[3:]) <= {1, 2}
    rows = ef.nn.StringLookup(vocabulary=["a", "b"], mask_token="", output_mode="count")
    assert tolist(rows([["", "a", "a"], ["x", "b", ""]])) == [[0, 2, 0], [1, 0, 1]]
    wide = ef.nn.StringLookup(5, vocabulary=["a"], output_mode="multi_hot", pad_to_max_tokens=True)
    assert tolist(wide([["a"]])) == [[0, 1, 0, 0, 0]]


def test_vocabularies_from_files_and_adapt(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("x\ny\n")
    assert tolist(ef.nn.StringLookup(vocabulary=str(path))(["y", "x", "z"])) == [2, 1, 0]
    layer = ef.nn.StringLookup(max_tokens=3)
    for data in (["b", "a", "b", "c"], [["b", "a"], ["b", "c"]], np.array(["b", "a", "b", "c"])):
        layer.adapt(data)
        assert layer.get_vocabulary() == ["[UNK]", "b", "c"]
    layer.adapt((batch for batch in (["q"], ["r", "q"], ["s"])), steps=2)
    assert layer.get_vocabulary() == ["[UNK]", "q", "r"]


def test_integers():
    layer = ef.nn.IntegerLookup(vocabulary=[5, -7], num_oov_indices=2)
    assert tolist(layer(ef.tensor([[5, -7], [4, 3]]))) == [[2, 3], [0, 1]]
    back = ef.nn.IntegerLookup(vocabulary=[5, -7], invert=True)
    assert tolist(back([0, 1, 2, 9])) == [-1, 5, -7, -1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ef.nn.StringLookup(output_mode="tf_idf"),
        lambda: ef.nn.StringLookup(8, output_mode="tf_idf", pad_to_max_tokens=True),
        lambda: ef.nn.StringLookup(mask_token="a", num_oov_indices=3),
        lambda: ef.nn.StringLookup(num_oov_indices=2, salt=(3, 4)),
        lambda: ef.nn.TextVectorization(4, ngrams=2, output_sequence_length=3),
        lambda: ef.nn.TextVectorization(output_mode="tf_idf"),
    ],
)
def test_configurations_hold_adapted_state(make):
    layer = make()
    layer.adapt([["a"], ["b"], ["a"], ["cd"]])
    inputs = [["a"], ["cd"], ["zz"], ["yy"]]
    other = again(layer)
    np.testing.assert_array_equal(np.asarray(other(inputs)), np.asarray(layer(inputs)))
    assert other.get_config() == layer.get_config()


def test_bins_are_learned_and_configured():
    layer = ef.nn.Discretization(num_bins=4, epsilon=0.01)
    layer.adapt(np.array([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]]))
    found = tolist(layer([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]]))
    assert found == [[0, 2, 3, 2], [1, 3, 3, 1]]
    assert again(layer).bin_boundaries == layer.bin_boundaries
    fine = ef.nn.Discretization([1.0, 1.001], dtype="mixed_bfloat16")
    assert tolist(fine(np.float32([0.999, 1.0005, 1.002]))) == [0, 1, 2]


# Texts --------------------------------------------------------------------------------------------


def test_texts():
    layer = ef.nn.TextVectorization(vocabulary=["a", "cat", "the"], output_sequence_length=3)
    assert tolist(layer(["The CAT, the dog!", "a"])) == [[4, 3, 4], [2, 0, 0]]
    assert tolist(layer([["a cat"]])) == [[2, 3, 0]]
    assert tolist(layer("the")) == [4, 0, 0]
    letters = ef.nn.TextVectorization(split="character", vocabulary=["a", "b"])
    assert tolist(letters(["ab", "bca"])) == [[2, 3, 0], [3, 1, 2]]
    pairs = ef.nn.TextVectorization(ngrams=(2,), vocabulary=["a b"])
    assert tolist(pairs(["a b c", "a"])) == [[2, 1], [0, 0]]
    own = ef.nn.TextVectorization(
        standardize=np.strings.upper, split=lambda texts: [t.split(",") for t in texts]
    )
    own.adapt(["x,y", "y"])
    assert own.get_vocabulary() == ["", "[UNK]", "Y", "X"]
    whole = ef.nn.TextVectorization(split=None, standardize=None, vocabulary=["a b"])
    assert tolist(whole([["a b"], ["c"]])) == [[2], [1]]


def test_words_go_through_a_loader():
    layer = ef.nn.TextVectorization(vocabulary=["cat", "dog"], output_sequence_length=2)
    data = np.array(["a cat", "dog cat", "bird"]), np.arange(3)
    for workers in (0, 2):
        loader = ef.nn.Loader(data, 2, workers=workers).map(lambda x, y: (layer(x), y))
        assert [tolist(x) for x, _ in loader] == [[[1, 2], [3, 2]], [[1, 0]]]


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: ef.nn.CategoryEncoding(0), "ArgumentError", "num_tokens"),
    (lambda: ef.nn.CategoryEncoding(3, "int"), "ArgumentError", "output_mode"),
    (lambda: ef.nn.CategoryEncoding(3, sparse=True), "ArgumentError", "no sparse tensors"),
    (lambda: ef.nn.CategoryEncoding(3)([[1]], count_weights=[[1.0]]), "ArgumentError", "count"),
    (lambda: ef.nn.Discretization(), "ArgumentError", "one of"),
    (lambda: ef.nn.Discretization([1.0], 2), "ArgumentError", "one of"),
    (lambda: ef.nn.Discretization([2.0, 1.0]), "ArgumentError", "not sorted"),
    (lambda: ef.nn.Discretization([1.0]).adapt([1.0]), "ArgumentError", "given already"),
    (lambda: ef.nn.Discretization(num_bins=2)([1.0]), "ArgumentError", "adapt"),
    (lambda: ef.nn.Hashing(3, salt=(1, 2, 3)), "ArgumentError", "salt"),
    (lambda: ef.nn.Hashing(3)([None]), "DTypeError", "no strings"),
    (lambda: ef.nn.HashedCrossing(3)(["a"]), "ShapeError", "two or more"),
    (lambda: ef.nn.HashedCrossing(3)((["a"], ["b", "c"])), "ShapeError", "one shape"),
    (lambda: ef.nn.StringLookup(1), "ArgumentError", "max_tokens"),
    (lambda: ef.nn.StringLookup(vocabulary=[]), "ArgumentError", "empty"),
    (lambda: ef.nn.StringLookup(vocabulary=["a", "a"]), "ArgumentError", r"\['a'\] twice"),
    (lambda: ef.nn.StringLookup(2, vocabulary=["a", "b"]), "ArgumentError", "max_tokens=2"),
    (lambda: ef.nn.StringLookup(vocabulary=["a", ""], mask_token=""), "ArgumentError",
     "special token"),
    (lambda: ef.nn.StringLookup(vocabulary="/none"), "ArgumentError", "cannot be read"),
    (lambda: ef.nn.StringLookup(vocabulary=[1, 2]), "DTypeError", "no strings"),
    (lambda: ef.nn.StringLookup(invert=True, output_mode="count"), "ArgumentError", "invert"),
    (lambda: ef.nn.StringLookup(pad_to_max_tokens=True), "ArgumentError", "max_tokens"),
    (lambda: ef.nn.StringLookup(idf_weights=[1.0]), "ArgumentError", "tf_idf"),
    (lambda: ef.nn.StringLookup(vocabulary=["a"], output_mode="tf_idf"), "ArgumentError",
     "idf_weights"),
    (lambda: ef.nn.StringLookup(vocabulary=["a"], idf_weights=[1.0, 2.0], output_mode="tf_idf"),
     "ArgumentError", r"\(2,\) for 1"),
    (lambda: ef.nn.StringLookup(output_mode="tf_idf")([["a"]]), "ArgumentError", "adapt"),
    (lambda: ef.nn.StringLookup(vocabulary=["a"]).adapt(["b"]), "ArgumentError", "was given"),
    (lambda: ef.nn.StringLookup(vocabulary=["a"], num_oov_indices=0)(["b"]), "ArgumentError",
     r"\['b'\] are not in the vocabulary"),
    (lambda: ef.nn.StringLookup(vocabulary=["a"])([1]), "DTypeError", "no strings"),
    (lambda: ef.nn.IntegerLookup(vocabulary=[1])(["a"]), "DTypeError", "no integers"),
    (lambda: ef.nn.IntegerLookup(salt=1), "ArgumentError", "farmhash"),
    (lambda: ef.function(ef.nn.IntegerLookup(vocabulary=[1]))(ef.tensor([1])), "CaptureError",
     "on the host"),
    (lambda: ef.nn.IntegerLookup(vocabulary=[1])(ef.nn.Input((2,), dtype="int64")),
     "CaptureError", r"Loader\(data\).map"),
    (lambda: ef.nn.TextVectorization(standardize="upper"), "ArgumentError", "standardize"),
    (lambda: ef.nn.TextVectorization(split="words"), "ArgumentError", "split"),
    (lambda: ef.nn.TextVectorization(ngrams=0), "ArgumentError", "ngrams"),
    (lambda: ef.nn.TextVectorization(ragged=True), "ArgumentError", "ragged"),
    (lambda: ef.nn.TextVectorization(output_mode="count", output_sequence_length=3),
     "ArgumentError", "output_sequence_length"),
    (lambda: ef.nn.TextVectorization()([["a", "b"]]), "ShapeError", "cannot be split"),
])  # fmt: skip
def test_mistakes(call, error, words):
    with pytest.raises(getattr(ef.errors, error), match=words):
        call()


def agree(ours, theirs):
    theirs = np.asarray(theirs)
    if theirs.dtype.kind in "SO":
        theirs = [word.decode() for word in theirs.ravel()]
        assert np.asarray(ours).ravel().tolist() == theirs
        return
    assert np.asarray(ours).dtype == theirs.dtype
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-6)


def drawn(rng, words):
    return rng.choice(words, (int(rng.integers(1, 5)), int(rng.integers(1, 5))))


def test_random_layers_match_keras():
    os.environ["KERAS_BACKEND"] = "tensorflow"
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    rng = np.random.default_rng(0)
    checks = 0
    some = np.array([*WORDS, "x", "y", "z"])
    numbers = np.arange(-4, 12)
    for _ in range(300):
        kind = str(rng.choice(["StringLookup", "IntegerLookup", "Hashing"]))
        mode = str(rng.choice(["int", "one_hot", "multi_hot", "count", "tf_idf"]))
        strings = kind == "StringLookup" or (kind == "Hashing" and rng.integers(2))
        values = some if strings else numbers
        if kind == "Hashing":
            options = {"num_bins": int(rng.integers(2, 9)), "output_mode": mode}
            options["output_mode"] = mode.replace("tf_idf", "int")
            options["mask_value"] = rng.choice([None, values[1]])
            options["salt"] = rng.choice([None, 7])
        else:
            oov = int(rng.integers(1, 4))
            options = {"output_mode": mode, "num_oov_indices": oov}
            options["max_tokens"] = rng.choice([None, 8])
            options["mask_token"] = rng.choice([None, values[0]])
            if mode != "int" and options["max_tokens"] is not None:
                options["pad_to_max_tokens"] = bool(rng.integers(2))
            if not strings:
                options["oov_method"] = str(rng.choice(["floormod", "farmhash"]))
        options = {k: v.item() if hasattr(v, "item") else v for k, v in options.items()}
        ours, theirs = getattr(ef.nn, kind)(**options), getattr(keras.layers, kind)(**options)
        if kind != "Hashing":
            data = drawn(rng, values)
            if set(data.ravel().tolist()) <= {"[UNK]", "a", -1, -4}:
                continue  # nothing to learn, which Keras does not take
            ours.adapt(data)
            theirs.adapt(data)
            vocabulary = [tolist(word) for word in theirs.get_vocabulary()]
            assert ours.get_vocabulary() == vocabulary
        inputs = drawn(rng, values)
        agree(ours(inputs), theirs(inputs))
        checks += 1
    assert checks > 200


def test_random_texts_and_bins_match_keras():
    os.environ["KERAS_BACKEND"] = "tensorflow"
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    rng = np.random.default_rng(1)
    pieces = ["The", " ", "cat", "  ", "É", "dog's", "\t", "\u00a0", ",", "ÄB", "!", "x-y", ""]
    texts = ["".join(rng.choice(pieces, rng.integers(1, 12))) for _ in range(200)]
    for _ in range(100):
        mode = str(rng.choice(["int", "multi_hot", "count", "tf_idf"]))
        options = {
            "standardize": rng.choice(
                [None, "lower", "strip_punctuation", "lower_and_strip_punctuation"]
            ),
            "split": rng.choice([None, "whitespace", "character"]),
            "ngrams": [None, 2, (1, 3)][rng.integers(3)],
            "output_mode": mode,
            "max_tokens": rng.choice([None, 9]),
        }
        if options["split"] is None:
            options["ngrams"] = None
        if mode == "int":
            options["output_sequence_length"] = rng.choice([None, 4])
        both = ef.nn.TextVectorization, keras.layers.TextVectorization
        ours, theirs = (f(**options) for f in both)
        data, inputs = rng.choice(texts, 20), rng.choice(texts, 5)
        ours.adapt(data)
        theirs.adapt(data)
        assert ours.get_vocabulary() == [str(word) for word in theirs.get_vocabulary()]
        shape = (5, 1) if options["split"] is None else (5,)
        agree(ours(inputs.reshape(shape)), theirs(inputs.reshape(shape)))
    for _ in range(100):
        bins, epsilon = int(rng.integers(2, 9)), float(rng.choice([0.01, 0.1, 0.3]))
        batches = [rng.normal(size=rng.integers(1, 200)) for _ in range(rng.integers(1, 5))]
        ours = ef.nn.Discretization(num_bins=bins, epsilon=epsilon)
        theirs = keras.layers.Discretization(num_bins=bins, epsilon=epsilon)
        ours.adapt(batches)
        theirs.adapt(batches)
        np.testing.assert_allclose(ours.bin_boundaries, theirs.bin_boundaries, rtol=1e-6)
        x = rng.normal(size=(3, 4)).astype("float32")
        agree(ours(x), theirs(x))
    for _ in range(50):
        columns = [rng.choice(WORDS, 6), rng.integers(-5, 10**9, 6), rng.choice(WORDS, 6)]
        bins = int(rng.integers(2, 99))
        agree(ef.nn.HashedCrossing(bins)(columns), keras.layers.HashedCrossing(bins)(columns))
