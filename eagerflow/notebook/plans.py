"""Plans in a notebook: their parts and their programs."""

from __future__ import annotations

from typing import Any

from eagerflow.graph.text import bytes_text
from eagerflow.notebook.markup import Markup, element, folded, table, text_block


def view(plan: Any) -> Markup:
    """A Plan: steps, kernels and memory; its program, and the libraries of its matrix products."""
    kernels = plan.kernels
    rows = [
        ("nodes of the graph", f"{len(plan.graph.nodes):,}"),
        ("generated kernels", f"{len(kernels):,}"),
        ("memory of a run", bytes_text(plan.buffer_bytes)),
        ("steps that update Variables in place", f"{len(plan.updates):,}"),
    ]
    parts = [folded("program", text_block(plan.source()))]
    products = plan.explain()
    if products:
        parts.append(folded("products of matrices", text_block(products)))
    return element("div", element("code", repr(plan)), table((), rows, "<>"), *parts)
