"""Pages of files that stand elsewhere in the repository, and the links of pages to such files."""

from __future__ import annotations

import re
from os.path import normpath, relpath
from pathlib import Path, PurePosixPath

from site_pages.folder import Folder

# Files and folders of the repository, and the pages of the site that show them.
PAGES = {
    "CHANGELOG.md": "generated/changelog.md",
    "benchmarks/README.md": "generated/benchmarks.md",
    "docs/decisions": "decisions.md",
    "examples/README.md": "generated/examples.md",
}

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")


def relinked(text: str, source: str, page: str) -> str:
    """Markdown of the file ``source``, of the repository, for the page ``page``, of ``docs``.

    A link to a file that a page shows leads there; all others lead to the file as before.
    """
    home, away = PurePosixPath(source).parent, PurePosixPath("docs", page).parent

    def target(found: re.Match[str]) -> str:
        path = normpath(home / found[1])
        tutorial = re.fullmatch(r"tutorials/(\w+)\.py", path)
        shown = f"generated/tutorials/{tutorial[1]}.md" if tutorial else PAGES.get(path)
        return relpath(f"docs/{shown}" if shown else path, away)

    return _LINK.sub(target, text)


def write(folder: Folder, root: Path) -> None:
    """Write the pages of the changelog and of the examples."""
    for source in ("CHANGELOG.md", "examples/README.md"):
        page = PAGES[source]
        text = (root / source).read_text(encoding="utf-8")
        folder.write(page.removeprefix("generated/"), relinked(text, source, page))
