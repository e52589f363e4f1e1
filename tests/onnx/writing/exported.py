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
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

import eagerflow as ef
from tests.contract.cases import about, check_all_close, results, tolerance

Array = Any
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INEXACT = ["MatMulScaleFusion"]
"""What ONNX Runtime makes of float64 with factors that it keeps in float32."""


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


def without_bfloat16(model: Any) -> Any:
    """A model with float32 where bfloat16 goes in and out: Python cannot give that to runtimes."""
    wrapped = onnx.ModelProto()
    wrapped.CopyFrom(model)
    graph = wrapped.graph
    before, behind = [], []
    for infos, casts, narrow in ((graph.input, before, True), (graph.output, behind, False)):
        for info in infos:
            kind = info.type.tensor_type
            if kind.elem_type == onnx.TensorProto.BFLOAT16:
                kind.elem_type = onnx.TensorProto.FLOAT
                inner, outer = info.name, f"{info.name}/float32"
                info.name = outer
                ends, to = ((outer, inner), 16) if narrow else ((inner, outer), 1)
                casts.append(onnx.helper.make_node("Cast", [ends[0]], [ends[1]], to=to))
    nodes = [*before, *graph.node, *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    return wrapped


def by_runtime(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime computes, on one thread."""
    wrapped = without_bfloat16(model)
    given = {name: x.astype("f4") if x.dtype == BFLOAT16 else x for name, x in feeds.items()}
    pairs = zip(wrapped.graph.input, model.graph.input, strict=True)
    names = {outer.name: inner.name for outer, inner in pairs}
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        wrapped.SerializeToString(),
        settings,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=INEXACT,
    )
    made = session.run(None, {i.name: given[names[i.name]] for i in session.get_inputs()})
    kinds = [info.type.tensor_type.elem_type for info in model.graph.output]
    return [y.astype(BFLOAT16) if k == 16 else y for y, k in zip(made, kinds, strict=True)]


def by_reference(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What onnx's own evaluator computes, in Python."""
    wanted = {i.name for i in model.graph.input}
    evaluator = ReferenceEvaluator(model)
    with np.errstate(all="ignore"):
        made = evaluator.run(None, {name: x for name, x in feeds.items() if name in wanted})
    return list(map(np.asarray, made))


def by_either(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime computes, or the evaluator where it has no kernel for a dtype."""
    try:
        return by_runtime(model, feeds)
    except NoKernel:
        return by_reference(model, feeds)


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
