"""Profiles in a notebook: the table of times, and a table by op."""

from __future__ import annotations

from typing import Any

from eagerflow.notebook.markup import Markup, element, folded, table, text_block

MAX_ROWS = 100


def view(profile: Any) -> Markup:
    """A Profile: its table, and folded rows by op; only a note while it is open."""
    head = element("code", repr(profile))
    if profile.is_open or not profile.begin:
        return element("div", head)
    rows = [
        (row.name, f"{row.calls:,}", f"{row.seconds * 1e3:.3f}")
        for row in profile.by("op")[:MAX_ROWS]
    ]
    by_op = folded("by op", table(("op", "calls", "ms"), rows, "<>>"))
    return element("div", head, text_block(str(profile)), by_op)
