"""Graphs in a notebook: the picture, and the listing below it."""

from __future__ import annotations

from typing import Any

from eagerflow.graph.graph import MAX_BOXES
from eagerflow.graph.picture import Picture
from eagerflow.graph.text import text
from eagerflow.notebook.markup import Markup, element, folded, text_block, with_image

MAX_LISTED_NODES = 2_000  # of a graph, for the listing to be included


def view(graph: Any) -> Markup:
    """A Graph: its inputs, its picture, and its listing."""
    listing = []
    if len(graph.nodes) <= MAX_LISTED_NODES:
        listing = [folded("listing", text_block(text(graph, whole=False)))]
    return element("div", element("code", repr(graph)), drawn(graph), *listing)


def drawn(graph: Any, limit: int = MAX_BOXES) -> Markup:
    """The picture of a graph, in a scrollable area."""
    picture = Picture(graph, limit)
    shape = f"width:{picture.width:.0f}px;height:{picture.height:.0f}px"
    shown = with_image(Markup(picture.svg(on_page=True)), f"graph {graph.name}", shape)
    return element("div", shown, style="overflow:auto;max-height:640px")
