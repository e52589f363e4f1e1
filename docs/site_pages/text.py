"""reStructuredText from plain words: docstrings, headings, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LITERAL = re.compile(r"(``.+?``)", re.DOTALL)
_MARKS = re.compile(r"([*|`\\]|(?<=\w)_(?!\w))")


def plain(words: str) -> str:
    """Words in which nothing but double backticks is markup."""
    parts = _LITERAL.split(words)
    return "".join(p if i % 2 else _MARKS.sub(r"\\\1", p) for i, p in enumerate(parts))


def docstring(doc: str) -> str:
    """A clean docstring as reStructuredText: paragraphs, indented blocks and examples."""
    blocks = re.split(r"\n\s*\n", doc.strip("\n"))
    return "\n\n".join(b if b.lstrip().startswith(">>> ") else plain(b) for b in blocks)


def first_sentence(doc: str) -> str:
    """The first paragraph of a docstring in one line, as reStructuredText."""
    return plain(" ".join(doc.split("\n\n")[0].split()))


def indent(text: str, by: int = 3) -> str:
    """The text, further to the right."""
    return "\n".join(" " * by + line if line.strip() else "" for line in text.splitlines())


def heading(title: str, mark: str) -> str:
    """A title with its line of marks."""
    return f"{title}\n{mark * max(len(title), 4)}\n"


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of fields, each one line."""
    return "\n".join(f":{name}: {words}" for name, words in pairs)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose cells are reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [list(header), *map(list, rows)]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines)


def toctree(pages: Iterable[str], depth: int = 1) -> str:
    """A tree of pages."""
    return f".. toctree::\n   :maxdepth: {depth}\n\n" + "\n".join(f"   {page}" for page in pages)
