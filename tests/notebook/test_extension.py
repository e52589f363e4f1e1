"""A notebook, executed by a kernel: displays, bars, magics, errors."""

import os
import re
import textwrap
from pathlib import Path

import pytest

from tests.notebook.pages import found, parsed, words

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[2]
CELLS = {
    "load": "%load_ext eagerflow\nimport numpy as np\nimport eagerflow as ef",
    "tensor": "ef.tensor([1.0, ef.nan])",
    "fit": """
        x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
        model = ef.nn.Sequential([ef.nn.Input((1,)), ef.nn.Dense(1)], name="line")
        model.compile(ef.nn.optimizers.SGD(0.5), "mse")
        model.fit(x, 3 * x + 1, epochs=2)
        """,
    "stopped": """
        def batches():
            yield x, x
            raise KeyError("no more")
        model.fit(batches())
        """,
    "error": """
        def product(a):
            b = ef.ones((3, 2))
            return a @ b
        product(ef.ones((2, 2)))
        """,
    "captured error": """
        @ef.function
        def look_up(x, i):
            return x[i]
        look_up(ef.ones(3), ef.tensor(1))
        look_up(ef.ones(3), ef.tensor(5))
        """,
    "last error": "import sys\nsys.last_type.__name__, sys.last_traceback.tb_frame.f_code.co_name",
    "value": """
        try:
            product(ef.ones((2, 2)))
        except ef.errors.ShapeError as error:
            caught = error
        caught
        """,
    "other error": "1 / 0",
    "graph": '%ef_graph product(ef.TensorSpec(("n", 3), "float32"))',
    "graph of named": """
        def scaled(x, *more, by=1.0):
            return sum(more, x) * by
        args = [ef.ones(2), ef.ones(2)]
        graph = %ef_graph scaled(*args, by=3.0)
        print(graph.text(lines=False))
        """,
    "graph of captured": "%ef_graph look_up(ef.ones(3), ef.tensor(1))",
    "latest graph": "%ef_graph look_up",
    "graph of model": "%ef_graph model",
    "no graph": "%ef_graph x",
    "nothing": "%ef_graph",
    "profile": "%%ef_profile p\ny = ef.ones(3)\ny * 2",
    "profiled": "y, p.is_open",
    "profile of an error": "%%ef_profile p\none = ef.ones(2)\none @ ef.ones(3)",
    "unload": "%unload_ext eagerflow",
    "plain error": "product(ef.ones((2, 2)))",
    "magic is gone": "%ef_graph model",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The outputs of each cell, by its name."""
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(text).strip()) for text in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder)}
    client.execute(env=environment)
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def html(cell):
    """The pages of all outputs of a cell."""
    return [out.data["text/html"] for out in cell if "text/html" in out.get("data", {})]


def error(cell):
    """The error that ends a cell."""
    (out,) = [out for out in cell if out.output_type == "error"]
    return out


def test_only_expected_cells_end_with_an_error(outputs):
    ends_badly = {name for name, cell in outputs.items() if any("ename" in out for out in cell)}
    expected = "stopped|error|captured error|other error|no graph|nothing|"
    expected += "profile of an error|plain error|magic is gone"
    assert ends_badly >= set(expected.split("|")) - {"magic is gone"}
    assert ends_badly <= set(expected.split("|"))
    assert outputs["load"] == []


def test_things_are_shown_without_anything_loaded(outputs):
    (page,) = html(outputs["tensor"])
    assert "⚠ 1 NaN at [1]" in words(parsed(page))


def test_training_shows_a_bar_for_each_epoch_and_its_history(outputs):
    *bars, history = html(outputs["fit"])
    assert [parsed(bar)[0].get("value") for bar in bars] == ["2", "2"]
    assert [words(parsed(bar)).split(",")[0] for bar in bars] == [
        f"Epoch {i}/2  2/2 steps" for i in (1, 2)
    ]
    assert "loss: " in words(parsed(bars[0]))
    assert "History of 2 epochs" in words(parsed(history))


def test_training_that_fails_leaves_no_bar_that_runs(outputs):
    (bar,) = html(outputs["stopped"])
    assert parsed(bar)[0].get("value") == "1" and "1 step," in words(parsed(bar))
    assert error(outputs["stopped"]).ename == "KeyError"


def test_errors_show_the_useful_parts_first(outputs):
    (page,) = html(outputs["error"])
    root = parsed(page)
    assert root[0][0].text == "ShapeError"
    shown = words(root)
    assert "try: ef.matmul(x1, x2.mT)" in shown and "expected: x2 of shape" in shown
    assert "Cell In[5], line 3" in shown
    assert [line.text.strip() for line in found(found(root, "pre")[0], "strong")] == [
        "→    3      return a @ b"
    ]
    assert "Traceback (most recent call last)" in words(found(root, "details")[0])
    assert "run_code" not in shown  # IPython's own frames
    ended = error(outputs["error"])
    assert ended.ename == "ShapeError" and "inner dimensions" in ended.evalue
    assert len(ended.traceback) == 1


def test_errors_of_captured_code_name_its_line(outputs):
    root = parsed(html(outputs["captured error"])[-1])
    number = list(CELLS).index("captured error") + 1
    assert "IndexRangeError" in words(root)
    assert f"in captured code at: In[{number}]:3 in look_up" in words(root)
    # %debug and others find it, as they do what IPython shows.
    assert outputs["last error"][0].data["text/plain"] == "('IndexRangeError', '<module>')"


def test_errors_that_were_caught_have_a_view(outputs):
    (page,) = html(outputs["value"])
    assert parsed(page).get("role") == "alert"


def test_other_errors_are_shown_as_ever(outputs):
    assert len(error(outputs["other error"]).traceback) > 1
    assert not html(outputs["other error"])


def test_graphs_of_calls(outputs):
    (page,) = html(outputs["graph"])
    assert "product(a: float32[n, 3])" in words(parsed(page))
    assert outputs["graph of named"][0].text.startswith(
        "graph scaled(x: float32[2], more_1: float32[2])"
    )
    for name in ("graph of captured", "latest graph", "graph of model"):
        (page,) = html(outputs[name])
        assert found(parsed(page), "svg")
    assert error(outputs["no graph"]).ename == "ArgumentError"
    assert error(outputs["nothing"]).ename == "ArgumentError"


def test_profiles_of_cells(outputs):
    shown = outputs["profile"]
    table = words(parsed(html(shown)[0]))
    assert re.search(r"<Profile of [\d.]+ ms, 2 calls>", table)
    number = list(CELLS).index("profile") + 1
    assert re.search(rf"multiply +In\[{number}\]:3", table), table
    assert shown[-1].data["text/plain"] == "Tensor([2., 2., 2.], float32, cpu:0)"
    assert outputs["profiled"][0].data["text/plain"] == (
        "(Tensor([1., 1., 1.], float32, cpu:0), False)"
    )
    root = parsed(html(outputs["profile of an error"])[0])
    number = list(CELLS).index("profile of an error") + 1
    assert f"Cell In[{number}], line 3" in words(root)
    lines = [line.text.split(maxsplit=2)[1:] for line in found(found(root, "pre")[0], "strong")]
    assert lines == [["3", "one @ ef.ones(3)\n"]]


def test_unloading_restores_the_previous_display(outputs):
    assert not html(outputs["plain error"])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error(outputs["plain error"]).traceback))
    assert re.findall(r"Cell In\[\d+\]|File .*", plain) == [
        f"Cell In[{list(CELLS).index(name) + 1}]" for name in ("plain error", "error")
    ]
    assert "ef_graph" in str(outputs["magic is gone"])
