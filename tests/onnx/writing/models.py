"""Graphs as ONNX models, checked and run by ONNX Runtime."""

from functools import cache

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
    """The results of ONNX Runtime, by name."""
    made = session(path)
    names = [x.name for x in made.get_outputs()]
    given = {x.name: np.asarray(feeds[x.name]) for x in made.get_inputs() if x.name in feeds}
    return dict(zip(names, made.run(None, given), strict=True))


@cache
def saturates():
    """Whether ONNX Runtime's products of uint8 and int8 are wrong on this processor.

    Where it has no instruction for them, two products are added in 16 bits.
    """
    node = onnx.helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    kinds = {"a": onnx.TensorProto.UINT8, "b": onnx.TensorProto.INT8}
    graph = onnx.helper.make_graph(
        [node],
        "product",
        [onnx.helper.make_tensor_value_info(n, kind, (64, 64)) for n, kind in kinds.items()],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, (64, 64))],
    )
    opset = onnx.helper.make_opsetid("", 21)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10)
    a, b = np.full((64, 64), 255, "uint8"), np.full((64, 64), 127, "int8")
    (y,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})
    return bool((y != 64 * 255 * 127).any())


exact_bytes = pytest.mark.skipif(
    saturates(),
    reason="ONNX Runtime adds products of bytes in 16 bits on this processor, and so wrongly",
)
