"""Captured functions in a notebook: each trace with its reason and time, and the latest graph."""

from __future__ import annotations

from typing import Any

from eagerflow.graph.text import seconds_text, text
from eagerflow.notebook.graphs import MAX_LISTED_NODES, drawn
from eagerflow.notebook.markup import Markup, element, folded, table, text_block

_HEAD = ("", "arguments", "traced because of", "nodes", "time of the trace")


def view(function: Any) -> Markup:
    """A Function: its traces, the picture of its latest graph, and the state they relied on."""
    history, graphs = function._history, function.graphs
    head = element("code", repr(function))
    if not history.count:
        return element("div", head, element("div", "not traced yet: the first call does it"))
    first = history.count - len(history.last) + 1
    rows = [
        (str(i), told.signature, told.reason, f"{told.nodes:,}", seconds_text(told.seconds))
        for i, told in enumerate(history.last, first)
    ]
    total = sum(told.seconds for told in history.last)
    count = f"{len(rows)} trace{'s' * (len(rows) != 1)}"
    parts = [
        table(_HEAD, rows, "><<>>"),
        element("div", f"{count} in {seconds_text(total)}, {len(graphs)} of the graphs kept"),
    ]
    for graph in graphs[-1:]:
        parts.append(folded(f"graph: {graph!r}", drawn(graph)))
        if len(graph.nodes) <= MAX_LISTED_NODES:
            parts.append(folded("listing", text_block(text(graph, whole=False))))
    parts.append(folded("relies on", text_block(function.ledger() or "nothing")))
    return element("div", head, *parts)
