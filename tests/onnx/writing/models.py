"""Graphs as ONNX models, checked and run by ONNX Runtime."""

import numpy as np
import pytest

import eagerflow as ef

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def exported(graph, path, **how):
    """The model that a graph is written as, which passes ONNX's own checks."""
    ef.capture.export_onnx(graph, path, **how)
    onnx.checker.check_model(str(path), full_check=True)
    return onnx.load(path)


def session(path):
    """ONNX Runtime's session of a file."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # it warns of all that it does not need
    return runtime.InferenceSession(str(path), options)


def run(path, feeds):
    """What ONNX Runtime computes, by name."""
    made = session(path)
    names = [x.name for x in made.get_outputs()]
    given = {x.name: np.asarray(feeds[x.name]) for x in made.get_inputs() if x.name in feeds}
    return dict(zip(names, made.run(None, given), strict=True))
