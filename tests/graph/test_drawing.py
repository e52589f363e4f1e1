"""Pictures of graphs: valid text for Graphviz, SVG that parses, boxes that do not overlap."""

import re
import subprocess
import time
import types
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import extras
from eagerflow.errors import EagerflowError, MissingExtraError
from eagerflow.graph import drawing
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value, Values
from eagerflow.graph.picture import Picture
from tests.graph.graphs import body, chain

SVG = "{http://www.w3.org/2000/svg}"


def spec(*shape):
    return ef.TensorSpec(shape, "float32")


@pytest.fixture(autouse=True)
def no_graphviz(monkeypatch):
    """Pictures are our own, whatever is installed here."""
    monkeypatch.setattr(drawing.shutil, "which", lambda program: None)


def sample():
    w = ef.Variable(ef.ones((3, 3)), name="dense/w")

    def f(x):
        with ef.capture.scope("encoder"), ef.capture.scope("dense"):
            h = ef.tanh(x @ w)
        w.assign(w * 0.5)
        values, places = ef.top_k(h, 2)
        return {"h": h * ef.tensor([1.0, 2.0, 3.0]), "values": values, "places": places}

    return ef.capture.trace(f, spec("batch", 3), name="f")


def blocks(count, inside=5):
    weights = [ef.Variable(ef.ones((3, 3)), name=f"block_{i}/w") for i in range(count)]

    def f(x):
        for i in range(count):
            with ef.capture.scope(f"block_{i}"), ef.capture.scope("dense"):
                for _ in range(inside):
                    x = ef.tanh(x @ weights[i]) + x
        return x

    return ef.capture.trace(f, spec(4, 3), name="blocks")


# Graphviz -----------------------------------------------------------------------------------------

TOKENS = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*")|(->)|([A-Za-z_][A-Za-z_0-9]*|-?[0-9.]+)|([{}\[\]=,;]))', re.DOTALL
)


def parse_dot(text):
    """Boxes with their labels and shapes, edges with their labels, clusters; or AssertionError."""
    at, tokens = 0, []
    text = text.strip()
    while at < len(text):
        match = TOKENS.match(text, at)
        assert match, f"no token at {text[at : at + 40]!r}"
        tokens.append(match[0].strip())
        at = match.end()
    boxes, edges, clusters, depth = {}, [], [], 0
    assert tokens[0] == "digraph" and tokens[2] == "{"
    position = 2
    while position < len(tokens):
        token = tokens[position]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
        elif token == "subgraph":
            clusters.append(tokens[position + 1])
            position += 1
        elif re.fullmatch(r"[no]\d+_\d+", token):
            start, end = token, None
            if tokens[position + 1] == "->":
                end = tokens[position + 2]
                position += 2
            position += 1
            assert tokens[position] == "["
            close = tokens.index("]", position)
            parts = tokens[position + 1 : close]
            named = {parts[i]: parts[i + 2] for i in range(0, len(parts), 4)}
            assert all(parts[i + 1] == "=" for i in range(0, len(parts), 4))
            if end is None:
                assert start not in boxes
                boxes[start] = named
            else:
                edges.append((start, end, named))
            position = close
            assert tokens[position + 1] == ";"
        position += 1
    assert depth == 0
    assert all(start in boxes and end in boxes for start, end, _ in edges)
    return boxes, edges, clusters


def test_dot_has_all_parts():
    boxes, edges, clusters = parse_dot(sample().to_dot())
    shapes = [box["shape"] for box in boxes.values()]
    assert {shape: shapes.count(shape) for shape in set(shapes)} == {
        "ellipse": 1,
        "cylinder": 1,
        "note": 1,
        "box": 5,
        "doubleoctagon": 4,
    }
    assert clusters == ["cluster_0_0", "cluster_0_1"]
    assert sum(edge[2].get("label") == '"float32[batch, 3]"' for edge in edges) == 5
    labels = {box["label"] for box in boxes.values()}
    assert {r'"matmul\nfloat32[batch, 3]"', '"assign dense/w"', '"values"'} <= labels


def test_dot_escapes_names():
    name = 'a "b" \\N {<c>} \n; ->\x00'
    x = Value(name, (3,), np.dtype("float32"))
    graph = Graph(name, Values([x]), [], Values([x], ["y"]))
    boxes, edges, _ = parse_dot(graph.to_dot())
    assert boxes["n0_0"]["label"] == r'"a \"b\" \\N {<c>} \n; ->\\x00\nfloat32[3]"'
    assert len(edges) == 1


def test_bodies_are_clusters_with_a_dashed_edge():
    boxes, edges, clusters = parse_dot(body("outer", inner=body("inner")).to_dot())
    assert len(boxes) == 6 and len(clusters) == 1
    assert [edge[:2] for edge in edges if edge[2].get("style") == "dashed"] == [("o1_0", "n0_1")]


def test_deep_scopes_and_bodies_have_no_bottom():
    graph = body("innermost")
    graph.nodes[0].name = "/".join(["s"] * 3_000)
    for _ in range(2_000):
        graph = body("outer", inner=graph)
    boxes, _, clusters = parse_dot(graph.to_dot())
    assert len(boxes) == 3 * 2_001 and len(clusters) == 2_000 + 2_999


# Our own picture ----------------------------------------------------------------------------------


def assert_no_overlap(picture):
    for layer in picture.layers:
        for a, b in pairwise(sorted(layer, key=lambda box: box.x)):
            assert a.x + a.width / 2 <= b.x - b.width / 2 + 1e-6
    bottoms = [max((b.y + b.height for b in layer), default=0) for layer in picture.layers]
    tops = [min((b.y for b in layer), default=0) for layer in picture.layers]
    assert all(bottom < top for bottom, top in zip(bottoms, tops[1:], strict=False))
    for box in picture.boxes:
        assert box.x - box.width / 2 >= 0 and box.x + box.width / 2 <= picture.width
        assert box.y >= 0 and box.y + box.height <= picture.height


@pytest.mark.parametrize("graph", [sample(), blocks(3), blocks(1, 1)], ids=lambda g: g.name)
@pytest.mark.parametrize("limit", [1, 4, 1_000])
def test_boxes_do_not_overlap(graph, limit):
    picture = Picture(graph, limit)
    assert_no_overlap(picture)
    assert all(edge.start in picture.boxes and edge.end in picture.boxes for edge in picture.edges)


def test_readers_stand_below():
    picture = Picture(blocks(2), 1_000)
    assert picture.edges
    assert all(edge.start.layer < edge.end.layer for edge in picture.edges)


def test_node_without_inputs_is_placed_above_its_reader():
    def f(x):
        for _ in range(5):
            x = ef.tanh(x)
        return x + ef.zeros(3)

    layers = {box.lines[0]: box.layer for box in Picture(ef.capture.trace(f, spec(3)), 99).boxes}
    assert layers["zeros"] == layers["add"] - 1 == 5


def test_many_outputs_are_counted():
    graph = ef.capture.trace(lambda x: [x * float(i) for i in range(30)], spec(3))
    outputs = [box.lines[0] for box in Picture(graph, 10).boxes if box.kind == "output"]
    assert outputs == [f"output_{i}" for i in range(10)] + ["20 more outputs"]


def test_svg_parses_and_shows_all():
    graph = sample()
    root = ElementTree.fromstring(graph.to_svg())
    words = [element.text for element in root.iter(f"{SVG}text")]
    assert root.tag == f"{SVG}svg"
    for name in ("x", "matmul", "tanh", "top_k", "h", "values", "places", "dense/w"):
        assert name in words
    assert "assigned: float32[3, 3]" in words and "[1., 2., 3.]" in words
    tips = [element.text for element in root.iter(f"{SVG}title")]
    assert any("= matmul(x, dense/w)  # test_drawing.py:" in tip for tip in tips)


def test_svg_escapes_names():
    name = '<script>"&\x00\x1b'
    x = Value(name, (3,), np.dtype("float32"))
    graph = Graph(name, Values([x]), [], Values([x], [name]))
    root = ElementTree.fromstring(graph.to_svg())
    assert next(root.iter(f"{SVG}text")).text == '<script>"&\\x00\\x1b'
    ElementTree.fromstring(Picture(graph, 9).svg(on_page=True))


def test_large_graphs_collapse_scope_by_scope():
    graph = blocks(12)
    whole, dense, top = (Picture(graph, limit) for limit in (1_000, 100, 20))
    assert [box.kind for box in whole.boxes].count("node") == len(graph.nodes)
    assert [box.lines[0] for box in top.boxes if box.kind == "group"][:2] == [
        "block_0/dense",
        "block_1/dense",
    ]
    assert top.boxes[1].lines[1:] == ["15 nodes", "1 variable"]
    assert len(dense.boxes) <= 100 + 14


def test_one_scope_is_opened_no_further_than_fits():
    graph = blocks(4)
    names = [box.lines[0] for box in Picture(graph, 4).boxes if box.kind == "group"]
    assert names == [f"block_{i}/dense" for i in range(4)]
    names = [box.lines[0] for box in Picture(graph, 3).boxes if box.kind == "group"]
    assert len(names) == 3


def test_a_hundred_thousand_nodes_are_drawn_in_time():
    graph = chain(100_000, ("tanh", "add"))
    start = time.process_time()
    svg = graph.to_svg()
    assert time.process_time() - start < 30  # a quadratic algorithm would take hours
    assert svg.count("<rect") < 400 and len(svg) < 1_000_000


def test_an_empty_graph_has_a_picture():
    graph = Graph("nothing", Values([]), [], Values([]))
    ElementTree.fromstring(graph.to_svg())
    parse_dot(graph.to_dot())


# Files --------------------------------------------------------------------------------------------


def test_files_by_their_names(tmp_path):
    graph = sample()
    for name in ("a.svg", "a.dot", "a.gv", "a.SVG"):
        assert graph.draw(tmp_path / name) == tmp_path / name
    ElementTree.parse(tmp_path / "a.svg")
    parse_dot((tmp_path / "a.dot").read_text())
    with pytest.raises(EagerflowError, match=r"no pictures of the kind '\.jpg'"):
        graph.draw(tmp_path / "a.jpg")


def test_png_through_matplotlib(tmp_path):
    pytest.importorskip("matplotlib")
    path = sample().draw(tmp_path / "a.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert sample().draw(tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(extras, "load_if_there", lambda module: None)
    with pytest.raises(MissingExtraError) as caught:
        sample().draw(tmp_path / "a.png")
    assert "matplotlib" in str(caught.value)
    assert "pip install 'eagerflow[plot]', or install Graphviz" in str(caught.value)


def test_graphviz_is_used_where_it_is(tmp_path, monkeypatch):
    calls = []

    def run(command, input, **options):
        calls.append((command, input))
        made = b"<?xml?>\n<svg>theirs</svg>" if "-Tsvg" in command else b"\x89PNG theirs"
        return types.SimpleNamespace(returncode=0, stdout=made)

    monkeypatch.setattr(drawing.shutil, "which", lambda program: "/bin/dot")
    monkeypatch.setattr(drawing.subprocess, "run", run)
    assert sample().to_svg() == "<svg>theirs</svg>"
    assert sample().draw(tmp_path / "a.png").read_bytes() == b"\x89PNG theirs"
    assert [command for command, _ in calls] == [["/bin/dot", "-Tsvg"], ["/bin/dot", "-Tpng"]]
    parse_dot(calls[0][1].decode())
    assert "theirs" not in blocks(12).to_svg(limit=20)  # what is collapsed is drawn by us


@pytest.mark.parametrize(
    "failure", [OSError("gone"), subprocess.TimeoutExpired("dot", 1), None], ids=str
)
def test_a_broken_graphviz_does_no_harm(monkeypatch, failure):
    def run(*command, **options):
        if failure is not None:
            raise failure
        return types.SimpleNamespace(returncode=1, stdout=b"")

    monkeypatch.setattr(drawing.shutil, "which", lambda program: "/bin/dot")
    monkeypatch.setattr(drawing.subprocess, "run", run)
    ElementTree.fromstring(sample().to_svg())
