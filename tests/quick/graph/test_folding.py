"""Long listings are folded where parts repeat, and only there."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eagerflow as ef
from eagerflow.graph.folding import MIN_LINES, fold

SPEC = ef.TensorSpec((4, 4), "float32")


def unfolded(lines):
    """The number of lines that a folded listing stands for."""
    total = 0
    for line in lines:
        found = re.search(r"\.\.\. (\d+) times more", line)
        total += 0 if found else 1
    return total


def test_short_graphs_are_whole():
    graph = ef.capture.trace(lambda x: ef.tanh(x) * 2.0, SPEC)
    assert str(graph) == graph.text() == graph.text(whole=False)


def test_equal_scopes_are_counted():
    def net(x):
        for i in range(40):
            with ef.capture.scope(f"block_{i}"):
                x = x + ef.tanh(x @ x)
                with ef.capture.scope("attention"):
                    x = ef.softmax(x)
        return x

    graph = ef.capture.trace(net, SPEC)
    whole, shown = graph.text().splitlines(), str(graph).splitlines()
    assert len(whole) > 300 and len(shown) < 35
    assert "  in block_1:" in shown and "  in block_2:" not in shown
    assert any(re.fullmatch(r" +\.\.\. 38 times more, up to block_39\S*", line) for line in shown)
    assert shown[-1] == f"  {len(whole)} lines in all, by graph.text()"
    assert "… letters" not in graph._repr_html_() and "38 times more" in graph._repr_html_()


def test_equal_layers_and_their_variables_are_counted():
    layers = [ef.nn.Dense(8, activation="relu") for _ in range(50)]
    graph = ef.nn.Sequential([ef.nn.Input((8,)), *layers]).prediction_graph()
    shown = str(graph)
    assert len(shown.splitlines()) < 35 and len(re.findall("times more", shown)) == 2


@pytest.mark.parametrize("odd", [0, 1, 33, 58, 59])
def test_what_differs_is_shown(odd):
    def net(x):
        for i in range(60):
            x = ef.tanh(x @ x) * (2.5 if i == odd else 2.0)
        return x

    shown = str(ef.capture.trace(net, SPEC))
    assert "2.5" in shown and "times more" in shown


def test_lines_that_are_wired_otherwise_are_no_copies():
    for name in ("x_{0} = f(x_{1})", "x_{0}: float{0}[4]", "x_{0}: float32[{0}]", "x = f({0}.0)"):
        moved = [name.format(i, 7 * i * i % 1000) for i in range(120)]
        assert fold(moved) == moved


def test_sizes_values_and_dtypes_make_a_difference():
    for form in ("x: float32[{}]", "x: float32[2] = f(y, {}.5)", "x: {}[2]", "f(1e+{})"):
        values = ["float16", "float32"] * 60 if form == "x: {}[2]" else range(120)
        lines = [form.format(v) for v in values]
        shown = fold(lines)
        assert len(shown) == 3 if "{}[2]" in form else shown == lines


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["a_1", "a_2", "  in b_1:", "", "c = d"]), max_size=8),
    st.integers(1, 60),
)
def test_folded_lines_are_lines_of_the_listing(copy, count):
    lines = [f"head_{i * i}" for i in range(MIN_LINES)] + copy * count + ["end"]
    shown = fold(lines)
    assert unfolded(shown) <= len(lines)
    assert [x for x in shown if "times more" not in x][-1] == "end"
    assert {x for x in shown if "times more" not in x} <= set(lines)
