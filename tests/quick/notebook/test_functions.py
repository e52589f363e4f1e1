"""Captured functions in notebooks: their traces, with reasons and times, and the latest graph."""

import pytest

import eagerflow as ef
from tests.notebook.pages import HOSTILE, found, parsed, words


def cells(root):
    return [[words(cell) for cell in found(row, "td")] for row in found(root, "tr")[1:]]


def test_each_trace_has_its_reason():
    scale = ef.Variable(2.0)
    f = ef.function(lambda x, n: ef.tanh(x) * n * scale)
    assert "not traced yet" in words(parsed(f._repr_html_()))
    f(ef.ones(2), 1.0)
    f(ef.ones((2, 2)), 1.0)
    root = parsed(f._repr_html_())
    rows = cells(root)
    assert [row[:2] for row in rows[:2]] == [
        ["1", "(float32(2,), float)"],
        ["2", "(float32(2, 2), float)"],
    ]
    assert rows[0][2] == "the first call" and "x changed from" in rows[1][2]
    assert all(int(row[3]) >= 3 and row[4].endswith("s") for row in rows[:2])
    assert "2 traces in" in words(root) and found(root, "svg")
    listing, relies = found(root, "pre")
    assert "graph lambda(x: float32[2, 2]" in words(listing) and "scale" in words(relies)


def test_dropped_graphs_are_counted():
    f = ef.function(lambda x: x * 2.0, max_graphs=1)
    for n in (1, 2, 3):
        f(ef.ones((n,) * n))
    assert "3 traces" in words(parsed(f._repr_html_()))
    assert "1 of the graphs kept" in words(parsed(f._repr_html_()))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_names_in_the_view_are_text(text):
    f = ef.function(lambda x, mode: x * 2.0)
    f.python.__name__ = text.replace("\0", "") or "f"
    f(ef.ones(2), text)
    parsed(f._repr_html_())
