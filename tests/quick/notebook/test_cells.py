"""Errors and lines of IPython's cells, without an extension: the cell's number, no inner frames."""

import re
import subprocess
import sys

import pytest

import eagerflow as ef
from eagerflow.cells import file_name
from eagerflow.notebook.errors import lines as lines_of
from tests.structure.sources import ROOT

pytest.importorskip("IPython")

CELLS = [
    "import eagerflow as ef",
    "def f(x):\n    y = x * 2\n    return y @ ef.ones((5, 5))",
    "f(ef.ones((2, 3)))",
    "g = ef.function(f)\ng(ef.ones((2, 3)))",
    "h = ef.function(lambda x: ef.tanh(x) * 2.0)\nz = h(ef.ones(3))\nprint(h.graphs[0])",
    "with ef.profile(100, 10) as p:\n    z = ef.ones((300, 300))\n    z = z @ z\nprint(p)",
    "with ef.debug_nans():\n    ef.log(ef.tensor([-1.0]))",
    "rate = 2.0\nk = ef.function(lambda x: x * rate)\nz = k(ef.ones(3))\nprint(k.ledger())",
    "rate = 3.0\nz = k(ef.ones(3))\nprint(k.explain())",
    "h.graphs[0].save('graph.ef')\nprint(ef.capture.load('graph.ef'))",
    "ef.fori_loop(0, 2, lambda i, x: (x, x), 1.0)",
]
PROGRAM = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for number, cell in enumerate({cells!r}, 1):
    print("=== ", number)
    shell.run_cell(cell, store_history=True)
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What each cell prints, errors included."""
    folder = tmp_path_factory.mktemp("ipython")
    environment = {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(cells=CELLS)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert not done.stderr, done.stderr
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    return plain.split("=== ")


def test_errors_have_no_frames_of_ours(shown):
    eager = shown[3]
    assert re.findall(r"Cell In\[\d+\], line \d+|File .*", eager) == [
        "Cell In[3], line 1",
        "Cell In[2], line 3",
    ]
    assert eager.count("ShapeError: matmul: the inner dimensions differ") == 1
    for cell in shown:
        assert "eagerflow/" not in cell and "interactiveshell" not in cell, cell


def test_captured_code_has_the_line_of_its_cell(shown):
    assert "at: In[2]:3 in f" in shown[4]
    assert "# In[5]:1" in shown[5]
    assert "the first NaN is made here, at In[7]:2" in shown[7]
    assert re.search(r"at: In\[11\]:1 in <lambda>", shown[11])
    for cell in shown:
        assert "<ipython-input" not in cell, cell


def test_profiles_have_the_line_of_the_cell(shown):
    assert re.search(r"matmul +In\[6\]:3", shown[6])


def test_what_traces_relied_on_was_read_in_a_cell(shown):
    assert "In[8]:2" in shown[8]
    assert "rate changed from 2.0 to 3.0 (In[8]:2)" in shown[9]


def test_saved_graphs_keep_the_cell(shown):
    assert "# In[5]:1" in shown[10]


def test_other_files_keep_their_names():
    assert file_name("<ipython-input-x-1>") == "<ipython-input-x-1>"
    assert file_name(__file__) == __file__


def test_errors_outside_of_ipython_are_those_of_python():
    with pytest.raises(ef.errors.ShapeError) as caught:
        ef.ones(2) + ef.ones(3)
    before = caught.value.__traceback__
    lines = "".join(lines_of(caught.value))
    assert (
        lines.startswith("Traceback (most recent call last)") and "ef.ones(2) + ef.ones(3)" in lines
    )
    assert "dispatch.py" not in lines and lines.count("ShapeError") == 1
    assert caught.value.__traceback__ is before
