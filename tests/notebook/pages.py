"""Parses the views of notebooks, and refuses forbidden contents."""

import base64
from xml.etree import ElementTree

import numpy as np

MAX_LETTERS = 400_000
TAGS = set(
    "b br caption code details div figcaption figure i img p pre progress span strong summary "
    "table tbody td th thead tr svg title text g path rect line circle".split()
)
ATTRIBUTES = set(
    "alt aria-label class cx cy d fill fill-opacity font-family font-size font-weight height max "
    "opacity r role rx scope src stroke stroke-dasharray stroke-opacity stroke-width style "
    "text-anchor title value viewBox width x x1 x2 y y1 y2".split()
)
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</code></pre></div><b>bold</b>",
    "<!--",
    "]]>&lt;&amp;",
    "javascript:alert(1)",
    "a\x00\x1b[2Jb\r\u202ec\ud800",
    "{{7*7}} ${7*7} %s \\",
    "x" * 5_000,
)


def parsed(page):
    """The root of a page, which is well-formed, bounded, and holds nothing that could run."""
    assert len(page) <= MAX_LETTERS
    page.encode()  # no half characters
    root = ElementTree.fromstring(page)
    for part in root.iter():
        tag = part.tag.rpartition("}")[2]
        assert tag in TAGS, tag
        assert set(part.attrib) <= ATTRIBUTES, part.attrib
        if tag == "img":
            kind, _, content = part.get("src").partition(";base64,")
            assert kind in ("data:image/png", "data:image/svg+xml")
            assert part.get("alt")
            if kind.endswith("svg+xml"):
                ElementTree.fromstring(base64.b64decode(content))
        if tag == "svg":
            assert part.get("aria-label")
            assert part[0].tag.endswith("title") and part[0].text is not None
        assert "url(" not in part.get("style", "")
    return root


def view(thing):
    """The root of a thing's page, which is a view, and no words about one that failed."""
    page = thing._repr_html_()
    assert 'title="no view' not in page, page[:400]
    return parsed(page)


def words(root):
    """All text of a page, in its order."""
    return "".join(root.itertext())


def contrast(colour, paper):
    """The contrast of WCAG 2.2 between two colours, such as #3b82f6."""
    levels = np.array([list(bytes.fromhex(c[1:])) for c in (colour, paper)]) / 255
    linear = np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    return float(light.max() / light.min())


def found(root, tag):
    """All elements with a tag."""
    return [part for part in root.iter() if part.tag.rpartition("}")[2] == tag]
