"""Graphs and plans in a notebook."""

import re

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Value, Values
from tests.graph.graphs import chain
from tests.graph.test_drawing import blocks
from tests.notebook.pages import HOSTILE, contrast, found, parsed, view, words


def network(n=60):
    w = ef.Variable(np.ones((n, 8), "float32"), name="w")

    def f(x):
        hidden = ef.tanh(x @ w)
        w.assign_add(0.5)
        return {"y": ef.softmax(hidden), "s": hidden.sum()}

    return ef.capture.trace(f, ef.TensorSpec(("batch", n), "float32", name="x"))


def test_graphs_show_picture_and_listing():
    graph = network()
    root = view(graph)
    assert root[0].text == repr(graph)
    boxes = [text.text for text in found(root, "text")]
    assert set("x w matmul tanh softmax y s".split()) <= set(boxes)
    assert words(found(root, "pre")[0]).startswith("graph f(x: float32[batch, 60]):")


def test_pictures_have_the_colours_of_the_page():
    root = view(network())
    assert {text.get("fill") for text in found(root, "text")} == {"currentColor"}
    svg = found(root, "svg")[0]
    assert not [part for part in svg if part.get("fill") == "#ffffff"]  # no paper of their own
    # Ids would meet those of other pictures on the page.
    assert not [part for part in root.iter() if part.get("id")]


def test_files_of_pictures_are_dark_where_the_viewer_is():
    svg = network().to_svg()
    if "eagerflow-graph" not in svg:
        pytest.skip("Graphviz has drawn it")
    light = re.search(r'color="(#\w+)".*?<rect [^>]*fill="(#\w+)"', svg, re.DOTALL).groups()
    dark = re.findall(r"(?:color|fill): (#\w+)", svg)
    assert contrast(*light) >= 7 and contrast(*dark) >= 7
    hues = set(re.findall(r'(?:fill|stroke)="(#\w+)"', svg)) - {light[1]}
    assert min(contrast(hue, paper) for hue in hues for paper in (light[1], dark[1])) >= 3


def test_large_graphs_are_shown_in_parts():
    root = view(blocks(40))
    assert len(found(root, "rect")) < 300
    root = view(chain(5_000, ("tanh", "add")))
    assert not found(root, "details") and len(found(root, "rect")) < 400


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_in_graphs_are_text(name):
    x = Value(name, (3,), np.dtype("float32"))
    graph = Graph(name, Values([x]), [], Values([x], [name]))
    parsed(graph._repr_html_())
    traced = ef.capture.trace(
        lambda x: {name: ef.tanh(x)}, ef.TensorSpec((3,), "float32", name=name), name=name
    )
    view(traced)
    view(traced.plan())


def test_plans_show_their_programs():
    plan = network(600).plan(sizes={"batch": 64})
    root = view(plan)
    rows = dict([(cell.text for cell in row) for row in found(root, "tr")])
    assert rows["nodes of the graph"] == str(len(plan.graph.nodes))
    assert rows["generated kernels"] == str(len(plan.kernels))
    program, products = found(root, "pre")
    assert program.text == plan.source() and products.text == plan.explain()
