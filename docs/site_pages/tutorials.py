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
    newest = max(p.stat().st_mtime for p in (root / "eagerflow").rglob("*.py"))
    for source in sources(root):
        page = f"tutorials/{source.stem}.md"
        path = folder.keep(page)
        images = sorted((folder.path / "tutorials").glob(f"{source.stem}-*"))
        if path.is_file() and path.stat().st_mtime > max(newest, source.stat().st_mtime):
            for image in images:
                folder.keep(f"tutorials/{image.name}")
            continue
        notebook = jupytext.read(source)
        execute(notebook, root)
        text = "\n\n".join(_cells(notebook, source.stem, folder))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(relinked(text, f"tutorials/{source.name}", f"generated/{page}"))


def write_unexecuted(folder: Folder, root: Path) -> None:
    """Write the tutorials' pages without what they print, for builds that are about other pages."""
    for source in sources(root):
        notebook = jupytext.read(source)
        page = f"tutorials/{source.stem}.md"
        text = "\n\n".join(_cells(notebook, source.stem, folder))
        folder.write(page, relinked(text, f"tutorials/{source.name}", f"generated/{page}"))


def execute(notebook: Any, root: Path) -> None:
    """Run all cells in a kernel and a folder of their own."""
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as work:
        client = nbclient.NotebookClient(
            notebook, timeout=_LONGEST, resources={"metadata": {"path": work}}
        )
        client.execute(env=os.environ | {"PYTHONPATH": paths})


# Cells as Markdown -------------------------------------------------------------------------------


def _cells(notebook: Any, name: str, folder: Folder) -> Iterator[str]:
    count = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell.source
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
