"""Each rule of graphs is checked: sound graphs pass, and a graph with one fault is refused."""

import numpy as np
import pytest

import eagerflow as ef
from eagerflow.dims import Dim
from eagerflow.errors import CaptureError
from eagerflow.graph.graph import Graph
from eagerflow.graph.ir import Cell, Node, Value, Values
from eagerflow.op import REQUIRED, custom_op, ops
from eagerflow.tree import flatten
from tests.contract.cases import shipped
from tests.graph.graphs import calls_of

float32, float64 = np.dtype("float32"), np.dtype("float64")
VALUE_DEPENDENT = ("nonzero",)  # ops whose results have a shape that no trace can know


def spec(*shape, dtype="float32", name=None):
    return ef.TensorSpec(shape, dtype, name=name)


def sound():
    """A graph with all kinds of parts, new for each test."""
    w = ef.Variable(ef.ones((3, 2)), name="w")

    def f(x, y):
        h = ef.tanh(x @ w)
        w.assign(w * 0.5)
        best, places = ef.top_k(h, 1)
        kept = ef.where(h > 0.0, h, y)
        return {"best": best, "places": places, "s": ef.sum(kept * ef.tensor([1.0, 2.0]), axis=0)}

    return ef.capture.trace(f, spec("batch", 3), spec("batch", 2), name="f")


def node(graph, name):
    return next(n for n in graph.nodes if n.name == name)


def test_a_sound_graph_passes():
    graph = sound()
    assert graph.check() is None
    assert {n.op.name for n in graph.nodes} >= {"matmul", "top_k", "where", "sum"}


def test_edited_graphs_pass_the_check():
    graph = sound()
    graph.prune("s").check()
    graph.rename({"x": "image"}).check()


# Planted faults -----------------------------------------------------------------------------------


def put(part, /, **values):
    for name, value in values.items():
        setattr(part, name, value)


def at(node_name, **values):
    """Other values of a node."""
    return lambda graph: put(node(graph, node_name), **values)


def attribute(name, **values):
    """Other attributes of a node."""
    return lambda graph: node(graph, name).attributes.update(values)


def result(**values):
    """Other values of what the node tanh makes."""
    return lambda graph: put(node(graph, "tanh").outputs[0], **values)


def given(number, **values):
    """Other values of an input."""
    return lambda graph: put(graph.inputs[number], **values)


def cell(**values):
    """Other values of the cell of w."""
    return lambda graph: put(graph.cells[0], **values)


def constant(array):
    return lambda graph: put(graph.constants[0], constant=array)


def outputs(names, first=None):
    """Other names of the outputs, or another first one."""

    def plant(graph):
        values = graph.outputs if first is None else [first, *graph.outputs[1:]]
        graph.outputs = Values(values, names or graph.outputs.names)

    return plant


def one_more_input(made):
    return lambda graph: put(graph, inputs=Values([*graph.inputs, made(graph)], ["x", "y", "z"]))


def swap_nodes(graph):
    nodes = list(graph.nodes)
    i = nodes.index(node(graph, "tanh"))
    nodes[i - 1 : i + 1] = nodes[i], nodes[i - 1]
    graph.nodes = tuple(nodes)


def deep_attribute(graph):
    axis = 0
    for _ in range(5_000):
        axis = (axis,)
    node(graph, "sum").attributes["axis"] = axis


def second_cell(graph):
    other = Cell(graph.cells[0].name, None, Value("other", (3, 2), float32))
    graph.cells += (other,)


# What is planted, words of the error, and the node that it names, or the graph.
FAULTS = {
    "swapped nodes": (swap_nodes, "matmul, which does not exist yet", "tanh"),
    "a node twice": (lambda g: put(g, nodes=(*g.nodes, g.nodes[-1])), "sum is made twice", "sum"),
    "a name twice": (result(name="x"), "the name 'x' is taken", "tanh"),
    "no name": (result(name=""), "has the name ''", "tanh"),
    "no name of a node": (at("tanh", name=None), "it has the name None", None),
    "an unknown op": (lambda g: put(node(g, "tanh"), op=custom_op("theirs", lambda g: g)),
                      "there is no op 'theirs'", "tanh"),
    "no op": (at("tanh", op=None), "there is no op 'None'", "tanh"),
    "too many inputs": (lambda g: put(node(g, "tanh"), inputs=node(g, "tanh").inputs * 2),
                        "it has 2 inputs", "tanh"),
    "too few inputs": (lambda g: put(node(g, "matmul"), inputs=node(g, "matmul").inputs[:1]),
                       "it has 1 inputs", "matmul"),
    "no input": (at("tanh", inputs=(None,)), "x is missing", "tanh"),
    "an odd input": (at("tanh", inputs=("three",)), "x is 'three'", "tanh"),
    "an array as input": (at("tanh", inputs=(np.ones(3),)), "x is array", "tanh"),
    "a foreign value": (at("tanh", inputs=(Value("alien", (Dim("batch"), 2), float32),)),
                        "x is alien, which does not exist", "tanh"),
    "a wrong dtype": (given(0, dtype=np.dtype("bool")), "dtype that the op does not take",
                      "matmul"),
    "mixed dtypes": (given(1, dtype=float64), "its inputs have different dtypes", "where"),
    "a strange attribute": (attribute("sum", colour="red"),
                            "its attributes are not those of the op", "sum"),
    "a missing attribute": (lambda g: node(g, "sum").attributes.pop("axis"),
                            "its attributes are not those of the op", "sum"),
    "an attribute not given": (attribute("top_k", k=REQUIRED), "the attribute k is not given",
                               "top_k"),
    "a list": (attribute("sum", axis=[0]), "the attribute axis holds a list", "sum"),
    "a function": (attribute("sum", axis=(0, print)), "the attribute axis holds a builtin", "sum"),
    "a deep attribute": (deep_attribute, "too deep", "sum"),
    "no attributes": (at("sum", attributes=None), "its attributes are None", "sum"),
    "a wrong axis": (attribute("sum", axis=7), "axis 7 does not exist", "sum"),
    "a senseless attribute": (attribute("sum", axis=slice(None)),
                              "the attribute axis is not valid for the op", "sum"),
    "a wrong shape": (result(shape=(3,)), "its outputs are not those of the op", "tanh"),
    "a wrong size": (result(shape=(Dim("other"), 2)), "its outputs are not those of the op",
                     "tanh"),
    "a wrong dtype of a result": (result(dtype=float64), "its outputs are not those of the op",
                                  "tanh"),
    "a missing output": (lambda g: put(node(g, "top_k"), outputs=node(g, "top_k").outputs[:1]),
                         "its outputs are not those of the op", "top_k"),
    "no outputs": (at("tanh", outputs=()), "its outputs are not those of the op", "tanh"),
    "a wrong index": (lambda g: put(node(g, "top_k").outputs[1], index=0),
                      "does not say that it is output 1", "top_k"),
    "a wrong maker": (lambda g: put(node(g, "tanh").outputs[0], node=node(g, "matmul")),
                      "does not say that it is output 0", "tanh"),
    "an odd shape": (given(0, shape=[3]), "x has the shape", "f"),
    "a negative size": (given(0, shape=(-1, 3)), "x has the shape", "f"),
    "an odd dtype": (given(0, dtype=np.dtype("datetime64[s]")), "x has the dtype", "f"),
    "an odd device": (given(0, device=3), "x is to be on 3", "f"),
    "an odd device of a node": (at("tanh", device=3), "it is to run on 3", "tanh"),
    "a constant input": (given(0, constant=ef.ones((2, 3))), "the input x is a constant", "f"),
    "an input twice": (one_more_input(lambda g: g.inputs[0]), "x is made twice", "f"),
    "names of inputs twice": (lambda g: put(g, inputs=Values(g.inputs, ["x", "x"])),
                              "inputs do not have a name each", "f"),
    "an odd entry": (one_more_input(lambda g: 3.0), "an input is 3.0", "f"),
    "another constant": (constant(ef.ones((3,))), "constant does not match its array", "f"),
    "a constant without shape": (constant(3.0), "constant does not match its array", "f"),
    "another Variable": (cell(variable=ef.Variable(ef.ones((2, 3)), name="w")),
                         "Variable w is not as the graph says", "f"),
    "a Variable of a node": (lambda g: put(g.cells[0].value, node=g.nodes[0]),
                             "Variable w is a constant, or a node makes it", "f"),
    "the name of a Variable": (cell(name="x"), "the name 'x' of a Variable is taken", "f"),
    "a misfit assigned": (lambda g: put(g.cells[0], assigned=node(g, "tanh").outputs[0]),
                          "does not match it", "tanh"),
    "a foreign assigned value": (cell(assigned=Value("alien", (3, 2), float32)),
                                 "is not a value of the graph", "f"),
    "an odd assigned value": (cell(assigned=3.0), "an output or an assigned value is 3.0", "f"),
    "an odd output": (outputs(None, 3.0), "an output or an assigned value is 3.0", "f"),
    "a foreign output": (outputs(None, Value("alien", (), float32)),
                         "the output best is not a value", "f"),
    "names of Variables twice": (second_cell, "its Variables do not have a name each", "f"),
    "names of outputs twice": (outputs(["a", "a", "b"]), "outputs do not have a name each", "f"),
    "results in another order": (lambda g: put(g, results=(*g.results[1:], g.results[0])),
                                 "values in its result are not its first outputs", "f"),
    "another structure": (lambda g: put(g, structure=flatten([1, 2, 3, 4])[1]),
                          "3 leaves, and its structure 4", "f"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plant, words, where = FAULTS[fault]
    graph = sound()
    graph.check()
    plant(graph)
    with pytest.raises(CaptureError) as caught:
        graph.check()
    assert words in caught.value.problem
    if where is not None:
        assert caught.value.problem.startswith(where)
    if where not in (None, "f"):  # a node's fault names the user's line
        assert "test_check.py:" in caught.value.at


def loop_of(body):
    """A graph whose only node holds another graph, as an op of control flow does."""
    graph = ef.capture.trace(lambda x: ef.tanh(x), spec(3), name="outer")
    graph.nodes[0].attributes["body"] = body
    return graph


@pytest.fixture
def tanh_with_body(monkeypatch):
    monkeypatch.setitem(ops["tanh"].attributes, "body", None)
    monkeypatch.setattr(ops["tanh"], "infer", lambda x, body=None: ef.TensorSpec(x.shape, x.dtype))


def test_faults_in_bodies_are_found(tanh_with_body):
    inner = ef.capture.trace(lambda x: ef.sum(x, axis=0), spec(3), name="inner")
    graph = loop_of((1, inner))
    graph.check()
    inner.nodes[0].attributes["axis"] = 7
    with pytest.raises(CaptureError, match=r"^tanh\.body\[1\]: sum = sum\(...\): the op"):
        graph.check()


def test_bodies_in_bodies_have_no_bottom(tanh_with_body):
    graph = ef.capture.trace(lambda x: ef.sum(x, axis=0), spec(3), name="inner")
    innermost = graph
    for _ in range(3_000):
        graph = loop_of(graph)
    graph.check()
    innermost.nodes[0].attributes["axis"] = 7
    with pytest.raises(CaptureError, match="axis 7"):
        graph.check()


def test_a_body_in_many_places_is_checked_once(tanh_with_body):
    graph = ef.capture.trace(lambda x: ef.sum(x, axis=0), spec(3), name="inner")
    for _ in range(60):  # 2 ** 60 ways down
        graph = loop_of((graph, graph))
    graph.check()


def test_variables_may_be_missing():
    x = Value("x", (3,), float32)
    cell = Cell("w", None, Value("w", (3,), float32))
    made = Node(ops["add"], (x, cell.value), {}, "add")
    made.outputs = (Value("add", (3,), float32, None, made),)
    graph = Graph("f", Values([x]), [made], Values(made.outputs, ["y"]), [cell])
    graph.check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", shipped(), ids=lambda op: op.name)
def test_a_call_of_any_op_passes_and_can_be_read(op):
    graphs = calls_of(op)
    assert graphs or op.name in VALUE_DEPENDENT
    for graph in graphs:
        graph.check()
        assert f"{op.name}(" in str(graph) and graph.costs().flops >= 0
        if len(graph.inputs) == len(set(graph.prune(list(graph.outputs)).inputs)):
            assert not graph.diff(graph.prune(graph.nest(graph.outputs)))
