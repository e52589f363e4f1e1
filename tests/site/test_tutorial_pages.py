"""Tutorials as pages: what cells print, show and draw, and that one that fails fails the build."""

import base64

import pytest
from site_pages.folder import Folder

from tests.structure.sources import ROOT

pytest.importorskip("ipykernel", reason="ipykernel is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
v4 = pytest.importorskip("nbformat.v4", reason="nbformat is not installed")
tutorials = pytest.importorskip("site_pages.tutorials")

CELLS = [
    v4.new_markdown_cell("# Title\n\n[nn](../docs/nn.md), [next](02_capture.py)"),
    v4.new_code_cell("import eagerflow as ef\nprint('```')\nef.ones(2).tolist()"),
    v4.new_code_cell(
        "class Drawn:\n"
        "    def _repr_png_(self): return b'png'\n"
        "class Shown:\n"
        "    def _repr_html_(self): return '<b>bold</b>'\n"
        "display(Drawn(), Shown())"
    ),
]


def test_cells_become_a_page(tmp_path):
    notebook = v4.new_notebook(cells=CELLS)
    tutorials.execute(notebook, ROOT)
    with Folder(tmp_path) as folder:
        page = tutorials.as_markdown(notebook, "01_x", folder)
    assert "[nn](../../nn.md), [next](02_capture.md)" in page
    assert "````text\n```\n````" in page
    assert "[1.0, 1.0]" in page
    assert "![what the cell above draws](01_x-3.png)" in page
    assert base64.b64encode((tmp_path / "tutorials/01_x-3.png").read_bytes()) == b"cG5n"
    assert "```{raw} html\n<b>bold</b>\n```" in page


def test_a_cell_that_fails_fails_the_build():
    notebook = v4.new_notebook(cells=[v4.new_code_cell("1 / 0")])
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="division by zero"):
        tutorials.execute(notebook, ROOT)
