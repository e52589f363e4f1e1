"""The GraphDef of a graph holds the graph: nodes, edges, shapes, devices, scopes and bodies."""

import re

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.graph.ir import Value
from eagerflow.graph.walk import nodes_within

pytest.importorskip("tensorboard")
from tensorboard.compat.proto.graph_pb2 import GraphDef

from eagerflow.summary.graphs import graph_def
from tests.summary import reading


def drawn(graph):
    made = GraphDef.FromString(graph_def(graph))
    nodes = {node.name: node for node in made.node}
    assert len(nodes) == len(made.node)
    for node in made.node:
        assert re.fullmatch(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*", node.name), node.name
        for given in node.input:
            source, _, number = given.lstrip("^").partition(":")
            shapes = nodes[source].attr["_output_shapes"].list.shape
            assert given[0] == "^" or int(number or 0) < len(shapes)
    return nodes


def shapes(node):
    return [[d.size for d in s.dim] for s in node.attr["_output_shapes"].list.shape]


def trained_step():
    model = ef.nn.Sequential(
        [ef.nn.Input((4,)), ef.nn.Dense(8, "relu", name="hidden"), ef.nn.Dense(2, name="out")],
        name="net",
    )
    model.compile("adam", "mse")
    model.fit(np.ones((8, 4), "float32"), np.ones((8, 2), "float32"), verbose=0)
    return model.step_graphs("train")[-1]


def test_every_node_and_edge_of_a_training_step_is_there():
    graph = trained_step()
    nodes = drawn(graph)
    for node in graph.nodes:
        made = nodes[node.name]
        assert made.op == node.op.name
        assert shapes(made) == [list(v.shape) for v in node.outputs]
        sources = [
            v.name if v.node is None else v.node.name + (f":{v.index}" if v.index else "")
            for v in node.inputs
            if type(v) is Value
        ]
        assert list(made.input) == sources
        assert made.attr["source"].s.decode() == node.place
    for cell in graph.cells:
        assert nodes[cell.value.name].op == "Variable"
        if cell.assigned is not None:
            assert nodes[f"{cell.name}/assign"].input[0] == cell.value.name
    assert {n.op for n in nodes.values() if "/" not in n.name} >= {"Placeholder", "mean"}
    assert {n.device for n in nodes.values()} == {"/job:local/task:0/device:cpu:0"}
    assert nodes["net/hidden/matmul"].op == nodes["gradient/matmul"].op == "matmul"


def test_gradients_have_a_scope_of_their_own():
    graph = trained_step()
    names = [node.name for node in graph.nodes]
    marked = [n for n in names if n.startswith("gradient/")]
    forward = names.index("mean")
    update = next(i for i, n in enumerate(names) if n.startswith("adam_update"))
    assert "gradient/ones_like" in marked
    assert all(not n.startswith("gradient/") for n in [*names[: forward + 1], *names[update:]])
    assert all(n in marked for n in names if n.endswith("_gradient"))


def flow(x):
    c, ys = ef.scan(lambda c, v: (ef.tanh(c) + v, c), ef.zeros(3), x)
    n = ef.while_loop(lambda n: n.sum() < 9.0, lambda n: n * 2.0, ef.ones(3))
    return ef.cond(c.sum() > 0.0, lambda: c * n, lambda: -c), ys


def test_bodies_are_scopes_within_their_nodes():
    graph = ef.capture.trace(flow, ef.TensorSpec(("n", 3), "float32"))
    nodes = drawn(graph)
    inside = {"scan/body/tanh", "while_loop/cond/less", "while_loop/body/multiply"}
    inside |= {"cond/true_graph/multiply", "cond/false_graph/negative"}
    assert inside <= set(nodes)
    assert list(nodes["scan/body/init"].input) == ["zeros"]
    assert list(nodes["scan/body/xs"].input) == ["x"]
    assert "^scan/body/add" in nodes["scan"].input
    assert shapes(nodes["x"]) == [[-1, 3]]
    entries = {"Placeholder", "Variable", "Const", "Input", "Output"}
    calls = [n for n in nodes.values() if n.op not in entries]
    assert len(calls) == len(list(nodes_within(graph)))


def test_facts_of_nodes_are_attributes():
    def f(x):
        with ef.capture.scope("a b:ü"):
            y = ef.sum(x, axis=0, keepdims=True)
        return (y * 2.5).astype("float64")

    nodes = drawn(ef.capture.trace(f, ef.TensorSpec((2, 3), "float32")))
    total = nodes["a_b_/sum"]
    assert total.attr["keepdims"].b and total.attr["axis"].i == 0
    assert nodes["multiply"].attr["x2"].f == 2.5
    assert nodes["astype"].attr["dtype"].type == 2  # DT_DOUBLE


def test_pins_are_devices(monkeypatch):
    devices = __import__("eagerflow.devices", fromlist=["device_types"])
    monkeypatch.setattr(devices.device_types["cpu"], "logical", None)
    ef.set_logical_devices("cpu", 2)

    def f(x):
        with ef.device("cpu:1"):
            return ef.tanh(x) * 2.0

    nodes = drawn(ef.capture.trace(f, ef.TensorSpec((2,), "float32")))
    assert nodes["tanh"].device == "/job:local/task:0/device:cpu:1"
    assert nodes["x"].device == "/job:local/task:0/device:cpu:0"


def test_a_writer_takes_graphs_functions_and_models(tmp_path):
    model = ef.nn.Sequential([ef.nn.Input((4,)), ef.nn.Dense(2, name="out")])
    step = ef.function(lambda x: ef.tanh(x))
    step(ef.ones(3))
    for i, what in enumerate([step, step.graphs[0], model]):
        with ef.summary.Writer(tmp_path / str(i)) as w:
            w.graph(what)
        (found,) = [e.graph_def for e in reading.events(tmp_path / str(i)) if e.graph_def]
        names = [node.name for node in GraphDef.FromString(found).node]
        assert any(n.endswith("matmul" if what is model else "tanh") for n in names)


def test_thousands_of_nodes(tmp_path):
    def f(x):
        for i in range(50):
            with ef.capture.scope(f"block{i}"):
                for _ in range(50):
                    x = ef.tanh(x) * 1.5
        return x

    nodes = drawn(ef.capture.trace(f, ef.TensorSpec((3,), "float32")))
    assert len(nodes) == 5000 + 2
