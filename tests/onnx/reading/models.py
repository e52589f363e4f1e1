"""Small models, written in ONNX's own text form or put together node by node."""

import numpy as np
import pytest

import eagerflow as ef

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

HEADER = '<ir_version: 10, opset_import: ["" : {opset}]>\n'


def parsed(text, opset=21):
    """A model from ONNX's text form; its header may be left out."""
    if not text.lstrip().startswith("<"):
        text = HEADER.format(opset=opset) + text
    return onnx.parser.parse_model(text)


def imported(model, **how):
    """The graph of a model or of its text, which passes the checks of graphs."""
    model = parsed(model) if isinstance(model, str) else model
    graph = ef.capture.import_onnx(model.SerializeToString(), **how)
    graph.check()
    return graph


def run(graph, **feeds):
    """The outputs of a graph as arrays, by name."""
    names = list(graph.outputs.names)
    found = ef.capture.Session(graph).run(names, feeds)
    return {name: x.numpy() for name, x in zip(names, found, strict=True)}


def reference(model, **feeds):
    """The results of ONNX's own evaluator, by name."""
    from onnx.reference import ReferenceEvaluator

    model = parsed(model) if isinstance(model, str) else model
    names = [info.name for info in model.graph.output]
    return dict(zip(names, ReferenceEvaluator(model).run(None, feeds), strict=True))


def agree(model, *, how=None, **feeds):
    """The graph of a model, checked against ONNX's evaluator."""
    graph = imported(model, **(how or {}))
    found, wanted = run(graph, **feeds), reference(model, **feeds)
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        assert found[name].dtype == x.dtype
        np.testing.assert_allclose(found[name], x, rtol=1e-5, atol=1e-6)
    return graph


def weights(rng, *shape):
    return rng.standard_normal(shape).astype("float32")
