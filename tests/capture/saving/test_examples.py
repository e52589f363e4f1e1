"""Examples in files: they come back as they were, are checked, and nothing wrong is believed."""

import json
import random

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.capture.saving import examples, file
from eagerflow.errors import ArgumentError, DTypeError, FileFormatError, SessionError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3)).astype("float32")
DTYPES = ["bool", "int32", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def scaled(dtype="float32"):
    w = ef.Variable(ef.ones((3,), dtype=dtype), name="w")

    def scale(x):
        return {"y": x & w if dtype == "bool" else x * w, "n": ef.sum(x, axis=1)}

    return ef.capture.trace(scale, ef.TensorSpec(("batch", 3), dtype))


def with_texts(data, change):
    """The file whose metadata a function has changed."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    words = json.dumps(header, separators=(",", ":")).encode()
    words += b" " * (-len(words) % 8)
    return len(words).to_bytes(8, "little") + words + data[8 + length :]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("examples") / "m.ef"
    scaled().save(path, examples=[{"x": X}, {"x": X[:1]}])
    return path.read_bytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_they_come_back_with_their_bits(dtype, tmp_path):
    path = tmp_path / "m.ef"
    x = ef.asarray(RNG.integers(0, 2, (2, 3))).astype(dtype)
    graph = scaled(dtype)
    graph.save(path, examples=[{"x": x}])
    loaded = ef.capture.load(path)
    (example,) = loaded.examples
    wanted = graph(x)
    for found, expected in (
        (example.inputs["x"], x),
        *((example.outputs[n], wanted[n]) for n in "yn"),
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    examples.check(loaded)
    before = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == before
    loaded.save(path, examples=())
    assert ef.capture.load(path).examples == ()


def test_files_without_examples_are_as_they_were(tmp_path):
    scaled().save(tmp_path / "m.ef")
    assert b'"examples":' not in (tmp_path / "m.ef").read_bytes()
    assert ef.capture.load(tmp_path / "m.ef").examples == ()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"y": X}, ArgumentError, "array for each input"),
        (X, ArgumentError, "mapping"),
        ({"x": X[:, :2]}, ShapeError, "shape"),
        ({"x": X.astype("float64")}, DTypeError, "dtype"),
    ],
)
def test_examples_that_do_not_fit(given, error, words, tmp_path):
    with pytest.raises(error, match=words):
        scaled().save(tmp_path / "m.ef", examples=[given])
    assert not (tmp_path / "m.ef").exists()


def test_graphs_that_assign_have_none(tmp_path):
    count = ef.Variable(0.0)

    def counting(x):
        count.assign_add(1.0)
        return x + count

    graph = ef.capture.trace(counting, ef.TensorSpec((2,), "float32"))
    with pytest.raises(ArgumentError, match="assigns Variables"):
        graph.save(tmp_path / "m.ef", examples=[{"x": [1.0, 2.0]}])


def test_too_many(tmp_path):
    with pytest.raises(FileFormatError, match="too many"):
        scaled().save(tmp_path / "m.ef", examples=[{"x": X}] * 101)


@pytest.mark.parametrize("name", ["y", "n"])
def test_example_with_different_result_is_refused(data, name):
    loaded = file.decode(data)
    outputs = dict(loaded.examples[1].outputs)
    outputs[name] = outputs[name] * 1.01
    loaded.examples = (loaded.examples[0], loaded.examples[1]._replace(outputs=outputs))
    with pytest.raises(SessionError, match=rf"{name}: example 1 .*does not give the result"):
        examples.check(loaded)
    tiny = loaded.examples[0].outputs[name] * (1 + 1e-6)  # as of another processor
    first = loaded.examples[0]
    loaded.examples = (first._replace(outputs=first.outputs | {name: tiny}),)
    examples.check(loaded)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_none(value, tmp_path):
    x = X.copy()
    x[0, 0] = value
    scaled().save(tmp_path / "m.ef", examples=[{"x": x}])
    loaded = ef.capture.load(tmp_path / "m.ef")
    examples.check(loaded)
    (example,) = loaded.examples
    loaded.examples = (example._replace(inputs={"x": ef.tensor(X)}),)
    with pytest.raises(SessionError, match="does not give the result"):
        examples.check(loaded)


ROW = json.dumps({"inputs": [["x", "example/0/x"]], "outputs": [["y", "a"], ["n", "b"]]})
WRONG = [
    ("", "not a list"),
    ("[]", "not a list"),
    ("[\n\n]", "not a list"),
    ("{}", "not a list"),
    ("[\n3\n]", "other fields"),
    ("[\n{}\n]", "other fields"),
    ('[\n{"inputs":[],"outputs":[]}\n]', "other inputs"),
    ('[\n{"inputs":[["z","example/0/x"]],"outputs":[]}\n]', "other inputs"),
    ('[\n{"inputs":[3],"outputs":[]}\n]', "pair of texts"),
    ('[\n{"inputs":[["x",3]],"outputs":[]}\n]', "pair of texts"),
    ('[\n{"inputs":[["x","none"]],"outputs":[]}\n]', "no such tensor"),
    ('[\n{"inputs":[["x","example/0/n"]],"outputs":[]}\n]', "no such tensor"),
    ('[\n{"inputs":[["x","other"]],"outputs":[]}\n]', "another dtype"),
    (
        '[\n{"inputs":[["x","example/0/x"]],'
        '"outputs":[["y","example/0/x"],["n","example/0/n"]]}\n]',
        "one tensor",
    ),
    ("[\n" + ",\n".join(["3"] * 101) + "\n]", "too many examples"),
    ("[\n" + "[" * 100_000 + "\n]", "deeply|too large"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_malformed_examples_are_refused(data, text, words):
    def change(header):
        header["__metadata__"]["examples"] = text
        if '"other"' in text:
            header["example/0/x"]["dtype"] = "I32"
            header["other"] = header.pop("example/0/x")

    with pytest.raises(FileFormatError, match=words):
        file.decode(with_texts(data, change))


def test_a_tensor_of_the_graph_is_no_example(data):
    def change(header):
        text = header["__metadata__"]["examples"].replace("example/1/n", "w")
        header["__metadata__"]["examples"] = text

    with pytest.raises(FileFormatError):
        file.decode(with_texts(data, change))


def test_tensors_that_nothing_uses_are_refused_still(data):
    with pytest.raises(FileFormatError, match="no graph uses"):
        file.decode(with_texts(data, lambda header: header["__metadata__"].pop("examples")))


def check_mutants(data, count, seed, first=b"examples"):
    rng = random.Random(seed)
    loaded = refused = 0
    end = 8 + int.from_bytes(data[:8], "little")
    begin = data.index(first)
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            mutant[rng.randrange(begin, end)] = rng.choice(b'"[]{},:0123xyn/aeiou\\ \x00\xff')
        try:
            file.decode(bytes(mutant))
            loaded += 1
        except FileFormatError:
            refused += 1
    return loaded, refused


def test_mutants(data):
    _, refused = check_mutants(data, 1_500, 0)
    assert refused > 1_000


@pytest.mark.soak
def test_many_mutants(data):
    check_mutants(data, 100_000, 1)
