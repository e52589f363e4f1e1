"""Ops exported from their samples, run by ONNX Runtime and by onnx's reference evaluator."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import eagerflow as ef
from tests.contract.cases import about, check_all_close, results, tolerance

Array = Any
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Exported(NamedTuple):
    """A model, what goes into it, and what eagerflow itself makes of that."""

    model: Any
    feeds: dict[str, Array]
    wanted: list[Array]


def exported(op: Any, sample: Any, **options: Any) -> Exported | None:
    """The model of a call of an op whose arrays are inputs; None where nothing is computed."""
    arrays = [x for x in sample.args if isinstance(x, np.ndarray)]

    def call(*tensors: Any) -> Any:
        given = iter(tensors)
        args = [next(given) if isinstance(x, np.ndarray) else x for x in sample.args]
        return op.call(*args, **sample.attributes)

    wanted = results(call(*map(ef.asarray, arrays)))
    graph = ef.capture.trace(call, *(ef.TensorSpec(x.shape, x.dtype) for x in arrays))
    if not graph.nodes:
        return None
    feeds = dict(zip(graph.inputs.names, arrays, strict=True))
    return Exported(model_of(graph, **options), feeds, wanted)


def model_of(graph: Any, **options: Any) -> Any:
    """A graph as a model that onnx has checked as far as it can."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ef.capture.export_onnx(graph, path, **options)
        model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


def by_runtime(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime computes, on one thread."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {name: x for name, x in feeds.items() if name in wanted})


def by_reference(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What onnx's own evaluator computes, in Python."""
    wanted = {i.name for i in model.graph.input}
    evaluator = ReferenceEvaluator(model)
    with np.errstate(all="ignore"):
        made = evaluator.run(None, {name: x for name, x in feeds.items() if name in wanted})
    return list(map(np.asarray, made))


def by_either(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime computes; bfloat16, which its Python interface lacks, by the evaluator."""
    kinds = {info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)}
    narrow = onnx.TensorProto.BFLOAT16 in kinds
    return by_reference(model, feeds) if narrow else by_runtime(model, feeds)


def check(op: Any, sample: Any, run: Any = by_either, **options: Any) -> None:
    """A call of an op, exported, gives the shapes, the dtypes and, as closely, the numbers."""
    with about(op, sample):
        found = exported(op, sample, **options)
        if found is None:
            return
        made = run(found.model, found.feeds)
        facts = [[(y.shape, y.dtype) for y in row] for row in (made, found.wanted)]
        assert facts[0] == facts[1], f"the model gives {facts[0]} instead of {facts[1]}"
        rtol = max(tolerance(y.dtype) for y in found.wanted)
        check_all_close(made, found.wanted, rtol, "the model's result")
