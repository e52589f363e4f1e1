"""The Sphinx extension: writes the generated pages, and connects the transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from site_pages import benchmarks, blocks, drawings, links, project, reference, tutorials
from site_pages.folder import Folder

ROOT = Path(__file__).resolve().parents[2]


def write_pages(app: Any) -> None:
    """Write all pages, and remove those that nothing makes any more."""
    with Folder(Path(app.srcdir) / "generated") as folder:
        reference.write(folder)
        benchmarks.write(folder, ROOT)
        project.write(folder, ROOT)
        if app.config.execute_tutorials:
            tutorials.write(folder, ROOT)
        else:
            tutorials.write_unexecuted(folder, ROOT)


def relink(app: Any, docname: str, source: list[str]) -> None:
    """Let links of the written pages to files that other pages show lead to these."""
    written = not docname.startswith("generated/")
    if written and Path(app.env.doc2path(docname)).suffix == ".md":
        source[0] = project.relinked(source[0], f"docs/{docname}.md", f"{docname}.md")


def setup(app: Any) -> dict[str, Any]:
    """Connect the pages and the transforms to a build."""
    app.add_config_value("execute_tutorials", True, "env", types=(bool,))
    app.connect("builder-inited", write_pages)
    app.connect("source-read", relink)
    app.add_transform(blocks.TrimmedBlocks)
    app.add_post_transform(links.LinksToNames)
    app.add_post_transform(drawings.InlineDrawings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
