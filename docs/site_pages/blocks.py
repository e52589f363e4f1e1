"""Blocks of code without the empty line with which sessions at the prompt end in the pages.

doctest needs it, since the fence below would else be taken for output.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.transforms import SphinxTransform


class TrimmedBlocks(SphinxTransform):
    """A block of code ends with its last line."""

    default_priority = 200

    def apply(self, **kwargs: Any) -> None:
        """Write the blocks anew."""
        for block in list(self.document.findall(nodes.literal_block)):
            text = block.astext().rstrip()
            block.rawsource = text
            block.children = [nodes.Text(text)]
            block.children[0].parent = block
