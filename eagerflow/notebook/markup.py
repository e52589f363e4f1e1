"""HTML elements, in which all text is escaped that is not HTML already."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from eagerflow.display import escape

# Void elements of HTML; SVG is XML and closes all.
_EMPTY = frozenset(("br", "circle", "img", "line", "path", "polygon", "polyline", "rect"))

BLUE, ORANGE, MAGENTA = "#3b82f6", "#ea580c", "#d6249f"
TEAL, VIOLET, OLIVE, RED = "#0d9488", "#8b5cf6", "#a16207", "#dc2626"
GREY = "#7e7e7e"
"""Colours with a contrast of 3 or more to white and to #111111."""

FAINT = "opacity:.75"
# Set on each element, since notebook pages have rules of their own for them.
MONOSPACE = "font-family:monospace;white-space:pre;text-align:left"
_TABLE = "border-collapse:collapse;margin:.4em 0"
_SUMMARY = "cursor:pointer;display:list-item"  # else some pages hide the triangle
_CELL = "padding:.1em .7em .1em 0;vertical-align:top;"


class Markup(str):
    """Text that is HTML already; other text is escaped when it becomes a part of an element.

    >>> element("b", "1 < 2", element("i", "so"), title='"')
    '<b title="&quot;">1 &lt; 2<i>so</i></b>'
    """

    __slots__ = ()


def element(name: str, *content: str, **attributes: object) -> Markup:
    """``<name key="value">content</name>``; a key's ``_`` stands for ``-``, None leaves it out."""
    keys = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    if name in _EMPTY:
        return Markup(f"<{name}{''.join(keys)} />")
    return Markup(f"<{name}{''.join(keys)}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """The concatenation of texts and HTML."""
    return Markup("".join(p if isinstance(p, Markup) else escape(p) for p in parts))


def folded(title: str, *content: str) -> Markup:
    """Content that is shown when its title is clicked."""
    return element("details", element("summary", title, style=_SUMMARY), *content)


def text_block(text: str, limit: int = 200_000) -> Markup:
    """Preformatted text, truncated to ``limit`` characters."""
    shown = text if len(text) <= limit else f"{text[:limit]}\n… {len(text) - limit:,} letters more"
    return element("pre", shown, style=f"{MONOSPACE};overflow:auto;max-height:480px")


def table(head: Sequence[str], rows: Iterable[Iterable[str]], alignments: str) -> Markup:
    """A table; ``alignments`` has ``<`` or ``>`` for each column; ``head`` may be empty."""
    styles = [
        _CELL + ("text-align:right;white-space:nowrap" if side == ">" else "text-align:left")
        for side in alignments
    ]
    top = [
        element("th", name, style=style, scope="col")
        for name, style in zip(head, styles, strict=bool(head))
    ]
    body = [
        element("tr", *(element("td", cell, style=s) for cell, s in zip(row, styles, strict=True)))
        for row in rows
    ]
    parts = [element("thead", element("tr", *top))] if top else []
    return element("table", *parts, element("tbody", *body), style=_TABLE)


def picture(width: float, height: float, title: str, *content: str) -> Markup:
    """An SVG of this size in pixels, which shrinks with the page."""
    svg = element(
        "svg",
        element("title", title),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        aria_label=title,
        font_family="Helvetica, Arial, sans-serif",
        font_size="11",
        style="display:block;max-width:100%;height:auto",
    )
    shape = f"width:{width:.0f}px;max-width:100%;aspect-ratio:{width:.0f}/{height:.0f}"
    return with_image(svg, title, shape)


def with_image(svg: Markup, title: str, shape: str) -> Markup:
    """An SVG, and as an image below it, which shows only where a notebook is not trusted.

    JupyterLab and others drop the SVG then and leave its text, which has no size here; the image
    keeps its place. ``shape`` is the style with the size of both.
    """
    file = svg.replace("<svg ", f'<svg color="{GREY}" ', 1).encode()
    image = element(
        "img",
        src="data:image/svg+xml;base64," + base64.b64encode(file).decode("ascii"),
        alt=title,
        style="display:block;margin:0;max-width:100%",
    )
    no_text = "font-size:0;line-height:0"
    around = f"display:inline-block;overflow:hidden;vertical-align:top;{no_text};{shape}"
    return element("div", svg, image, style=around)


def label(x: float, y: float, text: str, anchor: str = "start", **more: object) -> Markup:
    """Text in an SVG, in the page's colour."""
    return element(
        "text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, fill="currentColor", **more
    )
