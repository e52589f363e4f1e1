"""Drawings that take the colours of the page: SVG files of ours, written into the HTML itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform


class InlineDrawings(SphinxPostTransform):
    """An image from ``docs/drawings`` becomes part of the page, where its text has a colour.

    As an image of its own it would not know whether the page is light or dark.
    """

    default_priority = 5
    builders = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Replace the images."""
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.srcdir, image["uri"])
            if path.parent.name == "drawings" and path.suffix == ".svg":
                self.env.note_dependency(image["uri"])
                drawing = path.read_text(encoding="utf-8")
                image.replace_self(
                    nodes.raw("", f'<div class="drawing">{drawing}</div>', format="html")
                )
