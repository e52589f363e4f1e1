"""Simulations of clusters in a notebook: the table, and the details of its last row."""

from __future__ import annotations

from typing import Any

from eagerflow.notebook.markup import Markup, element, folded, table, text_block


def view(simulation: Any) -> Markup:
    """A Simulation: numbers of machines with their steps, and the full text folded."""
    head, rows = simulation.table()
    aligned = ">" * (len(head) - 1) + "<"
    title = f"simulation of {simulation.name}: {simulation.method}"
    return element(
        "div",
        element("code", title),
        table(head, rows, aligned),
        element("div", f"bottleneck: {simulation.last.bottleneck}"),
        folded("in full", text_block(str(simulation))),
    )
