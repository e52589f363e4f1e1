"""The written pages of the documentation, and the blocks of code in them."""

import re
from typing import NamedTuple

from tests.structure.sources import ROOT


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str

    @property
    def first(self):
        return next(iter(self.text.strip().splitlines()), "")

    @property
    def program(self):
        """The file name of a whole program, given in its first line; else None."""
        found = re.fullmatch(r"# (\w+\.py)", self.first)
        return found[1] if found else None


FENCED = re.compile(r"^( *)(```+)([\w{}]*)[^\n]*\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)


def written_pages():
    """Path to text of all Markdown that people read, in the documentation and beside it."""
    found = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    found += ["examples/README.md", "benchmarks/README.md"]
    found += [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "docs").glob("*.md"))]
    found += [
        p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "docs/decisions").glob("*.md"))
    ]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in found}


def blocks(page, text):
    """All fenced blocks of code of a page; directives of the site are none."""
    return [Block(page, m[3], m[4]) for m in FENCED.finditer(text) if not m[3].startswith("{")]


def without_code(text):
    """A page without its blocks and literals, in which brackets are no links."""
    return re.sub(r"`[^`\n]+`", "", FENCED.sub("", text))
