"""Graphs for given sizes: numbers everywhere, nothing else changed, in linear time."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dims import Dim
from eagerflow.errors import ShapeError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Node, Value, Values
from eagerflow.graph.sizes import concrete
from eagerflow.op import ops
from tests.capture.passes.test_equality import computed
from tests.capture.passes.test_passes import call_op as call_op
from tests.contract.cases import check_same_bits


def sizes_of(graph):
    """All sizes in shapes, and everything in attributes, of a graph and its bodies."""
    found = [n for v in (*graph.all_inputs(), *graph.outputs) for n in v.shape]
    waiting = []
    for node in graph.nodes:
        found += [n for v in node.outputs for n in v.shape]
        waiting += node.attributes.values()
    while waiting:
        item = waiting.pop()
        if isinstance(item, tuple):
            waiting += item
        elif isinstance(item, slice):
            waiting += [item.start, item.stop, item.step]
        elif isinstance(item, Graph):
            found += sizes_of(item)
        else:
            found.append(item)
    return found


def program(x, w):
    with ef.capture.scope("first"):
        h = ef.reshape(x @ w, (-1,))
        h = ef.broadcast_to(ef.sum(h, keepdims=True), (x.shape[0], 2))
    y = h[: x.shape[0] - 1] + ef.zeros((x.shape[0] - 1, 2))
    return {"y": y, "x": x, "known": ef.tensor([1.0]) * 2, "word": "same"}


def free(dtype="float32"):
    return ef.TensorSpec(("n", 3), dtype), ef.TensorSpec((3, 2), dtype)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_numbers_take_the_place_of_names(n):
    graph = ef.capture.trace(program, *free())
    found = concrete(graph, {"n": n})
    found.check()
    assert any(isinstance(size, Dim) for size in sizes_of(graph))
    assert not any(isinstance(size, Dim) for size in sizes_of(found))
    rng = np.random.default_rng(n)
    x, w = (ef.asarray(rng.random(s).astype("float32")) for s in [(n, 3), (3, 2)])
    expected = program(x, w)
    wanted = [expected[k].numpy() for k in ("y", "x", "known")]
    check_same_bits(computed(found, [x, w]), wanted, "filled")


def test_everything_else_stays():
    counter = ef.Variable(ef.zeros((2,)), name="counter")

    def f(x, w):
        counter.assign(counter + ef.sum(x @ w, axis=0))
        with ef.device(ef.devices()[0]):
            return program(x, w)

    graph = ef.capture.trace(f, *free())
    found = concrete(graph, {"n": 4})
    found.check()
    assert [n.name for n in found.nodes] == [n.name for n in graph.nodes]
    assert [n.source for n in found.nodes] == [n.source for n in graph.nodes]
    assert [n.device for n in found.nodes] == [n.device for n in graph.nodes]
    assert found.outputs.names == graph.outputs.names and found.inputs.names == graph.inputs.names
    assert found.variables == graph.variables
    (cell,) = found.cells
    assert cell.assigned in {v for n in found.nodes for v in n.outputs}
    assert found.nest([1, 2, 3]) == {"y": 1, "x": 2, "known": 3, "word": "same"}
    assert found.inputs["w"] is graph.inputs["w"]  # what has no names is shared
    shared = {id(n) for n in graph.nodes} & {id(n) for n in found.nodes}
    assert shared, "nodes that depend on no name are made anew"
    assert any(isinstance(size, Dim) for size in sizes_of(graph)), "the graph itself was changed"


def test_without_names_it_is_the_graph():
    graph = ef.capture.trace(program, ef.TensorSpec((4, 3), "float32"), free()[1])
    assert concrete(graph, {}) is graph
    assert concrete(graph, {"n": 3}) is graph
    filled = concrete(ef.capture.trace(program, *free()), {"n": 3})
    assert concrete(filled, {}) is filled


def test_names_without_a_size():
    graph = ef.capture.trace(program, *free())
    with pytest.raises(ShapeError, match="'n' was not given"):
        concrete(graph, {"m": 3})


def test_quotients_and_sums_of_names():
    spec = ef.TensorSpec(("n", "m"), "float32")
    graph = ef.capture.trace(lambda x: ef.concat([x, x[::2]], axis=0).reshape((-1,)), spec)
    found = concrete(graph, {"n": 5, "m": 3})
    found.check()
    assert found.outputs[0].shape == (24,)


def test_bodies_are_filled_once(call_op):
    """A body that two nodes hold stays one graph; those without names are shared."""
    body = ef.capture.trace(ef.tanh, ef.TensorSpec(("n",), "float32"))
    fixed = ef.capture.trace(ef.exp, ef.TensorSpec((3,), "float32"))
    x = Value("x", (Dim("n"),), np.dtype("float32"))
    nodes = []
    for i, held in enumerate((body, body, fixed)):
        node = Node(call_op, (x,), {"body": held}, f"call_{i}")
        node.outputs = (Value(f"call_{i}", held.outputs[0].shape, x.dtype, node=node),)
        nodes.append(node)
    graph = Graph("f", Values([x]), nodes, Values([n.outputs[0] for n in nodes]))
    found = concrete(graph, {"n": 3})
    found.check()
    first, second, third = (n.attributes["body"] for n in found.nodes)
    assert first is second is not body and first.inputs[0].shape == (3,)
    assert third is fixed
    assert not any(isinstance(size, Dim) for size in sizes_of(found))


def test_every_kind_of_attribute():
    """Sizes hide in tuples, in slices, and in tuples of slices."""
    n = Dim("n")
    x = Value("x", (n, 4), np.dtype("float32"))
    attributes = {"index": (slice(0, n, None), 2)}
    node = Node(ops["getitem"], (x,), attributes, "getitem")
    node.outputs = (Value("getitem", (n,), x.dtype, node=node),)
    found = concrete(Graph("f", Values([x]), [node], Values(node.outputs)), {"n": 6})
    assert found.nodes[0].attributes == {"index": (slice(0, 6, None), 2)}
    assert found.outputs[0].shape == (6,)
