"""Ops exported from their samples, run by ONNX Runtime and by onnx's reference evaluator."""

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
from eagerflow.errors import EagerflowError
from tests.contract.cases import about, check_all_close, results, tolerance

Array = Any
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
INEXACT = ["MatMulScaleFusion"]
"""Optimizations of ONNX Runtime that keep factors of float64 in float32."""


class Exported(NamedTuple):
    """A model, its inputs, and eagerflow's own results."""

    model: Any
    feeds: dict[str, Array]
    wanted: list[Array]


def call_of(op, sample):
    """A call of an op as a function of its arrays."""
    arrays = [x for x in sample.args if isinstance(x, np.ndarray)]

    def call(*tensors):
        given = iter(tensors)
        args = [next(given) if isinstance(x, np.ndarray) else x for x in sample.args]
        return op.call(*args, **sample.attributes)

    return call, arrays


def exported(op, sample, **options):
    """The model of a call of an op whose arrays are inputs; None where nothing is computed."""
    call, arrays = call_of(op, sample)
    wanted = results(call(*map(ef.asarray, arrays)))
    graph = ef.capture.trace(call, *(ef.TensorSpec(x.shape, x.dtype) for x in arrays))
    if not graph.nodes:
        return None
    feeds = dict(zip(graph.inputs.names, arrays, strict=True))
    return Exported(model_of(graph, **options), feeds, wanted)


def model_of(graph, **options):
    """A graph as a model that onnx has checked as far as it can."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        ef.capture.export_onnx(graph, path, **options)
        model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    return model


def without_bfloat16(model):
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


def session_of(model):
    """ONNX Runtime's session of a model, on one thread."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        settings,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=INEXACT,
    )


def by_runtime(model, feeds):
    """The results of ONNX Runtime."""
    wrapped = without_bfloat16(model)
    given = {name: x.astype("f4") if x.dtype == BFLOAT16 else x for name, x in feeds.items()}
    pairs = zip(wrapped.graph.input, model.graph.input, strict=True)
    names = {outer.name: inner.name for outer, inner in pairs}
    session = session_of(wrapped)
    made = session.run(None, {i.name: given[names[i.name]] for i in session.get_inputs()})
    kinds = [info.type.tensor_type.elem_type for info in model.graph.output]
    return [y.astype(BFLOAT16) if k == 16 else y for y, k in zip(made, kinds, strict=True)]


def by_reference(model, feeds):
    """The results of onnx's own evaluator, in Python."""
    wanted = {i.name for i in model.graph.input}
    evaluator = ReferenceEvaluator(model)
    with np.errstate(all="ignore"):
        made = evaluator.run(None, {name: x for name, x in feeds.items() if name in wanted})
    return list(map(np.asarray, made))


def by_either(model, feeds):
    """The results of ONNX Runtime, or of the evaluator if it has no kernel for a dtype."""
    try:
        return by_runtime(model, feeds)
    except NoKernel:
        return by_reference(model, feeds)


def meaning(model):
    """A model's graph, and since which opsets its operators are what they are in its own."""
    opset = next(one.version for one in model.opset_import if not one.domain)
    since, graphs = [], [model.graph, *model.functions]
    for graph in graphs:
        for node in graph.node:
            graphs += [x.g for x in node.attribute if x.HasField("g")]
            if not node.domain:
                since.append(onnx.defs.get_schema(node.op_type, opset, "").since_version)
    return model.graph.SerializeToString(deterministic=True), since


def check(op, sample, run=by_either, known=None, **options):
    """A call of an op, exported, gives the shapes, the dtypes and, as closely, the numbers.

    A model equivalent to one of ``known`` is not run again.
    """
    with about(op, sample):
        found = exported(op, sample, **options)
        if found is None:
            return
        if known is not None:
            if meaning(found.model) in known:
                return
            known.append(meaning(found.model))
        made = run(found.model, found.feeds)
        facts = [[(y.shape, y.dtype) for y in row] for row in (made, found.wanted)]
        assert facts[0] == facts[1], f"the model gives {facts[0]} instead of {facts[1]}"
        rtol = max(tolerance(y.dtype) for y in found.wanted)
        check_all_close(made, found.wanted, rtol, "the model's result")


# Free sizes --------------------------------------------------------------------------------------


class Freed(NamedTuple):
    """A model whose arrays have any number of rows, and the results for those."""

    call: Any
    rows: list[Array]
    free: list[bool]
    names: list[str]
    session: Any

    def of(self, count):
        """Arrays with so many rows, those of the sample again and again."""
        return [
            np.resize(x, (count, *x.shape[1:])) if free else x
            for x, free in zip(self.rows, self.free, strict=True)
        ]

    def check(self, count):
        """Check that the model matches the op for so many rows, if the op takes them."""
        arrays = self.of(count)
        try:
            wanted = results(self.call(*map(ef.asarray, arrays)))
        except EagerflowError:
            return
        given = dict(zip(self.names, arrays, strict=True))
        made = self.session.run(None, {i.name: given[i.name] for i in self.session.get_inputs()})
        facts = [[(y.shape, y.dtype) for y in row] for row in (made, wanted)]
        assert facts[0] == facts[1], f"the model gives {facts[0]} instead of {facts[1]}"
        check_all_close(made, wanted, max(tolerance(y.dtype) for y in wanted), "the result")


def freed(op, sample):
    """A call whose arrays share their first size, which is free; None where none can be."""
    call, arrays = call_of(op, sample)
    sizes = {n for x in arrays for n in x.shape[:1] if n > 1}
    sizes -= {n for x in arrays for n in x.shape[1:]}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    free = [x.shape[:1] == (size,) for x in arrays]
    specs = [
        ef.TensorSpec(("n", *x.shape[1:]) if own else x.shape, x.dtype)
        for x, own in zip(arrays, free, strict=True)
    ]
    try:
        graph = ef.capture.trace(call, *specs)
    except EagerflowError:  # that size has to be known
        return None
    if not any("n" in map(str, v.shape) for v in graph.outputs):
        return None
    return Freed(call, arrays, free, list(graph.inputs.names), session_of(model_of(graph)))
