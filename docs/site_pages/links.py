"""Links that pages and docstrings do not have to write: from a public name to the reference."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

_NAME = re.compile(r"(ef(?:\.[A-Za-z_]\w*)+)(?:\(.*\))?", re.DOTALL)


class LinksToNames(SphinxPostTransform):
    """A literal that is a public name, with or without a call, leads to its place in the reference.

    Names in headings, in links and in signatures stay as they are.
    """

    default_priority = 400
    builders = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Replace literals by references around them."""
        known = self.env.domains.python_domain.objects
        for literal in list(self.document.findall(nodes.literal)):
            found = _NAME.fullmatch(literal.astext())
            if found is None or self._stays(literal):
                continue
            entry = known.get(found[1])
            if entry is None or self._is_here(literal, entry.node_id):
                continue
            link = make_refnode(
                self.app.builder,
                self.env.current_document.docname,
                entry.docname,
                entry.node_id,
                literal.deepcopy(),
                found[1],
            )
            literal.replace_self(link)

    @staticmethod
    def _stays(literal: nodes.Node) -> bool:
        kinds = (nodes.reference, nodes.title, addnodes.desc_signature)
        parent = literal.parent
        while parent is not None:
            if isinstance(parent, kinds):
                return True
            parent = parent.parent
        return False

    @staticmethod
    def _is_here(literal: nodes.Node, name: str) -> bool:
        """Whether the literal stands in the description of that very name."""
        parent = literal.parent
        while parent is not None:
            if isinstance(parent, addnodes.desc) and any(
                name in signature["ids"] for signature in parent.findall(addnodes.desc_signature)
            ):
                return True
            parent = parent.parent
        return False
