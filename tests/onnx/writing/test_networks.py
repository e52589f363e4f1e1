"""Networks out, in again, and equal: values in ONNX Runtime, values and gradients here."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow import tree
from tests.nn.predictions import prediction
from tests.nn.test_networks import ROWS
from tests.onnx.writing.models import exported, run

UNITS = 3e-5  # of the largest number of a result: sums have another order elsewhere


def close(a, b, units=UNITS):
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=0, atol=units * max(1e-3, np.abs(b).max()))


def gradients(graph, xs):
    """Of the sum of cosines of what a graph gives, by its inputs that are floats."""
    with ef.GradientTape() as tape:
        for x in xs:
            if x.dtype.kind == "f":
                tape.watch(x)
        total = ef.sum(ef.cos(tree.flatten(graph(*xs))[0][0]))
    return tape.gradient(total, [x for x in xs if x.dtype.kind == "f"])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ROWS)
def test_networks(name, tmp_path):
    graph, xs = prediction(name)
    exported(graph, tmp_path / "model.onnx")
    wanted = ef.capture.Session(graph).run(
        list(graph.outputs.names), dict(zip(graph.inputs.names, xs, strict=True))
    )
    feeds = {key: x.numpy() for key, x in zip(graph.inputs.names, xs, strict=True)}
    found = run(tmp_path / "model.onnx", feeds)
    assert tuple(found) == graph.outputs.names
    for y, x in zip(found.values(), wanted, strict=True):
        close(y, x.numpy())

    back = ef.capture.import_onnx(tmp_path / "model.onnx")
    assert back.inputs.names == graph.inputs.names
    assert back.outputs.names == graph.outputs.names
    assert [v.shape for v in back.inputs] == [v.shape for v in graph.inputs]
    again = ef.capture.Session(back).run(list(back.outputs.names), feeds)
    for y, x in zip(again, wanted, strict=True):
        close(y.numpy(), x.numpy())
    for a, b in zip(gradients(back, xs), gradients(graph, xs), strict=True):
        close(a.numpy(), b.numpy(), 10 * UNITS)

    exported(back, tmp_path / "again.onnx")  # and what came in goes out
    for y, x in zip(run(tmp_path / "again.onnx", feeds).values(), wanted, strict=True):
        close(y, x.numpy())
