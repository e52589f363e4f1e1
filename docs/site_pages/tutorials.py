"""The tutorials as pages: executed from top to bottom, with what they print and draw."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbclient

from site_pages.folder import Folder
from site_pages.project import relinked

_IMAGES = {"image/png": "png", "image/svg+xml": "svg"}
_LONGEST = 600  # seconds for one tutorial


def sources(root: Path) -> list[Path]:
    """All tutorials, in their order."""
    return sorted((root / "tutorials").glob("*.py"))


def write(folder: Folder, root: Path) -> None:
    """Execute the tutorials that are newer than their pages, and write these.

    A cell that raises an error fails the build.
    """
    parts = (root / "eagerflow", root / "docs" / "site_pages")
    newest = max(p.stat().st_mtime for part in parts for p in part.rglob("*.py"))
    for source in sources(root):
        path = folder.keep(_page(source))
        if path.is_file() and path.stat().st_mtime > max(newest, source.stat().st_mtime):
            for image in path.parent.glob(f"{source.stem}-*"):
                folder.keep(f"tutorials/{image.name}")
            continue
        notebook = jupytext.read(source)
        execute(notebook, root)
        text = as_markdown(notebook, source.stem, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")  # also where it is as before: it is newer now


def write_unexecuted(folder: Folder, root: Path) -> None:
    """Write the tutorials' pages without what they print, for builds that are about other pages."""
    for source in sources(root):
        folder.write(_page(source), as_markdown(jupytext.read(source), source.stem, folder))


def _page(source: Path) -> str:
    return f"tutorials/{source.stem}.md"


def execute(notebook: Any, root: Path) -> None:
    """Run all cells in a kernel and a folder of their own."""
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    # Their products are small: a second thread of BLAS takes time and brings none.
    changes = {"PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as work:
        client = nbclient.NotebookClient(
            notebook, timeout=_LONGEST, resources={"metadata": {"path": work}}
        )
        client.execute(env=os.environ | changes)


# Cells as Markdown -------------------------------------------------------------------------------


def as_markdown(notebook: Any, name: str, folder: Folder) -> str:
    """A notebook as a page; what it draws is written into the folder."""
    return "\n\n".join(_cells(notebook, name, folder)) + "\n"


def _cells(notebook: Any, name: str, folder: Folder) -> Iterator[str]:
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield relinked(cell.source, f"tutorials/{name}.py", f"generated/tutorials/{name}.md")
        elif cell.cell_type == "code" and cell.source.strip():
            yield _fenced(cell.source, "python")
            for output in cell.get("outputs", ()):
                count += 1
                yield _output(output, f"{name}-{count}", folder)


def _fenced(text: str, language: str) -> str:
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _output(output: Any, name: str, folder: Folder) -> str:
    """What a cell printed, showed or drew; the richest form that a page can hold."""
    if output.output_type == "stream":
        return _printed(output.text)
    for kind, ending in _IMAGES.items():
        if kind in output.data:
            content = output.data[kind]
            file = f"{name}.{ending}"
            data = base64.b64decode(content) if ending == "png" else content.encode()
            folder.write(f"tutorials/{file}", data)
            return f"![what the cell above draws]({file})"
    if "text/html" in output.data:
        return _fenced(output.data["text/html"], "{raw} html")
    return _printed(output.data["text/plain"])


def _printed(text: str) -> str:
    return f"{{.output}}\n{_fenced(text, 'text')}"
