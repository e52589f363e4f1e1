"""Signatures: choices of a graph's outputs under names, which its file keeps."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.errors import ArgumentError, FileFormatError, SessionError
from eagerflow.files.container import concatenated, pack, parse

X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")


@pytest.fixture
def graph():
    kernel = ef.Variable(np.ones((4, 2), "float32"), name="kernel")

    def network(x, mask):
        with ef.capture.scope("body"):
            features = ef.tanh(x @ kernel)
        return {"scores": ef.softmax(features), "total": ef.sum(features * mask)}

    specs = [ef.TensorSpec(("batch", n), "float32", name=m) for n, m in ((4, "x"), (2, "mask"))]
    return ef.capture.trace(network, *specs)


def saved(graph, path, signatures):
    graph.save(path, signatures=signatures)
    return ef.capture.load(path)


def test_signature_computes_only_required_nodes(graph, tmp_path):
    given = {"classify": ["scores"], "embed": {"features": "body/tanh"}}
    loaded = saved(graph, tmp_path / "m.ef", given)
    embed, classify = loaded.signature("embed"), loaded.signature("classify")
    assert embed.inputs.names == classify.inputs.names == ("x",)
    assert embed.outputs.names == ("features",) and classify.outputs.names == ("scores",)
    assert [node.op.name for node in embed.nodes] == ["matmul", "tanh"]
    assert embed.variables["kernel"] is loaded.variables["kernel"]
    np.testing.assert_array_equal(embed(X)["features"], np.tanh(X @ np.ones((4, 2), "float32")))


def test_files_keep_signatures(graph, tmp_path):
    given = {"b": ["scores", "total"], "a": {"features": "body/tanh"}}
    loaded = saved(graph, tmp_path / "m.ef", given)
    assert loaded.signatures == given | {"b": {"scores": "scores", "total": "total"}}
    assert list(loaded.signatures) == ["b", "a"]
    loaded.save(tmp_path / "again.ef")
    assert (tmp_path / "again.ef").read_bytes() == (tmp_path / "m.ef").read_bytes()
    loaded.save(tmp_path / "without.ef", signatures={})
    assert ef.capture.load(tmp_path / "without.ef").signatures == {}


@pytest.mark.parametrize(("given", "error", "words"), [
    (["scores"], ArgumentError, "mapping"),
    ({"a": "scores"}, ArgumentError, "outputs of 'a'"),
    ({"a": []}, ArgumentError, "not signatures"),
    ({"a": 3}, ArgumentError, "outputs of 'a'"),
    ({"": ["scores"]}, ArgumentError, "letters"),
    ({3: ["scores"]}, ArgumentError, "letters"),
    ({"a": ["x" * 300]}, ArgumentError, "letters"),
    ({"a": ["score"]}, SessionError, "score"),
])  # fmt: skip
def test_invalid_signatures_are_refused(graph, tmp_path, given, error, words):
    with pytest.raises(error, match=words):
        graph.save(tmp_path / "m.ef", signatures=given)
    assert not (tmp_path / "m.ef").exists()


def test_a_signature_that_is_not_there(graph, tmp_path):
    with pytest.raises(ArgumentError, match=r"(?s)no signature 'b'.*one of a"):
        saved(graph, tmp_path / "m.ef", {"a": ["scores"]}).signature("b")


ROW = '["a",[["scores","scores"]]]'


@pytest.mark.parametrize("text", [
    "",
    "[]",
    "[\n\n]",
    "[\n{}\n]",
    '[\n["a"]\n]',
    '[\n["a",3]\n]',
    '[\n["a",[]]\n]',
    '[\n["a",[["scores"]]]\n]',
    '[\n["a",[["scores",3]]]\n]',
    '[\n["a",[["y","scores"],["y","total"]]]\n]',
    '[\n["a",[["y","nothing"]]]\n]',
    f"[\n{ROW},\n{ROW}\n]",
    f"[\n{ROW}\n{ROW}\n]",
    "[\n" + ",\n".join(ROW.replace("a", f"a{n}", 1) for n in range(101)) + "\n]",
])  # fmt: skip
def test_files_that_are_damaged(graph, tmp_path, text):
    path = tmp_path / "m.ef"
    graph.save(path, signatures={"a": ["scores"]})
    data = path.read_bytes()
    container = parse(len(data), lambda start, count: bytearray(data[start : start + count]))
    texts = container.texts | {"signatures": text}
    kernel = np.ones((4, 2), "float32")
    path.write_bytes(concatenated(pack(texts, {"kernel": kernel})))
    with pytest.raises(FileFormatError):
        ef.capture.load(path)
    texts["signatures"] = f"[\n{ROW}\n]"
    path.write_bytes(concatenated(pack(texts, {"kernel": kernel})))
    assert ef.capture.load(path).signatures == {"a": {"scores": "scores"}}
