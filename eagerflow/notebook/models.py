"""Models in a notebook: the table of layers, and the picture of their graph."""

from __future__ import annotations

from typing import Any

from eagerflow.nn.table import layer_rows, total_text
from eagerflow.notebook.graphs import drawn
from eagerflow.notebook.markup import Markup, element, folded, table

MAX_ROWS = 200


def view(model: Any) -> Markup:
    """A Model: layers, shapes and parameters, and the graph of layers if it has one."""
    rows = layer_rows(model)
    shown = [(element("span", name, style="white-space:pre"), *rest) for name, *rest in rows]
    layers = table(("Layer", "Output shape", "Parameters"), shown[:MAX_ROWS], "<<>")
    more = [element("div", f"and {len(rows) - MAX_ROWS:,} more layers")] if rows[MAX_ROWS:] else []
    graph = model.graph
    parts = [] if graph is None else [folded("structure", drawn(graph))]
    title = f'Model "{model.name}" ({type(model).__name__})'
    return element(
        "div", element("code", title), layers, *more, element("div", total_text(model)), *parts
    )
