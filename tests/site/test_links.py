"""No link in the written pages is broken, and no page is left out of the site."""

import os.path
import re

import pytest

from tests.site.pages import FENCED, without_code, written_pages
from tests.structure.sources import ROOT

PAGES = written_pages()
# What the site's pages have that no file is there for, before a build makes it.
GENERATED = re.compile(r"docs/generated/(ops/\w+\.rst|api/[\w.]+\.rst|tutorials/\w+\.md|\w+\.md)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")


def anchors(text):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    found = set()
    for line in FENCED.sub("", text).splitlines():
        if heading := re.match(r"#+ (.*)", line):
            words = re.sub(r"[^\w\- ]", "", heading[1].strip().lower())
            found.add(words.replace(" ", "-"))
    return found


def broken(page, text):
    """The links of a page that lead nowhere."""
    text = without_code(text)
    problems = []
    for link in (*LINK.findall(text), *IMAGE.findall(text)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if GENERATED.fullmatch(target):
            continue
        if not (ROOT / target).exists():
            problems.append(f"{page}: {link}: there is no {target}")
        elif anchor and anchor not in anchors(text if target == page else PAGES.get(target, "")):
            problems.append(f"{page}: {link}: no such heading")
    return problems


def external(pages):
    """All addresses of other places."""
    found = (re.findall(r"https?://[^)\s`>\"]+", without_code(text)) for text in pages.values())
    return sorted({address for addresses in found for address in addresses})


def in_toctrees(pages):
    """The pages that some tree of pages lists, as patterns."""
    found = set()
    for page, text in pages.items():
        for block in re.findall(r"^```{toctree}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            folder = os.path.dirname(page)
            found |= {os.path.normpath(os.path.join(folder, line)) for line in lines}
    return found


@pytest.mark.parametrize("page", PAGES)
def test_no_link_is_broken(page):
    assert broken(page, PAGES[page]) == []


def test_planted_broken_links_are_found():
    text = "# A b\n\n[x](gone.md) [y](capture.md#no-such) [z](#a-b) [w](capture.md) `[v](no)`\n"
    problems = broken("docs/nn.md", text)
    assert [problem.split(": ")[1] for problem in problems] == ["gone.md", "capture.md#no-such"]


def test_there_are_few_external_links():
    found = external(PAGES)
    print(found)
    assert len(found) <= 10  # each can break without a change here


def test_every_page_is_in_a_tree_of_pages():
    trees = in_toctrees(PAGES)
    assert "docs/decisions/*" in trees
    missing = [
        page
        for page in PAGES
        if re.fullmatch(r"docs/[\w-]+\.md", page)
        and page != "docs/index.md"
        and page.removesuffix(".md") not in trees
    ]
    assert not missing, f"add to a toctree in docs/index.md: {missing}"
