"""What a program cannot do is refused by name, with the user's line."""

import numpy as np
import pytest

import eagerflow as ef
import eagerflow.capture
from eagerflow.errors import ArgumentError, CaptureError, FileFormatError
from eagerflow.op import ops
from eagerflow.standalone import sources
from tests.standalone.programs import Program, traced

X = np.ones(3, np.float32)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_dtypes_that_numpy_lacks(dtype, tmp_path):
    graph = traced(lambda x: ef.astype(ef.astype(x, dtype), "float32") * 2, X)
    with pytest.raises(CaptureError, match=f"astype.*NumPy has no {dtype}") as caught:
        ef.capture.export_python(graph, tmp_path / "model.py")
    assert "test_refusals.py" in str(caught.value)
    assert "float32 or float16" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_variables_of_such_dtypes():
    w = ef.Variable(ef.ones(3, dtype="bfloat16"), name="w")
    graph = traced(lambda x: ef.astype(w, "float32") + x, X)
    with pytest.raises(CaptureError, match="w: it cannot be exported: NumPy has no bfloat16"):
        Program(graph)


def test_complex_weights_in_safetensors(tmp_path):
    w = ef.Variable(np.ones(3, np.complex64), name="w")
    graph = traced(lambda x: ef.abs(w) + x, X)
    with pytest.raises(CaptureError, match="safetensors has no complex64"):
        ef.capture.export_python(graph, tmp_path / "model.py", weights="safetensors")
    assert list(tmp_path.iterdir()) == []
    ef.capture.export_python(graph, tmp_path / "model.py")


def test_export_of_non_graphs_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="export_python: graph: 3 is no graph"):
        ef.capture.export_python(3, tmp_path / "model.py")

    @ef.function
    def f(x):
        return x + 1

    with pytest.raises(ArgumentError, match="the function has 0 graphs"):
        ef.capture.export_python(f, tmp_path / "model.py")


def test_paths_and_kinds_of_files(tmp_path):
    graph = traced(lambda x: x + 1, X)
    with pytest.raises(ArgumentError, match=r"ends in \.py"):
        ef.capture.export_python(graph, tmp_path / "model.txt")
    with pytest.raises(ArgumentError, match="'npz' or 'safetensors'"):
        ef.capture.export_python(graph, tmp_path / "model.py", weights="pickle")
    with pytest.raises(FileFormatError, match="cannot be written"):
        ef.capture.export_python(graph, tmp_path / "missing" / "model.py")


def test_an_op_whose_body_needs_numbers(monkeypatch):
    monkeypatch.setattr(sources, "FUNCTIONS", sources.FUNCTIONS - {"random_bits", "qr"})
    state = np.zeros(3, np.uint64)
    graph = traced(lambda state: ops["random_bits"].call(state, 4), state)
    with pytest.raises(CaptureError, match="random_bits: it cannot be exported: NumPy") as caught:
        Program(graph)
    assert "test_refusals.py" in str(caught.value)
    graph = traced(ef.linalg.qr, np.eye(3, dtype=np.float32))
    with pytest.raises(CaptureError, match="qr: it cannot be exported: NumPy has no such"):
        Program(graph)
