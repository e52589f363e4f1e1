"""What cannot be saved or loaded, and how it is said; the limits; what other writers may do."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

import eagerflow as ef
from eagerflow.capture.saving import decoding, encoding, file
from eagerflow.errors import ArgumentError, CaptureError, FileFormatError, ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.op import custom_op, ops
from tests.capture.saving.saved_programs import (
    FLOAT32,
    changed,
    dense,
    joined,
    loaded,
    pieces,
    sections,
    spec,
    text_of,
    training_step,
    with_text,
)


def traced(f, *specs):
    return ef.capture.trace(f, *specs)


# Refusals ----------------------------------------------------------------------------------------


def test_versions():
    base = file.encode(dense())
    newer = changed(base, lambda t: t["ops"][0].__setitem__(1, 2))
    with pytest.raises(FileFormatError, match="another version of the op 'add'") as caught:
        file.decode(newer)
    assert "version 2" in str(caught.value) and "update eagerflow" in str(caught.value)
    older = changed(base, lambda t: t["ops"][0].__setitem__(1, 0))
    with pytest.raises(FileFormatError, match="save the graph again"):
        file.decode(older)
    header, arrays = pieces(base)
    header["__metadata__"]["version"] = "2"
    with pytest.raises(FileFormatError, match="unsupported version of the format") as caught:
        file.decode(joined(header, arrays))
    assert "update eagerflow" in str(caught.value)


def test_op_with_added_results_reads_older_files():
    def program(q, mask):
        return ef.tanh(ef.dot_product_attention(q, q, q, mask, is_causal=True))

    graph = traced(program, spec("b", 1, 4, 2), spec(4, 4))
    base = file.encode(graph)

    def as_of_then(tables):
        """One result, so that the numbers of later values are smaller by one."""
        tables["ops"][0][1] = 1
        tables["nodes"][0][5].pop()
        (whole,) = tables["graphs"]
        whole["outputs"][0][1] -= 1
        whole["results"][0]["value"] -= 1

    older = changed(base, as_of_then)
    found = file.decode(older)
    q, mask = np.random.default_rng(0).standard_normal((3, 1, 4, 2)), np.zeros((4, 4))
    given = [ef.tensor(x, dtype="float32") for x in (q, mask)]
    np.testing.assert_array_equal(found(*given), graph(*given))
    rules = [g.gradient("output", "q")(*given) for g in (found, graph)]
    np.testing.assert_array_equal(rules[0]["gradient/q"], rules[1]["gradient/q"])
    again = file.encode(found)
    assert sections(again)["ops"][0] == ["dot_product_attention", 2]
    assert file.encode(file.decode(again)) == again

    def too_wide(tables):
        as_of_then(tables)
        tables["types"][0][1] = [3, 4, 2]

    with pytest.raises(FileFormatError, match="the op refuses its inputs"):
        file.decode(changed(base, too_wide))
    with pytest.raises(FileFormatError, match="not those of the op"):
        file.decode(changed(older, lambda t: t["ops"][0].__setitem__(1, 2)))


def test_an_attribute_that_came_since_has_its_default():
    graph = traced(lambda x: ef.max_pool(x, 2), spec(1, 4, 4, 1))
    base = file.encode(graph)

    def as_of_then(tables):
        tables["ops"][0][1] = 1
        for name in ("dilation", "ceil_mode"):
            del tables["attributes"][0][name]

    found = file.decode(changed(base, as_of_then))
    assert file.encode(found) == base

    def strange(tables):
        as_of_then(tables)
        tables["attributes"][0]["more"] = 1

    for change in (strange, lambda tables: tables["ops"][0].__setitem__(1, 0)):
        with pytest.raises(FileFormatError, match=r"are not those of max_pool|another version"):
            file.decode(changed(base, change))
    with pytest.raises(FileFormatError, match="are not those of max_pool"):
        file.decode(changed(base, lambda tables: tables["attributes"][0].pop("dilation")))


def test_a_files_own_layout_may_come_from_the_library(tmp_path):
    """Tensors in another order and keys with blanks, as other writers of the format have them."""
    graph = training_step()
    header, arrays = pieces(file.encode(graph))
    order = sorted(name for name in header if name != "__metadata__")
    new, parts, at = {}, [], 0
    for name in order:
        start, stop = header[name]["data_offsets"]
        new[name] = header[name] | {"data_offsets": [at, at + stop - start]}
        parts.append(arrays[start:stop])
        at += stop - start
    new["__metadata__"] = header["__metadata__"]
    again = file.decode(joined(json.dumps(new, indent=1) + "   ", b"".join(parts)))
    assert file.encode(again) == file.encode(graph)


def test_a_file_of_weights_alone(tmp_path):
    save_file({"w": np.ones(3, np.float32)}, tmp_path / "w.safetensors")
    with pytest.raises(FileFormatError, match="holds tensors, but no graph"):
        ef.capture.load(tmp_path / "w.safetensors")


def test_functions_of_the_users_own_are_refused():
    x = Value("x", (2,), FLOAT32)
    node = Node(custom_op("mine", lambda g: g), (x,), {}, "mine")
    node.outputs = (Value("mine", (2,), FLOAT32, None, node),)
    refused_by(
        Graph("g", Values([x]), [node], Values(node.outputs)),
        "'mine' is a function of your own and cannot be saved",
    )


def refused(graph, words, tmp_path):
    path = tmp_path / "model.ef"
    dense().save(path)
    before = path.read_bytes()
    with pytest.raises(FileFormatError, match=words) as caught:
        graph.save(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.ef"]


class Odd:
    """Not a value that can be saved."""


def test_results_that_cannot_be_saved(tmp_path):
    for leaf in (Odd(), np.ones(2), {1, 2}, len, 2**1025, b"bytes"):
        refused(
            traced(lambda x, leaf=leaf: (x, leaf), spec()), "cannot be saved|too large", tmp_path
        )
    for nest in ({1.5: 0, float("nan"): 1}, {Odd: 1}, {("a", Odd): 1}):
        refused(traced(lambda x, nest=nest: (x, nest), spec()), "with the key", tmp_path)
    deep = 1
    for _ in range(70):
        deep = [deep]
    refused(traced(lambda x: (x, deep), spec()), "so deep", tmp_path)


def test_graphs_that_break_rules_are_not_saved(tmp_path):
    graph = dense()
    graph.nodes[0].outputs[0].dtype = np.dtype("float64")
    with pytest.raises(CaptureError):
        graph.save(tmp_path / "model.ef")
    assert os.listdir(tmp_path) == []


def test_limits_of_size(monkeypatch, tmp_path):
    graph = dense()
    monkeypatch.setattr(encoding, "MAX_NODES", 5)
    refused_by(graph, "more than 5 nodes")
    monkeypatch.setattr(encoding, "MAX_NODES", 6)
    monkeypatch.setattr(encoding, "MAX_ITEMS", 20)
    refused_by(graph, "graphs that are too large")
    monkeypatch.setattr(encoding, "MAX_ITEMS", 500_000)
    monkeypatch.setattr("eagerflow.files.container.MAX_HEADER", 1000)
    refused_by(graph, "too large for one file")
    monkeypatch.setattr("eagerflow.files.container.MAX_ARRAYS", 1)
    refused_by(graph, "too many tensors")


def refused_by(graph, words):
    with pytest.raises(FileFormatError, match=words):
        file.encode(graph)


def test_sizes_too_complicated_to_be_saved():
    many = sum((ef.Dim(f"n{i}") for i in range(300)), start=ef.Dim("n"))
    refused_by(traced(lambda x: x, ef.TensorSpec((many,), "float32")), "too complicated")
    deep = ef.Dim("n")
    for _ in range(70):
        deep = (deep + 1) // 2
    refused_by(traced(lambda x: x, ef.TensorSpec((deep,), "float32")), "divided too often")


def test_work_is_counted():
    """A short text may not stand for much work: the count is per letter."""
    data = file.encode(dense())
    text = pieces(data)[0]["__metadata__"]["graph"]
    decoder = decoding.Decoder(text)
    decoder.graph()
    left = decoder._left
    assert left > 0.9 * (16 * len(text) + 1_000_000)
    with pytest.raises(FileFormatError, match="too often"):
        decoder.spend(left + 1)


def test_the_largest_that_is_saved_is_loaded():
    """Long rows just within the limits pass both ways."""
    names = [f"n{i}" for i in range(20_000)]
    x = Value("x", (), FLOAT32)
    graph = Graph("g", Values([x]), [], Values([x] * 20_000, names))
    assert loaded(graph).outputs.names == tuple(names)


def test_with_text_makes_the_same_file():
    """The helpers of the tests change nothing by themselves."""
    data = file.encode(dense())
    again = with_text(data, text_of(sections(data)))
    assert file.encode(file.decode(again)) == data


@pytest.mark.parametrize(("carries", "sequences"), [(2, 2), (3, 0), (1, 3), (-1, 1)])
def test_scans_of_more_operands_than_there_are(carries, sequences):
    body = ef.capture.trace(lambda a, b: (a + b, a), *[ef.TensorSpec((2,), "float32")] * 2)
    counts = {"carries": carries, "sequences": sequences, "length": 3}
    with pytest.raises((ShapeError, ArgumentError)):
        ops["scan"].infer(*[ef.TensorSpec((2,), "float32")] * 2, body=body, **counts)
